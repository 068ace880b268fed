"""Rows, keys and heads by name: a number or a word; 17, "3.1", (3, 1)."""

from __future__ import annotations

import difflib
import operator
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

CONTINUES = "·"  # before a piece that continues a word
MOST_PARTS = 4  # tokens of one character: "😀 1/2", "😀 2/2"
_PART = re.compile(r"(.+) ([1-4])/[2-4]$", re.DOTALL)


def whole(name: str, value: Any) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; a whole number is expected") from None
    if not -(2**63) <= found < 2**64:
        raise ValueError(f"{name} is {found}; a whole number of 64 bits is expected")
    return found


def number(name: str, value: Any) -> float:
    if not hasattr(value, "__float__"):
        raise TypeError(f"{name} is {value!r}; a number is expected")
    return float(value)


def require(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of type {type(value).__name__}; {expected} is expected")


def require_method(name: str, value: Any, method: str, expected: str) -> None:
    """For objects of other packages, which need no common class."""
    if not hasattr(value, method):
        raise TypeError(f"{name} is of type {type(value).__name__}; {expected} is expected")


def is_masked(value: Any) -> bool:
    """Whether it is a numpy.ma array with masked elements."""
    return isinstance(value, np.ma.MaskedArray) and bool(np.any(value.mask))


def float32_of(name: str, lists: Any) -> npt.NDArray[np.float32]:
    """Numbers or nested lists as f32, without those that would become infinite."""
    wide = np.asarray(lists, np.float64)
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(wide)
    if lost.any():
        raise ValueError(f"{name} has lists with the number {wide[lost].flat[0]:g}, which float32 cannot hold; smaller numbers or "
                         "a float64 array are expected")
    return narrow


def path_text(name: str, value: Any) -> str:
    """The text of a path, as it was given: a str, bytes or a path-like object."""
    require(name, value, (str, bytes, os.PathLike), "a path")
    return os.fsdecode(value)


def path_of(name: str, value: Any) -> pathlib.Path:
    return pathlib.Path(path_text(name, value))


def truth(name: str, value: Any) -> bool:
    try:
        return bool(value)
    except (TypeError, ValueError):  # such as an array's
        raise TypeError(f"{name} is of type {type(value).__name__}; True or False is expected") from None


def token_ids_of(name: str, value: Any) -> npt.NDArray[Any]:
    """An array of token ids; the extension checks that they are whole numbers."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} has lists of different lengths; one list of token ids is expected") from None


def checked_text(name: str, value: Any) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; a str is expected")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is {value!r}, in which {value[error.start]!r} is half of a character; whole characters are "
                         f"expected") from None
    return value


def _letters(piece: str) -> str | None:
    """What a piece adds to the word before it: "ệ" of "·ệ 1/2", "" of "ệ 2/2"; None if it begins a word."""
    part = _PART.match(piece)
    if part and part[2] != "1":
        return ""
    return piece[len(CONTINUES):len(part[1]) if part else None] if piece.startswith(CONTINUES) else None


def _pieces_of(word: str, words: Sequence[str]) -> tuple[int, int] | None:
    """The first and last of the consecutive pieces that spell the word, or None."""
    for count in range(2, MOST_PARTS + 1):
        parts = [f"{word} {n}/{count}" for n in range(1, count + 1)]
        for first in range(len(words) - count + 1):
            if [words[first].removeprefix(CONTINUES), *words[first + 1:first + count]] == parts:
                return first, first + count - 1
    for first in range(len(words)):
        text = _PART.sub(r"\1", words[first])
        for last in range(first + 1, len(words)):
            letters = _letters(words[last])
            if letters is None or not word.startswith(text):
                break
            text += letters
            if text == word:
                return first, last
    return None


def _plain(word: str) -> str:
    return word.removeprefix(CONTINUES).lstrip(" Ġ▁").lower()


def _occurrences(word: str, words: Sequence[str]) -> list[int]:
    """The places of a word. Case and the marks of tokenizers are ignored if nothing matches exactly."""
    exact = [place for place, one in enumerate(words) if word in (one, one.removeprefix(CONTINUES))]
    return exact or [place for place, one in enumerate(words) if _plain(one) == _plain(word)]


def _numbered(name: str, which: str, words: Sequence[str]) -> int | None:
    """The place that "or:2" names, as the command counts, or None."""
    word, colon, number = which.rpartition(":")
    if not colon or not number.isdecimal() or not (found := _occurrences(word, words)):
        return None
    if not 1 <= int(number) <= len(found):
        raise ValueError(f"{name} is {which!r}, but the text has {word!r} {len(found)} time{'s' * (len(found) != 1)}")
    return found[int(number) - 1]


def whole_within(name: str, number: int, count: int) -> int:
    if not -count <= number < count:
        raise ValueError(f"{name} is {number}; 0 to {count - 1} is expected")
    return number % count


def is_place(which: Any) -> bool:
    """Whether this is "#7", which is place 7 even where a token is spelled so."""
    return isinstance(which, str) and which.startswith("#") and which[1:].isdecimal()


def place_of(name: str, which: Any, words: Sequence[str], count: int) -> int:
    """The number of a row or key. `name` is the argument's name, for messages.

    "or" is a word that occurs once, "or:2" the second "or" (counted from 1), "#7" the token at place 7 (counted from 0)."""
    if not isinstance(which, str):
        return whole_within(name, whole(name, which), count)
    if is_place(which):
        return whole_within(name, int(which[1:]), count)
    if not words:
        raise ValueError(f"{name} is {which!r}, but the report has no tokens; a number from 0 to {count - 1} is expected")
    found = _occurrences(which, words)
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(map(str, found[:-1]))
        raise ValueError(f"{name} is {which!r}, which occurs at {places} and {found[-1]}; one of these numbers, or "
                         f"'{which}:1' to '{which}:{len(found)}', is expected")
    if (numbered := _numbered(name, which, words)) is not None:
        return numbered
    if pieces := _pieces_of(which, words):
        cut = " ".join(repr(word) for word in words[pieces[0]:pieces[1] + 1])
        raise ValueError(f"{name} is {which!r}, which is split into {cut}, {pieces[0]} to {pieces[1]}; one of these is "
                         f"expected")
    close = difflib.get_close_matches(which, list(words), 1, 0.5)
    hint = f"did you mean {close[0]!r}?" if close else "words are spelled like its tokens"
    raise ValueError(f"{name} is {which!r}, which is not one of the {count} words; {hint}")


def range_of(name: str, which: Any, words: Sequence[str], count: int) -> tuple[int, int]:
    """(first, last + 1) of a pair, a slice, or a value for place_of(); None stands for all."""
    if which is None:
        return 0, count
    if isinstance(which, slice):
        first, last, step = which.indices(count)
        if step != 1:
            raise ValueError(f"{name} is {which}; a step of 1 is expected")
        return first, max(first, last)
    if isinstance(which, tuple) and len(which) == 2:
        first, last = (whole(name, end) for end in which)
        if not 0 <= first <= last <= count:
            raise ValueError(f"{name} is {which}; (first, last + 1) within 0 to {count} is expected")
        return first, last
    place = place_of(name, which, words, count)
    return place, place + 1


def head_of(which: Any, layers: Sequence[tuple[str, int]], heads: int) -> int:
    """The number on the head axis."""
    if isinstance(which, str) or (isinstance(which, tuple) and len(which) == 2):
        layer, _, head = which.rpartition(".") if isinstance(which, str) else (str(which[0]), "", str(which[1]))
        before = 0
        for name, count in layers:
            if name == layer and head.isdecimal() and int(head) < count:
                return before + int(head)
            before += count
        if not layers:
            raise ValueError(f"head is {which!r}, but the report has no layers; 0 to {heads - 1} is expected")
        raise ValueError(f"head is {which!r}; 'layer.head', from '{layers[0][0]}.0' to '{layers[-1][0]}.{layers[-1][1] - 1}', "
                         "is expected")
    number = whole("head", which)
    if not 0 <= number < heads:
        raise ValueError(f"head is {number}; 0 to {heads - 1} is expected")
    return number
