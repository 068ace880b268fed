"""Text generation and next-token predictions of heed.Model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from . import _heed
from ._places import checked_text, number, whole


class Sampling(TypedDict, total=False):
    """The options of heed.generate."""

    temperature: float
    top_k: int
    top_p: float
    seed: int
    cache: str
    max_new_tokens: int | None
    add: Callable[[str], object] | None


class Writes:
    """Methods of heed.Model for models that generate text: GPT-2, Llama, … and models trained by heed."""

    _data: _heed.ModelData

    def expected_after(self, text: str, count: int = 3) -> list[tuple[str, float]]:
        """The most likely next tokens and their probabilities, in descending order."""
        return _heed.expected_after(self._data, text, count)

    def generate(self, prompt: str = "", tokens: int | None = None, *, temperature: float = 1.0, top_k: int = 0,
                 top_p: float = 1.0, seed: int = 1, cache: str = "f32", max_new_tokens: int | None = None,
                 add: Callable[[str], object] | None = None) -> str:
        """Returns the text that the model generates after the prompt, as `heed generate` does.

        tokens: at most this many, by default 200. max_new_tokens: transformers' name of tokens. temperature: divides the
        logits; 0 always takes the largest. top_k: samples from this many tokens only (0: all). top_p: samples from the
        fewest most likely tokens with this total probability. cache: the format of the KV cache. add: called with each
        token's text as it is generated.
        """
        if tokens is None:
            tokens = 200 if max_new_tokens is None else max_new_tokens
        elif max_new_tokens not in (None, tokens):
            raise ValueError(f"tokens is {tokens} and max_new_tokens is {max_new_tokens}; the same number, or one of the two, "
                             f"is expected")
        return "".join(token["text"] for token in self.watch(prompt, tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                                                             seed=seed, cache=cache, add=add, pairs=0))

    def watch(self, prompt: str | Sequence[int] = "", tokens: int = 200, *, temperature: float = 1.0, top_k: int = 0,
              top_p: float = 1.0, seed: int = 1, cache: str = "f32", pairs: int = 4, head: tuple[int, int] | None = None,
              add: Callable[[str], object] | None = None) -> list[dict[str, Any]]:
        """Like generate(), but returns each token as a dict: "id", "text", "probability" and "attended".

        The prompt is a text or token ids. "attended" lists the `pairs` most attended tokens (place, token, weight,
        (layer, head)) over all heads, or of `head`, when the token was chosen, as `heed generate --watch` shows them.
        """
        if not isinstance(prompt, Iterable):
            raise TypeError(f"prompt is {prompt!r}; a text, or token ids, are expected")
        seed = whole("seed", seed)
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed is {seed}; 0 to {(1 << 64) - 1} is expected")
        given, ids = (checked_text("prompt", prompt), []) if isinstance(prompt, str) else (
            None, [whole(f"prompt[{place}]", id) for place, id in enumerate(prompt)])
        return _heed.write_on(self._data, given, ids, whole("tokens", tokens), number("temperature", temperature),
                              whole("top_k", top_k), number("top_p", top_p), seed, checked_text("cache", cache),
                              whole("pairs", pairs), head, add)
