"""Tensors in files: heed reads the files of NumPy and the safetensors package, and refuses those that they refuse."""

import io
import os
import pathlib
import random
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy

ROWS = np.array([[0.5, -2.0, 3.25], [1e-3, 0.0, 7.0], [-0.125, 65504.0, 42.0]])


@pytest.fixture
def echo(heed, tmp_path):
    """echo(TENSOR): the tensor [3, 3] as heed reads it, in f64: the output if query i puts all weight on key i. With
    `code`, as in heed(), it returns heed's messages, and the output or None."""
    np.save(tmp_path / "query.npy", np.eye(3) * 1e9)
    np.save(tmp_path / "key.npy", np.eye(3))

    def run(tensor, code=0):
        out = tmp_path / "out.npy"
        out.unlink(missing_ok=True)
        done = heed("attend", "--query", "query.npy", "--key", "key.npy", "--value", tensor, "--dtype", "f64",
                    "--out", "out.npy", code=code)
        output = np.load(out) if done.returncode == 0 else None
        return output if code == 0 else (done.stderr, output)

    return run


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("descr", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
def test_reads_what_numpy_writes(echo, tmp_path, descr, order, version):
    array = np.asarray(ROWS.astype(descr), order=order)
    with open(tmp_path / "value.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    np.testing.assert_array_equal(echo("value.npy"), array.astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_reads_what_the_safetensors_package_writes(echo, tmp_path, dtype):
    tensor = ROWS.astype(dtype)
    names = {np.float64: "float64", np.float32: "float32", np.float16: "float16"}
    tensors = {"a.weight": (names.get(dtype, "bfloat16"), tensor), "other": ("int64", np.arange(2))}
    (tmp_path / "x.safetensors").write_bytes(serialize(tensors, {"by": "them"}))
    np.testing.assert_array_equal(echo("x.safetensors:a.weight"), tensor.astype(np.float64))


def serialize(tensors, metadata):
    """The bytes that the safetensors library writes for {name: (its name of the dtype, array)}."""
    arrays = {name: (dtype, np.ascontiguousarray(array)) for name, (dtype, array) in tensors.items()}
    specs = {
        name: safetensors.TensorSpec(dtype=dtype, shape=list(array.shape), data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (dtype, array) in arrays.items()
    }
    return safetensors.serialize(specs, metadata)


def npy_file():
    buffer = io.BytesIO()
    np.save(buffer, ROWS.astype("<f4"))
    return buffer.getvalue()


def safetensors_file():
    tensors = {"x": ("float32", ROWS.astype("<f4")), "y": ("float32", np.zeros(0, "<f4"))}
    return serialize(tensors, {"k": "v"})


FORMATS = {
    "npy": (npy_file(), "value.npy", "value.npy",
            lambda path: np.load(path, allow_pickle=False)),
    "safetensors": (safetensors_file(), "value.safetensors", "value.safetensors:x",
                    lambda path: safetensors.numpy.load_file(path)["x"]),
}


def broken(data):
    """Every beginning of a file, one byte too many, and 400 random changes of one byte, with a fixed seed."""
    yield from (data[:length] for length in range(len(data)))
    yield data + b"\0"
    draw = random.Random(1)
    for _ in range(400):
        place, value = draw.randrange(len(data)), draw.randrange(256)
        yield data[:place] + bytes([value]) + data[place + 1:]


@pytest.mark.parametrize("kind", FORMATS)
def test_never_reads_a_broken_file_otherwise_than_the_official_readers(echo, heed, tmp_path, kind):
    data, name, argument, official = FORMATS[kind]
    path = tmp_path / name
    refused = read = 0
    for file in broken(data):
        path.write_bytes(file)
        try:
            expected = official(path)
        except Exception:
            refused += 1
            said, output = echo(argument, code=1)
            assert output is None and name in said and said.count("\n") == 1, (file, said)
        else:
            # heed may be stricter. Otherwise it reads the same.
            said, output = echo(argument, code=None)
            if output is not None:
                read += 1
                np.testing.assert_array_equal(output, expected.astype(np.float64), err_msg=repr(file))
    assert refused > 200 and read > 20  # both cases occurred


@pytest.mark.parametrize("size", [0, 5000])
def test_a_model_that_is_cut_while_it_runs_ends_the_command_with_one_sentence(tmp_path, size):
    """Its weights stay in the mapped file, so the operating system sends SIGBUS."""
    shutil.copytree(pathlib.Path(__file__).parents[2] / "models" / "stories", tmp_path / "model")
    process = subprocess.Popen([os.environ["HEED_COMMAND"], "generate", tmp_path / "model", "--tokens", "1000000"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.read(1)  # it writes, so it has been loaded
    os.truncate(tmp_path / "model" / "model.safetensors", size)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (
        1, b"heed: a file was cut or became unreadable while its mapped bytes were in use\n")
