"""Compares one decoding step over KV caches, heed beside other libraries, and prints a Markdown table.

There are 32 query heads, 8 key heads and 128 dimensions, with one query per sequence. Each library runs in its own
process and takes its turn in every round. The table shows the median over the rounds of each round's median. If caches
are small, each call reads another copy, so that no processor cache holds them. In a model, the caches of other layers
would have replaced them. ONNX Runtime also writes the step's own row into its cache.

    .venv/bin/pip install -r bench/peers/requirements.txt
    PYTHONPATH=build/release/python .venv/bin/python bench/peers/decode.py

The largest caches take 4.3 GB in each of five processes; --only and --without skip some. On a shared machine, trust the
factors rather than the times.
"""

import argparse
import dataclasses
import datetime
import statistics

import numpy as np
from peers import Peer
from shapes import UNCACHED_BYTES, Unsupported
from vllm_cpu import Caches

HEADS, KV_HEADS, DIM = 32, 8, 128
ROWS = [2048, 8192, 32768]
BATCHES = [1, 16]
BYTES = {"f32": 4, "bf16": 2, "int8": 1}
# Output tolerance against f64, relative to the largest output: f32 sums of up to 32768 terms; 8 bits for bf16; 7 bits
# for int8, which uses a single scale in ONNX Runtime. A wrong head or row has an error as large as the output.
TOLERANCE = {"f32": 2e-5, "bf16": 1e-2, "int8": 4e-2}


@dataclasses.dataclass(frozen=True)
class Step:
    batch: int
    rows: int
    dtype: str

    @property
    def copies(self):
        size = 2 * self.batch * KV_HEADS * self.rows * DIM * BYTES[self.dtype]
        return -(-UNCACHED_BYTES // size)

    def inputs(self):
        """Queries [B, H, 1, D], and keys and values [1, Hkv, rows, D]; every sequence gets a copy of these."""
        rng = np.random.default_rng(0)
        shapes = [(self.batch, HEADS, 1, DIM), (1, KV_HEADS, self.rows, DIM), (1, KV_HEADS, self.rows, DIM)]
        return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]

    def repeated(self, array):
        return np.repeat(array, self.batch, 0)


class Heed:
    """heed.KvCache, contiguous or in pages of 16 rows."""

    def __init__(self, layout, threads):
        self.layout = layout
        self.threads = threads

    def prepare(self, step):
        import heed

        query, key, value = step.inputs()
        if step.dtype == "bf16":
            import torch

            query, key, value = (torch.from_numpy(x).to(torch.bfloat16) for x in (query, key, value))
        room = step.rows * (step.batch if self.layout == "paged" else 1)
        caches = []
        for _ in range(step.copies):
            cache = heed.KvCache(batch=step.batch, kv_heads=KV_HEADS, key_dim=DIM, format=step.dtype,
                                 layout=self.layout, capacity=room)
            for b in range(step.batch):
                cache.append(key, value, offsets=[0, step.rows], sequences=[b])
            caches.append(cache)
        return lambda i: heed.attention(query, caches[i % len(caches)], threads=self.threads), plain_array


def plain_array(output):
    return output if isinstance(output, np.ndarray) else output.float().numpy()


def torch_inputs(step):
    """Queries, keys and values of all sequences, as tensors of PyTorch."""
    import torch

    if step.dtype == "int8":
        raise Unsupported("no caches of codes")
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[step.dtype]
    query, key, value = (torch.from_numpy(x).to(dtype) for x in step.inputs())
    return query, *(x.repeat(step.batch, 1, 1, 1) for x in (key, value))


class Torch:
    """scaled_dot_product_attention with enable_gqa, or with the query heads of one key head as rows of one head.

    Both give the same result for a single query. PyTorch chooses the kernel."""

    def __init__(self, as_rows, threads):
        import torch

        self.as_rows = as_rows
        torch.set_num_threads(threads)

    def prepare(self, step):
        import torch

        query, *pair = torch_inputs(step)
        if self.as_rows:
            query = query.reshape(step.batch, KV_HEADS, HEADS // KV_HEADS, DIM)
        pairs = [[x.clone() for x in pair] for _ in range(step.copies)]

        def call(i):
            with torch.inference_mode():
                return torch.nn.functional.scaled_dot_product_attention(query, *pairs[i % len(pairs)],
                                                                        enable_gqa=not self.as_rows)

        return call, lambda output: plain_array(output).reshape(step.batch, HEADS, 1, DIM)


class Vllm:
    """vLLM's operator over pages of 128 rows."""

    def __init__(self, _argument, threads):
        import torch

        torch.set_num_threads(threads)

    def prepare(self, step):
        inputs = torch_inputs(step)
        calls = [Caches(*inputs, causal=False) for _ in range(step.copies)]
        return lambda i: calls[i % len(calls)].attend(), calls[0].plain


class OnnxRuntime:
    """com.microsoft.GroupQueryAttention, with one buffer as both past and present."""

    SCALE = 6 / 127  # int8 scale; all of these normal random numbers are below 6

    def __init__(self, _argument, threads):
        self.threads = threads

    def model(self, step):
        from onnx import TensorProto, helper

        codes = step.dtype == "int8"
        names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
        types = dict.fromkeys(names[:5] + ["output", "present_key", "present_value"], TensorProto.FLOAT)
        types |= dict.fromkeys(names[5:], TensorProto.INT32)
        attributes = {"num_heads": HEADS, "kv_num_heads": KV_HEADS}
        slots = list(names)
        if codes:
            caches = ("past_key", "past_value", "present_key", "present_value")
            types |= dict.fromkeys(caches, TensorProto.INT8) | dict.fromkeys(["scale"], TensorProto.FLOAT)
            slots += [""] * 5 + ["scale", "scale"]
            names.append("scale")
            attributes |= {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
        outputs = ["output", "present_key", "present_value"]
        node = helper.make_node("GroupQueryAttention", slots, outputs, domain="com.microsoft", **attributes)
        tensors = [[helper.make_tensor_value_info(n, types[n], None) for n in some] for some in (names, outputs)]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(helper.make_graph([node], "step", *tensors), opset_imports=opsets)
        model.ir_version = 10
        return model.SerializeToString()

    def prepare(self, step):
        import onnxruntime

        if step.dtype == "bf16":
            raise Unsupported("no bf16 on a CPU")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(self.model(step), options, providers=["CPUExecutionProvider"])
        query, key, value = step.inputs()

        def merged(x):
            return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(len(x), 1, -1)

        def kept(x):
            if step.dtype == "int8":
                x = np.clip(np.rint(x / np.float32(self.SCALE)), -128, 127).astype(np.int8)
            return onnxruntime.OrtValue.ortvalue_from_numpy(step.repeated(x))

        feed = {"query": merged(query), "key": step.repeated(merged(key[:, :, -1:])),
                "value": step.repeated(merged(value[:, :, -1:])),
                "seqlens_k": np.full(step.batch, step.rows - 1, np.int32),
                "total_sequence_length": np.array(step.rows, np.int32)}
        if step.dtype == "int8":
            feed["scale"] = np.array([self.SCALE], np.float32)
        bindings = []
        for _ in range(step.copies):
            binding = session.io_binding()
            for name, array in feed.items():
                binding.bind_cpu_input(name, array)
            for name, x in (("key", key), ("value", value)):
                buffer = kept(x)
                binding.bind_ortvalue_input("past_" + name, buffer)
                binding.bind_ortvalue_output("present_" + name, buffer)
            output = onnxruntime.OrtValue.ortvalue_from_shape_and_type((step.batch, 1, HEADS * DIM), np.float32)
            binding.bind_ortvalue_output("output", output)
            bindings.append((binding, output))

        def call(i):
            binding, output = bindings[i % len(bindings)]
            session.run_with_iobinding(binding)
            return output

        return call, lambda output: output.numpy().reshape(step.batch, HEADS, 1, DIM)


PEERS = {
    "heed": (Heed, "contiguous"),
    "heed, pages of 16": (Heed, "paged"),
    "ONNX Runtime": (OnnxRuntime, None),
    "PyTorch, enable_gqa": (Torch, False),
    "PyTorch, as rows": (Torch, True),
    "vLLM": (Vllm, None),
}


def reference(step):
    """The output in f64."""
    query, key, value = (x.astype(np.float64) for x in step.inputs())
    query = query.reshape(step.batch, KV_HEADS, HEADS // KV_HEADS, DIM)
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(DIM)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ value).reshape(step.batch, HEADS, 1, DIM)


def measure(step, threads, arguments, reasons):
    """{name: seconds} of all libraries that support the step."""
    peers, expected = {}, reference(step)
    for name, (kind, argument) in PEERS.items():
        if any(part in name for part in arguments.without):
            continue
        peer = Peer(kind, argument, threads)
        output, reason = peer.ask("prepare", step)
        if output is None:
            peer.stop()
            reasons[f"{name}, {step.dtype}: {reason}"] = True
            continue
        worst = abs(output - expected).max() / abs(expected).max()
        if not worst <= TOLERANCE[step.dtype]:
            raise SystemExit(f"{name} at {step}: the output is off by {worst:.2g} of the largest")
        peers[name] = peer
    medians = {name: [] for name in peers}
    for _ in range(arguments.rounds):
        for name, peer in peers.items():
            medians[name].append(statistics.median(peer.ask("time", arguments.seconds, 1000)))
    for peer in peers.values():
        peer.stop()
    return {name: statistics.median(times) for name, times in medians.items()}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2], help="1,2")
    parser.add_argument("--only", default="", help="only steps with this in their name, such as '16 x 8192' or 'int8'")
    parser.add_argument("--rounds", type=int, default=5, help="5 by default")
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls of each library in each round (0.2)")
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="no peer with this in its name")
    return parser.parse_args()


def describe():
    import heed
    import onnxruntime
    import torch

    information = heed.info()
    return (f"{datetime.date.today()}, {information['processor']}, {information['isa']}; ONNX Runtime "
            f"{onnxruntime.__version__}, PyTorch {torch.__version__}. Milliseconds a step.")


def cell(seconds):
    if seconds is None:
        return "–"
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def main():
    arguments = parse_arguments()
    print(describe() + "\n")
    print("| batch x rows | cache | threads | " + " | ".join(PEERS) + " | best peer / heed |")
    print("|" + " --- |" * (len(PEERS) + 4), flush=True)
    reasons = {}
    for step in (Step(batch, rows, dtype) for batch in BATCHES for rows in ROWS for dtype in BYTES):
        name = f"{step.batch} x {step.rows} | {step.dtype}"
        for threads in arguments.threads if arguments.only in name else ():
            seconds = measure(step, threads, arguments, reasons)
            others = [seconds[peer] for peer in PEERS if peer in seconds and not peer.startswith("heed")]
            factor = f"{min(others) / seconds['heed']:.2f} x" if others else "–"
            cells = " | ".join(cell(seconds.get(peer)) for peer in PEERS)
            print(f"| {name} | {threads} | {cells} | {factor} |", flush=True)
    for reason in reasons:
        print(f"\n{reason}")


if __name__ == "__main__":
    main()
