"""The libraries that heed is compared with.

Each runs in its own process, so that idle thread pools do not disturb other libraries, and keeps its inputs between
rounds."""

import multiprocessing
import os
import time

from onednn_graph import OneDnnGraph
from shapes import Unsupported, random_inputs
from vllm_cpu import VllmAttention


class Torch:
    """scaled_dot_product_attention, forced to one of its kernels."""

    def __init__(self, kernel, threads):
        import torch
        from torch.nn.attention import SDPBackend

        self.backend = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}[kernel]
        torch.set_num_threads(threads)

    def prepare(self, shape):
        import torch
        from torch.nn.attention import sdpa_kernel

        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[shape.dtype]
        query, pairs = random_inputs(shape)
        query = torch.from_numpy(query).to(dtype)
        pairs = [(torch.from_numpy(key).to(dtype), torch.from_numpy(value).to(dtype)) for key, value in pairs]
        grouped = shape.heads != shape.kv_heads

        def call(i):
            key, value = pairs[i % len(pairs)]
            with torch.inference_mode(), sdpa_kernel([self.backend]):
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=shape.causal, enable_gqa=grouped
                )

        return call, lambda output: output.float().numpy()


class OnnxRuntime:
    """One operator: `MultiHeadAttention` of com.microsoft (its fused CPU kernel), or `Attention` of ONNX, opset 23."""

    def __init__(self, operator, threads):
        self.operator = operator
        self.threads = threads

    def model(self, shape):
        import onnx
        from onnx import TensorProto, helper

        def names(dims):
            return [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "qkv"]

        if self.operator == "MultiHeadAttention":
            node = helper.make_node(
                "MultiHeadAttention",
                list("qkv"),
                ["o"],
                domain="com.microsoft",
                num_heads=shape.heads,
                unidirectional=int(shape.causal),
            )
            dims, opsets = [None] * 3, [("", 21), ("com.microsoft", 1)]
        else:
            node = helper.make_node("Attention", list("qkv"), ["o"], is_causal=int(shape.causal))
            dims, opsets = [None] * 4, [("", 23)]
        output = helper.make_tensor_value_info("o", TensorProto.FLOAT, dims)
        graph = helper.make_graph([node], "attention", names(dims), [output])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets])
        model.ir_version = 10
        onnx.checker.check_model(model)
        return model.SerializeToString()

    def prepare(self, shape):
        import onnxruntime

        if shape.dtype != "f32":
            raise Unsupported(f"no {shape.dtype} on a CPU")
        merged = self.operator == "MultiHeadAttention"  # its inputs and output are [B, L, H * D]
        if merged and shape.heads != shape.kv_heads:
            raise Unsupported("as many key heads as heads")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(self.model(shape), options, providers=["CPUExecutionProvider"])

        def merge(tensor):
            _, heads, length, dim = tensor.shape
            return tensor.transpose(0, 2, 1, 3).reshape(1, length, heads * dim)

        def value_of(array):
            return onnxruntime.OrtValue.ortvalue_from_numpy(merge(array).copy() if merged else array)

        query, pairs = random_inputs(shape)
        query = value_of(query)
        feeds = [{"q": query, "k": value_of(key), "v": value_of(value)} for key, value in pairs]

        def call(i):
            return session.run_with_ort_values(["o"], feeds[i % len(feeds)])[0]

        def plain(output):
            array = output.numpy()
            if merged:
                array = array.reshape(1, shape.query_length, shape.heads, shape.head_dim).transpose(
                    0, 2, 1, 3
                )
            return array

        return call, plain


class OpenVino:
    """ScaledDotProductAttention of opset 13, on the CPU."""

    def __init__(self, _argument, threads):
        self.threads = threads

    def prepare(self, shape):
        import openvino
        import torch
        from openvino import Type, opset13

        if shape.heads != shape.kv_heads:
            raise Unsupported("as many key heads as heads")
        dtype = {"f32": Type.f32, "bf16": Type.bf16}[shape.dtype]
        sizes = [1, shape.heads, None, shape.head_dim]
        inputs = [opset13.parameter([-1 if n is None else n for n in sizes], dtype, name) for name in "qkv"]
        output = opset13.scaled_dot_product_attention(*inputs, causal=shape.causal)
        settings = {
            "INFERENCE_NUM_THREADS": self.threads,
            "INFERENCE_PRECISION_HINT": dtype,
            "PERFORMANCE_HINT": "LATENCY",
        }
        model = openvino.compile_model(openvino.Model([output], inputs), "CPU", settings)
        request = model.create_infer_request()

        def tensor_of(array):
            tensor = openvino.Tensor(dtype, list(array.shape))
            if shape.dtype == "f32":
                tensor.data[:] = array
            else:
                bits = torch.from_numpy(array).to(torch.bfloat16).view(torch.int16).numpy()
                tensor.data.view(bits.dtype)[:] = bits
            return tensor

        query, pairs = random_inputs(shape)
        query = tensor_of(query)
        feeds = [[query, tensor_of(key), tensor_of(value)] for key, value in pairs]

        def call(i):
            request.infer(feeds[i % len(feeds)], share_inputs=True)
            return request.get_output_tensor(0)

        def plain(output):
            if shape.dtype == "f32":
                return output.data.copy()
            bits = torch.from_numpy(output.data.view("int16").copy())
            return bits.view(torch.bfloat16).float().numpy()

        return call, plain


PEERS = {
    "OpenVINO": (OpenVino, None),
    "oneDNN Graph": (OneDnnGraph, None),
    "vLLM": (VllmAttention, None),
    "ONNX Runtime `MultiHeadAttention`": (OnnxRuntime, "MultiHeadAttention"),
    "ONNX Runtime `Attention` 23": (OnnxRuntime, "Attention"),
    "PyTorch flash": (Torch, "flash"),
    "PyTorch math": (Torch, "math"),
}


class Peer:
    """A library in its own process."""

    def __init__(self, kind, argument, threads):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(kind, argument, threads, theirs), daemon=True)
        self.process.start()

    def ask(self, *request):
        self.connection.send(request)
        return self.connection.recv()

    def stop(self):
        self.connection.send(None)
        self.process.join()


def serve(kind, argument, threads, connection):
    """Answers requests from the parent process.

    ("prepare", shape) returns the first output, or the reason why there is none. ("time", seconds, calls) returns the
    times of calls: at least one, and as many as fit in the seconds."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)
    peer = kind(argument, threads)
    call, made = None, 0
    while (request := connection.recv()) is not None:
        if request[0] == "prepare":
            call = None
            try:
                call, plain = peer.prepare(request[1])
                connection.send((plain(call(0)), None))
            except Exception as error:  # any error that the library raises for unsupported calls
                call = None
                connection.send((None, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"))
            continue
        _, budget, most = request
        call(made := made + 1)
        times, total = [], 0.0
        while total < budget and len(times) < most or not times:
            made += 1
            begin = time.perf_counter()
            call(made)
            times.append(time.perf_counter() - begin)
            total += times[-1]
        connection.send(times)
