"""Door command: `heed attend` on files in .npy and safetensors."""

import json

import numpy as np
from calls import ROWS, Call
from programs import heed, right

OPTION = {"softcap": "--softcap", "scale": "--scale", "align": "--align", "query_offset": "--query-offset", "mask": "--mask",
          "bias": "--bias", "alibi": "--alibi-slopes", "sinks": "--sinks", "kv_lengths": "--kv-lengths",
          "segments_q": "--query-segments", "segments_k": "--key-segments"}


def save_safetensors(path, tensors):
    """The format by hand, from its description: 8 bytes of length, a JSON header, the bytes."""
    names = {np.float64: "F64", np.float32: "F32", np.float16: "F16"}
    header, data = {}, b""
    for name, x in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": names[x.dtype.type], "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def words_of(rng, call, folder):
    """The arguments of the call, whose tensors are written to the folder."""
    tensors = {"query": call.query, "key": call.key, "value": call.value}
    words = []
    if rng.random() < 0.5:
        save_safetensors(folder / "x.safetensors", tensors)
        for name in tensors:
            words += [f"--{name}", f"x.safetensors:{name}"]
    else:
        for name, x in tensors.items():
            np.save(folder / f"{name}.npy", np.asfortranarray(x) if rng.random() < 0.3 else x)
            words += [f"--{name}", f"{name}.npy"]
    for name, value in call.options.items():
        if name == "causal":
            words += ["--causal"]
        elif name == "window":
            words += ["--window", f"{value[0]},{value[1]}"]
        elif isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            words += [OPTION[name], f"{name}.npy"]
        else:
            words += [OPTION[name], repr(value) if isinstance(value, float) else value]
    return words


def results(folder):
    """The results that a command wrote as WANTED says."""
    got = {path.stem.removeprefix("got-"): np.load(path) for path in folder.glob("got-*.npy")}
    assert got, "no result was written"
    assert not [path.name for path in folder.iterdir() if ".tmp" in path.name], "a temporary file is left"
    return got


WANTED = [word for name in ("out", "weights", "received", *ROWS)
          for word in (f"--{name.replace('_', '-')}", f"got-{name}.npy")]


def call(rng, folder):
    call = Call(rng, dtypes=("f64", "f32", "f16"))
    right(heed(folder, "attend", *words_of(rng, call, folder), *WANTED, "--threads", int(rng.integers(1, 4))))
    return call.check(results(folder))
