"""The types: the stubs match the package, and the package's own code satisfies them."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
USES = """
import numpy as np
import numpy.typing as npt
import heed
x: npt.NDArray[np.float32] = np.zeros((1, 1, 2, 4), np.float32)
output: npt.NDArray[np.float32] = heed.attention(x, x, x, causal=True, window=(3, None))
result: heed.AttentionResult[npt.NDArray[np.float32]] = heed.attention(x, x, x, need=("lse", "entropy"), top_k=2)
heed.attention(x, x, x, align="left")  # type: ignore
heed.attention(x, x, x, need="weight")  # type: ignore
heed.attention(x, x, x, threads="all")  # type: ignore
gradients = heed.attention_backward(x, x, x, result.output, result.lse, x, gradients=("dq", "dv"), causal=True)
dq: npt.NDArray[np.float32] = gradients.dq
heed.attention_backward(x, x, x, result.output, result.lse, x, gradients="q")  # type: ignore
heed.attention_backward(x, x, x, result.output, result.lse, x, caused=True)  # type: ignore
cache = heed.KvCache(kv_heads=1, key_dim=4, layout="paged", capacity=100)
cache.append(x, x)
decoded: npt.NDArray[np.float32] = heed.attention(x, cache, sequences=[0], causal=True)
seen: heed.AttentionResult[npt.NDArray[np.float32]] = heed.attention(x, cache, tree_parents=[-1, 0], top_k=2)
heed.attention(x, cache, kv_lengths=[2])  # type: ignore
heed.KvCache(kv_heads=1, key_dim=4, layout="pages")  # type: ignore
from heed import distributed
rows = distributed.Sharding.zigzag(2, 1)
ours: distributed.AttentionResult[npt.NDArray[np.float32]] = distributed.attention(None, x, x, x, rows, scheme="ring", need="lse")
part: npt.NDArray[np.float32] = rows.shard(ours.output, -2, 0)
dk: npt.NDArray[np.float32] = distributed.attention_backward(None, x, x, x, ours.output, ours.lse, x, rows, causal=True).dk
distributed.attention(None, x, x, x, rows, scheme="rings")  # type: ignore
distributed.attention(None, x, x, x, rows, caused=True)  # type: ignore
"""


def mypy(*arguments, **settings):
    return subprocess.run([sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir=/dev/null", *arguments],
                          cwd=ROOT, capture_output=True, text=True, **settings)


def test_the_package_is_clean_under_strict_mypy():
    checked = mypy("python/heed")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_callers_are_told_of_wrong_arguments(tmp_path):
    program = tmp_path / "uses.py"
    program.write_text(USES)
    checked = mypy("--warn-unused-ignores", str(program))
    assert checked.returncode == 0, checked.stdout + checked.stderr
