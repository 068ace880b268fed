"""`pip install .`: the wheel contains the whole package and works in a separate environment."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMMAND = "heed/command/bin/heed"
CALL = """
import heed, numpy
x = numpy.ones((1, 2, 3, 4), numpy.float32)
assert (heed.attention(x, x, x) == 1).all()
print(heed.__file__, heed.info()["isa"])
"""


def test_pip_makes_a_wheel_that_works_where_it_is_put(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quickly = ["--config-settings=cmake.build-type=Debug", "--config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0",
               "--config-settings=cmake.define.HEED_KERNELS=plain"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", *quickly,
                    "-w", str(tmp_path), str(ROOT)], check=True, env=environment)
    (wheel,) = tmp_path.glob("heed_attention-*.whl")
    version = re.search(r"project\(heed VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert wheel.name.startswith(f"heed_attention-{version}-cp3")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = ROOT / "python" / "heed"
    sources = {"heed/" + str(path.relative_to(package)) for suffix in ("py", "pyi", "typed")
               for path in package.rglob("*." + suffix)} | {"heed/py.typed"}
    models = {"heed/command/share/heed/" + str(path.relative_to(ROOT / "models"))
              for path in (ROOT / "models").rglob("*") if path.is_file() and path.name != "README.md"}
    modules = ["_heed"] + ["_heed_mpi"] * (importlib.util.find_spec("heed._heed_mpi") is not None)  # if MPI was found
    extension = {name for name in names if name.endswith(".so")}
    assert sorted(name[5:].partition(".")[0] for name in extension) == modules
    interface = version.rpartition(".")[0] if version.startswith("0.") else version.partition(".")[0]
    libraries = {f"heed/command/lib/lib{name}.so.{interface}" for name in ("heed", "heed_nn", "heed_model")}  # once, no links
    assert {name for name in names if ".dist-info/" not in name} == sources | extension | libraries | models | {COMMAND}

    installed = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed), str(wheel)],
                   check=True, env=environment)
    environment["PYTHONPATH"] = str(installed)

    def output(*command):
        return subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True, env=environment).stdout

    assert output(sys.executable, "-c", CALL).startswith(str(installed))
    for command in ([str(installed / "bin" / "heed")], [sys.executable, "-m", "heed"]):
        assert output(*command, "--version") == f"heed {version}\n"
        assert "predicts not" in output(*command, "explain", "--model", "induction", "to be or not to be or")
    ran = subprocess.run([sys.executable, "-m", "heed", "look"], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert ran.returncode == 2 and not ran.stdout  # the command's exit code


def test_an_sdist_has_the_sources_alone_and_cmake_finds_all_of_them(tmp_path):
    make = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", make, str(tmp_path)], check=True, cwd=ROOT, capture_output=True)
    (sdist,) = tmp_path.glob("heed_attention-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path)
    (folder,) = tmp_path.glob("heed_attention-*[0-9]")
    assert {"build", "docs", "tests", ".git"}.isdisjoint(os.listdir(folder))
    subprocess.run(["cmake", "-S", str(folder), "-B", str(tmp_path / "built"), "-DHEED_BUILD_EXAMPLES=OFF", "-DHEED_MPI=OFF"],
                   check=True, capture_output=True)


def test_without_the_command_its_name_is_said():
    import heed._command

    command = heed._command.COMMAND
    if command.exists():
        pytest.skip("this package was installed with the command")
    ran = subprocess.run([sys.executable, "-m", "heed", "--version"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == f"heed: {command} cannot be run (No such file or directory); a package installed by pip contains it\n"


def test_the_extension_shows_nothing_but_its_way_in():
    import heed._heed

    shown = subprocess.run(["nm", "-D", "--defined-only", heed._heed.__file__], check=True, capture_output=True,
                           text=True).stdout.split("\n")
    assert [line.split()[-1] for line in shown if line] == ["PyInit__heed"]
