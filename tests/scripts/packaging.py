"""packaging.py ROOT: each recipe of packaging/ has the project's version and licence, and names options that CMake has."""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
project = (root / "CMakeLists.txt").read_text()
version = re.search(r"project\(heed VERSION ([\d.]+)", project).group(1)
cmake = "".join(file.read_text() for file in [root / "CMakeLists.txt", *(root / "cmake").glob("*.cmake")])
options = {name for pair in re.findall(r"option\((HEED_\w+)|set\((HEED_\w+) .*CACHE", cmake) for name in pair if name}
# The patterns of version and licence in each.
recipes = {
    "vcpkg/vcpkg.json": (r'"version": "(.*)"', r'"license": "(.*)"'),
    "conan/conanfile.py": (r' version = "(.*)"', r' license = "(.*)"'),
    "conda-forge/recipe.yaml": (r'  version: "(.*)"', r" license: (.*)"),
    "homebrew/heed.rb": (r' version "(.*)"', r' license "(.*)"'),
    "nix/package.nix": (r' version = "(.*)"', r" license = lib.licenses.(.*);"),
}
packaging = root / "packaging"
for name, (version_line, licence_line) in recipes.items():
    text = (packaging / name).read_text()
    found = re.findall(version_line, text)
    assert found == [version], f"packaging/{name} has version {found}; {version} was expected"
    licence = re.findall(licence_line, text)
    assert licence in (["Apache-2.0"], ["asl20"]), f"packaging/{name} has the licence {licence}"
folders = sorted(folder.name for folder in packaging.iterdir() if folder.is_dir())
assert folders == sorted(name.split("/")[0] for name in recipes), folders
for file in filter(Path.is_file, packaging.rglob("*")):
    if {"build", "__pycache__"} & set(file.relative_to(packaging).parts):
        continue  # conan leaves these
    unknown = set(re.findall(r"HEED_[A-Z_]+", file.read_text())) - options
    unknown.discard("HEED_STATIC")  # defined for programs that link a static library
    assert not unknown, f"{file.relative_to(root)} names {unknown}, which CMake does not have"
print(f"{len(recipes)} recipes of version {version}")
