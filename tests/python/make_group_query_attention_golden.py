"""Writes tests/data/group_query_attention.safetensors: calls of GroupQueryAttention, and the results of ONNX Runtime
1.32.0.

    python make_group_query_attention_golden.py ../data/group_query_attention.safetensors
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python" / "tests"))
from group_query_calls import KINDS, QUANTISED, by_onnxruntime, draw  # noqa: E402

tensors, calls = {}, {}
formats = [(np.float32, quantised) for quantised in QUANTISED] + [(np.float16, QUANTISED[0])]
for number, (kind, (dtype, quantised)) in enumerate((kind, each) for kind in KINDS for each in formats):
    call = draw(np.random.default_rng(number), kind, dtype, quantised)
    name = f"{kind}-{np.dtype(dtype)}-{quantised[0].lower()}-{quantised[1]}"
    calls[name] = call.attributes
    outputs = call.defined(by_onnxruntime(call))
    tensors |= {f"{name}/{part}": np.ascontiguousarray(array) for part, array in (call.inputs | outputs).items()}
save_file(tensors, sys.argv[1], {"by": json.dumps({"onnxruntime": onnxruntime.__version__, "calls": calls})})
