"""heed for Hugging Face's transformers.

`look` makes a report from a model and a text. attn_implementation="heed" can return the weights. `capture` collects
what each layer attends to. `Cache` keeps keys and values for generate().

    heed.transformers.look(model, tokenizer, "The animal was too tired").save("look.html")
    heed.transformers.look(model, processor, picture="cat.png").save("look.html")
    heed.transformers.word_times(whisper, processor, samples)
    heed.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="heed")
    with heed.transformers.capture(top_k=8, entropy=True) as maps:
        model(**inputs)
    maps[0].top_k_index          # the first call's, [B, H, L, 8]
    with heed.transformers.capture(weights=True, layers=[3], heads=[0, 7], to="run.heed"):
        model(**inputs)
    model(**inputs, output_attentions=True).attentions
    model.generate(**inputs, past_key_values=heed.transformers.Cache(format="int8"))
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from ._missing import need, need_names

need("torch", "heed.transformers")
need("transformers", "heed.transformers")
# Newer versions of transformers are not refused by their number. One of them may still change an interface that heed uses.
need_names({"transformers": ("AttentionInterface", "AttentionMaskInterface", "PreTrainedModel", "Cache"),
            "transformers.cache_utils": ("CacheLayerMixin", "DynamicCache", "DynamicLayer", "DynamicSlidingWindowLayer"),
            "transformers.masking_utils": ("causal_mask_function", "sdpa_mask"),
            "transformers.models.auto.auto_factory": ("_BaseAutoModelClass",)},
           "heed.transformers", "a version from 4.57 to 5.24")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel  # noqa: E402
from transformers.models.auto.auto_factory import _BaseAutoModelClass  # noqa: E402

from ._counted import counted  # noqa: E402
from ._hf_cache import Cache, CachedRows, dense  # noqa: E402
from ._hf_capture import Call, Maps, capture, current  # noqa: E402
from ._hf_look import look  # noqa: E402
from ._hf_masks import heed_mask  # noqa: E402
from ._hf_pieces import pieces  # noqa: E402
from ._hf_row_mask import RowMask  # noqa: E402
from ._hf_times import word_times  # noqa: E402
from ._hf_versions import collects_weights, mask_function  # noqa: E402
from ._run import CallMap, Run  # noqa: E402
from ._torch_tensors import check, is_plain  # noqa: E402
from .torch import attention  # noqa: E402
from .torch._ops import autocast, draw_seed, seed_number  # noqa: E402

__all__ = ["Cache", "CallMap", "Maps", "Run", "capture", "look", "pieces", "register", "word_times"]


def _wants_weights(kwargs: dict[str, Any]) -> bool:
    """Whether output_attentions=True was set, for the layer or for the collector of the layers' results."""
    if kwargs.get("output_attentions"):
        return True
    return collects_weights()


def _call(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
          position_bias: Tensor | None, is_causal: bool | None, sinks: Tensor | None, softcap: float | None,
          scale: float | None) -> Call:
    """Converts transformers' arguments: a mask is bool with True for allowed, and a bias is floating point."""
    queries, keys = query.shape[2], key.shape[2]
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(causal and attention_mask is None and queries > 1)  # a trace passes tensors for numbers
    offset = max(0, keys - queries)  # fewer queries are the last ones, as in Gemma 4's layers that share keys
    mask, bias, row_mask = None, None if position_bias is None else position_bias[..., :keys], None
    if isinstance(attention_mask, RowMask):
        row_mask, offset = attention_mask, attention_mask.position
    elif attention_mask is not None and attention_mask.dtype == torch.bool:
        mask = attention_mask
    elif attention_mask is not None:
        bias = attention_mask if bias is None else attention_mask + bias
    return Call(query, key, value, mask, row_mask, bias, sinks, causal, offset, 0.0 if softcap is None else softcap, scale)


# Arguments of layers' attention functions that change the result but are not supported: selected keys (DeepSeek-V3.2
# and relatives, MiniMax-M3), sinks per query (Inkling 2), pages of continuous batching.
_UNKNOWN = ("indices", "block_indices", "sinks", "cache")


def _is_cached(key: Tensor, value: Tensor) -> bool:
    """Whether the model got both key and value from the same layer of a cache."""
    return isinstance(key, CachedRows) and isinstance(value, CachedRows) and key.layer is value.layer


def _check_keys(module: Any, mask: Tensor | None, key: Tensor) -> None:
    """Refuses a mask whose length differs from the keys. This happens if one cache serves both attentions of a
    decoder."""
    if mask is None or mask.shape[-1] in (1, key.shape[2]):
        return
    two = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    expected = ("past_key_values=transformers.EncoderDecoderCache(…), with one cache for self-attention and one for "
                "cross-attention" if two else "equal numbers")
    raise ValueError(f"attention_mask has {counted(mask.shape[-1], 'key')} and the call of {type(module).__name__} {key.shape[2]}: expected "
                     f"{expected}")


def heed_attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The attention function for transformers.

    query [B, H, L, D], key and value [B, Hkv, S, D] to ([B, L, H, D], weights or None)."""
    for name in _UNKNOWN:
        if kwargs.get(name) is not None:
            raise ValueError(f'attn_implementation is "heed", which does not know what {type(module).__name__} passes '
                             f'as {name}: expected "eager"')
    check('attn_implementation "heed"', query=query, key=key, value=value, attention_mask=attention_mask,
          position_bias=position_bias, s_aux=s_aux)
    cached = _is_cached(key, value) and is_plain(query, position_bias, s_aux)
    if cached:
        query = autocast(query, query, query)[0]
    else:
        query, key, value = autocast(query, dense(key), dense(value))
    _check_keys(module, attention_mask, key)
    call = _call(module, query, key, value, attention_mask, position_bias, is_causal, s_aux, softcap, scaling).held()
    collector = None if torch.compiler.is_compiling() else current()
    layer = None if collector is None else collector.number(module, call)
    asked = None if collector is None or layer is None else collector.asked
    weights = _wants_weights(kwargs)
    found = matrix = None
    if cached or (not weights and dropout < 1 and is_plain(query, key, value, call.mask, call.bias, s_aux)):
        batch, heads, queries, _ = query.shape
        output = query.new_empty(batch, queries, heads, value.shape[3])
        whole = asked if asked is not None and not asked.is_limited() else None  # computed together with the output
        options = call.options() if whole is None else whole.options(call) | whole.request()
        if weights:
            options["need"] = [*options.get("need", []), "weights"]
        result = call.untracked().attend(options | {"dropout": dropout, "seed": seed_number(draw_seed(dropout)),
                                                    "out": output.transpose(1, 2)})
        if weights:
            matrix = call.spread("weights", result.weights).to(query.dtype)
        if whole is not None:
            found = whole.results(result, call) | whole.cut_tiles(call.untracked(), result.lse)
    else:
        sparse = None if call.row_mask is None else call.row_mask.sparse()
        # In a trace the offset is a positive tensor. Then fewer queries are the last ones, for any length.
        place: Any = {"align": "bottom-right"} if isinstance(call.offset, Tensor) else {"query_offset": call.offset}
        attended = attention(query, key, value, mask=call.mask, sparse_mask=sparse, bias=call.bias, sinks=s_aux,
                             causal=call.causal, softcap=call.softcap, scale=scaling, dropout=dropout,
                             need=["weights"] if weights else [], **place)
        output = attended.output.transpose(1, 2).contiguous()
        matrix = None if attended.weights is None else attended.weights.to(query.dtype)
    if collector is not None and asked is not None:
        collector.add(module, call, asked.gather(call, module) if found is None else found)
    return output, matrix


def _takes_functions(model: type[PreTrainedModel]) -> bool:
    """Whether a model class computes attention with the function that it is given.

    transformers' flags say whether it supports sdpa, or, if that lacks a feature (sinks, softcap), other functions.
    Such functions get boolean masks, which handwritten attention would add to the scores. The class's code shows
    whether it, or a model that it contains, looks up the function. A table of its own without "heed" excludes it."""
    others = model._supports_attention_backend and (model._supports_flash_attn or model._supports_flex_attn)
    code = vars(sys.modules[model.__module__])
    if not (model._supports_sdpa or others) or any(isinstance(x, dict) and "eager" in x for x in code.values()):
        return False
    return "ALL_ATTENTION_FUNCTIONS" in code or any(
        isinstance(x, type) and issubclass(x, (PreTrainedModel, _BaseAutoModelClass)) and x is not PreTrainedModel
        and x.__module__ != model.__module__ for x in code.values())


def _check(model: type[PreTrainedModel], anew: bool = True) -> None:
    """Refuses a class that is instantiated, or whose attention is changed, if it would ignore heed."""
    if not _takes_functions(model) or not (anew or model._can_set_attn_implementation()):
        raise ValueError(f'attn_implementation is "heed", but {model.__name__} does not take its attention from '
                         'transformers\' AttentionInterface: expected "eager", with which heed.transformers.look() shows '
                         'the weights that the model returns')


def _wanted(config: Any, implementation: Any) -> Iterator[tuple[int, Any]]:
    """(id, implementation) of a config and its sub-configs, as set_attn_implementation reads its argument."""
    named = isinstance(implementation, dict)
    yield id(config), implementation.get("") if named else implementation
    for name in config.sub_configs:
        part = implementation.get(name) if named else implementation
        if getattr(config, name, None) is not None and part is not None:
            yield from _wanted(getattr(config, name), part)


_get_correct = PreTrainedModel.get_correct_attn_implementation
_set = PreTrainedModel.set_attn_implementation


def _get_correct_attn_implementation(self: PreTrainedModel, requested_attention: str | None, *args: Any,
                                     **kwargs: Any) -> Any:
    """Also checks the model class for "heed", when a model is made or its attention changes. transformers checks the
    name."""
    if requested_attention == "heed":
        _check(type(self))
    return _get_correct(self, requested_attention, *args, **kwargs)


def _set_attn_implementation(self: PreTrainedModel, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
    """transformers warns about models that cannot change their attention and skips them.

    For "heed" this is an error instead, raised before anything changes."""
    wanted = dict(_wanted(self.config, attn_implementation))
    for part in self.modules():
        if isinstance(part, PreTrainedModel) and wanted.get(id(part.config), wanted[id(self.config)]) == "heed":
            _check(type(part), anew=False)
    return _set(self, attn_implementation, *args, **kwargs)


def register() -> None:
    """Registers attn_implementation="heed" with transformers.

    Models that would not use it are refused with a ValueError. Repeated calls are harmless."""
    AttentionInterface.register("heed", heed_attention_forward)
    AttentionMaskInterface.register("heed", mask_function(heed_mask))
    PreTrainedModel.get_correct_attn_implementation = _get_correct_attn_implementation
    PreTrainedModel.set_attn_implementation = _set_attn_implementation
