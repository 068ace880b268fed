"""When each word of a sound was said: the cross-attention of a speech model, aligned to time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from ._hf_capture import capture
from ._hf_look import attending
from ._hf_pieces import pieces
from ._places import CONTINUES, require_method, whole
from ._table import table

SECONDS = 0.02  # of a frame of the encoder
Floats = npt.NDArray[np.float64]


def path_of(cost: Floats) -> tuple[list[int], list[int]]:
    """Dynamic time warping: the cheapest path from the first row and column to the last, by steps down, right or both.

    Among equal steps the path goes right, as Whisper's does."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    step = np.zeros((rows + 1, columns + 1), np.int8)  # 0: both, 1: down, 2: right
    step[0, :], step[1:, 0] = 2, 1
    for i in range(1, rows + 1):
        above, here, taken = total[i - 1].tolist(), np.inf, step[i]
        for j, price in enumerate(cost[i - 1].tolist(), 1):
            both, down = above[j - 1], above[j]
            least = 0 if both < down and both < here else 1 if down < both and down < here else 2
            here = price + (both, down, here)[least]
            total[i, j], taken[j] = here, least
    found: tuple[list[int], list[int]] = ([], [])
    i, j = rows, columns
    while i or j:
        found[0].append(i - 1)
        found[1].append(j - 1)
        kind = step[i, j]
        i, j = i - (kind != 2), j - (kind != 1)
    return found[0][::-1], found[1][::-1]


def smoothed(weights: Floats, width: int) -> Floats:
    """The median of `width` neighbours along the last axis, which is mirrored at its ends."""
    half = width // 2
    if weights.shape[-1] <= half:
        return weights
    wide = np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(half, half)], mode="reflect")
    middle: Floats = np.median(np.lib.stride_tricks.sliding_window_view(wide, width, axis=-1), axis=-1)
    return middle


def starts_of(weights: Floats, width: int) -> list[int]:
    """The first frame of each token, from the weights [heads, tokens, frames] of the heads that follow the sound.

    Each frame's weights are made comparable over the tokens, smoothed over time, and averaged over the heads."""
    spread = weights.std(-2, keepdims=True)
    level = (weights - weights.mean(-2, keepdims=True)) / np.where(spread > 0, spread, 1)
    tokens, frames = path_of(-smoothed(level, width).mean(0))
    return [frame for n, (token, frame) in enumerate(zip(tokens, frames)) if n == 0 or token != tokens[n - 1]]


def _heads_of(model: Any, heads: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    layers, count = model.config.decoder_layers, model.config.decoder_attention_heads
    if heads is None:
        heads = getattr(model.generation_config, "alignment_heads", None)
    if heads is None:  # as Whisper's authors do without a list
        return [(layer, head) for layer in range(layers // 2, layers) for head in range(count)]
    for layer, head in heads:
        if not (0 <= layer < layers and 0 <= head < count):
            raise ValueError(f"heads has ({layer}, {head}); layers 0 to {layers - 1} and heads 0 to {count - 1} are expected")
    if not heads:
        raise ValueError("heads is empty; at least one (layer, head) is expected")
    return [(int(layer), int(head)) for layer, head in heads]


def word_times(model: PreTrainedModel, processor: Any, sound: Any, *, heads: Sequence[tuple[int, int]] | None = None,
               ids: Sequence[int] | None = None, sampling_rate: int = 16000, max_new_tokens: int = 128) -> Any:
    """The words of a sound with the seconds at which they begin and end, as a table.

        print(heed.transformers.word_times(model, processor, samples))

    model: of Whisper's kind. Its cross-attention runs from tokens to 20 ms of sound. A token begins where the cheapest path
    through these weights reaches it (dynamic time warping).
    sound: samples, [n], at `sampling_rate` per second.
    heads: (layer, head) pairs that follow the sound. None: the model's own alignment_heads, or all heads in the upper half
    of the decoder.
    ids: the decoder's token ids, with the start tokens. None: those that the model generates, at most max_new_tokens.
    """
    require_method("model", model, "config", "a model of transformers")
    if not hasattr(model.config, "median_filter_width") or not hasattr(model.config, "decoder_layers"):
        raise ValueError(f"model is a {type(model).__name__}; a model of Whisper's kind is expected")
    from .transformers import register

    register()
    chosen = _heads_of(model, heads)
    made = processor(sound, sampling_rate=whole("sampling_rate", sampling_rate), return_tensors="pt", return_attention_mask=True)
    features, mask = made["input_features"].to(model.device), made["attention_mask"]
    start = [model.config.decoder_start_token_id]
    with torch.no_grad(), attending(model, "heed"):
        if ids is None:
            written = model.generate(features, attention_mask=mask.to(model.device), max_new_tokens=max_new_tokens,
                                     do_sample=False)[0].tolist()
            ids = written if written[:1] == start else start + written
        ids = [int(one) for one in ids]
        with capture(weights=True) as maps:
            model(input_features=features, decoder_input_ids=torch.tensor([ids], device=model.device))
    layers = {one.kind_layer: one.weights[0] for one in maps if one.kind == "cross"}
    frames = min(int(mask.sum()) // 2, layers[0].shape[-1])
    tokenizer = getattr(processor, "tokenizer", processor)
    special = set(tokenizer.all_special_ids)
    spoken = [n for n, one in enumerate(ids) if one not in special]
    if not spoken:
        return table([])
    first, last = spoken[0], spoken[-1] + 1
    weights = np.stack([np.asarray(layers[layer][head], np.float64) for layer, head in chosen])[:, first:last, :frames]
    begins = [SECONDS * frame for frame in [*starts_of(weights, model.config.median_filter_width), frames]]
    words: list[dict[str, Any]] = []
    texts = pieces(tokenizer, ids)
    for n in spoken:
        if words and (texts[n].startswith(CONTINUES) or not texts[n][:1].isalnum()):
            words[-1]["word"] += texts[n].removeprefix(CONTINUES)
            words[-1]["end"] = begins[n - first + 1]
        else:
            words.append({"word": texts[n], "start": begins[n - first], "end": begins[n - first + 1]})
    return table([{**one, "start": round(one["start"], 2), "end": round(one["end"], 2)} for one in words])
