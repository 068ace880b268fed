# Builds the tree that holds this folder: nix-build -E 'with import <nixpkgs> { }; callPackage packaging/nix/package.nix { }'.
# A package of nixpkgs takes a release instead, with fetchFromGitHub.
{
  lib,
  stdenv,
  cmake,
  ninja,
  pkg-config,
  cli11,
  httplib,
  nlohmann_json,
  oniguruma,
  openblas,
  pango,
  utf8proc,
}:

stdenv.mkDerivation {
  pname = "heed";
  version = "0.1.0";

  src = lib.cleanSource ../..;

  nativeBuildInputs = [
    cmake
    ninja
    pkg-config
  ];
  buildInputs = [
    cli11
    httplib
    nlohmann_json
    oniguruma
    openblas
    pango
    utf8proc
  ];

  # Relative folders, because heed.pc computes the prefix from them.
  cmakeFlags = [
    (lib.cmakeBool "HEED_BUILD_EXAMPLES" false)
    (lib.cmakeBool "HEED_MPI" false)
    (lib.cmakeFeature "CMAKE_INSTALL_BINDIR" "bin")
    (lib.cmakeFeature "CMAKE_INSTALL_INCLUDEDIR" "include")
    (lib.cmakeFeature "CMAKE_INSTALL_LIBDIR" "lib")
  ];

  doInstallCheck = true;
  installCheckPhase = ''
    $out/bin/heed explain --model induction to be or not to be or | grep "predicts not"
  '';

  meta = {
    description = "Attention that shows its weights";
    license = lib.licenses.asl20;
    mainProgram = "heed";
    platforms = lib.platforms.linux;
  };
}
