"""Tests for test_distributed.py. Each function runs on every rank and knows the whole call.

    mpirun -n 3 python distributed_calls.py NAME…
"""

import copy
import pickle
import sys

import attention_oracle
import numpy as np
from mpi4py import MPI

import heed
from heed import _heed, distributed
from heed.distributed import Layout, Sharding

comm = MPI.COMM_WORLD
LENGTH = 29
# The axis of each result's rows or keys, counted from the end.
ONE_PASS = [name for name in _heed.ROW_RESULTS if name != "masked_mass"]
OF_ROWS = {"output": -2, "top_k_index": -2, "top_k_weight": -2} | dict.fromkeys(ONE_PASS, -1)
WIDE = {"weights": -2, "scores": -2}
OF_KEYS = {"received": -1, "received_last": -1}
# f32 sums of 16 products and 29 weights of numbers around 1: about 60 roundings of 2^-24. Gradients add as many
# again.
TOLERANCE, OF_GRADIENTS = 4e-6, 1e-5


def whole_call(queries=LENGTH, keys=LENGTH, dtype=np.float32):
    rng = np.random.default_rng(11)
    shapes = (2, 4, queries, 16), (2, 2, keys, 16), (2, 2, keys, 12), (2, 4, queries, 12)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def shardings(length):
    last = [[] for _ in range(comm.size - 1)] + [[(0, length)]]  # other ranks have no rows
    return [Sharding.contiguous(length, comm.size), Sharding.zigzag(length, comm.size),
            Sharding.striped(length, comm.size, 3), Sharding.from_ranges(last)]


def own(sharding, *arrays, axis=-2):
    return [sharding.shard(array, axis, comm.rank) for array in arrays]


def equal(results, expected, axes, sharding):
    for name, axis in axes.items():
        (there,) = own(sharding, getattr(expected, name), axis=axis)
        got = getattr(results, name)
        assert got.dtype == there.dtype and got.shape == there.shape and (got == there).all(), name


def close(got, expected, tolerance):
    assert got.shape == expected.shape and (np.abs(got - expected) <= tolerance * (1 + np.abs(expected))).all()


def row_results_have_the_bits_of_one_process_and_are_numpys():
    q, k, v, _ = whole_call()
    options = {"causal": True, "window": (11, 0), "need": ONE_PASS, "top_k": 3}
    alone = heed.attention(q, k, v, **options)
    oracle = attention_oracle.attention(q, k, v, causal=True, window=(11, 0))
    for sharding in shardings(LENGTH):
        for scheme in ("automatic", "ring", "gather", "ulysses", "decode"):
            result = distributed.attention(comm, *own(sharding, q, k, v), sharding, scheme=scheme, deterministic=True, **options)
            assert isinstance(result, heed.AttentionResult) and isinstance(result, distributed.AttentionResult)
            assert scheme in ("automatic", result.scheme) and result.scheme != "automatic" and result.bytes_sent >= 0
            assert result.weights is None and result.isa == alone.isa
            equal(result, alone, OF_ROWS, sharding)
            for name, of_oracle in (("output", "out"), ("lse", "lse"), ("entropy", "entropy")):
                close(getattr(result, name), *own(sharding, oracle[of_oracle], axis=OF_ROWS[name]), TOLERANCE)


def all_results_have_the_bits_of_one_process():
    rows, keys = Sharding.zigzag(LENGTH, comm.size), Sharding.striped(17, comm.size, 2)
    q, k, v, _ = whole_call(keys=17)
    options = {"need": ("weights", "scores", "received"), "received_last": 5, "map": (3, 4), "dropout": 0.3, "seed": 9}
    alone = heed.attention(q, k, v, **options)
    shards = *own(rows, q), *own(keys, k, v)
    result = distributed.attention(comm, *shards, Layout(rows, keys), **options)
    equal(result, alone, {"output": -2} | WIDE, rows)
    equal(result, alone, OF_KEYS, keys)
    assert (result.map == alone.map).all()
    out = np.full_like(result.output, np.nan)
    into = distributed.attention(comm, *shards, Layout(rows, keys), out=out, **options)
    assert into.output is out
    equal(into, alone, {"output": -2} | WIDE, rows)
    equal(into, alone, OF_KEYS, keys)


def masks_and_biases_are_read():
    rows = Sharding.zigzag(LENGTH, comm.size)
    q, k, v, _ = whole_call()
    rng = np.random.default_rng(3)
    allowed = rng.random((LENGTH, LENGTH)) < 0.7
    bias = rng.standard_normal((4, LENGTH, LENGTH)).astype(np.float32)
    window = heed.masks.sliding_window(5, 2, LENGTH, LENGTH)
    mod = heed.ScoreMod.expression("s - 0.1 * (i - j)")
    for options, shared in (({"mask": allowed, "bias": bias}, False), ({"mask": window, "score_mod": mod}, True),
                            ({"sinks": [0.5, 1, 2, 3], "alibi": [0.5, 0.25, 0.1, 0.2]}, True)):
        theirs = options if shared else {name: own(rows, array)[0] for name, array in options.items()}
        result = distributed.attention(comm, *own(rows, q, k, v), rows, **theirs)
        assert (result.output == own(rows, heed.attention(q, k, v, **options))[0]).all(), options


def gradients_have_the_bits_of_one_process_and_are_slopes():
    q, k, v, grad_output = whole_call()
    options = {"causal": True}
    alone = heed.attention(q, k, v, need="lse", **options)
    expected = heed.attention_backward(q, k, v, alone.output, alone.lse, grad_output, **options)
    oracle = oracle_gradients(*(x.astype(np.float64) for x in (q, k, v, grad_output)))
    for sharding in shardings(LENGTH):
        shards = own(sharding, q, k, v)
        result = distributed.attention(comm, *shards, sharding, need="lse", **options)
        for scheme in ("automatic", "gather", "ulysses"):
            found = distributed.attention_backward(comm, *shards, result.output, result.lse, *own(sharding, grad_output),
                                                   sharding, scheme=scheme, **options)
            assert isinstance(found, heed.AttentionGradients) and found.dbias is None and found.bytes_sent >= 0
            assert found.scheme in ("gather", "ulysses")
            equal(found, expected, {"dq": -2, "dk": -2, "dv": -2}, sharding)
            for name, gradient in zip(("dq", "dk", "dv"), oracle):
                close(getattr(found, name), *own(sharding, gradient), OF_GRADIENTS)


def oracle_gradients(q, k, v, grad_output):
    """Gradients of causal attention in f64, from the derivation in docs/backward.md."""
    weights = attention_oracle.attention(q, k, v, causal=True)["weights"]
    repeat = q.shape[1] // k.shape[1]
    every = lambda x: np.repeat(x, repeat, axis=1)
    of_group = lambda x: x.reshape(*k.shape[:2], repeat, *x.shape[2:]).sum(2)
    of_weights = grad_output @ every(v).swapaxes(-1, -2)
    scale = q.shape[-1] ** -0.5
    of_scores = scale * weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    return (of_scores @ every(k), of_group(of_scores.swapaxes(-1, -2) @ q),
            of_group(weights.swapaxes(-1, -2) @ grad_output))


def bias_and_sinks_have_gradients():
    rows = Sharding.contiguous(LENGTH, comm.size)
    q, k, v, grad_output = whole_call()
    bias = np.random.default_rng(4).standard_normal((4, LENGTH, LENGTH)).astype(np.float32)
    sinks = np.float32([0.5, 1, 2, 3])
    alone = heed.attention(q, k, v, need="lse", bias=bias, sinks=sinks)
    wanted = "dq", "dbias", "dsinks"
    expected = heed.attention_backward(q, k, v, alone.output, alone.lse, grad_output, bias=bias, sinks=sinks, gradients=wanted)
    (own_bias,) = own(rows, bias)
    result = distributed.attention(comm, *own(rows, q, k, v), rows, need="lse", bias=own_bias, sinks=sinks)
    found = distributed.attention_backward(comm, *own(rows, q, k, v), result.output, result.lse, *own(rows, grad_output), rows,
                                           bias=own_bias, sinks=sinks, gradients=wanted)
    assert found.dk is None
    equal(found, expected, {"dq": -2}, rows)
    close(found.dbias, *own(rows, expected.dbias), OF_GRADIENTS)  # sums over ranks are rounded in another order
    close(found.dsinks, expected.dsinks, OF_GRADIENTS)


def a_decay_is_taken_and_has_a_gradient():
    rows = Sharding.zigzag(LENGTH, comm.size)
    q, k, v, grad_output = whole_call()
    decay = -np.cumsum(np.abs(np.random.default_rng(6).standard_normal((2, 4, LENGTH))), axis=-1)
    oracle = attention_oracle.attention(q, k, v, causal=True, bias=decay[..., :, None] - decay[..., None, :])["out"]
    for c, shared in ((decay, False), (decay[:1, :1], True)):
        alone = heed.attention(q, k, v, need="lse", causal=True, decay=c)
        wanted = "dq", "ddecay"
        expected = heed.attention_backward(q, k, v, alone.output, alone.lse, grad_output, causal=True, decay=c, gradients=wanted)
        for scheme in ("automatic", "ring", "gather", "ulysses", "decode"):
            result = distributed.attention(comm, *own(rows, q, k, v), rows, scheme=scheme, need="lse", causal=True, decay=c)
            equal(result, alone, {"output": -2, "lse": -1}, rows)
            if not shared:
                close(result.output, *own(rows, oracle), TOLERANCE)
        found = distributed.attention_backward(comm, *own(rows, q, k, v), result.output, result.lse, *own(rows, grad_output),
                                               rows, causal=True, decay=c, gradients=wanted)
        equal(found, expected, {"dq": -2}, rows)
        close(found.ddecay, expected.ddecay, OF_GRADIENTS if shared else 0)


def heads_may_be_cut_besides():
    one = Sharding.contiguous(LENGTH, 1)
    q, k, v, _ = whole_call()
    dropped = {"dropout": 0.3, "seed": 2}
    layout = Layout(one, one, batch=2, heads=4, batch_begin=1, head_begin=2)
    result = distributed.attention(MPI.COMM_SELF, q[1:, 2:], k[1:, 1:], v[1:, 1:], layout, **dropped)
    assert (result.output == heed.attention(q, k, v, **dropped)[1:, 2:]).all()


def the_chosen_target_is_taken():
    rows = Sharding.contiguous(LENGTH, comm.size)
    q, k, v, _ = whole_call()
    before = heed.info()["isa"]
    heed.set_target("plain")
    alone = heed.attention(q, k, v)
    result = distributed.attention(comm, *own(rows, q, k, v), rows)
    assert result.isa == "plain" and (result.output == own(rows, alone)[0]).all()
    heed.set_target(before)


def refusal(call, kind, text):
    """Checks the error of a call that is wrong only on the last rank.

    That rank must raise `kind` with the text; the others must raise ValueError with the rank and the text."""
    is_there = comm.rank == comm.size - 1
    try:
        call(is_there)
    except (ValueError, TypeError) as error:
        assert type(error) is (kind if is_there else ValueError), repr(error)
        assert str(error) == (text if is_there else f"rank {comm.size - 1}: {text}"), str(error)
    else:
        raise AssertionError("nothing was refused")


def a_fault_on_one_rank_is_said_on_all():
    rows = Sharding.contiguous(LENGTH, comm.size)
    q, k, v, grad_output = own(rows, *whole_call())

    def wrong(place, given):
        def call(is_there):
            arguments = {"q": q, "k": k, "v": v, "layout": rows, "causal": True}
            distributed.attention(comm, **(arguments | {place: given} if is_there else arguments))
        return call

    refusal(wrong("causal", "yes"), TypeError, "causal is 'yes'; True or False is expected")
    refusal(wrong("wndow", 3), TypeError, "attention() got an unexpected keyword argument 'wndow'; did you mean 'window'?")
    refusal(wrong("layout", 3), TypeError, "layout is of type int; a Sharding is expected")
    refusal(wrong("layout", Layout(rows, None)), TypeError, "layout.key is of type NoneType; a Sharding is expected")
    refusal(wrong("layout", Layout(rows, rows, heads="4")), TypeError, "layout.heads is '4'; a whole number is expected")
    refusal(wrong("layout", None), TypeError, "layout is of type NoneType; a Sharding is expected")
    refusal(wrong("scheme", None), TypeError, "scheme is None; a string is expected")
    refusal(wrong("scheme", "rings"), ValueError, "scheme is 'rings'; automatic, ring, gather, ulysses or decode is expected")
    refusal(wrong("dropout", 0.5), ValueError, "dropout is given without seed; the same seed on all ranks is expected")
    refusal(wrong("threads", -2), ValueError, heed_says(lambda: heed.attention(q, k, v, threads=-2)))
    refusal(lambda is_there: distributed.attention_backward(
        comm, q, k, v, grad_output, np.zeros(q.shape[:-1], np.float32), grad_output, rows,
        gradients="dbias" if is_there else "dq"), ValueError, "gradients has 'dbias', but the call has no bias; a bias is expected")
    lse = np.zeros(q.shape[:-1], np.float32)
    for name, text in (("layout", "layout is of type NoneType; a Sharding is expected"),
                       ("scheme", "scheme is None; a string is expected")):
        refusal(lambda is_there: distributed.attention_backward(
            comm, q, k, v, grad_output, lse, grad_output, **({"layout": rows} | ({name: None} if is_there else {}))), TypeError, text)
    for given, text in ((3, "comm is of type int; a communicator of mpi4py is expected"),):
        assert heed_says(lambda: distributed.attention(given, q, k, v, rows)) == text
    assert heed_says(lambda: distributed.attention(MPI.COMM_NULL, q, k, v, rows)).startswith("comm is MPI_COMM_NULL")


def heed_says(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    raise AssertionError("nothing was refused")


def shardings_say_which_positions_a_rank_has():
    zigzag = Sharding.zigzag(7, 3)
    assert zigzag.ranges(0) == [(0, 2), (6, 7)] and (zigzag.ranks, zigzag.length) == (3, 7)
    assert [zigzag.rows(rank) for rank in range(3)] == [3, 2, 2] and zigzag.position(0, 2) == 6
    assert zigzag.rank_of(6) == 0 and zigzag.row_of(6) == 2
    assert Sharding.from_ranges([[(0, 2), (6, 7)], [(2, 3), (5, 6)], [(3, 5)]]) == zigzag != Sharding.contiguous(7, 3)
    assert Sharding.striped(7, 2).ranges(0) == [(0, 7)] and Sharding.striped(7, 2, 2).ranges(1) == [(2, 4), (6, 7)]
    assert repr(zigzag) == "<Sharding of 7 positions over 3 ranks>"
    array = np.arange(14).reshape(7, 2)
    shards = [zigzag.shard(array, 0, rank) for rank in range(3)]
    assert (shards[0] == array[[0, 1, 6]]).all() and (zigzag.join(shards, 0) == array).all()
    says = heed_says
    assert says(lambda: Sharding.contiguous("7", 2)) == "length is of type str; a whole number is expected"
    assert says(lambda: zigzag.rows(None)) == "rank is None; a whole number is expected"
    assert says(lambda: Sharding.contiguous(7, 0)) == "ranks is 0; at least 1 is expected"
    assert says(lambda: zigzag.rows(3)).startswith("rank is 3; ")
    assert says(lambda: Sharding.from_ranges(3)) == "ranges is of type int; a sequence of (begin, end) for each rank is expected"
    assert says(lambda: Sharding.from_ranges([3])) == ("ranges[0] is of type int; a sequence of (begin, end) for each rank is "
                                                       "expected")
    assert says(lambda: Sharding.from_ranges([[3]])) == "a range is 3; (begin, end) is expected"
    assert says(lambda: zigzag.shard(3, 0, 0)).startswith("array is ")


def ranks_that_disagree_are_told():
    if comm.size == 1:
        return
    rows = Sharding.zigzag(LENGTH, comm.size)
    q, k, v, grad_output = own(rows, *whole_call())
    one = comm.rank == 0
    heads = np.arange(4, dtype=np.float32)
    differing = {
        "kv_lengths": [3, 4 if one else 5], "alibi": heads + one, "sinks": heads + one, "kernel": "reference" if one else "fused",
        "decay": np.arange(LENGTH) * (1.0 + one), "score_mod": heed.ScoreMod.expression("s * 2" if one else "s * 3"),
        "out": np.zeros_like(grad_output) if one else None}
    said = {"kv_lengths": "the hash of kv_lengths", "alibi": "the hash of alibi", "sinks": "the hash of sinks",
            "kernel": "options.kernel", "decay": "the hash of decay", "score_mod": "the hash of score_mod's text and arrays",
            "out": "whether there is an out"}
    result = distributed.attention(comm, q, k, v, rows, need="lse")
    for name, value in differing.items():
        calls = [lambda scheme: distributed.attention(comm, q, k, v, rows, scheme=scheme, **{name: value})]
        if name not in ("out", "score_mod"):
            calls.append(lambda scheme: distributed.attention_backward(
                comm, q, k, v, result.output, result.lse, grad_output, rows, scheme=scheme, **{name: value}))
        for call, schemes in zip(calls, (("ring", "gather", "ulysses", "decode"), ("gather", "ulysses"))):
            for scheme in schemes:
                assert heed_says(lambda: call(scheme)).startswith(said[name]), (name, scheme)
    segments = own(rows, *(array[:1] for array in whole_call()[:3]))
    layout = Layout(rows, rows, batch=2 if one else 3)
    for call, text in ((lambda: distributed.attention(comm, *segments, rows, cu_seqlens=[0, 5 if one else 6, LENGTH]), "the hash of cu_seqlens"),
                       (lambda: distributed.attention(comm, q, k, v, layout), "layout.batch is 2" if one else "layout.batch is 3")):
        assert heed_says(call).startswith(text)
    assert heed_says(lambda: distributed.attention(comm, q, k, v, Layout(rows, rows, batch=-1))) == "layout.batch is -1; 0 or more is expected"
    mask = rows.shard(np.tril(np.ones((LENGTH, LENGTH), bool)), 0, comm.rank)
    for name, given, other, text in (("mask", mask[:1], mask, "a mask or bias has the rows of some ranks and broadcasts on others"),
                                     ("mask", mask[:, :1], mask, "the dtype and axes of mask"),
                                     ("mask", np.stack([mask, mask])[:, None], mask, "the dtype and axes of mask"),
                                     ("bias", mask.astype(float), mask.astype(np.float32), "the dtype and axes of bias")):
        for scheme in ("ring", "gather", "ulysses", "decode"):
            call = lambda: distributed.attention(comm, q, k, v, rows, scheme=scheme, **{name: given if one else other})
            assert heed_says(call).startswith(text), (name, scheme)
    keys = np.arange(LENGTH)
    for name, given, other, text in (
            ("mask", keys[None] < 5, keys[None] < 6, "the hash of mask"),
            ("bias", keys[None] * 1.0, keys[None] * 2.0, "the hash of bias"),
            ("mask", heed.masks.sliding_window(2, 2, LENGTH, LENGTH), heed.masks.sliding_window(2, 3, LENGTH, LENGTH),
             "the hash of sparse_mask"),
            ("mask", heed.SparseMask.expression("kept[j]", LENGTH, LENGTH, kept=keys < 5),
             heed.SparseMask.expression("kept[j]", LENGTH, LENGTH, kept=keys < 6), "the hash of sparse_mask"),
            ("score_mod", heed.ScoreMod.expression("s + w[j]", w=keys), heed.ScoreMod.expression("s + w[j]", w=2 * keys),
             "the hash of score_mod's text and arrays"),
            ("scale", 0.0, None, "the bits of options.scale")):
        call = lambda: distributed.attention(comm, q, k, v, rows, **{name: given if one else other})
        assert heed_says(call).startswith(text), name
    # The numbers count, not their dtype.
    lengths = np.array([3, 5], np.int32 if one else np.int64)
    distributed.attention(comm, q, k, v, rows, kv_lengths=lengths, sinks=heads.astype(np.float64 if one else np.float32))


def a_fault_of_an_array_library_is_said_in_one_line():
    class Refusing:
        def __dlpack__(self, **options):
            raise ValueError("this array is gone\nfor good")

    rows = Sharding.contiguous(LENGTH, comm.size)
    q, k, v, _ = own(rows, *whole_call())
    said = heed_says(lambda: distributed.attention(comm, Refusing() if comm.rank == comm.size - 1 else q, k, v, rows))
    assert said == ("this array is gone\nfor good" if comm.rank == comm.size - 1 else f"rank {comm.size - 1}: this array is gone")


def a_communicator_of_two_groups_is_refused():
    if comm.size == 1:
        return
    group = comm.Split(comm.rank == 0, comm.rank)
    between = group.Create_intercomm(0, comm, 1 if comm.rank == 0 else 0)
    rows = Sharding.contiguous(LENGTH, comm.size)
    try:
        distributed.attention(between, *own(rows, *whole_call()[:3]), rows)
    except TypeError as error:
        assert str(error).startswith("comm is an intercommunicator, of two groups of ranks")
    else:
        raise AssertionError("nothing was refused")


def results_describe_themselves():
    rows = Sharding.contiguous(LENGTH, comm.size)
    result = distributed.attention(comm, *own(rows, *whole_call()[:3]), rows, scheme="gather")
    assert distributed.AttentionResult[np.ndarray]  # as in annotations
    assert repr(result).startswith(f"AttentionResult(output (2, 4, {rows.rows(comm.rank)}, 12), fused kernel, ")
    assert repr(result).endswith(f", gather, {result.bytes_sent} bytes sent)")


def results_are_copied_and_pickled():
    rows = Sharding.zigzag(LENGTH, comm.size)
    q, k, v, grad_output = own(rows, *whole_call())
    result = distributed.attention(comm, q, k, v, rows, need="lse")
    gradients = distributed.attention_backward(comm, q, k, v, result.output, result.lse, grad_output, rows)
    for one, names in ((result, ("output", "lse")), (gradients, ("dq", "dk", "dv"))):
        for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert type(other) is type(one) and repr(other) == repr(one)
            assert (other.scheme, other.bytes_sent, other.threads) == (one.scheme, one.bytes_sent, one.threads)
            assert all((getattr(other, name) == getattr(one, name)).all() for name in names)
            assert not any(np.shares_memory(getattr(other, name), getattr(one, name)) for name in names)
        state = one.__getstate__()
        del state["scheme"]
        assert heed_says(lambda: type(one).__new__(type(one)).__setstate__(state)) == "the pickled state lacks 'scheme'; an entry of that name is expected"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
    print(f"rank {comm.rank} is done")
