"""Shared by the tests of the Python package."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests" / "python"))  # attention_oracle
