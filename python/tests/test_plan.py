"""heed.plan_attention and heed.plan_attention_backward: what they say is what the call does, and what can be counted."""

import json
import subprocess

import numpy as np
import pytest

import heed

RNG = np.random.default_rng(20261128)


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("options", [{}, {"need": ("lse", "weights"), "top_k": 2}, {"causal": True, "threads": 2},
                                     {"kernel": "reference", "need": "entropy"}])
def test_a_plan_is_what_the_call_does(options):
    q, k, v = floats(2, 4, 9, 16), floats(2, 2, 12, 16), floats(2, 2, 12, 8)
    plan = heed.plan_attention(q, k, v, **options)
    result = heed.attention(q, k, v, **{"need": "lse", **options})
    assert (plan.kernel, plan.isa) == (result.kernel, result.isa)
    assert bool(plan.passes) == (plan.kernel == "fused")
    assert all(one.bytes >= 0 and one.threads >= 1 and one.because for one in plan.passes)
    results = [result.output] + [getattr(result, name) for name in ("lse", "weights", "entropy", "top_k_index", "top_k_weight")
                                 if getattr(result, name) is not None and (name != "lse" or "lse" in options.get("need", ()))]
    assert plan.result_bytes == sum(array.nbytes for array in results)
    seen = sum(i + 1 for i in range(9)) if options.get("causal") else 9 * 12
    assert plan.multiply_adds == 2 * 4 * seen * (16 + 8)


def test_a_plan_over_a_cache_counts_its_rows():
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=16, capacity=40)
    cache.append(floats(2, 2, 33, 16), floats(2, 2, 33, 16))
    q = floats(2, 4, 1, 16)
    plan = heed.plan_attention(q, cache)
    assert plan.multiply_adds == 2 * 4 * 33 * 32 and plan.result_bytes == q.nbytes
    one = heed.plan_attention(q[:1], cache, sequences=[1])
    assert one.multiply_adds == plan.multiply_adds / 2


def test_a_backward_plan_has_the_gradients():
    q, k = floats(1, 2, 24, 16), floats(1, 2, 24, 16)
    result = heed.attention(q, k, k, need="lse")
    plan = heed.plan_attention_backward(q, k, k, result.output, result.lse, q, gradients="dq", kernel="fused")
    gradients = heed.attention_backward(q, k, k, result.output, result.lse, q, kernel="fused")
    assert (plan.kernel, plan.isa) == (gradients.kernel, gradients.isa) and plan.result_bytes == q.nbytes
    assert "backward" in [one.name for one in plan.passes]


def test_words_and_fields_are_those_of_the_command(tmp_path):
    arrays = {"query": floats(1, 2, 9, 16), "key": floats(1, 2, 9, 16), "value": floats(1, 2, 9, 16)}
    words = ["heed", "attend", "--causal", "--plan", "--json"]
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
        words += [f"--{name}", str(tmp_path / f"{name}.npy")]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    plan = heed.plan_attention(*arrays.values(), causal=True)
    assert [vars(one) for one in plan.passes] == told["passes"]
    assert (plan.kernel, plan.because, plan.falls_back) == (told["kernel"], told["because"], told["falls_back"])
    assert all(sentence in str(plan) for sentence in (plan.because, plan.falls_back, *(one.because for one in plan.passes)))


def test_wrong_calls_are_those_of_attention():
    q = floats(1, 2, 9, 16)
    with pytest.raises(TypeError, match=r"^k is missing; plan_attention\(q, k, v\), or plan_attention\(q, cache\), is expected$"):
        heed.plan_attention(q)
    with pytest.raises(ValueError, match="^key has head dimension 8"):
        heed.plan_attention(q, floats(1, 2, 9, 8), q)
    with pytest.raises(TypeError, match="plan_attention"):
        heed.plan_attention(q, q, q, wide=True)


def test_a_backward_call_without_an_lse_says_so():
    q = np.ones((1, 2, 3, 4), np.float32)
    with pytest.raises(TypeError, match="^lse is None; the lse of attention"):
        heed.attention_backward(q, q, q, q)


@pytest.mark.parametrize("backward", [heed.attention_backward, heed.plan_attention_backward])
def test_what_a_backward_call_lacks_is_named(backward):
    q = np.ones((1, 2, 3, 4), np.float32)
    result = heed.attention(q, q, q, need="entropy")
    given = {"q": q, "k": q, "v": q, "output": result.output, "lse": result.lse, "grad_output": q}
    asked = r"^lse is None; the lse of attention\(q, k, v, need='lse'\) is expected$"
    with pytest.raises(TypeError, match=asked):
        backward(**given)
    cache = heed.KvCache(kv_heads=2, key_dim=4, value_dim=4, capacity=3)
    for name, wrong in (("q", None), ("k", cache), ("v", None), ("output", None), ("grad_output", None)):
        with pytest.raises(TypeError, match=rf"^{name} is a {type(wrong).__name__}; an array that supports DLPack or the buffer"):
            backward(**{**given, "lse": np.ones((1, 2, 3), np.float32), name: wrong})
