"""heed.Tokenizer: reads a Hugging Face tokenizer.json, without their package."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import _heed
from ._missing import NOT_BUILT
from ._places import path_text


class Encoded(NamedTuple):
    """The tokens of a text."""

    ids: list[int]
    #: (begin, end) of each token in the text, in characters; (0, 0) for tokens without text, such as [CLS]
    offsets: list[tuple[int, int]]


class Tokenizer:
    """The tokenizer of a tokenizer.json: byte-level BPE, WordPiece, Unigram, SentencePiece BPE, or whole words."""

    def __init__(self, data: _heed.Tokenizer, again: tuple[Callable[..., Tokenizer], tuple[Any, ...]]) -> None:
        self._data = data
        self._again = again  # (function, arguments): rebuilds it when unpickling

    def __reduce__(self) -> tuple[Callable[..., Tokenizer], tuple[Any, ...]]:
        return self._again

    def __copy__(self) -> Tokenizer:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Tokenizer:
        return self

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Tokenizer:
        """Reads a tokenizer.json. Raises OSError if it is not one, or if it has parts that heed does not know."""
        _check_build()
        path = path_text("path", path)
        data = _heed.read_tokenizer(path)
        return Tokenizer(data, (Tokenizer.from_json, (pathlib.Path(path).read_text(encoding="utf-8"), path)))

    @staticmethod
    def from_json(text: str, name: str = "tokenizer.json") -> Tokenizer:
        """Reads the text of a tokenizer.json; error messages use `name`."""
        _check_build()
        return Tokenizer(_heed.tokenizer_from(text, name), (Tokenizer.from_json, (text, name)))

    def __repr__(self) -> str:
        return f"<heed.Tokenizer of {self.size} tokens>"

    def encode(self, text: str, *, add_special: bool = True) -> Encoded:
        """Encodes a text. add_special: adds the special tokens that the file puts around a text."""
        ids, offsets = self._data.encode(text.encode(), add_special)
        return Encoded(ids, offsets)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Decodes ids to text. skip_special drops special tokens. Bytes that are no complete character become
        U+FFFD."""
        return self._data.decode(list(ids), skip_special)

    def shown(self, ids: Iterable[int]) -> list[str]:
        """Each token as readable text, without the space before a word.

        A piece that continues a word becomes "·able". One of several tokens for the same character becomes "€ 1/3".
        Special tokens are in brackets."""
        return self._data.shown(list(ids))

    def token(self, id: int) -> str | None:
        """The token's entry in the vocabulary: "##ing", "Ġthe", "▁the". None if the id is unused."""
        return self._data.token(id)

    def id(self, token: str) -> int | None:
        return self._data.id(token)

    def is_special(self, id: int) -> bool:
        """Whether the file marks the token as special."""
        return self._data.is_special(id)

    @property
    def size(self) -> int:
        """All ids are smaller than this; some of them may be unused."""
        return self._data.size()


def _check_build() -> None:
    if not hasattr(_heed, "read_tokenizer"):
        raise ImportError(NOT_BUILT.format("Tokenizer"))
