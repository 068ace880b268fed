"""Properties of a tensor known only to PyTorch's dispatcher: signs, graphs, tangents, transforms, modes, kinds.

Each function that takes tensors returns the result of PyTorch's formula on the plain numbers, or refuses with one
sentence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch.autograd.forward_ad as forward_ad  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import heed.torch  # noqa: E402
import heed.transformers  # noqa: E402

SHAPE = 1, 2, 5, 8
torch.manual_seed(5)
X, Y, K, V = torch.randn(4, *SHAPE)
BIAS_OF = torch.randn(8, 5)


def plain_sdpa(q, k, v, bias=None, causal=False):
    """The formula in PyTorch operators."""
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device="cpu").triu(1), float("-inf"))
    return scores.softmax(-1) @ v


def tokens(x):
    return x.flatten(0, 1).transpose(0, 1)


def untokens(x):
    return x.transpose(0, 1)[None]


module = torch.nn.Module()
module.is_causal = False
ours = heed.torch.MultiheadAttention(8, 2, batch_first=True).requires_grad_(False)
theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True).requires_grad_(False)
theirs.load_state_dict(ours.state_dict())


def appended(x):
    cache = heed.KvCache(kv_heads=2, key_dim=8, capacity=5)
    cache.append(x, x)
    return torch.from_numpy(cache.keys(0)[None])


def attended_over_a_cache(x):
    cache = heed.KvCache(kv_heads=2, key_dim=8, capacity=5)
    cache.append(K, V)
    return torch.as_tensor(heed.attention(x, cache))


def gradient(g):
    found = heed.attention(X, K, V, need="lse")
    return torch.as_tensor(heed.attention_backward(X, K, V, found.output, found.lse, g).dq)


def formula_gradient(g):
    q = X.clone().requires_grad_()
    return torch.autograd.grad(plain_sdpa(q, K, V), q, g)[0]


def read(result):
    return torch.as_tensor(np.asarray(result))


T = heed.torch
# Functions of one tensor that PyTorch's graphs and gradients support, each with its formula.
RECORDED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sdpa q": (lambda x: T.scaled_dot_product_attention(x, K, V), lambda x: plain_sdpa(x, K, V)),
    "sdpa k, v": (lambda x: T.scaled_dot_product_attention(K, x, x), lambda x: plain_sdpa(K, x, x)),
    "sdpa mask": (lambda x: T.scaled_dot_product_attention(K, K, V, x @ BIAS_OF), lambda x: plain_sdpa(K, K, V, x @ BIAS_OF)),
    "sdpa weights": (lambda x: T.scaled_dot_product_attention(x, K, V, return_weights=True)[0], lambda x: plain_sdpa(x, K, V)),
    "flex": (lambda x: T.flex_attention(x, K, V), lambda x: plain_sdpa(x, K, V)),
    "varlen": (lambda x: untokens(T.varlen_attention(tokens(x), tokens(K), tokens(V), [0, 5], causal=True)),
               lambda x: plain_sdpa(x, K, V, causal=True)),
    "attention": (lambda x: T.attention(x, K, V, causal=True).output, lambda x: plain_sdpa(x, K, V, causal=True)),
    "module": (lambda x: ours(x[0], x[0], x[0], need_weights=False)[0], lambda x: theirs(x[0], x[0], x[0], need_weights=False)[0]),
    "transformers": (lambda x: heed.transformers.heed_attention_forward(module, x, K, V, None)[0].transpose(1, 2),
                     lambda x: plain_sdpa(x, K, V)),
}
# Functions that read the numbers from memory.
READ: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "heed.attention q": (lambda x: torch.as_tensor(heed.attention(x, K, V)), lambda x: plain_sdpa(x, K, V)),
    "heed.attention v": (lambda x: torch.as_tensor(heed.attention(K, K, x)), lambda x: plain_sdpa(K, K, x)),
    "heed.attention_backward": (gradient, formula_gradient),
    "KvCache.append": (appended, lambda x: x),
    "attention over a cache": (attended_over_a_cache, lambda x: plain_sdpa(x, K, V)),
    "heed.look": (lambda x: read(heed.look(x, K, V).received), lambda x: torch.softmax(x @ K.transpose(-1, -2) / 8**0.5, -1).sum(-2)),
}


class Log(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class LogFunctions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **kwargs or {})


class Subclass(torch.Tensor):
    pass


class Wrapper(torch.Tensor):
    """A tensor subclass that holds another tensor instead of memory."""

    @staticmethod
    def of(x):
        made = torch.Tensor._make_wrapper_subclass(Wrapper, x.shape, dtype=x.dtype)
        made.held = x
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = torch.utils._pytree.tree_map_only(Wrapper, lambda x: x.held, (args, kwargs or {}))
        return func(*args, **kwargs)


def negated(x):
    """The same numbers, stored negated: PyTorch negates them when it reads them."""
    return torch.complex(torch.zeros_like(x), -x).conj().imag


def cut(x, to):
    x = x.clone()
    x.untyped_storage().resize_(to)
    return x


def with_tangent(call):
    with forward_ad.dual_level():
        return call(forward_ad.make_dual(X, Y))


def within(context, x=X):
    def run(call):
        with context():
            return call(x)
    return run


def faked(call):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        return call(mode.from_tensor(X))


def exported(call):
    class Model(torch.nn.Module):
        def forward(self, x):
            return call(x)

    return torch.export.export(Model(), (X,)).module()(Y)


def without_gradients(run):
    def call(call):
        with torch.no_grad():
            return run(call)
    return call


def directions(output):
    return torch.randn(3, *output.shape, generator=torch.Generator().manual_seed(2))


def batched_gradients(call):
    x = X.clone().requires_grad_()
    output = call(x)
    return torch.autograd.grad(output, x, directions(output), is_grads_batched=True)[0]


def gradients_in_turn(formula):
    x = X.clone().requires_grad_()
    output = formula(x)
    return torch.stack([torch.autograd.grad(output, x, one, retain_graph=True)[0] for one in directions(output)])


def gradient_of_a_negated_direction(call):
    x = X.clone().requires_grad_()
    output = call(x)
    return torch.autograd.grad(output, x, negated(directions(output)[0]))[0]


def of_functional(call):
    return torch._from_functional_tensor(call(torch._to_functional_tensor(X)))


def summed(call):
    return lambda x: call(x).square().sum()


def jacobian(formula):
    return torch.autograd.functional.jacobian(formula, X)


class Kind(NamedTuple):
    run: Callable[..., Any]  #: runs a function of one tensor
    expected: Callable[..., Any] = lambda formula: formula(X)  #: the numbers expected if "right"
    recorded: str = "right"  #: the outcome in RECORDED …
    read: str = "refused"  #: … and in READ


REFUSED = {"recorded": "refused"}
BOTH = {"recorded": "right", "read": "right"}
KINDS = {
    "plain": Kind(lambda call: call(X), **BOTH),
    "traced": Kind(lambda call: torch.jit.trace(call, X)(Y), lambda formula: formula(Y)),
    "traced without gradients": Kind(without_gradients(lambda call: torch.jit.trace(call, X)(Y)), lambda formula: formula(Y)),
    "exported": Kind(exported, lambda formula: formula(Y)),
    "make_fx": Kind(lambda call: make_fx(call)(X)(Y), lambda formula: formula(Y)),
    "make_fx with fake tensors": Kind(
        lambda call: make_fx(call, tracing_mode="fake", _allow_non_fake_inputs=True)(X)(Y), lambda formula: formula(Y)),
    "a tangent": Kind(with_tangent, **REFUSED),
    "a dual level without tangents": Kind(within(forward_ad.dual_level), **BOTH),
    "jvp": Kind(lambda call: torch.func.jvp(call, (X,), (Y,)), **REFUSED),
    "vmap": Kind(lambda call: torch.func.vmap(call)(torch.stack([X, Y])), **REFUSED),
    "torch.func.grad": Kind(lambda call: torch.func.grad(summed(call))(X), **REFUSED),
    "functionalize": Kind(lambda call: torch.func.functionalize(call)(X), **REFUSED),
    "hessian": Kind(lambda call: torch.autograd.functional.hessian(summed(call), X), **REFUSED),
    "jacobian by vmap": Kind(lambda call: torch.autograd.functional.jacobian(call, X, vectorize=True), jacobian),
    "jacobian by tangents": Kind(
        lambda call: torch.autograd.functional.jacobian(call, X, vectorize=True, strategy="forward-mode"), **REFUSED),
    "batched gradients": Kind(batched_gradients, gradients_in_turn),
    "the negative bit": Kind(lambda call: call(negated(X)), **BOTH),
    "the negative bit and a gradient": Kind(lambda call: call(negated(X).requires_grad_())),
    "a gradient of the negative bit": Kind(gradient_of_a_negated_direction, lambda formula: gradients_in_turn(formula)[0]),
    "a subclass": Kind(lambda call: call(X.as_subclass(Subclass)), **BOTH),
    "a subclass without memory": Kind(lambda call: call(Wrapper.of(X))),
    "a parameter without gradient": Kind(lambda call: call(torch.nn.Parameter(X, requires_grad=False)), **BOTH),
    "a fake tensor": Kind(faked),
    "inference mode": Kind(within(torch.inference_mode), **BOTH),
    "autocast": Kind(within(lambda: torch.autocast("cpu", torch.bfloat16)), **BOTH),
    "a dispatch mode": Kind(within(Log), **BOTH),
    "a function mode": Kind(within(LogFunctions), **BOTH),
    "another default device": Kind(within(lambda: torch.device("meta")), **BOTH),
    "a storage that was cut": Kind(lambda call: call(cut(X, 40)), **REFUSED),
    "a storage that was taken": Kind(lambda call: call(cut(X, 0)), **REFUSED),
    "a cut storage and a gradient": Kind(lambda call: call(cut(X, 40).requires_grad_()), **REFUSED),
    "meta": Kind(lambda call: call(X.to("meta")), **REFUSED),
    "sparse": Kind(lambda call: call(X.to_sparse()), **REFUSED),
    "mkldnn": Kind(lambda call: call(X.to_mkldnn()), **REFUSED),
    "quantised": Kind(lambda call: call(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)), **REFUSED),
    "nested": Kind(lambda call: call(torch.nested.nested_tensor([X[0]])), **REFUSED),
}
NO_GRADIENT = {"heed.look"}  # accepts tensors that require a gradient, because reports have none
OF_GRADIENTS = {"torch.func.grad", "hessian", "jacobian by vmap", "batched gradients", "the negative bit and a gradient",
                "a gradient of the negative bit"}
# PyTorch's own operators refuse these before heed's function runs.
PYTORCHS = {("meta", "module"), ("meta", "sdpa mask")} | {
    (kind, name) for name in ("sdpa mask", "varlen", "module")
    for kind in ("a storage that was cut", "a storage that was taken", "a cut storage and a gradient", "sparse", "mkldnn",
                 "quantised", "nested")}


def same(kind, found, expected):
    assert found.shape == expected.shape
    if type(found).__name__ != "FakeTensor" and not found.is_meta:
        tolerance = 3e-2 if kind == "autocast" else 2e-6
        torch.testing.assert_close(torch.as_tensor(found).detach().float(), expected.detach().float(), atol=tolerance, rtol=0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*RECORDED, *READ])
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_right_or_refused_in_one_sentence(kind, name):
    if (kind, name) in PYTORCHS or kind in OF_GRADIENTS and name in NO_GRADIENT:
        return
    one = KINDS[kind]
    call, formula = (RECORDED | READ)[name]
    if (one.recorded if name in RECORDED else one.read) == "right":
        same(kind, one.run(call), one.expected(formula))
        return
    with pytest.raises((ValueError, TypeError, RuntimeError)) as refusal:
        one.run(call)
    message = str(refusal.value)
    assert " expected" in message and "\n" not in message, message


def compiled(call):
    return torch.compile(call, backend="aot_eager")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sdpa q", "heed.attention q"])
@pytest.mark.parametrize("run", [
    lambda call: compiled(torch.func.vmap(call))(torch.stack([X, Y])),
    lambda call: compiled(torch.func.grad(summed(call)))(X),
    lambda call: with_tangent(compiled(call)),
], ids=["vmap", "torch.func.grad", "a tangent"])
def test_torch_compile_hides_nothing_of_it(run, name):
    torch._dynamo.reset()
    with pytest.raises((ValueError, RuntimeError), match=" expected"):
        run((RECORDED | READ)[name][0])


def one_of_all(query, key, value, **options):
    return T.attention(query, key, value, **options).output


def packed(query, key, value, **options):
    return T.varlen_attention(tokens(query), tokens(key), tokens(value), [0, 5], **options)


def by_transformers(query, key, value, *, scale=None, softcap=None):
    return heed.transformers.heed_attention_forward(module, query, key, value, None, scaling=scale, softcap=softcap)[0]


NUMBERS = [(T.scaled_dot_product_attention, "scale"), (T.flex_attention, "scale"), (one_of_all, "scale"),
           (one_of_all, "softcap"), (packed, "scale"), (packed, "softcap"), (by_transformers, "scale"),
           (by_transformers, "softcap"), (heed.attention, "scale"), (heed.attention, "softcap"), (heed.attention, "dropout")]


@pytest.mark.parametrize("call, argument", NUMBERS)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_a_number_is_no_tensor_that_requires_a_gradient(call, argument, with_gradient):
    query = X.clone().requires_grad_(with_gradient and call is not heed.attention)
    for wanted in (torch.tensor(0.5, requires_grad=True), torch.nn.Parameter(torch.tensor([0.5]))):
        with pytest.raises(ValueError, match=f"^{argument} requires a gradient, which heed does not compute; a number is "
                                             f"expected, as {argument}.item\\(\\) returns$"):
            call(query, K, V, **{argument: wanted})
    seed = {"seed": 3} if argument == "dropout" else {}
    assert torch.equal(call(query, K, V, **{argument: torch.tensor(0.5)}, **seed), call(query, K, V, **{argument: 0.5}, **seed))
    with pytest.raises(TypeError, match=rf"{argument} is a tensor of shape \[2\]; a number is expected"):
        call(query, K, V, **{argument: torch.ones(2)})


def test_the_decay_of_sums_is_no_tensor_that_requires_a_gradient():
    cache = heed.KvCache(kv_heads=2, key_dim=8, capacity=5)
    cache.append(K, V)
    with pytest.raises(ValueError, match="decay requires a gradient"):
        cache.add_received(torch.ones(1, 2, 5), decay=torch.tensor(0.5, requires_grad=True))
    for decay in (1, torch.tensor(0.5)):
        cache.add_received(torch.ones(1, 2, 5), decay=decay)
    assert (cache.received(0) == 1.5).all()


@pytest.mark.filterwarnings("ignore")
def test_a_traced_number_is_refused():
    def call(x):
        return T.attention(x, K, V, scale=x.shape[-1] ** -0.5).output

    with pytest.raises(ValueError, match="scale is a tensor while PyTorch traces a graph.*; a number is expected"):
        torch.jit.trace(call, X)


@pytest.mark.parametrize("take", [
    lambda x: heed.KvCache.over(x, K, [5]), lambda x: heed.KvCache.over(K, x, [5], writable=True),
    lambda x: heed.KvCache.over_block_table(x[0], K[0], np.zeros((1, 1), np.int64), [2]), lambda x: heed.attention(X, K, V, out=x)])
def test_memory_that_is_kept_or_written_has_no_negative_bit(take):
    with pytest.raises(ValueError, match=r"has the negative bit, so PyTorch negates .*, as (key|value|key_pool|out).resolve_neg\(\)"):
        take(negated(X))


def test_weights_of_the_negative_bit_are_looked_at_as_they_are():
    weights = X[..., :5].softmax(-1)
    expected = heed.look(weights=weights, top_k=2)
    for given in (negated(weights), [negated(weights)], weights.clone().requires_grad_()):
        assert np.array_equal(heed.look(weights=given, top_k=2).received, expected.received)


def test_gradients_that_are_batched_twice_are_refused():
    x = X.clone().requires_grad_()
    output = T.scaled_dot_product_attention(x, K, V)

    def twice(direction):
        return torch.autograd.grad(output, x, torch.stack([direction, direction]), is_grads_batched=True)[0]

    with pytest.raises(RuntimeError, match="gradients of heed's attention are batched 2 times; once is expected"):
        torch._vmap_internals._vmap(twice)(directions(output))


def test_numpys_masks_are_no_masks_of_tensors():
    mask = np.ones((5, 5), bool)
    for call, name in ((lambda: T.scaled_dot_product_attention(X, K, V, mask), "attn_mask"),
                       (lambda: T.attention(X, K, V, mask=mask), "mask"), (lambda: T.attention(X, K, V, bias=mask), "bias"),
                       (lambda: ours(X[0], X[0], X[0], attn_mask=mask), "attn_mask"),
                       (lambda: T.flex_attention(X.numpy(), K, V), "query"),
                       (lambda: T.varlen_attention(tokens(X), tokens(K), tokens(V).numpy(), [0, 5]), "value")):
        with pytest.raises(TypeError, match=f": {name} is of type ndarray; a torch.Tensor is expected"):
            call()


def test_dropout_of_all_weights_gives_zeros_as_pytorchs():
    query = X.clone().requires_grad_()
    for output in (T.scaled_dot_product_attention(query, K, V, dropout_p=1.0), packed(query, K, V, dropout_p=1.0),
                   T.attention(query, K, V, dropout=1.0).output,
                   heed.transformers.heed_attention_forward(module, query, K, V, None, dropout=1.0)[0]):
        (found,) = torch.autograd.grad(output.sum(), query)
        assert not output.any() and not found.any()
    assert not T.scaled_dot_product_attention(X, K, V, dropout_p=1.0).any()
    weights = T.scaled_dot_product_attention(X, K, V, dropout_p=1.0, return_weights=True)[1]
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 5))  # weights before dropout
    layer = heed.torch.MultiheadAttention(8, 2, dropout=1.0, batch_first=True)
    assert torch.equal(layer(X[0], X[0], X[0])[0], layer.out_proj.bias.expand(2, 5, 8))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": X @ BIAS_OF}, {"scale": 3.0}], ids=str)
def test_heads_without_dimensions_weigh_all_keys_alike_as_pytorchs(options):
    none = torch.empty(1, 2, 5, 0)
    found = T.scaled_dot_product_attention(none, none, V, **options)
    torch.testing.assert_close(found, torch.nn.functional.scaled_dot_product_attention(none, none, V, **options))
    query, value = none.clone().requires_grad_(), V.clone().requires_grad_()
    gradients = torch.autograd.grad(T.scaled_dot_product_attention(query, none, value).sum(), (query, value))
    assert gradients[0].shape == none.shape
    torch.testing.assert_close(gradients[1], torch.ones(SHAPE))
