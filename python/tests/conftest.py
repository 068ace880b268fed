"""Shared setup of the Python package's tests."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "python"))  # attention_oracle
