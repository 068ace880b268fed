"""Builds the tree that holds this folder. A recipe of a registry takes a release instead, with conandata.yml."""
import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir


class Heed(ConanFile):
    name = "heed"
    version = "0.1.0"
    description = "Attention that shows its weights"
    license = "Apache-2.0"
    topics = ("attention", "transformers", "interpretability")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False], "nn": [True, False], "model": [True, False],
               "command": [True, False]}
    default_options = {"shared": False, "fPIC": True, "nn": False, "model": False, "command": False}
    implements = ["auto_shared_fpic"]

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        for folder in ("bench/ceiling", "cli", "cmake", "include", "models", "src"):
            copy(self, f"{folder}/*", root, self.export_sources_folder)
        for file in ("CMakeLists.txt", "LICENSE"):
            copy(self, file, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("nlohmann_json/[>=3.10 <4]", visible=False)
        if self.options.nn:
            self.requires("openblas/[>=0.3.20 <1]")
        if self.options.model:
            self.requires("oniguruma/[>=6.9.8 <7]")
            self.requires("utf8proc/[>=2.8 <3]")
        if self.options.command:
            self.requires("cli11/[>=2.1 <3]", visible=False)

    def validate(self):
        check_min_cppstd(self, 20)
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"os is {self.settings.os}; Linux is expected")
        if self.options.command and not (self.options.nn and self.options.model):
            raise ConanInvalidConfiguration("command is True; it needs nn and model as well")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables.update({
            "HEED_NN": bool(self.options.nn), "HEED_MODEL": bool(self.options.model),
            "HEED_BUILD_CLI": bool(self.options.command), "HEED_BUILD_EXAMPLES": False, "HEED_MPI": False,
            "HEED_PICTURES": False, "HEED_SERVE": False})
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for folder in ("lib/cmake", "lib/pkgconfig", "share/doc"):
            rmdir(self, os.path.join(self.package_folder, folder))

    def package_info(self):
        needed = {"heed": [], "heed_nn": ["openblas::openblas"] if self.options.nn else None,
                  "heed_model": ["oniguruma::oniguruma", "utf8proc::utf8proc"] if self.options.model else None}
        for library, requires in needed.items():
            if requires is None:
                continue
            component = self.cpp_info.components[library]
            component.libs = [library]
            component.requires = requires + ([] if library == "heed" else ["heed"])
            component.system_libs = ["pthread", "dl", "m"]
            component.set_property("cmake_target_name", f"heed::{library}")
            component.set_property("pkg_config_name", library)
            if not self.options.shared:
                component.defines = ["HEED_STATIC"]
