"""heed for Hugging Face's transformers: attn_implementation="heed", which can return the weights, and `capture`, which
collects what each layer attended to.

    heed.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="heed")
    with heed.transformers.capture(top_k=8, entropy=True) as maps:
        model(**inputs)
    maps[0].top_k_index          # the first call's, [B, H, L, 8]
    model(**inputs, output_attentions=True).attentions
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from ._missing import need

need("torch", "heed.transformers", "transformers")
need("transformers", "heed.transformers", "transformers")

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel  # noqa: E402
from transformers.masking_utils import sdpa_mask  # noqa: E402
from transformers.models.auto.auto_factory import _BaseAutoModelClass  # noqa: E402
from transformers.utils import output_capturing  # noqa: E402

from . import _heed  # noqa: E402
from .torch import Attended, attention  # noqa: E402
from .torch._ops import draw_seed, is_plain, seed_number, untracked  # noqa: E402

__all__ = ["CallMap", "Maps", "capture", "register"]


class CallMap(NamedTuple):
    """What one attention layer attended to in one call; None for what capture was not asked for."""

    module: Any  #: the layer
    layer: int  #: its number, counted from 0 in the order in which layers were first called
    lse: Tensor  #: [B, H, Lq], natural logarithm
    entropy: Tensor | None  #: [B, H, Lq], in nats
    top_k_index: Tensor | None  #: [B, H, Lq, K], -1 beyond the allowed keys
    top_k_weight: Tensor | None  #: [B, H, Lq, K]
    received: Tensor | None  #: [B, H, Lk]: what each key received
    weights: Tensor | None  #: [B, H, Lq, Lk]

    def __repr__(self) -> str:
        shapes = (f"{name} {list(x.shape)}" for name, x in zip(self._fields[2:], self[2:]) if x is not None)
        return f"<layer {self.layer}, {type(self.module).__name__}: {', '.join(shapes)}>"


class Maps(list[CallMap]):
    """The calls in their order: one of each layer for a forward pass, and so on for each step of generate()."""

    def __init__(self, names: tuple[str, ...], top_k: int) -> None:
        super().__init__()
        self.names = names
        self.top_k = top_k
        self._order: dict[Any, int] = {}

    def __repr__(self) -> str:
        held = ["lse", *self.names, *([f"top_k={self.top_k}"] if self.top_k else [])]
        return f"<Maps: calls {len(self)}, layers {len(self._order)}, each with {', '.join(held)}>"

    def of_layer(self, layer: int) -> list[CallMap]:
        """The calls of one layer, in their order."""
        return [call for call in self if call.layer == layer]

    def _add(self, module: Any, found: Attended) -> None:
        layer = self._order.setdefault(module, len(self._order))
        kept = {name: getattr(found, name).detach() if name in self.names else None
                for name in ("entropy", "received", "weights")}
        index, weight = (found.top_k_index, found.top_k_weight) if self.top_k else (None, None)
        self.append(CallMap(module, layer, found.lse.detach(), kept["entropy"], index, weight, kept["received"],
                            kept["weights"]))


_capturing: contextvars.ContextVar[Maps | None] = contextvars.ContextVar("heed_capturing", default=None)


@contextlib.contextmanager
def capture(*, top_k: int = 0, entropy: bool = False, received: bool = False, weights: bool = False) -> Iterator[Maps]:
    """Collects, from every layer that runs within, what is asked for: summaries whose size grows with the length, not
    with its square, and with weights=True the whole matrices. Works for models that run with attn_implementation
    "heed", without any flag of theirs. What torch.compile has compiled runs uncompiled meanwhile. RuntimeError at the
    end where nothing was collected."""
    asked = {"entropy": entropy, "received": received, "weights": weights}
    maps = Maps(tuple(name for name, wanted in asked.items() if wanted), top_k)
    token = _capturing.set(maps)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield maps
    finally:
        _capturing.reset(token)
    if not maps:
        raise RuntimeError('capture() collected nothing: expected a model with attn_implementation="heed" to run '
                           "within it, in the same thread")


def _wants_weights(kwargs: dict[str, Any]) -> bool:
    """Whether the model was called with output_attentions=True: told to the layer, or to those that collect what
    layers return."""
    if kwargs.get("output_attentions"):
        return True
    collector = output_capturing._active_collector
    collected = collector.global_var if torch.compiler.is_compiling() else collector.get()
    return collected is not None and any("attentions" in key for key in collected)


def _merge(attention_mask: Tensor | None, position_bias: Tensor | None, keys: int) -> tuple[Tensor | None, Tensor | None]:
    """(mask, bias) as heed takes them: bool, True for allowed, and floating."""
    if position_bias is not None:
        position_bias = position_bias[..., :keys]
    if attention_mask is None or attention_mask.dtype == torch.bool:
        return attention_mask, position_bias
    return None, attention_mask if position_bias is None else attention_mask + position_bias


# What a layer may pass to its attention function, changes the numbers, and is not known here: keys that it selected
# (of DeepSeek-V3.2 and its kin, of MiniMax-M3), sinks of each query (Inkling 2), the pages of continuous batching.
_UNKNOWN = ("indices", "block_indices", "sinks", "cache")


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
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    causal = bool(causal) and attention_mask is None and queries > 1
    offset = max(0, keys - queries)  # fewer queries are the last ones: Gemma 4, in layers that share keys
    mask, bias = _merge(attention_mask, position_bias, keys)
    maps = None if torch.compiler.is_compiling() else _capturing.get()
    weights = _wants_weights(kwargs)
    if maps is None and not weights and is_plain(query, key, value, mask, bias, s_aux):
        output = query.new_empty(batch, queries, heads, value.shape[3])
        _heed.attention(untracked(query), untracked(key), untracked(value), mask=mask, bias=untracked(bias),
                        sinks=untracked(s_aux), causal=causal, query_offset=offset, softcap=softcap or 0.0,
                        scale=scaling, dropout=dropout, seed=seed_number(draw_seed(dropout)),
                        threads=torch.get_num_threads(), out=output.transpose(1, 2))
        return output, None
    names = set(maps.names if maps is not None else ()) | ({"weights"} if weights else set())
    found = attention(query, key, value, mask=mask, bias=bias, sinks=s_aux, causal=causal, query_offset=offset,
                      softcap=softcap or 0.0, scale=scaling, dropout=dropout, need=sorted(names),
                      top_k=maps.top_k if maps is not None else 0)
    if maps is not None:
        maps._add(module, found)
    matrix = found.weights.to(query.dtype) if weights and found.weights is not None else None
    return found.output.transpose(1, 2).contiguous(), matrix


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
    AttentionMaskInterface.register("heed", sdpa_mask)
    PreTrainedModel.get_correct_attn_implementation = _get_correct_attn_implementation
    PreTrainedModel.set_attn_implementation = _set_attn_implementation
