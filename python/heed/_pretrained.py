"""heed.Model: a model trained elsewhere, read from its folder and run by heed."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _heed
from ._cause import Causes
from ._generate import Writes
from ._heed import ModelCache
from ._look import Floats, Report
from ._places import require, token_ids_of, truth, whole
from ._tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Self


Messages = str | Sequence[Mapping[str, str | None]]


class Model(Causes, Writes):
    """A model from a folder in transformers' format, or from a GGUF file (heed.load_model). docs/models.md lists the
    families.

    All products are computed in f32, whatever the dtype of the weights. `what` is a text, if the folder has a
    tokenizer, or token ids. `threads` 0 uses all of the machine's.
    """

    def __init__(self, data: _heed.ModelData, path: str) -> None:
        self._data = data
        self._path = os.path.abspath(path)
        self.info: dict[str, Any] = data.info  #: family, layers, heads, …, from config.json

    # Copies share the weights, which never change. A pickle stores the path of the folder, not the weights.

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made = self.__copy__()
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self._path, self._data.info)

    def __repr__(self) -> str:
        info = self.info
        return (f"<heed.Model: {info['family']}, {info['layers']} layers of {info['heads']} heads, "
                f"{info['parameters']} parameters>")

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The folder's tokenizer. None if heed cannot read one there, or if heed trained the model."""
        data = self._data.tokenizer()
        return None if data is None else Tokenizer(data, (_tokenizer_of, (self,)))

    def token_ids(self, text: str) -> list[int]:
        """The text's token ids, including the special tokens that the tokenizer adds."""
        return self._data.token_ids(text)

    def tokens(self, text: str) -> list[str]:
        """The text's tokens, as readable text."""
        return self._data.tokens(text)

    def chat_text(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """The text that the model's chat template makes of messages: a text of the user, or mappings of role and
        content. With add_generation_prompt it ends where the answer begins. transformers' apply_chat_template()."""
        return self._data.chat_text(_messages(messages), truth("add_generation_prompt", add_generation_prompt))

    def chat_ids(self, messages: Messages, add_generation_prompt: bool = True) -> list[int]:
        """The token ids of that text, for `what` of the other methods."""
        return self._data.chat_ids(_messages(messages), truth("add_generation_prompt", add_generation_prompt))

    def cache(self, format: str = "f32") -> ModelCache:
        """An empty cache, for a causal model. Tokens read with it follow the tokens that it holds."""
        return self._data.cache(format)

    def hidden_states(self, what: str | Sequence[int] | Floats, *, cache: ModelCache | None = None, threads: int = 0) -> Floats:
        """[L, D], f32: the stream after the last norm, transformers' last_hidden_state."""
        return self._data.hidden_states(self._ids(what), cache, threads)

    def logits(self, what: str | Sequence[int] | Floats, *, cache: ModelCache | None = None, threads: int = 0) -> Floats:
        """[L, vocabulary], f32: logits of the token after each token; for an encoder, of the token at each position."""
        return self._data.logits(self.hidden_states(what, cache=cache, threads=threads), threads)

    def streams(self, what: str | Sequence[int] | Floats, *, threads: int = 0) -> Floats:
        """[layers + 1, L, D], f32: the residual stream before each layer and after the last (before the last norm)."""
        return self._data.streams(self._ids(what), threads)

    def weights(self, what: str | Sequence[int] | Floats, layer: int | None = None, *, threads: int = 0) -> Floats:
        """The attention weights, f32 [layers, H, L, L], or [H, L, L] for one layer (counted from 0)."""
        return self._data.weights(self._ids(what), layer, threads)

    def look(self, what: str | Sequence[int] | Floats, layer: int | None = None, *, by: str = "attention", top_k: int = 5,
             needle: str | None = None, keep: bool = True, threads: int = 0) -> Report:
        """A report on the heads of all layers, or of one (counted from 0), like heed.look's.

        by: "attention" uses the weights p_ij; "norm" uses each row's shares of p_ij |v_j W_O| (Kobayashi et al. 2020).
        needle: words of the text; report.retrieval then says which heads retrieve them.

        keep=False discards queries, keys and weights while the model runs, and takes about as long as hidden_states().
        The report then has heads(), summaries and per-row arrays, but no maps, and no pair, tile, plot, page or
        save."""
        if not isinstance(by, str) or by not in ("attention", "norm"):
            raise ValueError(f"by is {by!r}; 'attention' or 'norm' is expected")
        text = what if isinstance(what, str) else None
        ids = None if isinstance(what, str) else token_ids_of("what", what)
        data = self._data.look(ids, text, needle, by == "norm", layer, whole("top_k", top_k), keep, threads)
        return Report(data, text or "")

    def _ids(self, what: str | Sequence[int] | Floats) -> Any:
        return token_ids_of("what", self.token_ids(what) if isinstance(what, str) else what)


def _messages(messages: Messages) -> list[tuple[str, str]]:
    if isinstance(messages, str):
        return [("user", messages)]
    require("messages", messages, Sequence, "a str, or a list of mappings of role and content,")
    made = []
    for i, message in enumerate(messages):
        require(f"messages[{i}]", message, Mapping, "a mapping of role and content")
        given = {name: value for name, value in message.items() if value is not None}
        if set(given) - {"content"} != {"role"}:
            raise ValueError(f"messages[{i}] has the keys {sorted(given)}; role and content are expected")
        for name, value in given.items():
            if not isinstance(value, str):
                raise TypeError(f"{name} of messages[{i}] is {value!r}; a str is expected")
        made.append((given["role"], given.get("content", "")))
    return made


def _opened(path: str, info: dict[str, Any]) -> Model:
    """Reads a pickled model's folder again and checks that it still contains the same kind of model."""
    from ._model import load_model

    model = load_model(path, fast=info.get("fast", False))
    for name, value in info.items():
        if model.info.get(name) != value:
            raise ValueError(f"{name} of the model in {path} is {model.info.get(name)!r}; {value!r}, as in the pickle, is "
                             "expected")
    return model


def _tokenizer_of(model: Model) -> Tokenizer:
    found = model.tokenizer
    if found is None:
        raise ValueError(f"{model._path} has no tokenizer; the tokenizer of the pickled model is expected")
    return found
