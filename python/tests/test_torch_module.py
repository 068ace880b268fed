"""heed.torch.MultiheadAttention compared with torch.nn's, and heed together with PyTorch's threads and processes."""

import copy
import itertools
import os
import pickle
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import heed  # noqa: E402
import heed.torch  # noqa: E402
from heed.torch import MultiheadAttention, scaled_dot_product_attention  # noqa: E402

TOLERANCE = 1e-12  # f64: some hundred roundings of 2^-53, of numbers around 1


def pair(**settings):
    """PyTorch's module and heed's, with the same parameters."""
    torch.manual_seed(5)
    theirs = torch.nn.MultiheadAttention(12, 3, dtype=torch.float64, **settings)
    ours = MultiheadAttention(12, 3, dtype=torch.float64, **settings)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)  # biases are initialised to 0
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def assert_same(theirs, ours):
    for expected, got in zip(theirs, ours, strict=True):
        assert (expected is None) == (got is None)
        if expected is not None:
            assert expected.shape == got.shape
            assert bool(((expected - got).abs() <= TOLERANCE).all()), (expected - got).abs().max()


def check(settings, query, key, value, **call):
    theirs, ours = pair(**settings)
    expected, got = theirs(query, key, value, **call), ours(query, key, value, **call)
    assert_same(expected, got)
    for one in (theirs, ours):
        one.zero_grad()
    (expected[0].square().sum() + (0 if expected[1] is None else expected[1].square().sum())).backward()
    (got[0].square().sum() + (0 if got[1] is None else got[1].square().sum())).backward()
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert bool(((a.grad - b.grad).abs() <= 100 * TOLERANCE * (1 + a.grad.abs())).all())


SETTINGS = {
    "plain": {},
    "batch first": {"batch_first": True},
    "without biases": {"bias": False},
    "other widths": {"kdim": 8, "vdim": 10},
    "a bias key and a zero key": {"add_bias_kv": True, "add_zero_attn": True},
}


def test_the_module_has_no_names_but_those_that_it_exports():
    assert {name for name in vars(heed.torch) if not name.startswith("_")} == set(heed.torch.__all__)


# (sizes, options, message), where PyTorch refuses in words of its own, or later.
WRONG_MODULES = [
    ((8, 3), {}, "embed_dim is 8; a multiple of num_heads, 3, is expected"),
    ((0, 1), {}, "embed_dim is 0; 1 or more is expected"), ((8, -2), {}, "num_heads is -2; 1 or more is expected"),
    ((8.0, 2), {}, "embed_dim is 8.0; a whole number is expected"), ((8, "2"), {}, "num_heads is '2'; a whole number is expected"),
    ((8, 2), {"kdim": -1}, "kdim is -1; 1 or more is expected"), ((8, 2), {"vdim": 0}, "vdim is 0; 1 or more is expected"),
    ((8, 2), {"dropout": 1.5}, "dropout is 1.5; 0 to 1 is expected"),
    ((8, 2), {"dropout": float("nan")}, "dropout is nan; 0 to 1 is expected"),
    ((8, 2), {"dropout": "x"}, "dropout is 'x'; a number is expected"),
    ((8, 2), {"bias": "no"}, "bias is 'no'; True or False is expected"),
    ((8, 2), {"batch_first": "no"}, "batch_first is 'no'; True or False is expected"),
    ((8, 2), {"dtype": torch.int64}, "dtype is torch.int64; a floating torch.dtype is expected"),
    ((8, 2), {"dtype": "f32"}, "dtype is 'f32'; a floating torch.dtype is expected"),
]


@pytest.mark.parametrize("sizes,options,message", WRONG_MODULES)
def test_a_wrong_module_is_refused_in_one_sentence(sizes, options, message):
    with pytest.raises((TypeError, ValueError)) as raised:
        MultiheadAttention(*sizes, **options)
    assert str(raised.value) == "MultiheadAttention: " + message


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("need_weights,average", [(True, True), (True, False), (False, True)])
def test_it_gives_what_pytorchs_gives(settings, need_weights, average):
    settings = SETTINGS[settings]
    batch = (2, 5) if settings.get("batch_first") else (5, 2)
    other = (2, 7) if settings.get("batch_first") else (7, 2)
    query = torch.randn(*batch, 12, dtype=torch.float64)
    key = torch.randn(*other, settings.get("kdim", 12), dtype=torch.float64)
    value = torch.randn(*other, settings.get("vdim", 12), dtype=torch.float64)
    check(settings, query, key, value, need_weights=need_weights, average_attn_weights=average)


def masks():
    torch.manual_seed(9)
    attn = {"none": None, "bool": torch.rand(5, 5) < 0.3, "float": torch.randn(5, 5, dtype=torch.float64),
            "per head": torch.rand(6, 5, 5) < 0.3}
    padding = {"none": None, "bool": torch.tensor([[False] * 5, [False] * 3 + [True] * 2]),
               "float": torch.randn(2, 5, dtype=torch.float64)}
    for mask in (attn["bool"], attn["per head"]):
        mask[..., 0] = False  # PyTorch returns NaN for a row that may attend to nothing
    return attn, padding


@pytest.mark.parametrize("attn,padding", itertools.product(*masks()))
@pytest.mark.parametrize("settings", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["plain", "more keys"])
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_masks_of_both_kinds(attn, padding, settings):
    attns, paddings = masks()
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    check(settings, x, x, x, attn_mask=attns[attn], key_padding_mask=paddings[padding])


@pytest.mark.parametrize("padding", ["none", "bool"])
def test_the_causal_hint(padding):
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    mask = torch.ones(5, 5).triu(1).bool()
    check({}, x, x, x, attn_mask=mask, is_causal=True, key_padding_mask=masks()[1][padding])
    check({}, x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    with pytest.raises(ValueError, match="is_causal is only a hint"):
        pair()[1](x, x, x, is_causal=True)


@pytest.mark.parametrize("need_weights", [False, True])
def test_a_float_mask_is_used_beside_the_causal_hint(need_weights):
    torch.manual_seed(4)
    _, ours = pair()
    x = torch.randn(5, 2, 12, dtype=torch.float64)
    mask = (torch.randn(5, 5, dtype=torch.float64) + torch.full((5, 5), float("-inf")).triu(1)).requires_grad_()
    gradients = []
    for is_causal in (False, True):
        found = ours(x, x, x, attn_mask=mask, is_causal=is_causal, need_weights=need_weights)[0]
        gradients.append((found, *torch.autograd.grad(found.square().sum(), mask)))
    assert all(torch.equal(*both) for both in zip(*gradients)) and gradients[0][1].abs().max() > 0.01


KEPT = torch.zeros(2, 9).bool()
MISTAKES = {
    r"key_padding_mask has dtype torch.int64; bool \(True where a key is forbidden\) or a floating dtype": {
        "key_padding_mask": KEPT.long(), "attn_mask": torch.zeros(7, 9).bool()},
    r"key_padding_mask has dtype torch.uint8; ": {"key_padding_mask": KEPT.byte(), "attn_mask": torch.zeros(7, 9)},
    r"attn_mask has dtype torch.int64; ": {"key_padding_mask": KEPT.double(), "attn_mask": torch.zeros(7, 9).long()},
    r"attn_mask has dtype torch.uint8; ": {"attn_mask": torch.zeros(7, 9).byte()},
    r"key_padding_mask has shape \[2, 6\]; \[2, 9\] is expected": {"key_padding_mask": KEPT[:, :6]},
    r"key_padding_mask has shape \[1, 9\]; \[2, 9\] is expected": {"key_padding_mask": KEPT[:1]},
    r"key_padding_mask has shape \[9\]; \[2, 9\] is expected": {"key_padding_mask": KEPT[0]},
    r"attn_mask has shape \[7, 5\]; \[7, 9\] or \[6, 7, 9\] is expected": {"attn_mask": torch.zeros(7, 5).bool()},
    r"attn_mask has shape \[7, 1\]; ": {"attn_mask": torch.ones(7, 1).bool()},
    r"attn_mask has shape \[3, 7, 9\]; ": {"attn_mask": torch.zeros(3, 7, 9)},
    r"key has shape \[9, 1, 12\]; \[9, 2, 12\] is expected": {"key": torch.zeros(9, 1, 12).double()},
    r"value has shape \[8, 2, 12\]; \[9, 2, 12\] is expected": {"value": torch.zeros(8, 2, 12).double()},
    r"query has shape \[7, 2, 11\]; \[7, 2, 12\] is expected": {"query": torch.zeros(7, 2, 11).double()},
    r"key is of shape \[9, 12\]; a tensor of 3 axes is expected": {"key": torch.zeros(9, 12).double()},
    r"value is None; a tensor of 3 axes is expected": {"value": None},
}


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("message", MISTAKES)
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_what_pytorchs_refuses_is_refused(message, batch_first):
    call = {"query": torch.randn(7, 2, 12).double(), **dict.fromkeys(("key", "value"), torch.randn(9, 2, 12).double())}
    theirs, ours = pair(batch_first=batch_first)
    call |= MISTAKES[message]
    if batch_first:
        call |= {name: x.transpose(0, 1) for name, x in call.items() if "mask" not in name and x is not None and x.dim() > 2}
    with pytest.raises((AssertionError, RuntimeError, AttributeError)):
        theirs(**call)
    message = message if not batch_first else re.sub(r"\[(\d+), (\d), 1(\d)\\\]", r"[\2, \1, 1\3\]", message)
    with pytest.raises(ValueError, match="MultiheadAttention: " + message):
        ours(**call)


@pytest.mark.parametrize("settings", SETTINGS)
def test_under_autocast(settings):
    settings = SETTINGS[settings]
    theirs, ours = (module.float() for module in pair(**settings))
    query, key, value = (torch.randn(5, 2, settings.get(width, 12)) for width in ("dim", "kdim", "vdim"))
    with torch.autocast("cpu", torch.bfloat16):
        expected, got = theirs(query, key, value), ours(query, key, value)
    assert got[0].dtype == expected[0].dtype == torch.bfloat16
    for a, b in zip(expected, got):  # some roundings of 2^-9, of numbers around 10
        assert bool(((a.double() - b.double()).abs() <= 2**-6 * (1 + a.double().abs().max())).all())
    for result in (expected, got):
        result[0].float().sum().backward()
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert bool(((a.grad - b.grad).abs() <= 2**-5 * (1 + a.grad.abs().max())).all())


def test_without_a_batch():
    x = torch.randn(5, 12, dtype=torch.float64)
    check({}, x, x, x, key_padding_mask=torch.tensor([False] * 4 + [True]))
    with pytest.raises(ValueError, match="2 or 3 axes"):
        pair()[1](x[0], x, x)


def test_it_stands_in_for_pytorchs_in_a_layer():
    layer = torch.nn.TransformerEncoderLayer(12, 3, 24, dropout=0, batch_first=True, dtype=torch.float64)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    expected = layer(x)
    ours = MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours
    assert_same([expected], [layer(x)])


class Counted(MultiheadAttention):
    """Counts its calls."""

    calls = 0

    def forward(self, *inputs, **options):
        Counted.calls += 1
        return super().forward(*inputs, **options)


def swap_in(layer):
    """Replaces a layer's attention by heed's with the same parameters."""
    ours = Counted(12, 4, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = ours.train(layer.training)


def encoder_layer():
    torch.manual_seed(3)
    return torch.nn.TransformerEncoderLayer(12, 4, 24, dropout=0.1, batch_first=True, dtype=torch.float64)


PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
AFTER = torch.ones(5, 5).triu(1).bool()
LAYER_CALLS = {"plain": {}, "padded": {"src_key_padding_mask": PADDING}, "masked": {"src_mask": AFTER},
               "causal": {"src_mask": AFTER, "is_causal": True},
               "both": {"src_mask": AFTER, "src_key_padding_mask": PADDING}}


@pytest.mark.parametrize("call", LAYER_CALLS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_layer_of_pytorchs_calls_it_in_eval_too(mode, call):
    theirs, ours = encoder_layer().eval(), encoder_layer()
    swap_in(ours)
    ours.eval()
    x, before = torch.randn(2, 5, 12, dtype=torch.float64), Counted.calls
    with mode():
        expected, got = theirs(x, **LAYER_CALLS[call]), ours(x, **LAYER_CALLS[call])
    assert Counted.calls == before + 1
    kept = ~PADDING if "padding" in str(LAYER_CALLS[call]) else torch.ones(2, 5).bool()
    assert_same([expected[kept]], [got[kept]])


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("swapped", ["before", "after"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_stack_of_pytorchs_calls_it_in_every_layer(swapped, padded):
    theirs, layer = torch.nn.TransformerEncoder(encoder_layer(), 3).eval(), encoder_layer()
    if swapped == "before":
        swap_in(layer)
    ours = torch.nn.TransformerEncoder(layer, 3).eval()
    if swapped == "after":  # the stack then passes nested tensors to its layers
        for layer in ours.layers:
            swap_in(layer)
    x, padding, before = torch.randn(2, 5, 12, dtype=torch.float64), PADDING if padded else None, Counted.calls
    with torch.no_grad():
        expected, got = theirs(x, src_key_padding_mask=padding), ours(x, src_key_padding_mask=padding)
    assert Counted.calls == before + 3
    kept = ~PADDING if padded else torch.ones(2, 5).bool()
    assert_same([expected[kept]], [got[kept]])


def nested(*lengths, **options):
    return torch.nested.nested_tensor([torch.randn(length, 12, dtype=torch.float64) for length in lengths], **options)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_batches_without_padding():
    theirs, ours = pair(batch_first=True)
    x = nested(4, 1, 6)
    output, weights = ours(x, x, x)
    for row, found, matrix in zip(x.unbind(), output.unbind(), weights, strict=True):
        expected = theirs(row, row, row)
        assert_same(expected, (found, matrix[:len(row), :len(row)]))
        assert (matrix[:, len(row):] == 0).all()
    output.to_padded_tensor(0.0).square().sum().backward()
    sum(theirs(row, row, row)[0].square().sum() for row in x.unbind()).backward()
    for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):
        assert bool(((a.grad - b.grad).abs() <= 100 * TOLERANCE * (1 + a.grad.abs())).all())
    mistakes = {"value is a plain tensor": (x, x, torch.randn(3, 6, 12, dtype=torch.float64)),
                "query is a nested tensor of layout torch.jagged": (nested(4, 1, 6, layout=torch.jagged),) * 3}
    for message, inputs in mistakes.items():
        with pytest.raises(ValueError, match=message):
            ours(*inputs)
    with pytest.raises(ValueError, match="a mask is given with a nested tensor; None is expected"):
        ours(x, x, x, attn_mask=torch.zeros(6, 6).bool())
    with pytest.raises(ValueError, match="batch_first is False with a nested tensor; True is expected"):
        pair()[1](x, x, x)


@pytest.mark.parametrize("settings", [{}, {"kdim": 8, "vdim": 10}], ids=["one width", "other widths"])
def test_it_is_copied_kept_and_drawn_anew(settings):
    module = MultiheadAttention(12, 3, batch_first=True, **settings).eval()
    x = torch.randn(2, 5, 12), torch.randn(2, 7, settings.get("kdim", 12)), torch.randn(2, 7, settings.get("vdim", 12))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(*x)[0], module(*x)[0])
    torch.manual_seed(5)
    module._reset_parameters()
    torch.manual_seed(5)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True, **settings)
    torch.manual_seed(5)
    theirs._reset_parameters()
    for name, parameter in theirs.named_parameters():
        if "out_proj.weight" not in name:  # PyTorch does not reinitialise it
            assert torch.equal(parameter, module.get_parameter(name)), name


def test_dropout_only_while_training():
    module = MultiheadAttention(12, 3, dropout=0.5)
    x = torch.randn(5, 2, 12)
    assert not torch.equal(module(x, x, x)[0], module(x, x, x)[0])
    module.eval()
    assert torch.equal(module(x, x, x)[0], module(x, x, x)[0])


def test_tensors_come_back_as_tensors_in_their_own_type():
    x = torch.randn(1, 2, 5, 8)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        result = heed.attention(*[x.to(dtype)] * 3, need="lse", top_k=2)
        assert result.output.dtype == dtype and result.top_k_index.dtype == torch.int64
        assert result.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    out = torch.empty(1, 2, 5, 8)
    assert heed.attention(x, x, x, out=out) is out
    with pytest.raises(ValueError, match="q requires a gradient"):
        heed.attention(x.requires_grad_(), x, x)
    with pytest.raises(ValueError, match="q is on meta; the CPU is expected"):
        heed.attention(torch.empty(1, 2, 5, 8, device="meta"), x, x)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads_are_as_many_as_pytorch_takes(threads, monkeypatch):
    from heed.torch import _sdpa

    asked = []
    monkeypatch.setattr(_sdpa._heed, "attention", lambda q, *_, threads, **__: asked.append(threads) or q)
    x = torch.randn(1, 2, 5, 8)
    for count in (1, 3):
        torch.set_num_threads(count)
        scaled_dot_product_attention(x, x, x)
    assert asked == [1, 3]


class Attended(torch.utils.data.Dataset):
    """Each item is an attention output, computed in the worker."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        x = torch.full((1, 4, 256, 32), float(index))
        torch.mm(x[0, 0], x[0, 0].T)
        return scaled_dot_product_attention(x, x, x)[0, 0, 0, 0] + heed.attention(x, x, x, threads=2)[0, 0, 0, 0]


PROGRAM = """
import sys, torch, heed
sys.path.insert(0, {folder!r})
from test_torch_module import Attended
torch.set_num_threads(2)
x = torch.randn(1, 4, 512, 32)
y = torch.mm(torch.randn(600, 600), torch.randn(600, 600))  # PyTorch's threads are there,
heed.attention(x, x, x, threads=2)                          # and heed's
for context in ("fork", "forkserver"):
    loader = torch.utils.data.DataLoader(Attended(), batch_size=4, num_workers=2, multiprocessing_context=context)
    print([round(value, 3) for batch in loader for value in batch.tolist()])
heed.attention(x, x, x, threads=2)
"""


def test_workers_of_a_data_loader_neither_hang_nor_differ():
    program = PROGRAM.format(folder=os.path.dirname(__file__))
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300)
    assert ran.stdout.splitlines() == [str([2.0 * index for index in range(8)])] * 2


def test_a_forked_process_that_computes_nothing_ends():
    program = """
import os, sys, torch, heed
x = torch.randn(1, 4, 512, 32)
heed.attention(x, x, x, threads=2)
child = os.fork()
if child == 0:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "7\n"


def test_a_mask_of_a_forked_process_stands_for_no_other():
    program = """
import os, heed, torch
from heed.torch import attention, mask_tensor
before = heed.masks.documents([3, 4])
tensor = mask_tensor(before)
readable, writable = os.pipe()
if os.fork() == 0:
    kept = heed.masks.documents([2, 5])
    os.write(writable, f"{int(mask_tensor(kept))} {int(mask_tensor(before)) == int(tensor)}".encode())
    os._exit(0)
os.wait()
number, same = os.read(readable, 100).decode().split()
own = mask_tensor(heed.masks.documents([6, 1]))
x = torch.randn(1, 2, 7, 8)
print(same, torch.isfinite(attention(x, x, x, sparse_mask=own).output).all().item())
try:
    attention(x, x, x, sparse_mask=torch.tensor([int(number)]))
except ValueError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert ran.stdout.startswith("True True\nsparse_mask is a tensor of dtype torch.int64 and shape [1] that stands for no "
                                 "mask of this process"), ran.stdout


def test_without_pytorch_one_sentence_says_so():
    program = """
import sys
sys.modules["torch"] = None
try:
    import heed.torch
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "heed.torch needs torch, which is not installed: pip install torch\n"
