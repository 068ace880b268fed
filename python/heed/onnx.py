"""heed as an ONNX backend (onnx.backend.base).

heed computes the Attention operators of opsets 23 to 25 and com.microsoft.GroupQueryAttention.

    backend_rep = heed.onnx.prepare(onnx.load("model.onnx"))
    outputs = backend_rep.run([q, k, v])

All other operators run in onnx.reference, ONNX's own evaluator in NumPy.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _heed
from ._counted import counted
from ._missing import need
from ._onnx_gqa import INPUTS, group_query_attention
from ._places import is_masked, require

need("onnx", "heed.onnx")

import onnx  # noqa: E402
from onnx import TensorProto  # noqa: E402
from onnx.backend.base import Backend, BackendRep  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx.reference.op_run import OpRun  # noqa: E402

__all__ = ["HeedBackend", "HeedBackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

Array = npt.NDArray[Any]

# Values of qk_matmul_output_mode: a stage of the scores, or the weights.
STAGES = {0: "raw", 1: "softcap", 2: "bias"}
WEIGHTS = 3

# Attributes of Attention that are one of a few numbers.
VALUES = {"is_causal": (0, 1), "qk_matmul_output_mode": (*STAGES, WEIGHTS),
          "softmax_precision": (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)}
ATTRIBUTES = {"q_num_heads", "kv_num_heads", "scale", "softcap", "left_window_size", "right_window_size", *VALUES}


def _check_attributes(attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        if name not in ATTRIBUTES:
            raise ValueError(f"Attention: attribute {name} is given, which heed does not know; one of "
                             f"{', '.join(sorted(ATTRIBUTES))} is expected")
        if value is not None and value not in VALUES.get(name, (value,)):
            raise ValueError(f"Attention: {name} is {value}; one of {', '.join(map(str, VALUES[name]))} is expected")


def _split_heads(x: Array, heads: int | None, name: str) -> Array:
    """Reshapes [B, L, H * D] to [B, H, L, D]; tensors with 4 axes already have that shape."""
    if x.ndim == 4 and heads in (None, x.shape[1]):
        return x
    if x.ndim != 3 or not heads or heads < 1 or x.shape[2] % heads != 0:
        raise ValueError(f"Attention: {name} has shape {list(x.shape)} for {heads} heads; [B, H, L, D] or "
                         "[B, L, H * D] is expected")
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _mask_options(mask: Array | None, keys: int, dtype: np.dtype[Any]) -> dict[str, Array]:
    """Extends a mask that is shorter than the keys; keys beyond it are masked."""
    if mask is None:
        return {}
    if mask.ndim == 0:
        raise ValueError("Attention: attn_mask has shape []; 1 to 4 axes, of which the last counts keys, are expected")
    boolean = mask.dtype == np.bool_
    if not boolean and mask.dtype.kind in "iu":
        mask = mask.astype(dtype)
    missing = keys - mask.shape[-1]
    if missing > 0:
        padding = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
        mask = np.pad(mask, padding, constant_values=np.array(False if boolean else -np.inf, mask.dtype))
    return {"mask" if boolean else "bias": mask}


def _behind(name: str, past: Array, new: Array) -> Array:
    """The past rows, then the new ones."""
    if past.ndim != 4 or past.dtype != new.dtype or (*past.shape[:2], past.shape[3]) != (*new.shape[:2], new.shape[3]):
        raise ValueError(f"Attention: {name} is {past.dtype} {list(past.shape)}; {new.dtype} [{new.shape[0]}, "
                         f"{new.shape[1]}, rows, {new.shape[3]}] is expected")
    return np.concatenate([past, new], axis=2)


def _attend(
    q: Array,
    k: Array,
    v: Array,
    attn_mask: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    nonpad_kv_seqlen: Array | None,
    wants_scores: bool,
    attributes: Mapping[str, Any],
) -> tuple[Array, Array, Array, Array]:
    """(Y, present_key, present_value, qk_matmul_output); the last is empty if not requested."""
    _check_attributes(attributes)
    if (past_key is None) != (past_value is None):
        raise ValueError("Attention: only one of past_key and past_value is given; both or neither are expected")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("Attention: past_key and nonpad_kv_seqlen are both given; at most one of them is expected")
    if not q.ndim == k.ndim == v.ndim:
        raise ValueError(f"Attention: Q, K and V have {q.ndim}, {k.ndim} and {v.ndim} axes; the same number is expected")
    merged = q.ndim == 3
    heads, kv_heads = attributes.get("q_num_heads"), attributes.get("kv_num_heads")
    q, k, v = _split_heads(q, heads, "Q"), _split_heads(k, kv_heads, "K"), _split_heads(v, kv_heads, "V")
    value_dtype = v.dtype
    options: dict[str, Any] = {"align": "bottom-right", "kv_lengths": nonpad_kv_seqlen}
    if nonpad_kv_seqlen is None:
        options = {"query_offset": 0}
    if past_key is not None and past_value is not None:
        options = {"query_offset": past_key.shape[2]}
        k, v = _behind("past_key", past_key, k), _behind("past_value", past_value, v)
    options |= _mask_options(attn_mask, k.shape[2], q.dtype)
    mode = attributes.get("qk_matmul_output_mode") or 0
    if wants_scores:
        options |= {"need": "weights"} if mode == WEIGHTS else {"need": "scores", "scores_stage": STAGES[mode]}
    result: Any = _heed.attention(
        q, k, v.astype(q.dtype, copy=False), causal=bool(attributes.get("is_causal")), scale=attributes.get("scale"),
        softcap=attributes.get("softcap"), window=(_open(attributes, "left"), _open(attributes, "right")), **options)
    output = result.output if wants_scores else result
    if merged:
        output = output.transpose(0, 2, 1, 3).reshape(output.shape[0], output.shape[2], -1)
    scores = np.empty(0, q.dtype)
    if wants_scores:
        scores = (result.weights if mode == WEIGHTS else result.scores).astype(q.dtype)
    return output, np.ascontiguousarray(k), np.ascontiguousarray(v.astype(value_dtype, copy=False)), scores


def _open(attributes: Mapping[str, Any], side: str) -> int:
    size = attributes.get(side + "_window_size")
    return -1 if size is None else int(size)


class Attention(OpRun):
    """The operator as onnx.reference calls it.

    softmax_precision has no effect: heed computes in f32, or in f64 for f64 inputs."""

    op_domain = ""

    def _run(self, Q: Array, K: Array, V: Array, attn_mask: Array | None = None,  # noqa: N803
             past_key: Array | None = None, past_value: Array | None = None, nonpad_kv_seqlen: Array | None = None,
             **attributes: Any) -> tuple[Array, Array, Array, Array]:
        outputs = self.onnx_node.output
        wants_scores = len(outputs) > 3 and outputs[3] != ""
        names = {attribute.name for attribute in self.onnx_node.attribute}
        given = {name: getattr(self, name, None) for name in names} | attributes
        return _attend(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, wants_scores, given)


class GroupQueryAttention(OpRun):
    """ONNX Runtime's operator as onnx.reference calls it."""

    op_domain = "com.microsoft"

    def _run(self, *inputs: Array | None, **attributes: Any) -> tuple[Array, Array, Array, Array]:
        outputs = self.onnx_node.output
        given = {name: array for name, array in zip(INPUTS, inputs) if array is not None}
        return group_query_attention(given, attributes, len(outputs) > 3 and outputs[3] != "")


OPERATORS = [Attention, GroupQueryAttention]


def _feeds(inputs: Any, names: Sequence[str], optional: Collection[str], what: str) -> dict[str, Any]:
    """The inputs by name. `names` has a name for each of a sequence of inputs; `what` is the model or the node."""
    if isinstance(inputs, np.ndarray):
        inputs = [inputs]
    if not isinstance(inputs, (Mapping, list, tuple)):
        raise TypeError(f"inputs is of type {type(inputs).__name__}; a mapping, a list or an array is expected")
    if not isinstance(inputs, Mapping) and len(inputs) > len(names):
        raise ValueError(f"{counted(len(inputs), 'input')} {'is' if len(inputs) == 1 else 'are'} given; the {what} has "
                         f"{len(names)}: {', '.join(names)}")
    feeds: dict[str, Any] = {}
    for name, value in inputs.items() if isinstance(inputs, Mapping) else zip(names, inputs):
        if name not in names:
            raise ValueError(f"input '{name}' is given; the {what} has {', '.join(names)}")
        if feeds.setdefault(name, value) is not value:
            raise ValueError(f"input '{name}' is given twice, as two arrays; one array is expected")
        if is_masked(value):
            raise ValueError(f"input '{name}' is a masked array with masked elements; a plain array is expected, as "
                             "filled() returns")
    missing = [name for name in names if name not in feeds and name not in optional]
    if missing:
        raise ValueError(f"input '{missing[0]}' is missing; the {what} has {', '.join(names)}")
    return feeds


class HeedBackendRep(BackendRep):
    """A prepared model."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._evaluator = ReferenceEvaluator(model, new_ops=OPERATORS)
        self._optional = self._evaluator.rt_inits_.keys()  # an initializer is the default of an input of its name

    def __reduce__(self) -> tuple[Any, ...]:
        return HeedBackendRep, (self._model,)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """inputs: a mapping by name, a sequence in the model's order, or a single array."""
        _require_keywords(kwargs, ())
        feeds = _feeds(inputs, self._evaluator.input_names, self._optional, "model")
        return tuple(self._evaluator.run(None, feeds))


def _require_keywords(given: Collection[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(f"keyword {name} is given, which heed.onnx does not know; {' or '.join(known) or 'none'} is expected")


def _require_device(device: str) -> None:
    if not HeedBackend.supports_device(device):
        raise ValueError(f"device is '{device}'; 'CPU' is expected")


class HeedBackend(Backend):
    """onnx.backend.base.Backend for the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        require("device", device, str, "a str")
        return device.partition(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> HeedBackendRep:
        _require_device(device)
        _require_keywords(kwargs, ("rtol", "atol"))  # ONNX's test runner passes its tolerances on
        require("model", model, (onnx.ModelProto, str, bytes, os.PathLike), "an onnx.ModelProto or a path")
        super().prepare(model, device, **kwargs)  # checks the model
        return HeedBackendRep(model)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Sequence[Any] | None = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        _require_device(device)
        _require_keywords(kwargs, ("opset_version",))
        require("node", node, onnx.NodeProto, "an onnx.NodeProto")
        if node.domain != GroupQueryAttention.op_domain:  # ONNX's checker does not know this domain
            super().run_node(node, inputs, device, outputs_info, **kwargs)  # checks the node
        feeds = _feeds(inputs, [name for name in node.input if name], (), "node")
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        return tuple(ReferenceEvaluator(node, opsets={node.domain: opset}, new_ops=OPERATORS).run(None, feeds))


is_compatible = HeedBackend.is_compatible
prepare = HeedBackend.prepare
run_model = HeedBackend.run_model
run_node = HeedBackend.run_node
supports_device = HeedBackend.supports_device
