"""Door disk: a disk of a few MB that is nearly full. A result is written whole, or the last good file stays and one
sentence says why. Without the right to mount, a limit on the size of files stands for the disk."""

import ctypes
import functools
import os
import pathlib
import resource
import shutil
import tempfile

import numpy as np
from programs import heed, right

SIZE = 3 << 20
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18


@functools.cache
def disk():
    """A tmpfs that no other process sees, or None. It ends with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = tempfile.mkdtemp()
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return None
    if libc.mount(b"none", folder.encode(), b"tmpfs", 0, f"size={SIZE}".encode()):
        return None
    return pathlib.Path(folder)


def call(rng, folder):
    small = disk()
    place = small or folder / "disk"
    place.mkdir(exist_ok=True)
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    shape = (1, 2, int(rng.integers(1, 300)), 16)
    for name in ("q", "k", "v"):
        np.save(folder / f"{name}.npy", rng.standard_normal(shape, dtype=np.float32))
    (folder / "text.txt").write_text("the cat sat on the mat. " * 40)
    given = ["--query", "q.npy", "--key", "k.npy", "--value", "v.npy"]
    kinds = {
        "w.npy": ["attend", *given, "--weights", "{}/w.npy"],
        "doc.safetensors": ["look", *given, "--save", "{}/doc.safetensors"],
        "page.html": ["look", *given, "--html", "{}/page.html"],
        "model/checkpoint.safetensors": ["train", "text.txt", "--out", "{}/model", "--steps", "6", "--checkpoint-every", "2",
                                         "--layers", "1", "--heads", "2", "--model-dim", "32", "--context", "8", "--warmup",
                                         "2", "--threads", "1"],
    }
    name = list(kinds)[int(rng.integers(len(kinds)))]
    words = lambda where: [word.format(where) for word in kinds[name]]
    right(heed(folder, *words(folder)))
    wanted = (folder / name).read_bytes()
    old = b"" if name.startswith("model") else bytes(rng.integers(0, 256, 1000, dtype=np.uint8))
    if old:
        (place / name).write_bytes(old)
    limits = []
    room = int(rng.integers(0, 2 * len(wanted) + 20000))
    if small:
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        (place / "filler").write_bytes(bytes(max(0, free - room)))
    else:
        limits = [(resource.RLIMIT_FSIZE, room)]
    ended = heed(folder, *words(place), limits=limits)
    kind = "disk" if small else "limit"
    left = [str(path) for path in place.rglob("*") if ".tmp" in path.name]
    assert not left, f"left on a full disk: {left}"
    if ended.code == 0:
        assert (place / name).read_bytes() == wanted, f"{name} on a small {kind} has other bytes"
        return {f"fitted the {kind}": 1}
    assert ended.is_refusal(), str(ended)
    assert "No space left" in ended.errors or "too large" in ended.errors, str(ended)
    if old:
        assert (place / name).read_bytes() == old, f"the last good {name} is lost"
    elif (place / name).exists():  # an earlier checkpoint, from which the training continues elsewhere
        shutil.copytree(place / "model", folder / "moved")
        right(heed(folder, *words(folder)[:3], "moved", "--resume", "--threads", 1))
        assert (folder / "moved" / "checkpoint.safetensors").read_bytes() == wanted, "another checkpoint after a full disk"
    return {f"full {kind}": 1}
