"""heed.Tokenizer: a tokenizer.json of Hugging Face, without their package."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _heed
from ._missing import NEEDS_BLAS


class Encoded(NamedTuple):
    """The tokens of a text."""

    ids: list[int]
    #: Where each begins and ends in the text, in characters; (0, 0) for those that stand for none, as [CLS].
    offsets: list[tuple[int, int]]


class Tokenizer:
    """Byte-level BPE, WordPiece, Unigram, BPE of SentencePiece, or whole words, as a tokenizer.json says."""

    def __init__(self, data: _heed.TextTokenizer, again: tuple[Callable[..., Tokenizer], tuple[Any, ...]]) -> None:
        self._data = data
        self._again = again  # (function, arguments): rebuilds it from a pickle

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return self._again

    def __copy__(self) -> Tokenizer:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokenizer:
        return self

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer.json. Raises OSError for what is not one, and for parts of one that heed does not know."""
        _check_build()
        path = os.fspath(path)
        data = _heed.read_tokenizer(path)
        return Tokenizer(data, (Tokenizer.from_json, (pathlib.Path(path).read_text(encoding="utf-8"), path)))

    @staticmethod
    def from_json(text: str, name: str = "tokenizer.json") -> Tokenizer:
        """Reads the text of one, which messages call `name`."""
        _check_build()
        return Tokenizer(_heed.tokenizer_from(text, name), (Tokenizer.from_json, (text, name)))

    def __repr__(self) -> str:
        return f"<heed.Tokenizer of {self.size} tokens>"

    def encode(self, text: str, *, add_special: bool = True) -> Encoded:
        """add_special: with the tokens that the file has put around a text."""
        ids, offsets = self._data.encode(text.encode(), add_special)
        return Encoded(ids, offsets)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of ids, without special tokens where skip_special. Bytes that are no letter give U+FFFD."""
        return self._data.decode(list(ids), skip_special)

    def shown(self, ids: Iterable[int]) -> list[str]:
        """Each token as people read it: without the space before a word, "·able" for a piece that goes on with the word
        before it, "€ 1/3" for one of several that spell a letter together, special ones in brackets."""
        return self._data.shown(list(ids))

    def token(self, id: int) -> str | None:
        """As the vocabulary has it: "##ing", "Ġthe", "▁the". None for an id that is no token."""
        return self._data.token(id)

    def id(self, token: str) -> int | None:
        return self._data.id(token)

    def is_special(self, id: int) -> bool:
        """Whether the file marks it special."""
        return self._data.is_special(id)

    @property
    def size(self) -> int:
        """Ids are below; not all of them need to be tokens."""
        return self._data.size()


def _check_build() -> None:
    if not hasattr(_heed, "read_tokenizer"):
        raise ImportError(NEEDS_BLAS.format("Tokenizer"))
