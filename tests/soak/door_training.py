"""Door training: `heed train` is killed at random points, in one process or over ranks, until a run ends. The folder always
holds a whole checkpoint or none, and the files at the end are those of a training that nobody disturbed."""

import os
import pathlib
import signal
import time

from door_ranks import MPI, lacking
from programs import COMMAND, heed, right, start

TEXT = "the cat sat on the mat. the dog sat on the log. the frog sat on the cog.\n"
FILES = ("model.safetensors", "config.json", "vocabulary.json", "tokenizer.json", "checkpoint.safetensors")
KILLS = 6
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]


def ranks_of(mpirun):
    return [int(pid) for pid in pathlib.Path(f"/proc/{mpirun}/task/{mpirun}/children").read_text().split()]


def disturb(rng, process, ranks):
    """Sends a signal to the process, or kills one rank, after which mpirun ends the others. Returns whether it did."""
    if process.poll() is not None:
        return False
    victims = ranks_of(process.pid) if ranks > 1 else [process.pid]
    if not victims:  # mpirun has not started a rank yet
        return False
    how = signal.SIGKILL if ranks > 1 else SIGNALS[int(rng.integers(len(SIGNALS)))]
    os.kill(victims[int(rng.integers(len(victims)))], how)
    return True


def call(rng, folder):
    (folder / "text.txt").write_text(TEXT)
    steps, every = int(rng.integers(10, 40)), int(rng.integers(1, 5))
    train = [COMMAND, "train", "text.txt", "--layers", "1", "--heads", "2", "--model-dim", "8", "--context", "8",
             "--batch", "4", "--warmup", "3", "--seed", int(rng.integers(1000)), "--steps", steps, "--checkpoint-every", every]
    begun = time.monotonic()
    right(heed(folder, *train[1:], "--out", "whole", "--threads", 1))
    patience = time.monotonic() - begun
    ranks, more = 1, {}
    if rng.random() < 0.2 and not lacking():
        ranks, more, patience = 2, MPI, 3
        train = ["mpirun", "-n", ranks, "--oversubscribe", *train]
    kills = 0
    for attempt in range(KILLS + 1):
        resume = ["--resume"] if (folder / "cut" / "checkpoint.safetensors").exists() else []
        process = start([*train, "--out", "cut", "--threads", int(rng.integers(1, 3)), *resume], folder, **more)
        if attempt < KILLS:
            time.sleep(float(rng.uniform(0, patience)))
            kills += disturb(rng, process, ranks)
        _, errors = process.communicate()
        if (folder / "cut" / "config.json").exists():
            right(heed(folder, "generate", "cut", "--tokens", 3))
        if process.returncode == 0:
            break
    assert process.returncode == 0, f"the training cannot go on after {kills} kills: {errors}"
    for name in FILES:
        assert (folder / "cut" / name).read_bytes() == (folder / "whole" / name).read_bytes(), \
            f"{name} has other bytes after {kills} kills, {ranks} ranks, {steps} steps, a checkpoint every {every}"
    left = [path.name for path in (folder / "cut").iterdir() if path.name.endswith(".tmp")]
    assert not left, f"left: {left}"
    return {"kills": kills, "trainings over ranks": int(ranks > 1)}
