"""heed.transformers.look: a report for a model and a text."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ._hf_capture import capture
from ._hf_pieces import pieces
from ._hf_picture import name_of, read_picture
from ._kinds import Seen, Texts, report_of
from ._look import Report
from ._look_at import Tokens, data_of_weights, detached
from ._places import checked_text, whole

FIELDS = {"encoder": ("encoder_attentions", "attentions"), "decoder": ("decoder_attentions",),
          "cross": ("cross_attentions",)}  # the model output's fields with the weights of each kind


def _configs(model: PreTrainedModel) -> dict[int, Any]:
    """Each config that sets the attention implementation of a part of the model.

    Layers may keep one that their model does not have: EncoderDecoderModel replaces its encoder's."""
    found: dict[int, Any] = {}

    def add(config: Any) -> None:
        if config is None or id(config) in found:
            return
        found[id(config)] = config
        for name in config.sub_configs:
            add(getattr(config, name, None))

    for module in model.modules():
        config = getattr(module, "config", None)
        add(config if hasattr(config, "_attn_implementation_internal") else None)
    return found


@contextlib.contextmanager
def attending(model: PreTrainedModel, implementation: str) -> Iterator[None]:
    """Switches the model to eval() and the given implementation; restores both afterwards."""
    before = [(config, config._attn_implementation_internal) for config in _configs(model).values()]
    training = [module for module in model.modules() if module.training]
    try:
        if implementation != "eager" and any(used != implementation for _, used in before):
            model.set_attn_implementation(implementation)  # refuses a model that would not use it
        for config, _ in before:  # transformers does not switch all: it only warns of Falcon
            config._attn_implementation_internal = implementation
        model.eval()
        yield
    finally:
        for config, used in before:
            config._attn_implementation_internal = used
        for module in training:
            module.training = True


def _takes_heed(model: PreTrainedModel) -> bool:
    """Whether the model uses heed's attention function or can switch to it."""
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return False
    try:
        with attending(model, "heed"):
            return True
    except ValueError:
        return False


@contextlib.contextmanager
def _within_positions(model: PreTrainedModel, given: dict[str, Tensor]) -> Iterator[None]:
    """Where a model stops at a text that is longer than its positions, names the text instead of PyTorch's index."""
    try:
        yield
    except (IndexError, RuntimeError) as error:
        limit = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        for name, ids in ("text", "input_ids"), ("target", "decoder_input_ids"):
            count = given[ids].shape[1] if ids in given else 0
            if isinstance(limit, int) and count > limit and (isinstance(error, IndexError) or str(limit) in str(error)):
                raise ValueError(f"{name} has {count} tokens, but {type(model).__name__} has {limit} positions; fewer tokens are "
                                 f"expected") from error
        raise


def _inputs(model: PreTrainedModel, tokenizer: Any, text: str, target: str | None, max_new_tokens: int) -> dict[str, Tensor]:
    known = inspect.signature(model.forward).parameters
    given = {name: x.to(model.device) for name, x in tokenizer(text, return_tensors="pt").items()
             if name in known or name != "token_type_ids"}
    if given["input_ids"].shape[1] == 0:
        raise ValueError(f"text is {text!r}, from which the tokenizer makes no tokens; at least one is expected")
    if not getattr(model.config, "is_encoder_decoder", False):
        if target is not None:
            raise ValueError(f"target is {target!r}, but {type(model).__name__} is not an encoder with a decoder; None is "
                             "expected")
        return given
    start = model.config.decoder_start_token_id
    if start is None:
        start = model.config.bos_token_id
    if target is None:
        if not model.can_generate():
            raise ValueError(f"target is None, but {type(model).__name__} cannot generate text; the decoder's text is "
                             f"expected")
        with _within_positions(model, given):
            written = model.generate(**given, max_new_tokens=max_new_tokens, do_sample=False)
    else:
        written = tokenizer(text_target=target, return_tensors="pt")["input_ids"].to(model.device)
        if start is not None and (written.shape[1] == 0 or written[0, 0] != start):
            written = torch.cat((torch.full((1, 1), start, dtype=written.dtype, device=written.device), written), 1)
    return given | {"decoder_input_ids": written}


def _texts(tokenizer: Any, given: dict[str, Tensor], text: str) -> Texts:
    ids = given["input_ids"][0].tolist()
    read = Texts(pieces(tokenizer, ids), title=text, ids=ids)
    if "decoder_input_ids" not in given:
        return read
    written = given["decoder_input_ids"][0].tolist()
    return read._replace(target_tokens=pieces(tokenizer, written), target_ids=written,
                         target_title=str(tokenizer.decode(written, skip_special_tokens=True)))


def _from_weights(model: PreTrainedModel, given: dict[str, Tensor]) -> list[Seen]:
    """The weights that a model returns, if it cannot use heed's attention function."""
    with attending(model, "eager"):
        answer = model(**given, output_attentions=True)
    has_encoder = getattr(model.config, "is_encoder_decoder", False)
    words = 0 if "pixel_values" in given else given["input_ids"].shape[1]
    reaches = [x.one_sided_attn_window_size for x in model.modules() if hasattr(x, "one_sided_attn_window_size")]
    found: list[Seen] = []
    for kind, fields in FIELDS.items():
        layers = next((answer[field] for field in fields if answer.get(field) is not None), ())
        for layer, weights in enumerate(layers):
            if not isinstance(weights, Tensor) or weights.dim() != 4:  # in blocks, as Pegasus-X's encoder returns them
                continue
            weights = detached(weights).to("cpu", torch.float32)
            rows, keys = weights.shape[2:]
            expected = {words, *(one.shape[2] for one in found)} if kind == "cross" else {rows}
            is_band = kind == "encoder" and len(reaches) > 0
            if is_band and keys == 2 * reaches[layer] + 1:
                weights = _unfolded(weights, reaches[layer])
            elif is_band or words and keys not in expected:
                raise ValueError(f"{type(model).__name__} returns {kind} weights of shape {list(weights.shape)}, whose rows or "
                                 f"keys are not the tokens of the text; weights of each token on each token are expected")
            causal = kind == "encoder" and not has_encoder and not weights.triu(1).any()
            found.append(_seen("decoder" if causal else kind, layer, weights))
    if not found:
        raise ValueError(f"{type(model).__name__} does not use transformers' AttentionInterface and returns no weights "
                         f"with output_attentions=True; a model that does either is expected")
    return found


def _unfolded(weights: Tensor, reach: int) -> Tensor:
    """[B, H, L, L] of Longformer's [B, H, L, 2 reach + 1], the weights of each row i on keys i - reach to i + reach."""
    count, slots = weights.shape[2:]
    places = (torch.arange(count)[:, None] + torch.arange(slots)).expand_as(weights)
    found = weights.new_zeros(*weights.shape[:3], count + slots).scatter_(3, places, weights)
    return found[..., reach:reach + count]


def _seen(kind: str, layer: int, weights: Tensor) -> Seen:
    def report(tokens: Tokens, top_k: int, heads: int) -> Any:
        return data_of_weights(weights, tokens, top_k, heads)

    batch, heads, rows, keys = weights.shape
    return Seen(kind, layer, (batch, heads, rows, keys), report)


def look(model: PreTrainedModel, tokenizer: Any, text: str | None = None, *, picture: Any = None, target: str | None = None,
         layers: Any = None, top_k: int = 5, title: str | None = None, max_new_tokens: int = 32) -> Report:
    """Runs a transformers model on a text, a picture, or both, and shows what each head of each layer attends to.

        report = heed.transformers.look(model, tokenizer, "The animal was too tired")
        report.save("look.html")
        heed.transformers.look(model, processor, "USER: <image> What is it?", picture="cat.png").save("look.html")

    picture: a path, a PIL image or an array; tokenizer is then the model's processor. The page draws the weights over the
    picture, cropped and scaled as the model sees it. The grid of patches comes from the processor's output and the model's
    configuration. text may be None for a model that reads pictures alone.

    The model may use any attn_implementation. It switches to heed's attention for this call and is restored afterwards.
    If it cannot, or is on another device, the report contains the weights of output_attentions=True.

    target: the decoder's text, for a model that also has an encoder. None uses the text that the model generates, at
    most max_new_tokens. The returned report is the encoder's; report.kind("decoder") and report.kind("cross") are the
    others.
    layers: the layers to include, numbered from 0 in the order of their first call.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"model is of type {type(model).__name__}; a model of transformers is expected")
    if picture is None and (not callable(tokenizer) or not hasattr(tokenizer, "decode")):
        raise TypeError(f"tokenizer is of type {type(tokenizer).__name__}; a tokenizer of transformers is expected")
    if not isinstance(text, str) and (text is not None or picture is None):
        raise TypeError(f"text is of type {type(text).__name__}; a str is expected")
    top_k, title = whole("top_k", top_k), title if title is None else checked_text("title", title)
    from .transformers import register

    register()
    takes_heed = _takes_heed(model)
    if not takes_heed and layers is not None:
        raise ValueError(f"layers is {layers!r}, but {type(model).__name__} cannot use heed's attention function; None "
                         f"is expected")
    with torch.no_grad(), attending(model, "heed" if takes_heed else "eager"):
        pictured = None
        if picture is None:
            given = _inputs(model, tokenizer, text or "", target, max_new_tokens)
        else:
            given, pictured = read_picture(model, tokenizer, text, picture)
        with _within_positions(model, given):
            if takes_heed:
                with capture(report=True, layers=layers) as maps:
                    model(**given)
                seen = [calls[0] for calls in maps._seen]
            else:
                seen = _from_weights(model, given)
    words = tokenizer if picture is None else getattr(tokenizer, "tokenizer", tokenizer)
    texts = _texts(words, given, text or "") if "input_ids" in given else Texts(title=name_of(picture))
    if pictured is not None:
        texts = texts._replace(others=pictured.names(seen))
    report = report_of(seen, texts if title is None else texts._replace(title=title), top_k)
    if pictured is not None:
        pictured.under(report)
    return report
