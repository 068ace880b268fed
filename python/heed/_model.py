"""heed.load_model and heed.train: trained language models, and training of small ones."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from . import _heed
from ._missing import NOT_BUILT
from ._places import path_text
from ._pretrained import Model

if TYPE_CHECKING:
    from typing_extensions import Unpack


class TrainSettings(TypedDict, total=False):
    """All settings that determine a training run, except its text."""

    layers: int
    heads: int
    model_dim: int  #: a multiple of heads
    context: int  #: tokens that the model can read at a time
    attention_only: bool  #: blocks without an MLP
    symbols: int  #: of the induction task
    batch: int
    steps: int
    learning_rate: float
    warmup: int  #: at most steps; by default 100, or all of the steps if they are fewer
    weight_decay: float
    clip: float
    seed: int


class TrainedModel(Model):
    """A heed.Model trained by heed, on characters, or on symbols that stand for the words of any text."""

    def __init__(self, data: _heed.ModelData, trained: _heed.TrainedModelData, path: str) -> None:
        super().__init__(data, path)
        self._trained = trained
        self.settings: dict[str, Any] = trained.settings

    def __repr__(self) -> str:
        kind = "symbols" if self._trained.symbols else "characters"
        return (f"<heed.TrainedModel: {self.settings['layers']} layers of {self.settings['heads']} heads, "
                f"{self.info['vocabulary']} {kind}>")

    def page(self, path: str | os.PathLike[str], text: str = "", *, name: str = "A model of heed.train") -> None:
        """Writes an HTML file that contains the model and computes it anew at each typed character.

        text: the initial text; by default words that the model can read. The model may have at most 500,000 parameters
        and a context of at most 256 tokens.
        """
        self._trained.page(path_text("path", path), name, text)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the model into an existing folder. transformers can also open it, as GPT2LMHeadModel."""
        self._trained.save(path_text("folder", folder))


def _is_of_heed(folder: str) -> bool:
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError, RecursionError):  # load_pretrained raises the error
        return False
    return isinstance(config, dict) and "heed" in config


def load_model(folder: str | os.PathLike[str], *, fast: bool = False) -> TrainedModel | Model:
    """Reads a model trained by heed, or a folder from transformers (heed.Model).

    "induction" and "stories" are built in. Warns of settings in the folder's files that heed ignores, such as unknown
    keys of config.json.

    fast: rounds numbers before products with weights, to 8 bits or bf16, which is faster and less exact (docs/models.md).
    """
    if not hasattr(_heed, "load_model"):
        raise ImportError(NOT_BUILT.format("load_model"))
    path = _heed.model_folder(path_text("folder", folder))
    data = _heed.load_pretrained(path, fast)
    for note in data.notes:
        warnings.warn(note, stacklevel=2)
    return TrainedModel(data, _heed.load_model(path), path) if _is_of_heed(path) else Model(data, path)


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
    """Trains a model as `heed train` does, saves it into the folder, and returns it.

    text: the file whose characters it learns; by default repeated random symbols (the induction task).
    resume: continues from the folder's checkpoint, bit for bit, with its settings.
    stop_at: saves and returns after this step. threads: at most this many (0: all of the machine's).
    progress(step, loss): called before the first step and after each step. An exception from it, or Ctrl-C, saves and
    stops the training.
    """
    if not hasattr(_heed, "train"):
        raise ImportError(NOT_BUILT.format("train"))
    path = path_text("folder", folder)
    _heed.train(path, None if text is None else path_text("text", text), resume, checkpoint_every, stop_at, threads,
                progress, settings)
    return TrainedModel(_heed.load_pretrained(path, False), _heed.load_model(path), path)
