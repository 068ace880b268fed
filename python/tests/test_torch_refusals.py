"""heed.torch: errors for PyTorch features that heed does not support, and the repr of results."""

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import heed  # noqa: E402
import heed.torch  # noqa: E402
from heed import nn  # noqa: E402


def heads(gradient=False):
    torch.manual_seed(1)
    return torch.randn(1, 2, 4, 8, requires_grad=gradient)


def summed(x):
    return heed.torch.attention(x, x, x, causal=True).output.sum()


@pytest.mark.parametrize("call", [
    lambda x: torch.func.vmap(summed)(torch.stack([x, x])),
    lambda x: torch.func.grad(summed)(x),
    lambda x: torch.func.hessian(summed)(x),
    lambda x: torch.func.vmap(lambda y: heed.torch.scaled_dot_product_attention(y, y, y))(torch.stack([x, x])),
])
def test_transforms_of_functions_are_refused(call):
    with pytest.raises(RuntimeError, match=r"within a transform of torch.func \(vmap, grad, hessian, …\), which it does not "
                                           r"support: expected tensors \[B, H, L, D\] instead of vmap"):
        call(heads())


def test_second_derivatives_are_refused():
    x = heads(True)
    (first,) = torch.autograd.grad(summed(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="a second derivative of heed's attention is requested, which it does not compute"):
        first.sum().backward()


def test_a_first_derivative_of_a_graph_that_is_kept_is_there():
    x = heads(True)
    (first,) = torch.autograd.grad(summed(x), x, create_graph=True)
    x.grad = None
    summed(x).backward()
    assert torch.equal(first.detach(), x.grad)


@pytest.mark.parametrize("option", [
    {"need": "entropy"}, {"need": "lse"}, {"need": None}, {"need": ["weights", "weights"]}, {"need": {"scores": 1}},
    {"causal": None}, {"causal": 1}, {"window": None}, {"window": (None, 0)}, {"window": [2, None]},
    {"window": np.array([1, 0])}, {"softcap": None}, {"softcap": np.float32(3)}, {"dropout": None}, {"top_k": None},
    {"top_k": np.int64(2)}, {"align": None}, {"align": "bottom-right"}, {"scale": 1}, {"scale": Fraction(1, 3)},
    {"query_offset": np.int32(2)}], ids=str)
def test_options_of_every_kind_are_those_of_heed_attention(option):
    x = heads()
    option = {"causal": True} | option
    expected, found = heed.attention(x, x, x, **option), heed.torch.attention(x, x, x, **option)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found.output, expected)
        return
    for name in heed.torch.Attended._fields:
        ours, reference = getattr(found, name), getattr(expected, name)
        assert name == "lse" or (ours is None) == (reference is None)
        assert reference is None or torch.equal(ours, reference)


@pytest.mark.parametrize("option", [
    {"need": ["weights,entropy"]}, {"need": [""]}, {"need": ""}, {"need": [1]}, {"need": 5}, {"need": "weight"},
    {"causal": "x"}, {"window": 5}, {"window": (1,)}, {"window": (1.5, 0)}, {"window": ("a", 0)}, {"softcap": "a"},
    {"softcap": "0.5"}, {"scale": "a"}, {"scale": 1j}, {"query_offset": 2.0}, {"dropout": "a"}, {"top_k": 2.5},
    {"top_k": 2**70}, {"align": "left"}, {"align": 5}], ids=str)
def test_options_that_are_wrong_are_refused_as_by_heed_attention(option):
    x = heads()
    with pytest.raises((TypeError, ValueError)) as expected:
        heed.attention(x, x, x, **option)
    with pytest.raises(expected.type) as found:
        heed.torch.attention(x, x, x, **option)
    assert str(found.value) == str(expected.value)


def test_results_print_in_short():
    x = heads()
    attended = heed.torch.attention(x, x, x, top_k=2)
    assert repr(attended) == ("Attended(output [1, 2, 4, 8], lse [1, 2, 4], top_k_index [1, 2, 4, 2], "
                              "top_k_weight [1, 2, 4, 2])")
    _, summary = heed.torch.scaled_dot_product_attention(x, x, x, return_summary=True, top_k=3)
    assert repr(summary).startswith("Summary(lse [1, 2, 4], max_score [1, 2, 4], entropy [1, 2, 4], top_k_index [1, 2, 4, 3]")
    a = x.numpy()
    for result in (heed.attention(a, a, a, need="weights"), heed.look(a, a, a), nn.SelfAttention(8, 4, 4)(a[0, 0], need="lse")):
        assert len(repr(result)) < 200 and "\n" not in repr(result)


@pytest.mark.parametrize("function, names, axes", [
    (heed.torch.attention, "qkv", 4), (heed.torch.scaled_dot_product_attention, ("query", "key", "value"), 4),
    (heed.torch.flex_attention, ("query", "key", "value"), 4),
    (lambda *given: heed.torch.varlen_attention(*given, [0, 4]), ("query", "key", "value"), 3)],
    ids=["attention", "scaled_dot_product_attention", "flex_attention", "varlen_attention"])
def test_a_missing_tensor_is_named(function, names, axes, request):
    for place, name in enumerate(names):
        given = [heads() if axes == 4 else heads()[0].transpose(0, 1)] * 3
        given[place] = None
        with pytest.raises(TypeError, match=rf"^{request.node.callspec.id}: {name} is None; a torch.Tensor is expected$"):
            function(*given)


def test_a_missing_tensor_beside_nested_ones_is_named():
    nested = torch.nested.nested_tensor([torch.randn(3, 8)], layout=torch.jagged)
    for place, name in enumerate(("query", "key", "value")):
        for wrong, what in ((None, "None"), ([1], r"of type list")):
            given = [nested] * 3
            given[place] = wrong
            with pytest.raises(TypeError, match=rf"^scaled_dot_product_attention: {name} is {what}; a torch.Tensor is expected$"):
                heed.torch.scaled_dot_product_attention(*given)


def test_slopes_want_no_gradient_where_none_is_recorded():
    x, slopes = heads(), torch.ones(2, requires_grad=True)
    packed = x[0].transpose(0, 1)
    calls = {"attention: alibi": lambda: heed.torch.attention(x, x, x, alibi=slopes).output,
             "varlen_attention: alibi_slopes": lambda: heed.torch.varlen_attention(packed, packed, packed, [0, 4],
                                                                                   alibi_slopes=slopes)}
    for name, call in calls.items():
        argument = name.split()[1]
        with pytest.raises(ValueError, match=rf"^{name} requires a gradient, which heed does not compute; "
                                             rf"{argument}.detach\(\) is expected$"):
            call()
        with torch.no_grad():
            found = call()
            slopes = slopes.detach()
            assert torch.equal(found, call())
        slopes.requires_grad_()


PACKED = heads()[0].transpose(0, 1)
WRONG_IN_OTHER_WORDS = {
    "varlen_attention: sinks is of type list; a torch.Tensor is expected":
        lambda x: heed.torch.varlen_attention(PACKED, PACKED, PACKED, [0, 4], sinks=[1.0]),
    "dropout_p is 'x'; a number is expected":
        lambda x: heed.torch.varlen_attention(PACKED, PACKED, PACKED, [0, 4], dropout_p="x"),
    "dropout_p is None; a number is expected": lambda x: heed.torch.scaled_dot_product_attention(x, x, x, dropout_p=None),
    "dropout_p is 5; a number of 0 or more and below 1 is expected":
        lambda x: heed.torch.scaled_dot_product_attention(x, x, x, dropout_p=5),
    "varlen_attention: max_seqlen_q is 'x'; a whole number is expected":
        lambda x: heed.torch.varlen_attention(PACKED, PACKED, PACKED, [0, 4], max_seqlen_q="x"),
    "attn_mask has shape [3, 3]; a shape that broadcasts to [1, 2, 4, 4] is expected":
        lambda x: heed.torch.scaled_dot_product_attention(x, x, x, torch.zeros(3, 3)),
    "attn_mask has shape [3, 5]; a shape that broadcasts to [1, 2, 4, 4] is expected":
        lambda x: heed.torch.scaled_dot_product_attention(x, x, x, torch.ones(3, 5).bool()),
    "is_causal is 'x'; True or False is expected": lambda x: heed.torch.scaled_dot_product_attention(x, x, x, is_causal="x"),
    "flex_attention: return_aux is of type str; an AuxRequest is expected":
        lambda x: heed.torch.flex_attention(x, x, x, return_aux="x"),
    "flex_attention: top_k is None; a whole number is expected":
        lambda x: heed.torch.flex_attention(x, x, x, return_summary=True, top_k=None),
    "scaled_dot_product_attention: top_k is 0; 1 or more is expected with return_summary":
        lambda x: heed.torch.scaled_dot_product_attention(x, x, x, return_summary=True, top_k=0),
    "dropout is 5; a number of 0 or more and below 1 is expected": lambda x: heed.torch.attention(x, x, x, dropout=5),
}


@pytest.mark.parametrize("message", WRONG_IN_OTHER_WORDS)
def test_an_error_names_the_function_and_the_argument_that_were_given(message):
    with pytest.raises((TypeError, ValueError)) as found:
        WRONG_IN_OTHER_WORDS[message](heads())
    assert str(found.value).startswith(message)
