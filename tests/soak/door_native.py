"""Door C++ and C: random calls by tests/soak_calls.cpp, forward and backward, on every instruction set."""

import json
import os
import pathlib

import programs

CALLS = pathlib.Path(os.environ.get("HEED_SOAK_CALLS", pathlib.Path(programs.COMMAND).parents[1] / "tests" / "soak_calls"))


def call(rng, folder):
    if not CALLS.exists():
        return {"left out": f"{CALLS.name} is not built"}
    ended = programs.run([CALLS, int(rng.integers(2**31)), 10], folder)
    assert ended.code == 0, f"{ended}\n{ended.output}"
    return json.loads(ended.output)
