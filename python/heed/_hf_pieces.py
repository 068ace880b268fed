"""Readable texts for token ids: no Ġ, ▁ or ##, and no incomplete characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._places import CONTINUES, require_method

HALF = "\ufffd"  # decoded from bytes that are no complete character
LONGEST = 4  # bytes per character
WINDOW = 6  # how many earlier tokens may affect a token's text
IDEOGRAPHS = "\u2e80"  # from here on, words are not separated by spaces


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def texts_of(tokenizer: Any, ids: Sequence[int]) -> list[tuple[str, int, int]]:
    """(text, n, of) for each token. The texts joined together are what the tokenizer decodes.

    If several tokens spell one character, each has the whole character and is the n-th (from 0) of `of`; else 0
    of 1."""
    found: list[tuple[str, int, int]] = []
    start, known, waiting = 0, "", 0
    for place in range(len(ids)):
        text = decode(tokenizer, ids[start:place + 1])
        waiting += 1
        is_last = place + 1 == len(ids)
        if text.endswith(HALF) and waiting < LONGEST and not is_last:
            continue
        found += [(text[len(known):], n, waiting) for n in range(waiting)]
        waiting = 0
        start = max(start, place + 1 - WINDOW) if _splits(tokenizer, ids, max(start, place + 1 - WINDOW), place, text) else start
        known = decode(tokenizer, ids[start:place + 1])
    return found


def _splits(tokenizer: Any, ids: Sequence[int], start: int, place: int, text: str) -> bool:
    """Whether the tokens from `start` on decode alone to the same text as after the tokens before them."""
    alone = decode(tokenizer, ids[start:place + 1])
    return not alone.startswith(HALF) and text.endswith(alone.lstrip(" "))


def _is_spaced(letter: str) -> bool:
    return letter.isalnum() and letter < IDEOGRAPHS


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """A text for each token id, without the space before a word.

    A piece that continues a word begins with "·" ("un", "·believ", "·able"). If several tokens spell one character,
    each shows its part ("€ 1/3"). Special tokens keep their names, in brackets ("[CLS]", "<s>", "⟨name⟩")."""
    require_method("tokenizer", tokenizer, "decode", "a tokenizer of transformers")
    ids = [int(number) for number in ids]
    special = {int(number) for number in getattr(tokenizer, "all_special_ids", ())}
    shown: list[str] = []
    before = ""  # the character before the piece
    for number, (text, n, of) in zip(ids, texts_of(tokenizer, ids)):
        if number in special:
            name = str(tokenizer.convert_ids_to_tokens(number))
            shown.append(name if name[:1] + name[-1:] in ("[]", "<>") else f"⟨{name}⟩")
            before = ""
            continue
        word = text.lstrip(" ") or text
        if of > 1:
            word += f" {n + 1}/{of}"
        shown.append(CONTINUES + word if not n and before and text and _is_spaced(before) and _is_spaced(text[0]) else word)
        before = text[-1:] or before
    return shown
