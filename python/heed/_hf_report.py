"""The kinds of a transformers model's layers (encoder, decoder, cross-attention), and their calls as reports."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import PreTrainedModel

from . import _heed
from ._hf_cache import dense
from ._kinds import Seen
from ._look_at import Tokens, data_of_call

CROSS = ("crossattn", "crossattention", "encoderattn", "encdecattention", "encoderattention")  # in paths, without "_"


class Names:
    """The running models, and the places of modules in them."""

    def __init__(self) -> None:
        self._paths: dict[Any, str] = {}
        self._encoders: set[Any] = set()
        self._models: set[Any] = set()
        self._switched: list[tuple[Any, str]] = []  #: configs, and their attention before

    def add(self, model: PreTrainedModel) -> None:
        if model in self._models:
            return
        self._models.add(model)
        self._switch_layers(model)
        for path, module in model.named_modules():
            if len(path) > len(self._paths.get(module, "")):
                self._paths[module] = path
        if getattr(model.config, "is_encoder_decoder", False) and hasattr(model, "get_encoder"):
            encoder = model.get_encoder()
            if encoder is not None and encoder is not model:
                self._encoders |= set(encoder.modules())

    def _switch_layers(self, model: PreTrainedModel) -> None:
        """Switches layers that keep a config which their model does not have, where the model uses heed.

        EncoderDecoderModel replaces its encoder's config, so set_attn_implementation() does not reach its layers."""
        parts = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
        own = {id(part.config) for part in parts}
        for part in parts:
            wanted: Any = part.config
            layers: list[Any] = [getattr(layer, "config", None) for layer in part.modules()]
            for config in layers:
                if (wanted._attn_implementation_internal == "heed" and type(config) is type(wanted)
                        and id(config) not in own and config._attn_implementation_internal != "heed"):
                    self._switched.append((config, config._attn_implementation_internal))
                    config._attn_implementation_internal = "heed"

    def restore(self) -> None:
        """Undoes these switches."""
        for config, used in self._switched:
            config._attn_implementation_internal = used

    def kind(self, module: Any, call: Any) -> str:
        """The kind of a layer: "encoder", "decoder" or "cross"."""
        path = self._paths.get(module, "").replace("_", "").lower()
        if getattr(module, "is_cross_attention", False) or any(name in path for name in CROSS):
            return "cross"
        if module in self._encoders:
            return "encoder"
        causal = call.causal or (call.row_mask is not None and call.row_mask.is_causal())
        return "decoder" if causal or self._encoders or getattr(module, "is_causal", False) else "encoder"

    def watch(self) -> Any:
        """Installs a hook on all modules; remove() uninstalls it."""
        def see(module: Any, _: Any) -> None:
            if isinstance(module, PreTrainedModel):
                self.add(module)

        return torch.nn.modules.module.register_module_forward_pre_hook(see)


def seen(kind: str, layer: int, call: Any) -> Seen:
    """Records a call. Query and key are copied, because a static cache changes its memory."""
    query, key = call.untracked().query.clone(), dense(call.untracked().key).clone()
    options = {name: value for name, value in call.options().items() if value is not None}
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    return Seen(kind, layer, shape, functools.partial(_report, query, key, options))


def _report(query: torch.Tensor, key: torch.Tensor, options: dict[str, Any], tokens: Tokens, top_k: int,
            heads: int) -> _heed.ReportData:
    return data_of_call(query, key, key[..., :1], tokens, top_k, False, options, heads)
