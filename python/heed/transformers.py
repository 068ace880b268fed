"""heed for Hugging Face's transformers: `look`, from a model and a text to a report, attn_implementation="heed", which can
return the weights, `capture`, which collects what each layer attended to, and `Cache`, which keeps keys and values for
generate().

    heed.transformers.look(model, tokenizer, "The animal was too tired").save("look.html")
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

from ._missing import need

need("torch", "heed.transformers", "transformers")
need("transformers", "heed.transformers", "transformers")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel  # noqa: E402
from transformers.models.auto.auto_factory import _BaseAutoModelClass  # noqa: E402

from ._hf_cache import Cache, CachedRows, dense  # noqa: E402
from ._hf_capture import Call, Maps, capture, current  # noqa: E402
from ._hf_look import look  # noqa: E402
from ._hf_masks import heed_mask  # noqa: E402
from ._hf_pieces import pieces  # noqa: E402
from ._hf_row_mask import RowMask  # noqa: E402
from ._hf_versions import collects_weights, mask_function  # noqa: E402
from ._run import CallMap, Run  # noqa: E402
from ._torch_tensors import check, is_plain  # noqa: E402
from .torch import attention  # noqa: E402
from .torch._ops import autocast, draw_seed, seed_number  # noqa: E402

__all__ = ["Cache", "CallMap", "Maps", "Run", "capture", "look", "pieces", "register"]


def _wants_weights(kwargs: dict[str, Any]) -> bool:
    """Whether the model was called with output_attentions=True: told to the layer, or to those that collect what
    layers return."""
    if kwargs.get("output_attentions"):
        return True
    return collects_weights()


def _call(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
          position_bias: Tensor | None, is_causal: bool | None, sinks: Tensor | None, softcap: float | None,
          scale: float | None) -> Call:
    """What transformers passes, as heed takes it: masks are bool, True for allowed, and what is added is floating."""
    queries, keys = query.shape[2], key.shape[2]
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(causal and attention_mask is None and queries > 1)  # a trace gives tensors for numbers
    offset = max(0, keys - queries)  # fewer queries are the last ones: Gemma 4, in layers that share keys
    mask, bias, row_mask = None, None if position_bias is None else position_bias[..., :keys], None
    if isinstance(attention_mask, RowMask):
        row_mask, offset = attention_mask, attention_mask.position
    elif attention_mask is not None and attention_mask.dtype == torch.bool:
        mask = attention_mask
    elif attention_mask is not None:
        bias = attention_mask if bias is None else attention_mask + bias
    return Call(query, key, value, mask, row_mask, bias, sinks, causal, offset, 0.0 if softcap is None else softcap, scale)


# What a layer may pass to its attention function, changes the numbers, and is not known here: keys that it selected
# (of DeepSeek-V3.2 and its kin, of MiniMax-M3), sinks of each query (Inkling 2), the pages of continuous batching.
_UNKNOWN = ("indices", "block_indices", "sinks", "cache")


def _is_cached(key: Tensor, value: Tensor) -> bool:
    """Whether a cache has both, as the model got them from it."""
    return isinstance(key, CachedRows) and isinstance(value, CachedRows) and key.layer is value.layer


def _check_keys(module: Any, mask: Tensor | None, key: Tensor) -> None:
    """Refuses a mask whose length differs from the keys: one cache served both attentions of a decoder."""
    if mask is None or mask.shape[-1] in (1, key.shape[2]):
        return
    two = getattr(getattr(module, "config", None), "is_encoder_decoder", False)
    expected = ("past_key_values=transformers.EncoderDecoderCache(…), with one cache for self-attention and one for "
                "cross-attention" if two else "equal numbers")
    raise ValueError(f"attention_mask has {mask.shape[-1]} keys and the call of {type(module).__name__} {key.shape[2]}: expected "
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
    """The function that transformers calls: query [B, H, L, D], key and value [B, Hkv, S, D] to ([B, L, H, D], weights
    or None)."""
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
        whole = asked if asked is not None and not asked.is_limited() else None  # comes with the output
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
        # A trace gives a tensor, which is more than 0: then fewer queries are the last ones, of whatever length.
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
    """Whether a class computes attention by the function that it is told to. transformers' flags say that it runs with
    sdpa, or, if that lacks something (sinks, softcap), with others; such functions get boolean masks, which attention
    written by hand would add to the scores. Its code shows whether it asks for the function, itself or in the models
    that it is made of, and has no table of its own in which "heed" is missing."""
    others = model._supports_attention_backend and (model._supports_flash_attn or model._supports_flex_attn)
    code = vars(sys.modules[model.__module__])
    if not (model._supports_sdpa or others) or any(isinstance(x, dict) and "eager" in x for x in code.values()):
        return False
    return "ALL_ATTENTION_FUNCTIONS" in code or any(
        isinstance(x, type) and issubclass(x, (PreTrainedModel, _BaseAutoModelClass)) and x is not PreTrainedModel
        and x.__module__ != model.__module__ for x in code.values())


def _check(model: type[PreTrainedModel], anew: bool = True) -> None:
    """Of a class that is made, or whose attention is changed."""
    if not _takes_functions(model) or not (anew or model._can_set_attn_implementation()):
        raise ValueError(f'attn_implementation is "heed", but {model.__name__} does not take its attention from '
                         'transformers\' AttentionInterface: expected "eager"')


def _wanted(config: Any, implementation: Any) -> Iterator[tuple[int, Any]]:
    """(id, implementation) of a config and of those in it, as set_attn_implementation reads its argument."""
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
    """What transformers asks whenever a model is made or its attention changed; for "heed" it checks the name only."""
    if requested_attention == "heed":
        _check(type(self))
    return _get_correct(self, requested_attention, *args, **kwargs)


def _set_attn_implementation(self: PreTrainedModel, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
    """Models that cannot change their attention are passed over with a warning; for "heed" this is an error, before
    anything has changed."""
    wanted = dict(_wanted(self.config, attn_implementation))
    for part in self.modules():
        if isinstance(part, PreTrainedModel) and wanted.get(id(part.config), wanted[id(self.config)]) == "heed":
            _check(type(part), anew=False)
    return _set(self, attn_implementation, *args, **kwargs)


def register() -> None:
    """Makes attn_implementation="heed" known to transformers, and refused, with a ValueError, for models that would not
    compute with it. Again is no harm."""
    AttentionInterface.register("heed", heed_attention_forward)
    AttentionMaskInterface.register("heed", mask_function(heed_mask))
    PreTrainedModel.get_correct_attn_implementation = _get_correct_attn_implementation
    PreTrainedModel.set_attn_implementation = _set_attn_implementation
