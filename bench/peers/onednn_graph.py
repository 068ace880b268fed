"""oneDNN's fused attention, by its graph interface in C, from the package onednn.

That package computes on a processor by SYCL and needs the OpenCL runtime that is installed with it. Its threads are those
that the process may run on."""

import ctypes
import math
import os
import pathlib
import sys

from shapes import Unsupported, random_inputs

CPU = 1
DTYPES = {"bf16": 2, "f32": 3}
MATMUL, MULTIPLY, SOFTMAX = 39, 46, 64  # kinds of operators, in oneDNN's own order
AXIS, TRANSPOSE_B = 0x30, 0x66  # attributes
IN_ORDER = FUSION = VARIABLE = 1
Dims = ctypes.c_int64 * 12


class LogicalTensor(ctypes.Structure):
    _fields_ = [("id", ctypes.c_size_t), ("ndims", ctypes.c_int), ("dims", Dims), ("dtype", ctypes.c_int),
                ("property", ctypes.c_int), ("layout", ctypes.c_int), ("strides", Dims)]  # fmt: skip


class Library:
    """The functions of libdnnl without their prefix. Those that fail raise an error."""

    def __init__(self):
        folder = pathlib.Path(sys.prefix) / "lib"
        opencl = [path for path in folder.glob("libintelocl.so.*") if path.suffix != ".py"]
        if not (folder / "libdnnl.so").exists() or not opencl:
            raise Unsupported("the package onednn is not installed")
        os.environ["OCL_ICD_FILENAMES"] = str(opencl[0])
        for needed in ("libintlc.so.5", "libimf.so", "libsvml.so", "libtbb.so.12", "libsycl.so.9"):
            ctypes.CDLL(str(folder / needed), mode=ctypes.RTLD_GLOBAL)  # libdnnl.so does not say where they are
        self.library = ctypes.CDLL(str(folder / "libdnnl.so"))

    def __getattr__(self, name):
        function = getattr(self.library, f"dnnl_{name}")

        def checked(*arguments):
            if status := function(*arguments):
                raise RuntimeError(f"dnnl_{name} returned {status}")

        return checked

    def made(self, name, *arguments):
        """The handle that a function writes to its first argument."""
        handle = ctypes.c_void_p()
        getattr(self, name)(ctypes.byref(handle), *arguments)
        return handle


def size(number):
    return ctypes.c_size_t(number)


class OneDnnGraph:
    def __init__(self, _argument, threads):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])

    def tensor(self, number, dims, dtype):
        strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
        tensor = LogicalTensor()
        self.dnnl.graph_logical_tensor_init_with_strides(
            ctypes.byref(tensor), size(number), DTYPES[dtype], len(dims), Dims(*dims), Dims(*strides), VARIABLE
        )
        return tensor

    def add(self, graph, kind, inputs, output, **attributes):
        operator = self.dnnl.made("graph_op_create", size(100 + output.id), kind, b"")
        for tensor in inputs:
            self.dnnl.graph_op_add_input(operator, ctypes.byref(tensor))
        self.dnnl.graph_op_add_output(operator, ctypes.byref(output))
        if "transpose_b" in attributes:
            self.dnnl.graph_op_set_attr_bool(operator, TRANSPOSE_B, ctypes.byref(ctypes.c_uint8(1)), size(1))
        if "axis" in attributes:
            self.dnnl.graph_op_set_attr_s64(operator, AXIS, ctypes.byref(ctypes.c_int64(attributes["axis"])), size(1))
        self.dnnl.graph_add_op(graph, operator)

    def compiled(self, shape):
        """softmax(q k^T scale) v as one fused partition, its inputs in the partition's order, and its output."""
        scores = [1, shape.heads, shape.query_length, shape.key_length]
        of_queries, of_keys = ([1, shape.heads, n, shape.head_dim] for n in (shape.query_length, shape.key_length))
        query, key, value, output = (
            self.tensor(i, dims, shape.dtype) for i, dims in enumerate([of_queries, of_keys, of_keys, of_queries])
        )
        scale = self.tensor(4, [1], "f32")
        raw, scaled, weights = (self.tensor(5 + i, scores, kind) for i, kind in enumerate(["f32", "f32", shape.dtype]))
        graph = self.dnnl.made("graph_graph_create", CPU)
        self.add(graph, MATMUL, [query, key], raw, transpose_b=True)
        self.add(graph, MULTIPLY, [raw, scale], scaled)
        self.add(graph, SOFTMAX, [scaled], weights, axis=-1)
        self.add(graph, MATMUL, [weights, value], output)
        self.dnnl.graph_graph_finalize(graph)
        self.dnnl.graph_graph_filter(graph, FUSION)
        count = ctypes.c_size_t()
        self.dnnl.graph_graph_get_partition_num(graph, ctypes.byref(count))
        if count.value != 1:
            raise Unsupported(f"{count.value} partitions: not fused")
        partition = ctypes.c_void_p()
        self.dnnl.graph_graph_get_partitions(graph, size(1), ctypes.byref(partition))
        self.dnnl.graph_partition_get_input_ports_num(partition, ctypes.byref(count))
        ports = (LogicalTensor * count.value)()
        self.dnnl.graph_partition_get_input_ports(partition, count, ports)
        inputs = [{one.id: one for one in (query, key, value, scale)}[port.id] for port in ports]
        compiled = self.dnnl.made("graph_compiled_partition_create", partition)
        pointers = (ctypes.POINTER(LogicalTensor) * len(inputs))(*map(ctypes.pointer, inputs))
        self.dnnl.graph_partition_compile(
            partition, compiled, size(len(inputs)), pointers, size(1),
            (ctypes.POINTER(LogicalTensor) * 1)(ctypes.pointer(output)), self.engine,
        )  # fmt: skip
        return compiled, inputs, output

    def prepare(self, shape):
        import torch

        if shape.causal or shape.heads != shape.kv_heads:
            raise Unsupported("measured without a mask, with as many key heads as heads")
        self.dnnl = Library()
        self.engine = self.dnnl.made("engine_create", CPU, size(0))
        stream = self.dnnl.made("stream_create", self.engine, IN_ORDER)
        compiled, inputs, output = self.compiled(shape)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[shape.dtype]
        query, pairs = random_inputs(shape)
        scale = torch.tensor([1 / math.sqrt(shape.head_dim)])
        sets = [[torch.from_numpy(x).to(dtype) for x in (query, *pair)] for pair in pairs]
        result = torch.empty_like(sets[0][0])

        def handle(logical, memory):
            return self.dnnl.made("graph_tensor_create", ctypes.byref(logical), self.engine, ctypes.c_void_p(memory.data_ptr()))

        to = (ctypes.c_void_p * 1)(handle(output, result))
        feeds = [
            (ctypes.c_void_p * len(inputs))(*(handle(one, [*tensors, None, scale][one.id]) for one in inputs))
            for tensors in sets
        ]

        def call(i):
            feed = feeds[i % len(feeds)]
            self.dnnl.graph_compiled_partition_execute(compiled, stream, size(len(feed)), feed, size(1), to)
            self.dnnl.stream_wait(stream)
            return result

        self.kept = sets, scale  # the library holds addresses
        return call, lambda tensor: tensor.float().numpy()
