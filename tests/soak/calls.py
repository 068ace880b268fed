"""Random attention calls in NumPy, what they give in f64, and how far a result may be from that."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import attention_oracle  # noqa: E402

try:
    from ml_dtypes import bfloat16
except ModuleNotFoundError:
    bfloat16 = None

# Unit roundoff of scores and sums, and of a stored output.
UNITS = {"f64": (2.0**-53, 2.0**-53), "f32": (2.0**-24, 2.0**-24), "f16": (2.0**-24, 2.0**-11), "bf16": (2.0**-24, 2.0**-8)}
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16} | ({"bf16": bfloat16} if bfloat16 else {})
SLACK = 3  # exp, tanh and log err by up to 2.5 units more than a rounding
LENGTHS = [1, 2, 3, 5, 8, 12, 13, 17, 33, 48, 65]
DIMS = [1, 2, 3, 8, 16, 24, 28, 64, 80]
ROWS = ("lse", "max_score", "entropy", "distance")


def numbers(rng, shape):
    """Six families; uniform numbers would never change the running maximum of a softmax."""
    family = rng.choice(["normal", "spread", "one-hot", "negative", "ascending", "cancelling"])
    x = rng.standard_normal(shape)
    if family == "spread":
        x *= 5
    elif family == "one-hot" and x.size:
        x = np.where(np.arange(shape[-1]) == rng.integers(shape[-1]), 4.0, 0.1 * x)
    elif family == "negative":
        x = -np.abs(x)
    elif family == "ascending":
        x = np.sort(x, axis=-2)
    elif family == "cancelling":
        x *= np.where(np.arange(shape[-2]) % 2, 30, -30)[:, None]
    return x


class Call:
    """query, key, value; dtype by name; `options` with the names of attention_oracle."""

    def __init__(self, rng, dtypes=tuple(DTYPES), lengths=tuple(LENGTHS), packed=True, batches=(1, 1, 2)):
        pick = lambda of: of[int(rng.integers(len(of)))]
        self.dtype = pick(list(dtypes))
        batch, kv_heads, group = pick(batches), pick((1, 2, 3)), pick((1, 1, 2, 4))
        queries, keys, dim, value_dim = pick(lengths), pick(lengths), pick(DIMS), pick(DIMS)
        heads = kv_heads * group
        make = lambda *shape: numbers(rng, shape).astype(DTYPES[self.dtype])
        self.query, self.key = make(batch, heads, queries, dim), make(batch, kv_heads, keys, dim)
        self.value = make(batch, kv_heads, keys, value_dim)
        broad = lambda *shape: tuple(size if rng.random() < 0.5 else 1 for size in shape)
        floats = lambda *shape: rng.standard_normal(shape).astype(np.float64 if self.dtype == "f64" else np.float32)
        may = {
            "causal": lambda: True, "align": lambda: "bottom-right", "scale": lambda: float(rng.uniform(0.05, 1)),
            "softcap": lambda: float(rng.uniform(1, 30)), "query_offset": lambda: int(rng.integers(-3, keys + 3)),
            "window": lambda: (int(rng.integers(-1, keys + 1)), int(rng.integers(-1, keys + 1))),
            "mask": lambda: rng.random(broad(batch, heads, queries) + (keys,)) < rng.uniform(0.2, 1),
            "bias": lambda: floats(*broad(batch, heads, queries), keys),
            "alibi": lambda: np.abs(floats(heads)), "sinks": lambda: floats(heads),
        }
        if packed and batch == 1 and rng.random() < 0.3:
            cut = lambda length, n: np.array([0, *sorted(rng.integers(0, length + 1, n)), length])
            n = int(rng.integers(1, 4))
            may["segments"] = lambda: (cut(queries, n), cut(keys, n))
        else:
            may["kv_lengths"] = lambda: rng.integers(0, keys + 1, batch)
        self.options = {name: value() for name, value in may.items() if rng.random() < 0.25}
        if segments := self.options.pop("segments", None):
            self.options["segments_q"], self.options["segments_k"] = segments
        if "query_offset" in self.options:
            self.options.pop("align", None)
        self.top_k, self.received_last = int(rng.integers(1, 5)), int(rng.integers(1, queries + 1))

    def expected(self):
        found = attention_oracle.attention(self.query, self.key, self.value, top_k=self.top_k, **self.options)
        return {**found, "received_last": found["weights"][:, :, self.last_rows()].sum(-2)}

    def last_rows(self):
        """The rows that received_last sums over: the last ones of each packed sequence."""
        ends = self.options.get("segments_q", np.array([0, self.query.shape[2]]))
        row = np.arange(self.query.shape[2])
        return row >= ends[np.searchsorted(ends, row, side="right")] - self.received_last

    def in_python(self):
        """The keyword arguments of heed.attention."""
        given = dict(self.options)
        if "window" in given:
            given["window"] = tuple(None if side < 0 else side for side in given["window"])
        if "segments_q" in given:
            given["cu_seqlens"] = given.pop("segments_q"), given.pop("segments_k")
        return given

    def row_errors(self, expected):
        """The largest relative error of a weight in each row, [B, H, Lq]: docs/kernel.md derives it."""
        q, k = (np.abs(x.astype(np.float64)) for x in (self.query, self.key))
        k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
        scale = self.options.get("scale", 1 / np.sqrt(q.shape[-1]))
        size = abs(scale) * (q @ k.swapaxes(-1, -2)) + self.options.get("softcap", 0)
        if "bias" in self.options:
            size = size + np.abs(self.options["bias"].astype(np.float64))
        size = np.where(np.isfinite(expected["scores"]), size, 0).max(-1, initial=0)
        if "alibi" in self.options:  # of every row, since a sink is shifted, too; a distance is at most all positions
            far = sum(x.shape[2] for x in (self.query, self.key)) + abs(self.options.get("query_offset", 0))
            size = size + self.options["alibi"].astype(np.float64)[:, None] * far
        if "sinks" in self.options:
            size = size + np.abs(self.options["sinks"].astype(np.float64))[:, None]
        return SLACK * UNITS[self.dtype][0] * (2 * (q.shape[-1] + 3) * size + k.shape[2] + 8)

    def check(self, got):
        """Compares results by name with f64; returns counts of rows."""
        expected = self.expected()
        error = self.row_errors(expected)
        weights, stored = expected["weights"], UNITS[self.dtype][1]
        value = np.repeat(np.abs(self.value.astype(np.float64)), weights.shape[1] // self.value.shape[1], axis=1)
        wide = error[..., None]
        # In bf16 weights may be rounded before they meet the values, and the output is divided by their rounded sum.
        rounded = 2 * stored if self.dtype == "bf16" else 0
        size_of = lambda x: np.where(np.isfinite(x), np.abs(x), 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(weights > 0, weights * (1 + np.abs(np.log(weights))), 0).sum(-1)
        bounds = {
            "out": (wide + rounded) * (weights @ value) + stored * np.abs(expected["out"]) + 2.0**-24,
            "weights": wide * weights + 2.0**-100,
            "lse": error * (1 + size_of(expected["lse"])), "max_score": error * (1 + size_of(expected["max_score"])),
            "entropy": 2 * error * (1 + spread), "distance": error * (1 + expected["distance"]),
            "received": (wide * weights).sum(-2) + 2.0**-100,
            "top_k_weight": wide * expected["top_k_weight"] + 2.0**-100,
            "received_last": (wide * weights)[:, :, self.last_rows()].sum(-2) + 2.0**-100,
        }
        loose = error > 0.5
        for name, array in got.items():
            array, wanted = np.asarray(array).astype(np.float64), expected[name]
            assert array.shape == wanted.shape, f"{name} has shape {array.shape}, {wanted.shape} is expected"
            with np.errstate(invalid="ignore"):
                right = (array == wanted) | (np.abs(array - wanted) <= bounds[name])
            if name.startswith("received"):
                right |= loose.any(-1)[..., None]
            elif name in ROWS:
                right |= loose
            else:
                right |= loose[..., None]
            if not right.all():
                at = tuple(int(i) for i in np.argwhere(~right)[0])
                raise AssertionError(f"{name}{list(at)} is {array[at]:.9g}, {wanted[at]:.9g} within {bounds[name][at]:.2g} is "
                                     f"expected; {self}")
        return {"rows": int(loose.size), "loose rows": int(loose.sum())}

    def __str__(self):
        options = {name: value.shape if hasattr(value, "shape") else value for name, value in self.options.items()}
        return f"{self.dtype}, query {self.query.shape}, key {self.key.shape}, value {self.value.shape}, {options}"
