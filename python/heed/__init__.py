"""Attention that shows its weights.

    output = heed.attention(q, k, v, causal=True)
    result = heed.attention(q, k, v, need=("lse", "entropy"), top_k=8)
    cache = heed.KvCache(kv_heads=8, key_dim=64, capacity=4096)
    cache.append(k, v)
    output = heed.attention(q, cache)
    gradients = heed.attention_backward(q, k, v, result.output, result.lse, grad_output)
    print(heed.look(q, k, v, causal=True))
    print(heed.open("saved-by-heed-look.safetensors"))
    print(heed.explain("to be or not to be or", model="induction"))
    print(heed.generate("stories", "Anna "))

heed.nn has layers for NumPy. heed.torch, heed.transformers and heed.onnx work with those packages and import them.
"""

from . import _outside_graphs, masks
from ._heed import (AttentionGradients, AttentionResult, KvCache, ScoreMod, SparseMask, __version__, attention,
                    attention_backward, grid_distance, grid_map, info, moved_norms, set_target, targets)
from ._differential import DifferentialGradients, DifferentialResult, differential_attention, differential_attention_backward
from ._explain import Explanation, explain, generate
from ._head import Head
from ._look import Report, merge_summaries
from ._look_at import look, open
from ._model import TrainedModel, load_model, train
from ._plan import AttentionPlan, PlannedPass, plan_attention, plan_attention_backward
from ._pretrained import Model
from ._tile import attention_tile
from ._tokenizer import Tokenizer

_outside_graphs.mark()

__all__ = ["AttentionGradients", "AttentionPlan", "AttentionResult", "DifferentialGradients", "DifferentialResult", "Explanation",
           "Head", "KvCache", "Model", "PlannedPass", "Report", "ScoreMod", "SparseMask", "Tokenizer", "TrainedModel", "__version__", "attention",
           "attention_backward", "attention_tile", "differential_attention", "differential_attention_backward", "explain", "generate",
           "grid_distance", "grid_map", "info", "load_model", "look", "merge_summaries", "moved_norms", "open", "plan_attention",
           "plan_attention_backward", "set_target", "targets", "train"]
