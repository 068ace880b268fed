"""Writes tests/data/language_model.safetensors: a small model's loss, gradients and first steps, from PyTorch 2.13.

    python make_language_model_golden.py ../data/language_model.safetensors
"""

import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

VOCABULARY, CONTEXT, LAYERS, HEADS, DIM = 11, 8, 2, 2, 8
STEPS, CLIP = 3, 0.5
RATES = [0.01, 0.02, 0.005]


def draw():
    g = torch.Generator().manual_seed(7)
    p = {}

    def add(name, *shape, std=0.3, mean=0.0):
        p[name] = torch.randn(*shape, generator=g) * std + mean

    add("token_embedding.weight", VOCABULARY, DIM)
    add("positions.weight", CONTEXT, DIM)
    for i in range(LAYERS):
        b = f"blocks.{i}."
        for norm in ("attention_norm", "mlp_norm"):
            add(b + norm + ".weight", DIM, mean=1.0)
            add(b + norm + ".bias", DIM)
        for part in ("query", "key", "value", "out_proj"):
            add(b + f"attention.{part}.weight", DIM, DIM)
            add(b + f"attention.{part}.bias", DIM)
        add(b + "mlp.up.weight", 4 * DIM, DIM)
        add(b + "mlp.up.bias", 4 * DIM)
        add(b + "mlp.down.weight", DIM, 4 * DIM)
        add(b + "mlp.down.bias", DIM)
    add("norm.weight", DIM, mean=1.0)
    add("norm.bias", DIM)
    add("unembedding.weight", VOCABULARY, DIM)
    return {name: value.requires_grad_() for name, value in p.items()}


def linear(p, name, x):
    return F.linear(x, p[name + ".weight"], p.get(name + ".bias"))


def norm(p, name, x):
    return F.layer_norm(x, (DIM,), p[name + ".weight"], p[name + ".bias"])


def model(p, tokens):
    batch, length = tokens.shape
    x = p["token_embedding.weight"][tokens] + p["positions.weight"][:length]
    for i in range(LAYERS):
        b = f"blocks.{i}."
        y = norm(p, b + "attention_norm", x)
        q, k, v = (
            linear(p, b + "attention." + part, y).view(batch, length, HEADS, DIM // HEADS).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, DIM)
        x = x + linear(p, b + "attention.out_proj", z)
        y = F.gelu(linear(p, b + "mlp.up", norm(p, b + "mlp_norm", x)))
        x = x + linear(p, b + "mlp.down", y)
    return linear(p, "unembedding", norm(p, "norm", x))


def loss_of(p, tokens, targets):
    logits = model(p, tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1), logits


def main():
    p = draw()
    g = torch.Generator().manual_seed(8)
    tokens = torch.randint(0, VOCABULARY, (3, 6), generator=g)
    targets = torch.randint(0, VOCABULARY, (3, 6), generator=g)
    targets[0, 2] = targets[2, 5] = -1
    out = {"tokens": tokens, "targets": targets}
    out |= {name: value.detach().clone() for name, value in p.items()}
    loss, logits = loss_of(p, tokens, targets)
    loss.backward()
    out["loss"], out["logits"] = loss.detach().reshape(1), logits.detach()
    out |= {"grad." + name: value.grad.clone() for name, value in p.items()}

    decayed = [value for value in p.values() if value.dim() >= 2]
    others = [value for value in p.values() if value.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        betas=(0.9, 0.99), eps=1e-8, foreach=False,
    )
    lengths = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(p, tokens, targets)[0].backward()
        lengths.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).detach())
        for group in optimizer.param_groups:
            group["lr"] = RATES[step]
        optimizer.step()
    out["gradient_lengths"] = torch.stack(lengths)
    out |= {"after." + name: value.detach().clone() for name, value in p.items()}
    save_file(out, sys.argv[1])


main()
