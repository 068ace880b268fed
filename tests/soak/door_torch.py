"""Door PyTorch: heed.torch.scaled_dot_product_attention and its gradients against PyTorch's math in f64."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from heed.torch import scaled_dot_product_attention as sdpa

# Inputs are rounded alike. Weights, their sum and outputs are rounded once each. Gradients sum up to 65 rows, and the
# backward pass reads <gradient, output> from the rounded output, up to 64 channels of it.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2**-5, torch.float16: 2**-8}
GRADIENT = 4  # times the tolerance


def close(name, got, expected, dtype, times=1):
    assert got.shape == expected.shape and got.dtype == dtype, (name, got.shape, expected.shape, got.dtype)
    difference = (got.double() - expected).abs()
    bound = times * TOLERANCE[dtype] * (1 + expected.abs().max()) if expected.numel() else 0
    assert bool((difference <= bound).all()), f"{name} is off by {difference.max()}, at most {bound} is expected"


def call(rng, folder):
    torch.manual_seed(int(rng.integers(2**31)))
    pick = lambda *of: of[int(rng.integers(len(of)))]
    dtype, lengths = pick(*TOLERANCE), (1, 2, 5, 12, 13, 33, 65)
    batch, kv_heads, group, queries, keys = pick(1, 2), pick(1, 2), pick(1, 1, 2), pick(*lengths), pick(*lengths)
    dim, value_dim, heads = pick(1, 8, 16, 24, 64), pick(1, 8, 24, 64), kv_heads * group

    def tensor(*shape):
        x = torch.randn(shape, dtype=torch.float64).to(dtype)
        return x.transpose(1, 2).contiguous().transpose(1, 2) if rng.random() < 0.3 else x

    inputs = [tensor(batch, heads, queries, dim), tensor(batch, kv_heads, keys, dim), tensor(batch, kv_heads, keys, value_dim)]
    given = {"enable_gqa": True} if group > 1 else {}
    kind, mask = pick("none", "causal", "bool", "float"), None
    if kind == "causal":
        given["is_causal"] = True
    elif kind == "bool":
        mask = torch.rand(pick((queries, keys), (batch, 1, 1, keys), (batch, heads, queries, keys))) < 0.7
        mask[..., 0] = True  # PyTorch's own rows without a key have gradients of NaN
    elif kind == "float":
        mask = torch.randn(pick((queries, keys), (heads, 1, keys))).to(dtype)
    if rng.random() < 0.3:
        given["scale"] = float(rng.uniform(0.1, 1))
    ours = [x.detach().requires_grad_() for x in inputs]
    theirs = [x.detach().double().requires_grad_() for x in inputs]
    output = sdpa(*ours, attn_mask=mask, **given)
    with sdpa_kernel([SDPBackend.MATH]):
        wide = mask.double() if kind == "float" else mask
        expected = torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=wide, **given)
    close("output", output, expected, dtype)
    direction = torch.randn(expected.shape).to(dtype)
    names = ("gradient of query", "gradient of key", "gradient of value")
    for name, got, wanted in zip(names, torch.autograd.grad(output, ours, direction),
                                 torch.autograd.grad(expected, theirs, direction.double()), strict=True):
        close(name, got, wanted, dtype, GRADIENT)
    return {"rows": batch * heads * queries}
