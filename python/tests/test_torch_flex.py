"""heed.torch.flex_attention compared with PyTorch's scaled_dot_product_attention and a dense mask.

Also tests sparse_mask of heed.torch.attention: values, gradients, torch.compile, checkpoints, threads, and
lifetimes."""

import concurrent.futures
import gc
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.attention import flex_attention as theirs  # noqa: E402
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask, noop_mask  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import heed  # noqa: E402
from heed.torch import _block_mask, _held, attention, flex_attention, from_block_mask, mask_tensor  # noqa: E402

TOLERANCE = 1e-12  # f64: some hundred roundings of 2^-53, of numbers around 1


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(13)


@pytest.fixture
def nothing_stays():
    """Checks that handles of masks disappear with their last user."""
    gc.collect()
    before = len(_held._table)
    yield
    torch._dynamo.reset()
    gc.collect()
    assert len(_held._table) <= before


def doubles(*shapes):
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def inputs(queries, keys, batch=2, heads=4, kv_heads=4):
    return doubles((batch, heads, queries, 8), (batch, kv_heads, keys, 8), (batch, kv_heads, keys, 6))


def by_pytorch(query, key, value, mask, **arguments):
    """PyTorch's result, with output and gradient 0 for rows that may attend to nothing."""
    seen = mask.any(-1, keepdim=True)
    with sdpa_kernel([SDPBackend.MATH]):
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask | ~seen, **arguments)
    return output * seen


def assert_close(got, expected, tolerance=TOLERANCE):
    assert got.shape == expected.shape and got.dtype == expected.dtype
    difference = (got - expected).abs().max().item() if got.numel() else 0
    assert difference <= tolerance * (1 + expected.abs().max().item() if got.numel() else 1), f"off by {difference}"


def assert_same(got, expected, tensors, again=False):
    """Compares values, and gradients of a random projection."""
    assert_close(got, expected)
    direction = torch.randn_like(expected)
    for ours, reference in zip(*(torch.autograd.grad(x, tensors, direction, again) for x in (got, expected))):
        assert_close(ours, reference)


DOCUMENT = torch.randint(0, 4, (2, 300)).sort(-1).values
MODS = {
    "causal": lambda b, h, q, k: q >= k,
    "documents of each batch entry": lambda b, h, q, k: (DOCUMENT[b, q] == DOCUMENT[b, k]) & (q >= k),
    "a window of each head": lambda b, h, q, k: (q - k).abs() <= 10 * h,
    "documents": lambda b, h, q, k: DOCUMENT[0, q] == DOCUMENT[0, k],
    "rows without keys": lambda b, h, q, k: (q % 3 > 0) & (k < 40),
    "all": noop_mask,
    "none": lambda b, h, q, k: q < 0,
}
SIZES = {"causal": (None, None), "documents of each batch entry": (2, None), "a window of each head": (None, 4),
         "documents": (1, 1), "rows without keys": (2, 4), "all": (None, None), "none": (None, None)}
LENGTHS = {"whole blocks": (256, 256, 64), "no whole blocks": (300, 300, 128), "few queries": (37, 300, (16, 32)),
           "few keys": (300, 70, (32, 16)), "blocks larger than all": (50, 60, 128)}


def mask_of(name, queries, keys, block):
    """A BlockMask of PyTorch, and the same mask as booleans."""
    arguments = MODS[name], *SIZES[name], queries, keys, "cpu"
    return create_block_mask(*arguments, BLOCK_SIZE=block), create_mask(*arguments)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", MODS)
def test_a_block_mask_gives_what_the_dense_mask_gives(name, lengths):
    queries, keys, block = LENGTHS[lengths]
    mask, dense = mask_of(name, queries, keys, block)
    assert torch.equal(torch.from_numpy(from_block_mask(mask).dense()), dense)
    tensors = inputs(queries, keys)
    assert_same(flex_attention(*tensors, block_mask=mask), by_pytorch(*tensors, dense), tensors)
    with torch.no_grad():  # bypasses the operator
        assert_close(flex_attention(*tensors, block_mask=mask), by_pytorch(*tensors, dense))


@pytest.mark.parametrize("name", ["causal", "documents of each batch entry", "a window of each head"])
@pytest.mark.filterwarnings("ignore:return_lse is deprecated")
def test_it_gives_what_pytorchs_gives(name, monkeypatch):
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    mask, _ = mask_of(name, 256, 256, 64)
    tensors = [x.detach() for x in inputs(256, 256, kv_heads=2)]
    calls = [{}, {"scale": 0.3}, {"return_lse": True}, {"return_aux": theirs.AuxRequest(lse=True)}]
    for call in calls:
        found, expected = (function(*tensors, block_mask=mask, enable_gqa=True, **call)
                           for function in (flex_attention, theirs.flex_attention))
        if not call or "scale" in call:
            found, expected = (found,), (expected,)
        assert_close(found[0], expected[0])
        if "return_lse" in call:
            assert_close(found[1], expected[1])
        if "return_aux" in call:
            assert type(found[1]) is theirs.AuxOutput and found[1].max_scores is None
            assert_close(found[1].lse, expected[1].lse)


def test_without_a_mask():
    tensors = inputs(5, 7)
    everything = torch.ones(5, 7, dtype=torch.bool)
    assert_same(flex_attention(*tensors), by_pytorch(*tensors, everything), tensors)
    for mask in (theirs._create_empty_block_mask(*tensors[:2]), heed.SparseMask()):
        assert_same(flex_attention(*tensors, block_mask=mask), by_pytorch(*tensors, everything), tensors)


def test_blocks_in_any_order_and_without_full_ones():
    mask, dense = mask_of("causal", 300, 300, 64)
    tensors = inputs(300, 300)
    counts = mask.kv_num_blocks + mask.full_kv_num_blocks
    indices = torch.arange(5, dtype=torch.int32).flip(0).expand(1, 1, 5, 5).clone()
    for row in range(5):
        indices[0, 0, row, :row + 1] = torch.randperm(row + 1)
    assert counts.flatten().tolist() == [1, 2, 3, 4, 5]
    for lead in (0, 1, 2):  # number of leading axes among B and H
        other = BlockMask.from_kv_blocks(counts[(0,) * lead], indices[(0,) * lead], BLOCK_SIZE=64,
                                         mask_mod=MODS["causal"], seq_lengths=(300, 300), compute_q_blocks=False)
        assert_close(flex_attention(*tensors, block_mask=other), by_pytorch(*tensors, dense))


def test_key_heads_and_batch_entries_that_are_shared():
    mask, dense = mask_of("documents of each batch entry", 300, 300, 128)
    query, key, value = inputs(300, 300, kv_heads=2)
    tensors = [query, *(x[:1].detach().requires_grad_() for x in (key, value))]
    spread = [query, *(x.expand(2, -1, -1, -1) for x in tensors[1:])]
    found = flex_attention(*tensors, block_mask=mask, enable_gqa=True)
    assert_same(found, by_pytorch(*spread, dense, enable_gqa=True), tensors)


def test_weights_and_summary_are_those_of_the_softmax():
    mask, dense = mask_of("documents of each batch entry", 300, 300, 128)
    query, key, value = tensors = inputs(300, 300)
    scores = (query @ key.transpose(-1, -2) / 8**0.5).masked_fill(~dense, float("-inf"))
    output, aux, weights, summary = flex_attention(
        *tensors, block_mask=mask, return_aux=theirs.AuxRequest(lse=True, max_scores=True), return_weights=True,
        return_summary=True, top_k=3)
    assert_same(weights, scores.softmax(-1), (query, key), again=True)
    assert_close(output, scores.softmax(-1) @ value)
    assert_same(aux.lse, scores.logsumexp(-1), (query, key), again=True)
    assert_close(aux.max_scores, scores.detach().amax(-1))
    assert_close(summary.entropy, torch.special.entr(scores.softmax(-1)).sum(-1).detach())
    best = scores.softmax(-1).topk(3)
    assert_close(summary.top_k_weight, best.values.detach())
    assert ((summary.top_k_index == best.indices) | (summary.top_k_index == -1)).all()


def test_gradcheck_with_a_block_mask():
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (k != 2), None, None, 6, 6, "cpu", BLOCK_SIZE=4)
    tensors = doubles((1, 2, 6, 3), (1, 1, 6, 3), (1, 1, 6, 2))

    def call(*tensors):
        return flex_attention(*tensors, block_mask=mask, enable_gqa=True, return_lse=True, return_weights=True)

    assert torch.autograd.gradcheck(call, tensors)


def test_a_block_mask_is_converted_once_and_forgotten_with_it(nothing_stays):
    asked = []

    def causal(b, h, q, k):
        asked.append(1)
        return q >= k

    mask = create_block_mask(causal, None, None, 100, 100, "cpu", BLOCK_SIZE=32)
    tensors = inputs(100, 100)
    asked.clear()
    first = from_block_mask(mask)
    once = len(asked)
    assert once > 0
    expected = flex_attention(*tensors, block_mask=mask)
    assert from_block_mask(mask) is first and len(asked) == once
    mask.mask_mod = lambda b, h, q, k: (q >= k) & (q - k < 3)
    assert not torch.equal(flex_attention(*tensors, block_mask=mask), expected)
    mask.mask_mod = causal
    assert torch.equal(flex_attention(*tensors, block_mask=mask), expected)
    mask.kv_num_blocks[0, 0, 0] = 0
    assert (flex_attention(*tensors, block_mask=mask)[:, :, :32] == 0).all()
    before = len(_block_mask._converted)
    del mask
    gc.collect()
    assert len(_block_mask._converted) == before - 1


def test_few_pairs_at_a_time_give_the_same(monkeypatch):
    mask, dense = mask_of("documents of each batch entry", 60, 60, 16)
    for most in (1, 100, 16 * 16, 5 * 16 * 16):
        monkeypatch.setattr(_block_mask, "MOST_PAIRS", most)
        assert torch.equal(torch.from_numpy(_block_mask._convert(mask, 60, 60).dense()), dense)


LONG = """
import resource, torch, heed
from torch.nn.attention.flex_attention import BlockMask
from heed.torch import flex_attention

L, B = 16384, 128
document = torch.arange(L) // 1000
first, last, row = document[::B], document[B - 1::B], torch.arange(L // B)
listed = (row[:, None] >= row) & (first[:, None] <= last)
full = (row[:, None] > row) & (first[:, None] == last)  # so of one document
full &= (first == last)[:, None] & (first == last)

def ordered(blocks):
    order = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1).int()[None, None], order.int()[None, None]

mask = BlockMask.from_kv_blocks(*ordered(listed & ~full), *ordered(full), BLOCK_SIZE=B, seq_lengths=(L, L),
                                mask_mod=lambda b, h, q, k: (document[q] == document[k]) & (q >= k))
x = torch.randn(1, 1, L, 16, requires_grad=True)
small = x[:, :, :256]
flex_attention(small, small, small).sum().backward()
import torch._dynamo._trace_wrapped_higher_order_op
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
output = flex_attention(x, x, x, block_mask=mask)
output.sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
lengths = document.bincount().tolist()
print(torch.equal(output, heed.torch.attention(x, x, x, mask=heed.masks.documents(lengths)).output))
"""


def test_a_long_block_mask_makes_no_matrix_of_all_pairs():
    ran = subprocess.run([sys.executable, "-c", LONG], check=True, capture_output=True, text=True, timeout=300)
    more, same = ran.stdout.split()
    assert int(more) * 1024 < 16384**2 / 4, f"{more} KiB more"  # a matrix of bools alone is four times that
    assert same == "True"


class Loss:
    """A loss with operations that torch.compile sees between calls of heed."""

    def __call__(self, query, key, value, mask):
        output, summary = flex_attention(query * 2, key, value, block_mask=mask, return_summary=True)
        return output.tanh().square().sum() + summary.lse.sum()


BACKENDS = ["aot_eager", "inductor"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_with_block_masks_it_gives_the_same(backend, nothing_stays):
    loss = Loss()
    compiled = torch.compile(loss.__call__, fullgraph=True, backend=backend)
    tensors = inputs(300, 300)
    some = [mask_of(name, 300, 300, 128)[0] for name in ("causal", "documents", "causal")]
    for mask in (*some, some[0], from_block_mask(some[1])):
        assert_same(compiled(*tensors, mask), loss(*tensors, mask), tensors)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_a_mask_that_was_changed_is_converted_anew(compiled, nothing_stays):
    def attend(*tensors, mask):
        return flex_attention(*tensors, block_mask=mask)

    call = torch.compile(attend, fullgraph=True, backend="aot_eager") if compiled else attend
    tensors = inputs(96, 96)
    mask, dense = mask_of("causal", 96, 96, 32)
    assert_close(call(*tensors, mask=mask), by_pytorch(*tensors, dense))
    mask.mask_mod = lambda b, h, q, k: (q >= k) & (k % 2 > 0)
    diagonal = torch.arange(96) // 32 == (torch.arange(96) // 32)[:, None]  # the blocks that the mask cuts
    dense = dense & ~(diagonal & (torch.arange(96) % 2 == 0))
    assert_close(call(*tensors, mask=mask), by_pytorch(*tensors, dense))
    mask.kv_num_blocks[0, 0, 0] = 0
    dense[:, :, :32] = False
    assert_close(call(*tensors, mask=mask), by_pytorch(*tensors, dense))
    mask.kv_num_blocks = torch.zeros_like(mask.kv_num_blocks)
    assert_close(call(*tensors, mask=mask), by_pytorch(*tensors, dense & ~diagonal))


@pytest.mark.parametrize("kind", ["block masks", "sparse masks"])
def test_a_compiled_function_takes_no_mask_for_one_that_is_gone(kind, nothing_stays):
    compiled = torch.compile(lambda *x: flex_attention(*x[:3], block_mask=x[3]), fullgraph=True, backend="aot_eager")
    tensors = inputs(20, 20)
    for reach in range(1, 8):
        if kind == "block masks":
            mask = create_block_mask(lambda b, h, q, k: (q - k).abs() < reach, None, None, 20, 20, "cpu", BLOCK_SIZE=8)
        else:
            mask = heed.masks.sliding_window(reach - 1, reach - 1, 20, 20)
        dense = (torch.arange(20)[:, None] - torch.arange(20)).abs() < reach
        assert_close(compiled(*tensors, mask), by_pytorch(*tensors, dense))
        del mask  # its memory address may be reused


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mask_that_a_compiled_function_finds_by_itself(backend, nothing_stays):
    mask = mask_of("documents", 300, 300, 128)[0]
    sparse = from_block_mask(mask)
    tensors = inputs(300, 300)
    for one in (mask, sparse):
        compiled = torch.compile(lambda *x: flex_attention(*x, block_mask=one), fullgraph=True, backend=backend)
        assert_same(compiled(*tensors), flex_attention(*tensors, block_mask=mask), tensors)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_function_takes_any_number_of_masks_as_tensors(backend, nothing_stays):
    graphs = []

    def counted(graph, example):
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, example)

    def loss(query, key, value, mask):
        return attention(query * 2, key, value, sparse_mask=mask).output.square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend=counted)
    tensors = inputs(8, 8)
    for first in range(1, 8):
        mask = heed.masks.documents([first, 8 - first])
        got = compiled(*tensors, mask_tensor(mask))
        del mask  # only the autograd graph keeps it
        gc.collect()
        assert_same(got, loss(*tensors, heed.masks.documents([first, 8 - first])), tensors)
    assert len(graphs) == 1


# sparse_mask= and mask= of attention.


def documents():
    mask = heed.masks.documents([3, 0, 5], causal=True)
    return mask, torch.from_numpy(mask.dense())


@pytest.mark.parametrize("word", ["mask", "sparse_mask", "a tensor"])
def test_a_sparse_mask_gives_the_bits_of_the_boolean(word, nothing_stays):
    mask, dense = documents()
    tensors = inputs(8, 8)
    call = {"sparse_mask": mask_tensor(mask)} if word == "a tensor" else {word: mask}
    found, expected = (attention(*tensors, need=("weights", "entropy"), top_k=2, **x) for x in (call, {"mask": dense}))
    for ours, reference in zip(found, expected):
        assert (ours is None) == (reference is None)
        assert ours is None or torch.equal(ours, reference)
    direction = torch.randn_like(found.output)
    for ours, reference in zip(*(torch.autograd.grad(x.output, tensors, direction) for x in (found, expected))):
        assert torch.equal(ours, reference)


def test_both_masks_apply():
    mask, dense = documents()
    tensors = inputs(8, 8)
    odd = torch.arange(8) % 2 > 0
    found = attention(*tensors, mask=odd, sparse_mask=mask).output
    assert_same(found, by_pytorch(*tensors, dense & odd), tensors)


def test_gradcheck_with_a_sparse_mask():
    mask, _ = documents()
    tensors = doubles((1, 2, 8, 3), (1, 2, 8, 3), (1, 2, 8, 2))

    def call(*tensors):
        found = attention(*tensors, mask=mask, need=("weights",))
        return found.output, found.weights, found.lse

    assert torch.autograd.gradcheck(call, tensors)


@pytest.mark.parametrize("reentrant", [False, True])
def test_within_a_checkpoint(reentrant, nothing_stays):
    _, dense = documents()
    tensors = inputs(8, 8)
    found = checkpoint(lambda *x: attention(*x, mask=documents()[0]).output, *tensors, use_reentrant=reentrant)
    gc.collect()
    for x in tensors:
        x.grad = None
    found.square().sum().backward()
    expected = by_pytorch(*tensors, dense)
    assert_close(found.detach(), expected.detach())
    for x, gradient in zip(tensors, torch.autograd.grad(expected.square().sum(), tensors)):
        assert_close(x.grad, gradient)


def test_a_graph_keeps_its_mask_where_hooks_save_copies(nothing_stays):
    _, dense = documents()
    tensors = inputs(8, 8)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x):
        found = attention(*tensors, mask=documents()[0]).output
    gc.collect()
    assert_same(found, by_pytorch(*tensors, dense), tensors)


def test_a_graph_that_is_used_twice(nothing_stays):
    tensors = inputs(8, 8)
    found = attention(*tensors, mask=documents()[0]).output
    first, second = (torch.autograd.grad(found.sum(), tensors, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))


def test_threads_with_masks_of_their_own(nothing_stays):
    def work(first):
        mask = heed.masks.documents([first, 8 - first])
        dense = torch.from_numpy(mask.dense())
        tensors = inputs(8, 8)
        for _ in range(20):
            assert_same(attention(*tensors, mask=mask).output, by_pytorch(*tensors, dense), tensors)
        return first

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(1, 8))) == list(range(1, 8))


def test_on_meta_and_fake_tensors():
    from torch._subclasses import FakeTensorMode

    mask, _ = documents()
    x = torch.empty(1, 2, 8, 4, device="meta")
    assert attention(x, x, x, mask=mask).output.device.type == "meta"
    with FakeTensorMode():
        x = torch.empty(1, 2, 8, 4)
        assert attention(x, x, x, mask=mask).output.shape == x.shape


def a_mask(**changes):
    settings = {"mod": MODS["causal"], "B": None, "H": None, "queries": 5, "keys": 7} | changes
    return create_block_mask(*settings.values(), "cpu", BLOCK_SIZE=4)


MISTAKES = {
    "score_mod is of type function; a heed.ScoreMod is expected": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s),
    "query has shape [4, 5, 8]; 4 axes": lambda q, k, v: flex_attention(q[0], k, v),
    "query has 4 heads and key 2; the same number is expected": lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2]),
    "block_mask is of type function; torch.nn.attention.flex_attention.BlockMask is expected":
        lambda q, k, v: flex_attention(q, k, v, block_mask=MODS["causal"]),
    "block_mask is for 5 queries and 9 keys; 5 and 7 are expected":
        lambda q, k, v: flex_attention(q, k, v, block_mask=a_mask(keys=9)),
    "block_mask is for 4 queries and 7 keys; 5 and 7 are expected":
        lambda q, k, v: flex_attention(q, k, v, block_mask=a_mask(queries=4)),
    "block_mask is for 3 batch entries; 1 or 2 are expected":
        lambda q, k, v: flex_attention(q, k, v, block_mask=a_mask(B=3)),
    "block_mask is for 2 heads; 1 or 4 are expected": lambda q, k, v: flex_attention(q, k, v, block_mask=a_mask(H=2)),
    "block_mask was sliced": lambda q, k, v: flex_attention(q, k, v, block_mask=a_mask()[:, :, :]),
    "return_lse is True and return_aux is given":
        lambda q, k, v: flex_attention(q, k, v, return_lse=True, return_aux=theirs.AuxRequest()),
    "block_mask has size [1, 1, 8, 8]": lambda q, k, v: flex_attention(q, k, v, block_mask=documents()[0]),
    "block_mask is a tensor of dtype torch.bool and shape [5, 7] that stands for no mask":
        lambda q, k, v: flex_attention(q, k, v, block_mask=torch.ones(5, 7).bool()),
    "stands for no mask of this process":
        lambda q, k, v: attention(q, k, v, sparse_mask=mask_tensor(documents()[0]).clone()),
    "sparse_mask is of type list; a heed.SparseMask is expected": lambda q, k, v: attention(q, k, v, sparse_mask=[3]),
    "mask is a SparseMask and sparse_mask is given; one of the two":
        lambda q, k, v: attention(q, k, v, mask=documents()[0], sparse_mask=documents()[0]),
    "mask_tensor: mask is of type list": lambda q, k, v: mask_tensor([3]),
    "block_mask is of type SparseMask": lambda q, k, v: from_block_mask(documents()[0]),
    "block_mask is PyTorch's for any lengths":
        lambda q, k, v: from_block_mask(theirs._create_empty_block_mask(q, k)),
    "has a mask_mod that returns torch.int64; bool": lambda q, k, v: from_block_mask(other_mod(lambda b, h, i, j: i - j)),
}


def other_mod(mod):
    mask = a_mask()
    mask.mask_mod = mod
    return mask


@pytest.mark.parametrize("message", MISTAKES)
def test_what_is_wrong_is_said(message):
    with pytest.raises(ValueError) as caught:
        MISTAKES[message](*inputs(5, 7))
    assert message in str(caught.value)


def test_a_nested_tensor_is_refused():
    nested = torch.nested.nested_tensor([torch.randn(2, 3, 8), torch.randn(2, 4, 8)], layout=torch.jagged)
    with pytest.raises(ValueError, match="query is a nested tensor; a plain tensor is expected"):
        flex_attention(nested, nested, nested)


def test_a_score_mod_is_the_bias_that_it_adds():
    torch.manual_seed(7)
    q, k, v = (torch.randn(1, 2, 70, 16, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mod = heed.ScoreMod.expression("s - 0.1 * abs(i - j) + 0.01 * s * s")
    places = torch.arange(70)
    far = 0.1 * (places[:, None] - places[None]).abs()

    def expected(q, k, v):
        score = q @ k.transpose(-1, -2) / 4
        return torch.softmax(score - far + 0.01 * score * score, -1) @ v

    for function in (lambda q, k, v: flex_attention(q, k, v, mod),
                     lambda q, k, v: heed.torch.attention(q, k, v, score_mod=mod).output,
                     torch.compile(lambda q, k, v: flex_attention(q, k, v, mod), backend="aot_eager")):
        mine, theirs = function(q, k, v), expected(q, k, v)
        torch.testing.assert_close(mine, theirs)
        slope = torch.randn_like(mine)
        for one, other in zip(torch.autograd.grad(mine, (q, k, v), slope), torch.autograd.grad(theirs, (q, k, v), slope)):
            torch.testing.assert_close(one, other)
