"""Gradients of attention computed by PyTorch, for tests/backward_torch_test.cpp.

    pip install torch==2.13.0 safetensors
    python tests/python/torch_gradients.py tests/data/golden/torch_gradients.safetensors

Cases named sdpa_* call torch.nn.functional.scaled_dot_product_attention. The others use options that it lacks; they
compute the formula in PyTorch, differentiated by autograd. All cases are in f64 except sdpa_f32, which uses PyTorch's
own fused kernel.
"""

import sys

import safetensors.torch
import torch

torch.manual_seed(20240703)
tensors = {}


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def record(case, inputs, losses, **others):
    """inputs: the leaves by name; losses: pairs (name, result). Each result gets a random gradient."""
    total = 0
    for name, result in losses:
        grad = torch.randn_like(result)
        tensors[f"{case}.grad_{name}"] = grad
        tensors[f"{case}.{name}"] = result.detach()
        total = total + (grad * result).sum()
    total.backward()
    for name, tensor in inputs.items():
        tensors[f"{case}.{name}"] = tensor.detach()
        tensors[f"{case}.d_{name}"] = tensor.grad
    for name, tensor in others.items():
        tensors[f"{case}.{name}"] = tensor


def lse_of(query, key, bias=0.0, scale=None):
    """The log-sum-exp of the scores, which scaled_dot_product_attention does not return."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    scores = query @ key.transpose(-1, -2) * (scale or query.shape[-1] ** -0.5) + bias
    return torch.logsumexp(scores.detach(), dim=-1)


def sdpa(case, shape, kv_shape, value_dim, dtype=torch.float64, bias=None, mask=None, **options):
    inputs = {
        "query": leaf(*shape, dtype=dtype),
        "key": leaf(*kv_shape, dtype=dtype),
        "value": leaf(*kv_shape[:-1], value_dim, dtype=dtype),
    }
    q, k, v = inputs.values()
    others = {}
    added = torch.zeros((), dtype=dtype)
    if bias is not None:
        inputs["bias"] = added = leaf(*bias, dtype=dtype)
    if mask is not None:
        others["mask"] = mask
        added = torch.where(mask, 0.0, -torch.inf).to(dtype)
    if options.get("is_causal"):
        added = torch.full((shape[2], kv_shape[2]), -torch.inf, dtype=dtype).triu(1)
    attn_mask = mask if mask is not None else inputs.get("bias")
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, **options)
    others["lse"] = lse_of(q, k, added, options.get("scale"))
    record(case, inputs, [("output", out)], **others)


sdpa("sdpa_full", (2, 3, 5, 4), (2, 3, 7, 4), 4)
sdpa("sdpa_causal", (2, 2, 6, 3), (2, 2, 6, 3), 3, is_causal=True)
sdpa("sdpa_wide_value_scale", (1, 2, 4, 3), (1, 2, 5, 3), 6, scale=0.7)
sdpa("sdpa_grouped", (1, 4, 3, 4), (1, 2, 5, 4), 4, enable_gqa=True)
sdpa("sdpa_bias", (2, 2, 3, 4), (2, 2, 5, 4), 4, bias=(2, 1, 5))
sdpa("sdpa_mask", (2, 2, 4, 4), (2, 2, 5, 4), 4, mask=torch.rand(2, 1, 4, 5) < 0.6)
sdpa("sdpa_f32", (1, 2, 20, 8), (1, 2, 20, 8), 8, dtype=torch.float32, is_causal=True)


def written_out():
    """Softcap, bias, ALiBi, causal mask and sinks, also with gradients of the weights and the lse."""
    inputs = {
        "query": leaf(2, 4, 5, 3),
        "key": leaf(2, 2, 5, 3),
        "value": leaf(2, 2, 5, 2),
        "bias": leaf(4, 1, 5),
        "sinks": leaf(4),
    }
    q, k, v, bias, sinks = inputs.values()
    k, v = (x.repeat_interleave(2, dim=1) for x in (k, v))
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625], dtype=torch.float64)
    position = torch.arange(5)
    distance = (position[:, None] - position).abs()
    scores = 2 * torch.tanh(q @ k.transpose(-1, -2) / 3**0.5 / 2)
    scores = scores + bias - slopes[:, None, None] * distance
    scores = scores.masked_fill(position > position[:, None], -torch.inf)
    logits = torch.cat([scores, sinks[:, None, None].expand(2, 4, 5, 1)], dim=-1)
    lse = torch.logsumexp(logits, dim=-1)
    weights = torch.softmax(logits, dim=-1)[..., :-1]
    record(
        "written_out",
        inputs,
        [("output", weights @ v), ("lse", lse), ("weights", weights)],
        alibi_slopes=slopes,
    )


written_out()
contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
safetensors.torch.save_file(contiguous, sys.argv[1], {"torch": torch.__version__})
