"""A picture under the weights of its patches."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple


class Patches(NamedTuple):
    """A PNG or JPEG file, and its patches among the keys: rows x columns from key `first` on, row by row."""

    picture: bytes
    rows: int
    columns: int
    first: int


def open_picture(picture: str | os.PathLike[str] | bytes) -> bytes:
    if isinstance(picture, bytes):
        return picture
    if not isinstance(picture, (str, os.PathLike)):
        raise TypeError(f"picture is of type {type(picture).__name__}; a path or the bytes of a PNG or JPEG file are expected")
    return pathlib.Path(picture).read_bytes()
