"""transformers' generate() over a ring of heed's cache, 10,000 tokens a minute allowed. The ring keeps its size, and the
last logits are those that f64 finds from the rows that it holds."""

import copy
import os
import time

import torch
import transformers

import heed.transformers
from measure import Watch

A_MINUTE, SINKS, WINDOW = 10_000, 4, 252


def run(minutes, folder):
    heed.transformers.register()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    tokens = max(300, int(A_MINUTE * minutes))
    # One layer: its keys and values depend on nothing but the tokens and their positions.
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=2 * tokens, bos_token_id=1, eos_token_id=None, pad_token_id=0)).eval()
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("eager")
    model.set_attn_implementation("heed")
    cache = heed.transformers.Cache(model.config, layout="ring", sinks=SINKS, window=WINDOW)
    begun = time.time()
    with Watch(os.getpid(), max(0.05, min(5, 60 * minutes / 40))) as watch, torch.no_grad():
        ids = model.generate(torch.tensor([[1, 7, 9]]), max_new_tokens=tokens, do_sample=True, past_key_values=cache,
                             pad_token_id=0)[0]
    seconds = time.time() - begun
    ring = cache.layers[0].kv
    held = ring.positions(0).tolist()
    last = len(ids) - 2  # the last token was drawn and never read
    assert held == [*range(SINKS), *range(last + 1 - WINDOW, last + 1)], f"the ring holds {held[:6]} … {held[-3:]}"
    with torch.no_grad():
        got = model(ids[None, -1:], past_key_values=cache, position_ids=torch.tensor([[last + 1]])).logits[0, -1].double()
        held = torch.tensor([*ring.positions(0)])
        expected = exact(ids[held][None], position_ids=held[None]).logits[0, -1]
    off = float((got - expected).abs().max())
    assert off <= 1e-4, f"logits after {tokens} tokens are off by {off}"
    # generate() keeps all ids, 8 bytes a token, and a mask, in a few copies.
    return {"tokens": tokens, "seconds": round(seconds), "rows of the ring": len(held), "logits off by": off,
            **watch.check_flat(4 + 64 * tokens / 2**20)}
