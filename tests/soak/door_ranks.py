"""Door ranks: `mpirun -n N heed attend` writes the bytes of one process, and those are right."""

import pathlib
import shutil

from calls import Call
from door_command import WANTED, results, words_of
from programs import COMMAND, heed, right, run

MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
       "OMPI_MCA_mpi_yield_when_idle": "1"}


def lacking():
    """What keeps the command from running over ranks, or None."""
    if not shutil.which("mpirun"):
        return "mpirun is not installed"
    return None if pathlib.Path(COMMAND).with_name("heed-mpi").exists() else "heed has no MPI"


def over_ranks(ranks, folder, *words, **more):
    return run(["mpirun", "-n", ranks, "--oversubscribe", COMMAND, *words], folder, **MPI, **more)


def call(rng, folder):
    if reason := lacking():
        return {"left out": reason}
    call = Call(rng, dtypes=("f32", "f64", "f16"))
    scheme = ["ring", "gather", "automatic"][int(rng.integers(3))]
    # No rank of a ring has all weights of a row.
    wanted = [word for word in WANTED if scheme != "ring" or "weights" not in word]
    words = ["attend", *words_of(rng, call, folder), *wanted]
    right(heed(folder, *words))
    counts = call.check(results(folder))
    alone = {path.name: path.read_bytes() for path in folder.glob("got-*")}
    for path in folder.glob("got-*"):
        path.unlink()
    layout = ["contiguous", "zigzag", "striped"][int(rng.integers(3))]
    ended = over_ranks(int(rng.integers(2, 5)), folder, *words, "--sharding", layout, "--scheme", scheme, "--deterministic")
    right(ended)
    for name, data in alone.items():
        assert (folder / name).read_bytes() == data, f"{name} has other bytes: {ended.words}, {call}"
    return counts
