"""scripts/soak: one call of each door, and that it notices wrong results, crashes and hangs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "soak"))
from calls import Call  # noqa: E402
from measure import Watch  # noqa: E402


def soak(*arguments):
    return subprocess.run([sys.executable, ROOT / "scripts" / "soak", *map(str, arguments)], capture_output=True, text=True,
                          env=os.environ | {"HEED_COMMAND": shutil.which("heed") or "", "OMP_NUM_THREADS": "1"})


def test_a_call_of_each_door_is_right(tmp_path):
    done = soak("--calls", 1, "--seed", 20240611, "--out", tmp_path / "summary.json")
    assert done.returncode == 0, done.stdout
    summary = json.loads((tmp_path / "summary.json").read_text())
    doors = {path.stem.removeprefix("door_") for path in (ROOT / "tests" / "soak").glob("door_*.py")}
    called = {name for name, door in summary["doors"].items() if door["calls"] == 1}
    assert summary["doors"].keys() == doors and doors == called | summary["left out"].keys()
    assert {"python", "command", "caches", "files", "disk", "forks", "training"} <= called
    assert summary["calls"] == len(called) and summary["failures"] == []


DOORS = {
    "right": "return {'rows': 3}",
    "wrong": "raise AssertionError('lse is 1, 2 is expected')",
    "crash": "import os; os.abort()",
    "hang": "import time; time.sleep(600)",
}


def test_what_goes_wrong_is_told_with_the_line_that_repeats_it(tmp_path):
    for name, body in DOORS.items():
        (tmp_path / f"door_{name}.py").write_text(f"def call(rng, folder):\n    {body}\n")
    done = soak("--calls", 2, "--seed", 1, "--doors", tmp_path, "--patience", 3, "--out", tmp_path / "summary.json")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert done.returncode == 1 and summary["doors"]["right"] == {"calls": 2, "failures": 0, "counts": {"rows": 6}}
    told = {failure["door"]: failure for failure in summary["failures"]}
    assert told.keys() == {"wrong", "crash", "hang"} and summary["doors"]["wrong"]["failures"] == 2
    assert "lse is 1, 2 is expected (door_wrong.py:2)" in told["wrong"]["text"]
    assert "the process ended with -6" in told["crash"]["text"] and "no end after 3 s" in told["hang"]["text"]
    for failure in told.values():
        assert f"FAILED {failure['again']}\n" in done.stdout
        assert failure["again"] == f"scripts/soak --door {failure['door']} --seed {failure['seed']} --calls 1"


def test_a_call_is_repeated_alone(tmp_path):
    (tmp_path / "door_draw.py").write_text("def call(rng, folder):\n    return {'drawn': int(rng.integers(10**6))}\n")
    told = [soak("--door", "draw", "--seed", seed, "--calls", 1, "--doors", tmp_path).stdout.splitlines()[-1] for seed in (5, 5, 6)]
    assert told[0] == told[1] != told[2] and json.loads(told[0])["done"]["drawn"] >= 0


def test_a_long_run_tells_what_it_measured(tmp_path):
    done = soak(0.03, "--long", "--door", "serve", "--door", "text", "--out", tmp_path / "long.json")
    assert done.returncode == 0, done.stdout
    runs = json.loads((tmp_path / "long.json").read_text())["runs"]
    assert runs["serve"]["clients"] == 100 and runs["serve"]["answers"] >= 100 and runs["text"]["tokens"] == 300
    assert all(run["MB at most"] > 0 for run in runs.values())


def test_memory_that_grows_is_found():
    watch = Watch(os.getpid(), 1)
    watch.samples = [(50 + min(second, 10), 3, 8) for second in range(100)]  # what is allocated once does not count
    assert watch.check_flat()["MB at the end"] == 60
    watch.samples = [(50 + 0.1 * second, 3, 8) for second in range(100)]
    with pytest.raises(AssertionError, match="memory grew from 52.0 to 59.0 MB"):
        watch.check_flat()


def test_bad_use_is_refused():
    assert "MINUTES or --calls is expected" in soak().stderr
    assert "--door is one of ring, serve, text" in soak(1, "--long", "--door", "caches").stderr
    assert "--door is one of caches, command" in soak(1, "--door", "window").stderr


@pytest.mark.parametrize("name, step", [("out", 1e-3), ("weights", 1e-3), ("lse", 1e-3), ("entropy", 1e-2), ("distance", 1e-2),
                                        ("max_score", 1e-2), ("received", 1e-2), ("received_last", 1e-2)])
def test_a_small_error_in_any_result_is_found(name, step):
    found = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        call = Call(rng, dtypes=("f32",), lengths=(12, 33))
        right = call.expected()[name]
        call.check({name: right.astype(np.float32)})
        at = tuple(rng.integers(0, size) for size in right.shape)
        wrong = right.copy()
        wrong[at] = wrong[at] * (1 + step) + step if np.isfinite(wrong[at]) else 0
        try:
            call.check({name: wrong})
        except AssertionError as told:
            assert f"{name}[" in str(told)
            found += 1
    assert found >= 9  # a few rows have a loose bound, or an error that is smaller than theirs
