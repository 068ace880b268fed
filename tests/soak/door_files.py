"""Door files: damaged and replaced files, and files and models that are cut while heed reads them."""

import functools
import os
import pathlib
import shutil

import numpy as np
from calls import Call
from door_command import WANTED, results, words_of
from programs import heed, right

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"


def damaged(rng, data):
    """The bytes with a few changes."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        kind, at = int(rng.integers(4)), int(rng.integers(len(data) + 1))
        near = min(at, int(rng.integers(160))) if rng.random() < 0.7 else at  # most of what can go wrong is in the header
        if kind == 0:
            del data[at:]
        elif kind == 1 and data:
            data[min(near, len(data) - 1)] = int(rng.integers(256))
        elif kind == 2:
            data[near:near] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8))
        else:
            del data[near:near + int(rng.integers(1, 9))]
    return bytes(data)


def numpy_reads(path):
    try:
        return np.load(path, allow_pickle=False)
    except Exception:  # noqa: BLE001: whatever NumPy says, it refuses
        return None


def damage(rng, folder):
    """heed must refuse what NumPy refuses, in one sentence, and read what it accepts as NumPy does."""
    call = Call(rng, dtypes=("f32",), packed=False)
    call.options = {}
    for name in ("query", "key", "value"):
        np.save(folder / f"{name}.npy", getattr(call, name))
    path = folder / "key.npy"
    path.write_bytes(damaged(rng, path.read_bytes()))
    theirs = numpy_reads(path)
    words = [word for name in ("query", "key", "value") for word in (f"--{name}", f"{name}.npy")]
    ended = heed(folder, "attend", *words, "--dtype", "f32", *WANTED)
    if ended.code != 0:
        assert ended.is_refusal(), str(ended)
        assert not (folder / "got-out.npy").exists(), "a refused call wrote a file"
        return {"refused": 1}
    assert theirs is not None, f"heed read a file that NumPy refuses: {path.read_bytes()[:140]!r}"
    with np.errstate(over="ignore", invalid="ignore"):
        call.key = theirs.astype(np.float32)
    if np.isfinite(call.key).all() and np.abs(call.key).max(initial=0) < 1e4:
        call.check(results(folder))
    return {"read although changed": 1}


def cut(rng, folder):
    """The file is cut or replaced while a command reads it: a right answer or one sentence, never a crash."""
    call = Call(rng, dtypes=("f32",), lengths=(700, 1500), packed=False, batches=(1,))
    call.options = {}
    words = words_of(rng, call, folder)
    paths = sorted({folder / word.split(":")[0] for word in words if not word.startswith("--")})
    path = paths[int(rng.integers(len(paths)))]
    data = path.read_bytes()

    def act(process):
        if rng.random() < 0.7:
            os.truncate(path, int(rng.integers(len(data))))
        else:
            os.replace(folder / "other", path)

    (folder / "other").write_bytes(data)
    question = ["attend"] if rng.random() < 0.5 else ["look", "--json"]
    wanted = ["--lse", "lse.npy", "--out", "out.npy"] if question == ["attend"] else []
    ended = heed(folder, *question, *words, *wanted, after=float(rng.uniform(0, 0.15)), act=act)
    if ended.code == 0:
        if question == ["attend"]:
            path.write_bytes(data)
            call.check({"out": np.load(folder / "out.npy"), "lse": np.load(folder / "lse.npy")})
        return {"read before the cut": 1}
    assert ended.is_refusal(), str(ended)
    return {"refused the cut file": 1}


@functools.cache
def story(folder):
    """What the model writes in peace."""
    return right(heed(folder, "generate", MODELS / "stories", "--tokens", 60, "--temperature", 0)).output


def cut_model(rng, folder):
    """The mapped weights of a model are cut while it runs: its text, or one sentence."""
    model = shutil.copytree(MODELS / "stories", folder / "model") / "model.safetensors"
    # The rest of a page that is cut reads as zeros, so at least a page is taken away.
    size = int(rng.integers(model.stat().st_size - 8192))
    ended = heed(folder, "generate", "model", "--tokens", 60, "--temperature", 0, after=float(rng.uniform(0, 0.6)),
                 act=lambda process: os.truncate(model, size))
    if ended.code == 0:
        assert ended.output == story(folder), "a model that was cut wrote something else"
        return {"written before the cut": 1}
    assert ended.is_refusal(), str(ended)
    return {"refused the cut model": 1}


def again(rng, folder):
    """A result replaces the file that it was: the second call gives the bytes of the first."""
    call = Call(rng, dtypes=("f32", "f64"))
    words = words_of(rng, call, folder)
    seen = []
    for threads in (1, 3):
        right(heed(folder, "attend", *words, *WANTED, "--threads", threads))
        seen.append((folder / "got-out.npy").read_bytes() + (folder / "got-weights.npy").read_bytes())
    assert seen[0] == seen[1], f"the bytes differ with the number of threads: {call}"
    return {"same bytes": 1}


def call(rng, folder):
    return [damage, damage, cut, cut_model, again][int(rng.integers(5))](rng, folder)
