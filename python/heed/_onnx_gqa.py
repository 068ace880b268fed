"""com.microsoft.GroupQueryAttention: ONNX Runtime's attention over a cache, for NumPy arrays.

In batch entry b, T = seqlens_k[b] + 1 tokens are in the cache after the call, and the S queries are the last of them.
Query s is at position T - S + s and sees the keys up to that position. If S equals total_sequence_length, the call is a
first prompt: query s is at position s, and rows from T on are padding. Quantised caches store

    code = clip(rint(x / scale)), x = code * scale

with one scale for all values, or one per key head and channel. 4-bit codes are stored plus 8, two per byte, with the
even channel in the low half. Queries see the new keys as the cache stores them. heed attends over the dequantised
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _heed
from ._counted import counted

Array = npt.NDArray[Any]
Inputs = Mapping[str, Array]

INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
          "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
          "query_seqlens")
UNSUPPORTED_INPUTS = INPUTS[14:]
ATTRIBUTES = {"num_heads", "kv_num_heads", "scale", "softcap", "local_window_size", "do_rotary", "rotary_interleaved",
              "smooth_softmax", "qk_output", "k_quant_type", "v_quant_type", "kv_cache_bit_width",
              "qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"}  # the last three are for inputs that are refused
NEUTRAL = {"causal": 1, "sliding_window_cache": 0}  # attributes accepted with this value only

# Values of qk_output.
SCORES, WEIGHTS = 1, 2


def _refuse(what: str, expected: str) -> ValueError:
    return ValueError(f"GroupQueryAttention: {what}; {expected} is expected")


@dataclass(frozen=True)
class _Codes:
    """The quantisation of a cache: codes of 8 or 4 bits."""

    bits: int
    scale: Array  # f32, broadcasts to [B, Hkv, L, D]

    def kept(self, dim: int) -> tuple[np.dtype[Any], int]:
        """The dtype and width of a stored row of dim numbers."""
        return (np.dtype(np.int8), dim) if self.bits == 8 else (np.dtype(np.uint8), dim // 2)

    def encode(self, x: Array) -> Array:
        least = -(1 << (self.bits - 1))
        inverse = 1 / np.where(self.scale == 0, np.float32(1), self.scale)  # as in ONNX Runtime
        codes = np.clip(np.rint(x.astype(np.float32) * inverse), least, -least - 1).astype(np.int8)
        if self.bits == 8:
            return codes
        halves = (codes + 8).astype(np.uint8)
        return halves[..., 0::2] | halves[..., 1::2] << 4

    def decode(self, codes: Array) -> Array:
        if self.bits == 4:
            halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
            codes = halves.astype(np.int8) - 8
        return codes * self.scale


@dataclass(frozen=True)
class _Tokens:
    """The number of tokens per batch entry, after and before the call."""

    all: Array  # i64 [B]
    before: Array  # i64 [B]; tokens with rows in past_key
    total: int  # of the longest entry
    first_prompt: bool


class _Call:
    """One call of the operator."""

    def __init__(self, inputs: Inputs, attributes: Mapping[str, Any]) -> None:
        self.inputs = inputs
        self.attributes = attributes
        self._refuse_what_is_not_understood()
        self.query, self.key, self.value = self._heads()
        self.tokens = self._count()
        self.window = self._window()
        self.codes = self._format("k"), self._format("v")

    def _refuse_what_is_not_understood(self) -> None:
        for name in UNSUPPORTED_INPUTS:
            if name in self.inputs:
                raise _refuse(f"{name} is given, which heed does not support", "no such input")
        for name, value in self.attributes.items():
            if name in NEUTRAL and value != NEUTRAL[name]:
                raise _refuse(f"{name} is {value}, which heed does not support", str(NEUTRAL[name]))
            if name not in ATTRIBUTES and name not in NEUTRAL:
                raise _refuse(f"attribute {name} is given, which heed does not know",
                              f"one of {', '.join(sorted(ATTRIBUTES | set(NEUTRAL)))}")
        for name in ("query", "seqlens_k", "total_sequence_length"):
            if name not in self.inputs:
                raise _refuse(f"{name} is missing", "it")
        for one, other in (("key", "value"), ("past_key", "past_value"), ("cos_cache", "sin_cache")):
            if (one in self.inputs) != (other in self.inputs):
                raise _refuse(f"only one of {one} and {other} is given", "both or neither")

    def _heads(self) -> tuple[Array, Array, Array]:
        """query [B, H, S, D], key and value [B, Hkv, L, D]. L is S, or 0 if the cache already has all keys."""
        query = self.inputs["query"]
        heads, kv_heads = self.attributes.get("num_heads", 0), self.attributes.get("kv_num_heads", 0)
        if heads < 1 or kv_heads < 1 or heads % kv_heads != 0:
            raise _refuse(f"num_heads is {heads} and kv_num_heads {kv_heads}", "a multiple of 1 or more")
        packed = "key" not in self.inputs
        parts = heads + 2 * kv_heads if packed else heads
        if query.ndim != 3 or query.shape[2] == 0 or query.shape[2] % parts != 0:
            raise _refuse(f"query has shape {list(query.shape)}", f"[B, S, {parts} * D]")
        batch, length, dim = query.shape[0], query.shape[1], query.shape[2] // parts
        if packed:
            apart = query.reshape(batch, length, parts, dim).transpose(0, 2, 1, 3)
            return apart[:, :heads], apart[:, heads : heads + kv_heads], apart[:, heads + kv_heads :]
        key, value = self.inputs["key"], self.inputs["value"]
        for name, x in (("key", key), ("value", value)):
            if x.ndim != 3 or x.shape not in [(batch, n, kv_heads * dim) for n in (length, 0)]:
                raise _refuse(f"{name} has shape {list(x.shape)}", f"{[batch, length, kv_heads * dim]} or no rows")
            if x.dtype != query.dtype:
                raise _refuse(f"{name} is {x.dtype} and query {query.dtype}", "one dtype")
        if key.shape != value.shape:
            raise _refuse(f"key has shape {list(key.shape)} and value {list(value.shape)}", "one shape")

        def split(x: Array, count: int) -> Array:
            return x.reshape(batch, x.shape[1], count, dim).transpose(0, 2, 1, 3)

        return split(query, heads), split(key, kv_heads), split(value, kv_heads)

    def _count(self) -> _Tokens:
        batch, _, length, _ = self.query.shape
        seqlens, total = self.inputs["seqlens_k"], self.inputs["total_sequence_length"]
        if total.size != 1 or total.dtype.kind != "i":
            raise _refuse(f"total_sequence_length is {total.dtype} {list(total.shape)}", "one integer")
        if seqlens.ndim == 0 or seqlens.size != batch or seqlens.dtype.kind != "i":
            raise _refuse(f"seqlens_k is {seqlens.dtype} {list(seqlens.shape)}", f"integers [{batch}] or [{batch}, 1]")
        longest, first_prompt = int(total.item()), int(total.item()) == length
        counts = seqlens.ravel().astype(np.int64) + 1
        least = 1 if first_prompt else length
        if ((counts < least) | (counts > longest)).any():
            raise _refuse(f"seqlens_k is {seqlens.tolist()} for {counted(length, 'query', 'queries')} and total_sequence_length {longest}",
                          f"{least - 1} to {longest - 1}")
        borrowed = self.key.shape[2] == 0  # no new keys: the cache already has them all
        before = counts if borrowed else counts - length
        if first_prompt and not borrowed:
            before = np.zeros_like(counts)
        room = self.inputs["past_key"].shape[2] if "past_key" in self.inputs and self.inputs["past_key"].ndim == 4 else 0
        if (before > room).any():
            raise _refuse(f"past_key has {counted(room, 'row')}", f"{before.max()} or more, by seqlens_k")
        return _Tokens(counts, before, longest, first_prompt)

    def _window(self) -> int | None:
        """The number of last keys that a query sees. As in ONNX Runtime, any negative number means no window."""
        size = int(self.attributes.get("local_window_size", -1))
        return None if size < 0 else size

    def _format(self, letter: str) -> _Codes | None:
        kind = self.attributes.get(f"{letter}_quant_type", "NONE")
        name, bits = f"{letter}_scale", self.attributes.get("kv_cache_bit_width", 0)
        other = self.attributes.get(f"{'v' if letter == 'k' else 'k'}_quant_type", "NONE")
        if (kind == "NONE") != (other == "NONE"):
            raise _refuse(f"one of k_quant_type and v_quant_type is {kind} and the other "
                          f"{other}", "NONE for both or neither")
        if kind == "NONE":
            if bits != 0:
                raise _refuse(f"kv_cache_bit_width is {bits} for a cache without codes", "0")
            return None
        if kind not in ("PER_TENSOR", "PER_CHANNEL"):
            raise _refuse(f"{letter}_quant_type is {kind}", "NONE, PER_TENSOR or PER_CHANNEL")
        kv_heads, dim = self.key.shape[1], self.key.shape[3]
        if bits not in (8, 4) or (bits == 4 and dim % 2 != 0):
            raise _refuse(f"kv_cache_bit_width is {bits} for heads of {dim}", "8, or 4 for even heads,")
        if name not in self.inputs:
            raise _refuse(f"{letter}_quant_type is {kind} without {name}", "the scale")
        scale = self.inputs[name]
        shape = (1, 1, 1, 1) if kind == "PER_TENSOR" else (1, kv_heads, 1, dim)
        if scale.dtype != np.float32 or scale.size != np.prod(shape):
            raise _refuse(f"{name} is {scale.dtype} {list(scale.shape)}", f"float32 {list(shape)} ({kind})")
        return _Codes(bits, scale.reshape(shape))

    def rotate(self, x: Array) -> Array:
        """Applies the rotary embedding to new rows [B, H, S, D]: channel pairs rotate by the angles of their
        positions."""
        if self.attributes.get("do_rotary", 0) != 1 or x.shape[2] == 0:
            return x
        if "cos_cache" not in self.inputs:
            raise _refuse("do_rotary is 1 without cos_cache and sin_cache", "both")
        cos, sin = self.inputs["cos_cache"], self.inputs["sin_cache"]
        if cos.ndim != 2 or cos.shape != sin.shape or 2 * cos.shape[1] > x.shape[3]:
            raise _refuse(f"cos_cache has shape {list(cos.shape)} and sin_cache {list(sin.shape)}",
                          f"[positions, {x.shape[3] // 2} or less] for both")
        positions = self._positions(len(cos))
        cosine, sine = (table.astype(np.float32)[positions][:, None] for table in (cos, sin))  # [B, 1, S, pairs]
        pairs = cos.shape[1]
        if self.attributes.get("rotary_interleaved", 0) == 1:
            first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
        else:
            first, second = slice(0, pairs), slice(pairs, 2 * pairs)
        turned = x.astype(np.float32)
        a, b = turned[..., first].copy(), turned[..., second].copy()
        turned[..., first] = a * cosine - b * sine
        turned[..., second] = b * cosine + a * sine
        return turned.astype(x.dtype)

    def _positions(self, known: int) -> Array:
        """The positions [B, S] of the new rows, for their rotation."""
        batch, _, length, _ = self.query.shape
        steps = np.arange(length)
        start = np.zeros(batch, np.int64) if self.tokens.first_prompt else self.tokens.all - length
        positions: Array = start[:, None] + steps
        if "position_ids" in self.inputs:
            given = self.inputs["position_ids"]
            if given.shape != (batch, length):
                raise _refuse(f"position_ids has shape {list(given.shape)}", f"{[batch, length]}")
            # For a first prompt "the kernel uses only the first element".
            positions = np.broadcast_to(given.flat[0] + steps, (batch, length)) if self.tokens.first_prompt else given
        if positions.size and (positions.min() < 0 or positions.max() >= known):
            raise _refuse(f"positions go from {positions.min()} to {positions.max()}",
                          f"0 to {known - 1}, the rows of cos_cache,")
        return positions

    def present(self, name: str, new: Array, codes: _Codes | None) -> Array:
        """The cache after the call: its old rows, then the new ones, then zeros."""
        batch, kv_heads, _, dim = self.key.shape
        dtype, width = codes.kept(dim) if codes else (new.dtype, dim)
        past = self.inputs.get(name)
        rows = self.tokens.total
        if past is not None:
            shape = (batch, kv_heads, past.shape[2] if past.ndim == 4 else 0, width)
            if past.shape != shape or past.dtype != dtype:
                raise _refuse(f"{name} is {past.dtype} {list(past.shape)}", f"{dtype} [{batch}, {kv_heads}, rows, {width}]")
            rows = max(rows, past.shape[2])
        present = np.zeros((batch, kv_heads, rows, width), dtype)
        for b, (before, count) in enumerate(zip(self.tokens.before, self.tokens.all)):
            if past is not None:
                present[b, :, :before] = past[b, :, :before]
            rows_of_b = new[b : b + 1, :, : count - before]
            if codes and not np.isfinite(rows_of_b).all():
                raise _refuse(f"new rows for {name} are not finite", "numbers that codes can represent")
            present[b, :, before:count] = (codes.encode(rows_of_b) if codes else rows_of_b)[0]
        return present

    def numbers(self, present: Array, codes: _Codes | None) -> Array:
        """The dequantised rows that the call may see."""
        seen = present[:, :, : self.tokens.total]
        return codes.decode(seen) if codes else seen

    def bias(self, dtype: np.dtype[Any]) -> Array | None:
        bias = self.inputs.get("attention_bias")
        if bias is None:
            return None
        batch, heads, length, _ = self.query.shape
        if bias.shape not in [(b, h, length, self.tokens.total) for b in (batch, 1) for h in (heads, 1)]:
            raise _refuse(f"attention_bias has shape {list(bias.shape)}",
                          f"[{batch} or 1, {heads} or 1, {length}, {self.tokens.total}]")
        return bias.astype(dtype, copy=False)

    def sinks(self) -> Array | None:
        heads = self.query.shape[1]
        if "head_sink" in self.inputs:
            sinks = self.inputs["head_sink"]
            if sinks.shape != (heads,):
                raise _refuse(f"head_sink has shape {list(sinks.shape)}", f"[{heads}]")
            return sinks.astype(np.float32)
        return np.zeros(heads, np.float32) if self.attributes.get("smooth_softmax", 0) == 1 else None

    def within_rules(self) -> Array:
        """bool [B, 1, S, total]: whether a query may see a key by causality, window and lengths."""
        length = self.query.shape[2]
        start = np.zeros_like(self.tokens.all) if self.tokens.first_prompt else self.tokens.all - length
        at = (start[:, None] + np.arange(length))[:, None, :, None]
        keys = np.arange(self.tokens.total)
        seen: Array = (keys <= at) & (keys < self.tokens.all[:, None, None, None])
        return seen if self.window is None else seen & (keys > at - self.window)

    def run(self, wants_qk: bool) -> tuple[Array, Array, Array, Array]:
        """(output, present_key, present_value, output_qk); the last is empty if not requested."""
        mode = self.attributes.get("qk_output", 0)
        if mode not in (0, SCORES, WEIGHTS) or (wants_qk and mode == 0):
            raise _refuse(f"qk_output is {mode}", "1 or 2 if there is an output_qk, otherwise 0 to 2,")
        key_codes, value_codes = self.codes
        query = self.rotate(self.query)
        present_key = self.present("past_key", self.rotate(self.key), key_codes)
        present_value = self.present("past_value", self.value, value_codes)
        key, value = self.numbers(present_key, key_codes), self.numbers(present_value, value_codes)
        options: dict[str, Any] = {"query_offset": 0} if self.tokens.first_prompt else {"align": "bottom-right"}
        if self.window == 0:  # a query sees no key
            options["mask"] = np.zeros((1, 1), np.bool_)
        elif self.window is not None:
            options["window"] = (self.window - 1, None)
        if wants_qk:
            options |= {"need": "weights"} if mode == WEIGHTS else {"need": "scores", "scores_stage": "bias"}
        result: Any = _heed.attention(
            query.astype(key.dtype, copy=False), key, value, causal=True, kv_lengths=self.tokens.all,
            sinks=self.sinks(), scale=self.attributes.get("scale") or None, softcap=max(0.0, self.attributes.get("softcap", 0)),
            bias=self.bias(key.dtype), **options)
        dtype = self.query.dtype
        output = result.output if wants_qk else result
        output = output.transpose(0, 2, 1, 3).reshape(output.shape[0], output.shape[2], -1).astype(dtype, copy=False)
        scores: Array = np.empty(0, dtype)
        if wants_qk:  # ONNX Runtime returns 0 for keys that a query does not see
            scores = result.weights if mode == WEIGHTS else np.where(self.within_rules(), result.scores, 0)
        return output, present_key, present_value, scores.astype(dtype, copy=False)


def group_query_attention(
    inputs: Inputs, attributes: Mapping[str, Any], wants_qk: bool
) -> tuple[Array, Array, Array, Array]:
    """(output, present_key, present_value, output_qk) for inputs and attributes given by name."""
    return _Call(inputs, attributes).run(wants_qk)
