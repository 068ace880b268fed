"""heed.distributed on MPI ranks: runs each test of distributed_calls.py in processes of its own."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
CALLS = HERE / "distributed_calls.py"
NAMES = [line[4:line.index("(")] for line in CALLS.read_text().splitlines()
         if line.startswith("def ") and line.endswith("():")]
# Allow root and more ranks than processors; idle ranks must not spin.
OF_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
          "OMPI_MCA_mpi_yield_when_idle": "1"}
MPIRUN = shutil.which("mpirun")
without_mpi = importlib.util.find_spec("heed._heed_mpi") is None or MPIRUN is None
needs_mpi = pytest.mark.skipif(without_mpi or importlib.util.find_spec("mpi4py") is None,
                               reason="heed was built without MPI (libopenmpi-dev), or mpi4py or mpirun is missing")


def python(*arguments, before=(), **environment):
    path = os.pathsep.join([str(HERE.parents[1] / "tests" / "python"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([*before, sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          env=os.environ | OF_MPI | {"PYTHONPATH": path} | environment)


@needs_mpi
@pytest.mark.parametrize("ranks", [1, 3])
def test_calls_over_ranks(ranks):
    ran = python(CALLS, *NAMES, before=(MPIRUN, "-n", str(ranks), "--oversubscribe"))
    assert ran.returncode == 0, ran.stderr
    # mpirun may forward a line and its end apart.
    assert sorted(re.findall(r"rank \d+ is done", ran.stdout)) == [f"rank {rank} is done" for rank in range(ranks)]


def said_on_import(preparation="", **environment):
    ran = python("-c", f"import sys\n{preparation}\ntry:\n    import heed.distributed\nexcept ImportError as error:\n"
                       "    print(error)", **environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is missing")
def test_without_mpi_one_sentence_says_what_to_install(tmp_path):
    package = pathlib.Path(importlib.util.find_spec("heed").origin).parent
    shutil.copytree(package, tmp_path / "heed", ignore=shutil.ignore_patterns("_heed_mpi*"))
    said = said_on_import(PYTHONPATH=str(tmp_path))
    assert said == ("heed was built without MPI; install MPI (Debian: libopenmpi-dev) and build heed again with pip install . in its source folder\n")


def test_without_mpi4py_one_sentence_says_what_to_install():
    said = said_on_import("sys.modules['mpi4py'] = None")
    assert said == "heed.distributed needs mpi4py, which is not installed: pip install mpi4py\n"


@needs_mpi
@pytest.mark.parametrize("library", [("MPICH Version: 4.0.2, of 2022", True), (None, False)])
def test_two_mpi_libraries_in_a_process_are_refused(library):
    ran = python("-c", f"""
from mpi4py import MPI
from heed import distributed
version, is_initialized = {library!r}
theirs = distributed._heed_mpi.library()
distributed._heed_mpi.library = lambda: (version or theirs[0], is_initialized)
try:
    distributed.attention(MPI.COMM_SELF, None, None, None, distributed.Sharding.contiguous(1, 1))
except ImportError as error:
    print(error)
""")
    assert ran.returncode == 0, ran.stderr
    assert "the same library is expected: pip install --no-binary mpi4py mpi4py" in ran.stdout
    assert f"and heed on {(library[0] or 'Open MPI').split(',')[0]!r}"[:-1] in ran.stdout


@pytest.mark.skipif(without_mpi, reason="heed was built without MPI (libopenmpi-dev), or mpirun is missing")
def test_the_extension_shows_nothing_but_its_way_in():
    found = importlib.util.find_spec("heed._heed_mpi").origin
    shown = subprocess.run(["nm", "-D", "--defined-only", found], check=True, capture_output=True, text=True).stdout.split("\n")
    assert [line.split()[-1] for line in shown if line] == ["PyInit__heed_mpi"]
