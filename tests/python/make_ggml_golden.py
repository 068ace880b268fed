"""Writes tests/data/ggml_blocks.safetensors: random blocks of ggml's types, and the numbers that PyPI's `gguf` reads from them.

Run it with the packages of requirements-full.txt. All bytes of a block are random, so scales may be infinite or NaN.
"""
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

READ = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()

generator = np.random.default_rng(20261125)
tensors = {}
for name in READ:
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(0, 256, (1024 // values, size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        numbers = gguf.quants.dequantize(blocks, kind)
    tensors[f"{name}.bytes"] = blocks.reshape(-1)
    tensors[f"{name}.numbers"] = numbers.astype(np.float32).reshape(-1)
    tensors[f"{name}.type"] = np.array([int(kind)], np.int64)
save_file(tensors, sys.argv[1])
