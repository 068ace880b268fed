"""Calls of com.microsoft.GroupQueryAttention: drawn at random, computed in f64 from the schema's text, and computed by
ONNX Runtime."""

import dataclasses
import json
import math

import numpy as np
from onnx import TensorProto, helper

INPUTS = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
          "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale"]
OUTPUTS = ["output", "present_key", "present_value", "output_qk"]
KINDS = ["prompt", "decode", "chunk", "shared"]
QUANTISED = [("NONE", 0), ("PER_TENSOR", 8), ("PER_CHANNEL", 8), ("PER_TENSOR", 4), ("PER_CHANNEL", 4)]


@dataclasses.dataclass
class Call:
    attributes: dict
    inputs: dict  # name -> array

    @property
    def outputs(self):
        return OUTPUTS if self.attributes.get("qk_output") else OUTPUTS[:3]

    def node(self):
        names = [name if name in self.inputs else "" for name in INPUTS]
        while not names[-1]:
            names.pop()
        return helper.make_node("GroupQueryAttention", names, self.outputs, domain="com.microsoft", **self.attributes)

    def model(self):
        def described(name, dtype):
            return helper.make_tensor_value_info(name, dtype, None)

        def type_of(array):
            return helper.np_dtype_to_tensor_dtype(array.dtype)

        cache = {0: type_of(self.inputs["query"]), 8: TensorProto.INT8, 4: TensorProto.UINT8}
        types = dict.fromkeys(OUTPUTS, type_of(self.inputs["query"]))
        types["present_key"] = types["present_value"] = cache[self.attributes.get("kv_cache_bit_width", 0)]
        graph = helper.make_graph([self.node()], "call", [described(n, type_of(a)) for n, a in self.inputs.items()],
                                  [described(n, types[n]) for n in self.outputs])
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        return model

    def defined(self, outputs):
        """Outputs by name. What the schema leaves undefined is set to 0: rows of padding, and cache rows beyond a
        sequence."""
        outputs = {name: np.array(array) for name, array in zip(self.outputs, outputs)}
        length = self.inputs["query"].shape[1]
        for b, count in enumerate(self.inputs["seqlens_k"].ravel() + 1):
            outputs["output"][b, min(count, length):] = 0
            outputs["present_key"][b, :, count:] = 0
            outputs["present_value"][b, :, count:] = 0
            if "output_qk" in outputs:
                outputs["output_qk"][b, :, min(count, length):] = 0
                outputs["output_qk"][b, :, :, count:] = 0
        return outputs

    def __str__(self):
        """The text that pytest shows for a failed call."""
        shapes = {name: f"{array.dtype}{list(array.shape)}" for name, array in self.inputs.items()}
        return f"{json.dumps(self.attributes)} {shapes} seqlens_k={self.inputs['seqlens_k'].tolist()}"


def draw(rng, kind, dtype=np.float32, quantised=("NONE", 0), beyond_runtime=False):
    """A random call with any of the operator's options. beyond_runtime also draws calls that ONNX Runtime refuses:
    batches of chunks, and quantised caches without a past."""
    def maybe(chance=0.5):
        return rng.random() < chance

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)

    one = kind in ("chunk", "shared") and not beyond_runtime
    batch = 1 if one else int(rng.integers(1, 4))
    kv_heads, group, dim = int(rng.integers(1, 4)), int(rng.choice([1, 2, 4])), int(rng.choice([16, 32]))
    heads = kv_heads * group
    length = 1 if kind == "decode" else int(rng.integers(2, 9))
    most = length if kind == "prompt" else int(rng.integers(length + 1, length + 24))
    counts = rng.integers(1 if kind == "prompt" else length, most + 1, batch)
    counts[rng.integers(batch)] = most
    attributes = {"num_heads": heads, "kv_num_heads": kv_heads}
    # Exported models use several shapes.
    seqlens = (counts - 1).astype(np.int32).reshape([(batch,), (batch, 1), (1, batch)][rng.integers(3)])
    inputs = {"seqlens_k": seqlens, "total_sequence_length": np.full(() if maybe() else 1, most, np.int32)}
    if maybe(0.3) and kind != "shared":
        inputs["query"] = normal(batch, length, (heads + 2 * kv_heads) * dim)
    else:
        rows = 0 if kind == "shared" else length
        inputs["query"] = normal(batch, length, heads * dim)
        inputs["key"], inputs["value"] = (normal(batch, rows, kv_heads * dim) for _ in range(2))
    how, bits = quantised
    if how != "NONE":
        attributes |= {"k_quant_type": how, "v_quant_type": how, "kv_cache_bit_width": bits}
        shape = (1,) if how == "PER_TENSOR" else (1, kv_heads, 1, dim)
        for name in ("k_scale", "v_scale"):  # about 3 deviations over the codes, so some numbers exceed them
            inputs[name] = (rng.uniform(0.7, 1.3, shape) * 2.5 / (1 << (bits - 1))).astype(np.float32)
            if how == "PER_CHANNEL" and maybe():
                inputs[name][0, 0, 0, 1] = 0  # a scale of 0 counts as 1; the codes mean 0
    if kind != "prompt" or (how != "NONE" and not beyond_runtime) or maybe():
        room = most - (1 if kind == "decode" and maybe() else 0)
        room += int(rng.integers(0, 5)) if maybe() else 0
        shape = (batch, kv_heads, room, dim)
        for name in ("past_key", "past_value"):
            inputs[name] = normal(*shape)
            if bits == 8:
                inputs[name] = rng.integers(-128, 128, shape).astype(np.int8)
            if bits == 4:
                inputs[name] = rng.integers(0, 256, (*shape[:3], dim // 2)).astype(np.uint8)
    if maybe():
        attributes["do_rotary"] = 2 if maybe(0.1) else 1  # only 1 rotates
        attributes["rotary_interleaved"] = int(rng.integers(3))
        pairs = dim // 2 if dim == 16 or maybe() else 8
        angles = np.outer(np.arange(40), 100.0 ** -(np.arange(pairs) / pairs))
        inputs["cos_cache"], inputs["sin_cache"] = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
        if maybe(0.3):
            start = rng.integers(0, 20, 1 if kind == "prompt" else (batch, 1))
            inputs["position_ids"] = np.broadcast_to(start + np.arange(length), (batch, length)).astype(np.int64)
    if maybe(0.4):
        attributes["local_window_size"] = int(rng.integers(-2, 10))
    if maybe(0.3):
        attributes["softcap"] = -1.0 if maybe(0.1) else float(rng.uniform(1, 5))
    if maybe(0.3):
        attributes["scale"] = float(rng.uniform(0.1, 0.5))
    if maybe(0.3):
        inputs["attention_bias"] = normal(batch if maybe() else 1, heads if maybe() else 1, length, most)
    if maybe(0.3):
        inputs["head_sink"] = normal(heads)
    elif maybe(0.3):
        attributes["smooth_softmax"] = 1
    if maybe(0.4):
        attributes["qk_output"] = int(rng.integers(1, 3))
    return Call(attributes, {name: inputs[name] for name in INPUTS if name in inputs})


def encode(x, scale, bits):
    """Quantises a row of f32: rounds to nearest, ties to even. A scale of 0 counts as 1."""
    most = 2 ** (bits - 1) - 1
    codes = [max(-most - 1, min(most, round(float(a * (np.float32(1) / s if s else 1))))) for a, s in zip(x, scale)]
    if bits == 8:
        return codes
    return [(low + 8) + 16 * (high + 8) for low, high in zip(codes[::2], codes[1::2])]


def decode(codes, scale, bits):
    if bits == 4:
        codes = [half - 8 for code in codes for half in (int(code) % 16, int(code) // 16)]
    return np.array([int(code) * float(s) for code, s in zip(codes, scale)])


def rotate(row, position, cos, sin, interleaved):
    turned = row.astype(np.float64)
    pairs = cos.shape[1]
    for i in range(pairs):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, pairs + i)
        c, s = float(cos[position, i]), float(sin[position, i])
        turned[a], turned[b] = float(row[a]) * c - float(row[b]) * s, float(row[b]) * c + float(row[a]) * s
    return turned.astype(row.dtype)


def compute(call):
    """The outputs in f64, except for what caches store: token by token and head by head, as in the schema's text."""
    inputs, get = call.inputs, call.attributes.get
    heads, kv_heads = get("num_heads"), get("kv_num_heads")
    x = inputs["query"]
    batch, length, width = x.shape
    dim = width // (heads if "key" in inputs else heads + 2 * kv_heads)
    if "key" in inputs:
        query, key, value = x, inputs["key"], inputs["value"]
    else:
        query, key, value = np.split(x, [heads * dim, (heads + kv_heads) * dim], axis=2)
    query, key, value = (y.reshape(batch, y.shape[1], y.shape[2] // dim, dim) for y in (query, key, value))
    most = inputs["total_sequence_length"].item()
    prompt = length == most
    bits = get("kv_cache_bit_width", 0)
    past = {name: inputs.get("past_" + name) for name in ("key", "value")}
    rows = max(most, 0 if past["key"] is None else past["key"].shape[2])
    kept = {0: (x.dtype, dim), 8: (np.int8, dim), 4: (np.uint8, dim // 2)}[bits]
    present = {name: np.zeros((batch, kv_heads, rows, kept[1]), kept[0]) for name in past}
    scales = {}  # [Hkv, D]
    for name in past if bits else ():
        scale = inputs[name[0] + "_scale"]
        per_channel = get(f"{name[0]}_quant_type") == "PER_CHANNEL"
        scales[name] = scale.reshape(kv_heads, dim) if per_channel else np.full((kv_heads, dim), scale)
    output = np.zeros((batch, length, heads, dim))
    output_qk = np.zeros((batch, heads, length, most))
    scale, window = get("scale") or 1 / math.sqrt(dim), get("local_window_size", -1)
    for b in range(batch):
        count = int(inputs["seqlens_k"].flat[b]) + 1
        first = 0 if prompt else count - length  # position of the first query
        before = count if key.shape[1] == 0 else first

        def turn(row, s):
            if get("do_rotary") != 1:
                return row
            at = first + s
            if "position_ids" in inputs:
                at = inputs["position_ids"][0, 0] + s if prompt else inputs["position_ids"][b, s]
            return rotate(row, at, inputs["cos_cache"], inputs["sin_cache"], get("rotary_interleaved") == 1)

        numbers = {}
        for name, new in (("key", key), ("value", value)):
            held = present[name][b]
            for h in range(kv_heads):
                for j in range(count):
                    if j < before:
                        held[h, j] = past[name][b, h, j]
                    else:
                        row = new[b, j - before, h]
                        row = turn(row, j - before) if name == "key" else row
                        held[h, j] = encode(row.astype(np.float32), scales[name][h], bits) if bits else row
            numbers[name] = np.array([[decode(held[h, j], scales[name][h], bits) if bits else held[h, j]
                                       for j in range(count)] for h in range(kv_heads)]).astype(np.float64)
        for h in range(heads):
            keys, values = (numbers[name][h // (heads // kv_heads)] for name in ("key", "value"))
            for s in range(min(length, count)):
                end = first + s + 1
                seen = np.arange(max(0, end - window) if window >= 0 else 0, end)
                scores = keys[seen] @ turn(query[b, s, h], s).astype(np.float64) * scale
                if get("softcap", 0) > 0:
                    scores = get("softcap") * np.tanh(scores / get("softcap"))
                if "attention_bias" in inputs:
                    bias = np.broadcast_to(inputs["attention_bias"], (batch, heads, length, most))
                    scores = scores + bias[b, h, s, seen].astype(np.float64)
                sum_of_others = 0.0
                if "head_sink" in inputs:
                    sum_of_others = math.exp(float(inputs["head_sink"][h]))
                elif get("smooth_softmax") == 1:
                    sum_of_others = 1.0
                weights = np.exp(scores) / (np.exp(scores).sum() + sum_of_others)
                output[b, s, h] = weights @ values[seen]
                output_qk[b, h, s, seen] = weights if get("qk_output") == 2 else scores
    return output.reshape(batch, length, -1), present["key"], present["value"], output_qk


def by_onnxruntime(call):
    """Raises ONNX Runtime's error if its CPU build does not support the call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(call.model().SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(call.outputs, call.inputs)
