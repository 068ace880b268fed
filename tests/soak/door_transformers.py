"""Door transformers: small random models with attn_implementation="heed", with and without heed's cache, against
eager attention in f64."""

import copy

import torch
import transformers

import heed.transformers

heed.transformers.register()
SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
GPT2 = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "eos_token_id": None}
MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED), "GPT2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "Mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 4}),
    "Gemma2": ("Gemma2ForCausalLM", "Gemma2Config",
               {**GROUPED, "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}),
}


def close(got, expected, seen, tolerance=1e-4):
    difference = (got.double() - expected).abs()[seen]
    bound = tolerance * (1 + expected[seen].abs().max())
    assert bool((difference <= bound).all()), f"logits are off by {difference.max()}, at most {bound} is expected"


def call(rng, folder):
    torch.manual_seed(int(rng.integers(2**31)))
    name = list(MODELS)[int(rng.integers(len(MODELS)))]
    kind, config, settings = MODELS[name]
    ours = getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()
    for parameter in ours.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    exact = copy.deepcopy(ours).double()
    exact.set_attn_implementation("eager")
    ours.set_attn_implementation("heed")
    batch, length = int(rng.integers(1, 4)), int(rng.integers(2, 40))
    ids, mask = torch.randint(3, 50, (batch, length)), torch.ones(batch, length, dtype=torch.int64)
    for row in mask[1:]:
        row[:int(rng.integers(0, length - 1))] = 0
    places = {"position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    seen = mask.bool()
    with torch.no_grad():
        # Each row alone and without padding, because eager attention in f64 makes NaN of padded rows.
        expected = torch.zeros(batch, length, SMALL["vocab_size"], dtype=torch.float64)
        for row in range(batch):
            expected[row, seen[row]] = exact(input_ids=ids[row, seen[row]][None]).logits[0]
        close(ours(input_ids=ids, attention_mask=mask, **places).logits, expected, seen)
        # The same in pieces over a cache.
        layout = ["paged", "contiguous"][int(rng.integers(2))]
        cache = heed.transformers.Cache(ours.config, layout=layout, page_size=int(rng.integers(1, 17)), capacity=8)
        at, pieces = 0, []
        while at < length:
            end = min(length, at + (1 if rng.random() < 0.6 else int(rng.integers(1, 9))))
            pieces.append(ours(input_ids=ids[:, at:end], attention_mask=mask[:, :end], past_key_values=cache,
                               position_ids=places["position_ids"][:, at:end]).logits)
            at = end
    close(torch.cat(pieces, 1), expected, seen)
    return {"rows": int(seen.sum()), f"{name} models": 1}
