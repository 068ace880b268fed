"""heed.load_model and heed.train: small language models, trained, looked into, writing."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from . import _heed
from ._look import Floats, Report

if TYPE_CHECKING:
    from typing_extensions import Unpack

NEEDS_BLAS = ("heed.{} needs a BLAS, which was not there when heed was built: install OpenBLAS (libopenblas-dev) and "
              "build heed again")


class TrainSettings(TypedDict, total=False):
    """All that decides what a training does, beside its text."""

    layers: int
    heads: int
    model_dim: int  #: a multiple of heads
    context: int  #: tokens that the model sees at a time
    attention_only: bool  #: blocks without an MLP
    symbols: int  #: of the induction task
    batch: int
    steps: int
    learning_rate: float
    warmup: int
    weight_decay: float
    clip: float
    seed: int


class TrainedModel:
    """A small language model of characters, or of symbols that the words of any text are numbered onto."""

    def __init__(self, data: _heed.TrainedModelData) -> None:
        self._data = data
        self.settings: dict[str, Any] = data.settings

    def __repr__(self) -> str:
        kind = "symbols" if self._data.symbols else "characters"
        return (f"<heed.TrainedModel: {self.settings['layers']} layers of {self.settings['heads']} heads, "
                f"{self._data.vocabulary} {kind}>")

    def tokens(self, text: str) -> list[str]:
        """The text as the model reads it: its characters or words."""
        return self._data.tokens(text)

    def logits(self, text: str) -> Floats:
        """[L, vocabulary], f32: what comes next after each token."""
        return self._data.logits(text)

    def expected_after(self, text: str, count: int = 3) -> list[tuple[str, float]]:
        """The likeliest next tokens and their probabilities, the likeliest first."""
        return self._data.expected_after(text, count)

    def generate(self, prompt: str = "", tokens: int = 200, *, temperature: float = 1.0, top_k: int = 0, seed: int = 1,
                 add: Callable[[str], object] | None = None) -> str:
        """What the model writes after the prompt, as heed generate does; `add` is given each token at once.

        temperature: logits are divided by it, 0 takes the largest. top_k: draws among so many only (0: all).
        """
        return self._data.generate(prompt, tokens, temperature, top_k, seed, add)

    def look(self, text: str, layer: int | None = None) -> Report:
        """The heads of all layers, or of one (from 0), while the model reads the text, as heed.look shows them."""
        return Report(self._data.look(text, layer), text)

    def page(self, path: str | os.PathLike[str], text: str = "", *, name: str = "A model of heed.train") -> None:
        """Writes one HTML file that holds the model: what one types there is computed at each letter.

        text: what the page opens with; without any, words that the model can read. A model has at most 500,000 parameters
        and a context of 256 tokens.
        """
        self._data.page(os.fspath(path), name, text)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes model.safetensors, config.json and vocabulary.json into a folder that is there."""
        self._data.save(os.fspath(folder))


def load_model(folder: str | os.PathLike[str]) -> TrainedModel:
    """Reads the folder of a model that heed trained."""
    if not hasattr(_heed, "load_model"):
        raise ImportError(NEEDS_BLAS.format("load_model"))
    return TrainedModel(_heed.load_model(os.fspath(folder)))


def train(
    folder: str | os.PathLike[str],
    text: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    checkpoint_every: int = 100,
    stop_at: int | None = None,
    threads: int = 0,
    progress: Callable[[int, float], object] | None = None,
    **settings: Unpack[TrainSettings],
) -> TrainedModel:
    """Trains a model as heed train does, writes it into the folder, and returns it.

    text: the file whose characters it learns; without one, random symbols that repeat (the induction task).
    resume: goes on from the folder's checkpoint, bit for bit, with its settings.
    stop_at: saves and returns after this step. threads: at most so many (0: what the machine has).
    progress(step, loss): called before the first step and after each. What it raises, and Ctrl-C, stops the training,
    which is saved first.
    """
    if not hasattr(_heed, "train"):
        raise ImportError(NEEDS_BLAS.format("train"))
    return TrainedModel(_heed.train(os.fspath(folder), None if text is None else os.fspath(text), resume, checkpoint_every,
                                    stop_at, threads, progress, settings))
