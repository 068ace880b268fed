"""`pip install .`: the wheel has all of the package, and works in an environment of its own."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).parents[2]
CALL = """
import heed, numpy
x = numpy.ones((1, 2, 3, 4), numpy.float32)
assert (heed.attention(x, x, x) == 1).all()
print(heed.__file__, heed.info()["isa"])
"""


def test_pip_makes_a_wheel_that_works_where_it_is_put(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quickly = "--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"  # the kernels have flags of their own
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", quickly,
                    "-w", str(tmp_path), str(ROOT)], check=True, env=environment)
    (wheel,) = tmp_path.glob("heed-*.whl")
    version = re.search(r"project\(heed VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert wheel.name.startswith(f"heed-{version}-cp3")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "installed")
    package = ROOT / "python" / "heed"
    sources = {"heed/" + str(path.relative_to(package)) for suffix in ("py", "pyi", "typed")
               for path in package.rglob("*." + suffix)} | {"heed/py.typed"}
    extension = {name for name in names if name.startswith("heed/_heed.") and name.endswith(".so")}
    assert len(extension) == 1
    assert {name for name in names if ".dist-info/" not in name} == sources | extension
    ran = subprocess.run([sys.executable, "-c", CALL], check=True, cwd=tmp_path, capture_output=True, text=True,
                         env=environment | {"PYTHONPATH": str(tmp_path / "installed")})
    assert ran.stdout.startswith(str(tmp_path / "installed"))


def test_the_extension_shows_nothing_but_its_way_in():
    import heed._heed

    shown = subprocess.run(["nm", "-D", "--defined-only", heed._heed.__file__], check=True, capture_output=True,
                           text=True).stdout.split("\n")
    assert [line.split()[-1] for line in shown if line] == ["PyInit__heed"]
