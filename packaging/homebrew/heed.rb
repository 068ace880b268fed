# Builds the tree that holds this folder. A tap takes a release instead, with its homepage, and its archive's url and sha256.
class Heed < Formula
  desc "Attention that shows its weights"
  url "file://#{File.expand_path("../..", __dir__)}", using: :git
  version "0.1.0"
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "cpp-httplib"
  depends_on :linux
  depends_on "oniguruma"
  depends_on "openblas"
  depends_on "pango"
  depends_on "utf8proc"

  def install
    system "cmake", "-G", "Ninja", "-S", ".", "-B", "build", *std_cmake_args,
           "-DHEED_BUILD_EXAMPLES=OFF", "-DHEED_MPI=OFF"
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match "predicts not", shell_output("#{bin}/heed explain --model induction to be or not to be or")
  end
end
