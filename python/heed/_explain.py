"""heed.explain and heed.generate: the commands of the same names."""

from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._command import run, show_page
from ._look import Report
from ._model import TrainedModel, load_model
from ._places import checked_text, truth, whole
from ._pretrained import Model

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._generate import Sampling


class Explanation:
    """The answer of `heed explain`. It prints as the command does.

    With a model, `report` is the report of all its heads, and `model` the model.
    """

    def __init__(self, text: str, options: Sequence[str], model: Model | None, report: Report | None) -> None:
        self._given = text
        self._options = options
        self._text = self._run()
        self.model = model
        self.report = report

    def _run(self, *options: str | os.PathLike[str]) -> str:
        # The command reads the text from standard input, since on its line a first hyphen would make an option of it.
        return run("heed.explain", "explain", "-", *self._options, *options, read=self._given)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the explanation in the format of the file extension.

        .html: a page on which every step, or the model itself, can be followed. .safetensors: every step as a tensor; with a
        model, the report."""
        path = pathlib.Path(path)
        ending = path.suffix.lower()
        if self.report is not None and (ending == ".safetensors" or not isinstance(self.model, TrainedModel)):
            return self.report.save(path)
        if ending not in (".html", ".htm", ".safetensors"):
            raise ValueError(f"path is '{path}'; a path that ends in .html, .htm or .safetensors is expected")
        self._run("--save" if ending == ".safetensors" else "--html", path)

    def show(self) -> pathlib.Path | None:
        """Shows the page: in a notebook below the cell; elsewhere in the browser, and returns the path of the page."""
        return show_page(self.save, self.report or self)


def explain(text: str, model: str | os.PathLike[str] | Model | None = None, *, word: str | None = None,
            against: str | None = None, causal: bool = False, heads: int | None = None, seed: int | None = None) -> Explanation:
    """Walks through attention on a text, step by step, as `heed explain` does.

    model: "induction", "stories", a folder, or a loaded model, whose heads are then shown. Without it, an untrained layer of
    `heads` heads shows each step of the computation; against: a text to attend to instead (cross-attention). word: follows
    this word alone; "or:2" is its second occurrence.
    """
    if not isinstance(text, str):
        raise TypeError(f"text is of type {type(text).__name__}; a str is expected")
    for name, words in (("word", word), ("against", against)):
        if words is not None:
            checked_text(name, words)
    for name, number in (("heads", heads), ("seed", seed)):
        if number is not None:
            whole(name, number)
    arguments: list[str] = []
    given: list[tuple[str, Any]] = [("--word", word), ("--against", against), ("--heads", heads), ("--seed", seed)]
    for name, value in given:
        arguments += [] if value is None else [name, str(value)]
    arguments += ["--causal"] if truth("causal", causal) else []
    if model is None:
        return Explanation(text, arguments, None, None)
    loaded = model_of(model)
    return Explanation(text, [*arguments, "--model", os.fspath(loaded._path if isinstance(model, Model) else model)], loaded,
                       loaded.look(text))


def generate(model: str | os.PathLike[str] | Model, prompt: str = "", tokens: int | None = None,
             **sampling: Unpack[Sampling]) -> str:
    """The text that a model generates after the prompt, as `heed generate` does.

    model: "stories", "induction", a folder, or a loaded model. The options are those of heed.Model.generate.
    """
    return model_of(model).generate(prompt, tokens, **sampling)


def model_of(model: str | os.PathLike[str] | Model) -> Model:
    if not isinstance(model, (str, os.PathLike, Model)):
        raise TypeError(f"model is {model!r}; the name or the folder of a model, or a heed.Model, is expected")
    return model if isinstance(model, Model) else load_model(model)
