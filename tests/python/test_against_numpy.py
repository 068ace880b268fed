"""`heed attend` compared with the formulas in NumPy: every option of a call, and every result."""

import json

import attention_oracle
import numpy as np
import pytest

SHAPE = dict(batch=2, heads=4, kv_heads=2, queries=9, keys=13, dim=24, value_dim=28)

# The name of each case, and its options; arrays become files.
CASES = {
    "defaults": {},
    "scale": dict(scale=0.3),
    "causal": dict(causal=True),
    "causal from the end": dict(causal=True, align="bottom-right"),
    "causal at an offset": dict(causal=True, query_offset=-3),
    "window": dict(window=(2, 1)),
    "window open to the right": dict(window=(1, -1), align="bottom-right"),
    "mask": dict(mask=lambda rng: rng.random((2, 1, 9, 13)) < 0.6),
    "mask with an empty row": dict(mask=lambda rng: np.arange(9)[:, None] != np.zeros(13)[None, :] + 4),
    "bias": dict(bias=lambda rng: rng.normal(size=(4, 9, 13))),
    "bias that forbids": dict(bias=lambda rng: np.where(rng.random((1, 1, 9, 13)) < 0.5, -np.inf, 0.5)),
    "softcap": dict(softcap=1.5),
    "alibi": dict(alibi=lambda rng: rng.random(4), align="bottom-right"),
    "sinks": dict(sinks=lambda rng: rng.normal(size=4)),
    "lengths": dict(kv_lengths=lambda rng: np.array([5, 0]), causal=True, align="bottom-right"),
    "all together": dict(causal=True, align="bottom-right", window=(6, -1), softcap=2.0, scale=0.5,
                         mask=lambda rng: rng.random((13,)) < 0.8, bias=lambda rng: rng.normal(size=(2, 1, 1, 13)),
                         alibi=lambda rng: rng.random((2, 4)), sinks=lambda rng: rng.normal(size=4)),
}
# f64 agrees to a few roundings. f32 has the same rounded inputs, and rounds softmax sums and the results.
TOLERANCE = {"f64": 1e-12, "f32": 4e-6}
DTYPE = {"f64": np.float64, "f32": np.float32}
WANTED = {
    "out": ["--out", "out.npy"],
    "weights": ["--weights", "weights.npy"],
    "scores": ["--scores", "scores.npy"],
    "lse": ["--lse", "lse.npy"],
    "max_score": ["--max-score", "max_score.npy"],
    "entropy": ["--entropy", "entropy.npy"],
    "distance": ["--distance", "distance.npy"],
    "received": ["--received", "received.npy"],
    "map": ["--map", "3x5", "--map-out", "map.npy"],
    "top_k": ["--top-k", "4", "--top-k-out", "top_k_index.npy,top_k_weight.npy"],
}
OPTION = {"softcap": "--softcap", "scale": "--scale", "align": "--align", "query_offset": "--query-offset",
          "mask": "--mask", "bias": "--bias", "alibi": "--alibi-slopes", "sinks": "--sinks", "kv_lengths": "--kv-lengths",
          "segments_q": "--query-segments", "segments_k": "--key-segments", "scores_stage": "--scores-stage"}


def draw(rng, batch, heads, kv_heads, queries, keys, dim, value_dim):
    return (rng.normal(size=(batch, heads, queries, dim)), rng.normal(size=(batch, kv_heads, keys, dim)),
            rng.normal(size=(batch, kv_heads, keys, value_dim)))


def close(name, got, expected, tolerance):
    assert got.shape == expected.shape, name
    if got.dtype == np.int64:
        np.testing.assert_array_equal(got, expected, err_msg=name)
    else:
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * 8, err_msg=name)


def attend(heed, folder, q, k, v, settings, wanted, dtype="f64", extra=()):
    """Writes the inputs to files, runs `heed attend` and returns the files that it wrote."""
    arguments = ["attend", "--json", *extra]
    for name, tensor in (("query", q), ("key", k), ("value", v)):
        np.save(folder / f"{name}.npy", tensor.astype(DTYPE[dtype]))
        arguments += [f"--{name}", f"{name}.npy"]
    for name, value in settings.items():
        if name == "causal":
            arguments += ["--causal"] if value else []
        elif name == "window":
            arguments += ["--window", f"{value[0]},{value[1]}"]
        elif isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)
            arguments += [OPTION[name], f"{name}.npy"]
        else:
            arguments += [OPTION[name], value]
    for name in wanted:
        arguments += WANTED[name]
    said = json.loads(heed(*arguments).stdout)
    files = {file.stem: np.load(file) for file in folder.glob("*.npy") if file.stem not in ("query", "key", "value")}
    return said, files


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("case", CASES)
def test_every_result_of_a_call_is_what_the_formulas_say(heed, tmp_path, case, dtype):
    rng = np.random.default_rng(7)
    q, k, v = (x.astype(DTYPE[dtype]) for x in draw(rng, **SHAPE))
    settings = {name: value(rng) if callable(value) else value for name, value in CASES[case].items()}
    for name in ("bias", "alibi", "sinks"):
        if name in settings:
            settings[name] = settings[name].astype(DTYPE[dtype])
    said, got = attend(heed, tmp_path, q, k, v, settings, WANTED, dtype)
    expected = attention_oracle.attention(q, k, v, top_k=4, map_size=(3, 5), **settings)
    assert said["dtype"] == dtype and said["query"] == list(q.shape)
    for name in expected:
        if name not in ("top_k_index",) or dtype == "f64":  # f32 may round weights to equal numbers
            close(f"{case}: {name}", got[name], expected[name], TOLERANCE[dtype])


@pytest.mark.parametrize("stage", ["raw", "softcap", "bias"])
def test_scores_are_those_of_the_stage_asked_for(heed, tmp_path, stage):
    rng = np.random.default_rng(8)
    q, k, v = draw(rng, **SHAPE)
    settings = dict(softcap=1.2, bias=rng.normal(size=(9, 13)), causal=True, scores_stage=stage)
    _, got = attend(heed, tmp_path, q, k, v, settings, ["out", "scores"])
    close(stage, got["scores"], attention_oracle.attention(q, k, v, **settings)["scores"], TOLERANCE["f64"])


@pytest.mark.parametrize("align", ["top-left", "bottom-right"])
def test_packed_sequences_do_not_see_each_other(heed, tmp_path, align):
    rng = np.random.default_rng(9)
    q, k, v = draw(rng, **{**SHAPE, "batch": 1})
    settings = dict(causal=True, align=align, window=(4, -1), segments_q=np.array([0, 4, 4, 9]),
                    segments_k=np.array([0, 3, 6, 13]))
    _, got = attend(heed, tmp_path, q, k, v, settings, ["out", "weights", "distance"])
    expected = attention_oracle.attention(q, k, v, **settings)
    for name in ("out", "weights", "distance"):
        close(name, got[name], expected[name], TOLERANCE["f64"])


def test_received_can_be_restricted_to_the_last_queries(heed, tmp_path):
    rng = np.random.default_rng(10)
    q, k, v = draw(rng, **SHAPE)
    _, got = attend(heed, tmp_path, q, k, v, dict(causal=True), ["out", "received"], extra=["--received-last", "3"])
    expected = attention_oracle.attention(q, k, v, causal=True, received_last=3)
    close("received", got["received"], expected["received_last"], TOLERANCE["f64"])


def test_positions_may_come_before_heads_in_the_files(heed, tmp_path):
    rng = np.random.default_rng(11)
    q, k, v = draw(rng, **SHAPE)
    swapped = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    _, got = attend(heed, tmp_path, *swapped, dict(causal=True), ["out", "lse"], extra=["--layout", "blhd"])
    expected = attention_oracle.attention(q, k, v, causal=True)
    close("out", got["out"], expected["out"].swapaxes(1, 2), TOLERANCE["f64"])
    close("lse", got["lse"], expected["lse"], TOLERANCE["f64"])


@pytest.mark.parametrize("rank", [2, 3])
def test_results_lack_the_axes_that_the_inputs_lack(heed, tmp_path, rank):
    rng = np.random.default_rng(12)
    heads = 1 if rank == 2 else 4
    q, k, v = draw(rng, **{**SHAPE, "batch": 1, "heads": heads, "kv_heads": heads})
    less = (slice(None),) * 0 + (0,) * (4 - rank)
    _, got = attend(heed, tmp_path, q[less], k[less], v[less], {}, WANTED)
    expected = attention_oracle.attention(q, k, v, top_k=4, map_size=(3, 5))
    for name in expected:
        close(name, got[name], expected[name][less], TOLERANCE["f64"])


@pytest.mark.parametrize("dtype, step", [("bf16", 2.0**-8), ("f16", 2.0**-11)])
def test_inputs_are_converted_before_anything_is_computed(heed, tmp_path, dtype, step):
    import ml_dtypes

    narrow = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    rng = np.random.default_rng(13)
    q, k, v = draw(rng, **SHAPE)
    said, got = attend(heed, tmp_path, q, k, v, dict(causal=True), ["out", "weights"], extra=["--dtype", dtype])
    rounded = (x.astype(narrow).astype(np.float64) for x in (q, k, v))
    expected = attention_oracle.attention(*rounded, causal=True)
    assert said["dtype"] == dtype
    assert got["out"].dtype == (np.float32 if dtype == "bf16" else np.float16)
    assert got["weights"].dtype == np.float32
    close("out", got["out"].astype(np.float64), expected["out"], step)  # rounded once, when it is stored
    close("weights", got["weights"], expected["weights"], TOLERANCE["f32"])
