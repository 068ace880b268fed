"""What heed.Model writes after a text, and what it expects next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _heed


class Writes:
    """Methods of heed.Model for models that write: GPT-2, Llama, … and those that heed trained."""

    _data: _heed.ModelData

    def expected_after(self, text: str, count: int = 3) -> list[tuple[str, float]]:
        """The likeliest next tokens and their probabilities, the likeliest first."""
        return _heed.expected_after(self._data, text, count)

    def generate(self, prompt: str = "", tokens: int = 200, *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0,
                 seed: int = 1, cache: str = "f32", add: Callable[[str], object] | None = None) -> str:
        """The text that the model writes after the prompt, as heed generate does; `add` is given each token's at once.

        temperature: logits are divided by it, 0 takes the largest. top_k: draws among so many only (0: all); top_p: among
        the fewest likeliest that have this share of the probability together. cache: what keys and values are kept as.
        """
        return "".join(token["text"] for token in self.watch(prompt, tokens, temperature=temperature, top_k=top_k, top_p=top_p,
                                                             seed=seed, cache=cache, add=add, pairs=0))

    def watch(self, prompt: str | Sequence[int] = "", tokens: int = 200, *, temperature: float = 1.0, top_k: int = 0,
              top_p: float = 1.0, seed: int = 1, cache: str = "f32", pairs: int = 4, head: tuple[int, int] | None = None,
              add: Callable[[str], object] | None = None) -> list[dict[str, Any]]:
        """The same token by token, of a text or of ids: "id", "text", "probability", and "attended".

        attended: the `pairs` tokens (place, token, weight, (layer, head)) that heads, or `head`, attended to most while it
        was chosen, as heed generate --watch shows them.
        """
        text, ids = (prompt, []) if isinstance(prompt, str) else (None, [int(id) for id in prompt])
        return _heed.write_on(self._data, text, ids, tokens, temperature, top_k, top_p, seed, cache, pairs, head, add)
