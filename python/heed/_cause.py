"""What heads of heed.Model cause: methods of it, and what they return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _heed
from ._look import Floats

Text = str | Sequence[int] | Floats


@dataclass(frozen=True)
class TokenShift:
    id: int
    token: str  #: as people read it; "#17" where the model has no text for it
    before: float  #: probability
    after: float


@dataclass(frozen=True)
class Effect:
    """What a change inside a model did. All but `moved` is None for a model that does not predict what comes next."""

    moved: float  #: mean over rows of |h' - h| / |h|, of the hidden states behind the last norm
    row: int | None
    tokens: list[TokenShift] | None  #: the likeliest before and after, the likeliest before first
    divergence: float | None  #: KL(before || after) at the row, nats
    loss_before: float | None  #: mean over the text of -log p(next token), nats
    loss_after: float | None


@dataclass(frozen=True)
class Attribution:
    """The direct shares in a logit. All of them add up to it."""

    row: int
    id: int
    token: str
    logit: float  #: before a last softcap
    heads: Floats  #: [layers, H], f64
    biases: Floats  #: [layers], of each layer's W_O
    mlps: Floats  #: [layers], all that a layer adds besides
    embedding: float
    constant: float  #: of the last norm's bias and the logits' own


@dataclass(frozen=True)
class LensToken:
    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class LensLayer:
    top: list[LensToken]  #: the likeliest tokens
    probability: float  #: of the token that is spoken of
    rank: int  #: its place among all, from 0


@dataclass(frozen=True)
class Lens:
    row: int
    id: int
    token: str
    layers: list[LensLayer]  #: the embedding's, then those behind each layer


class Causes:
    """Methods of heed.Model.

    `row`: the one whose prediction is spoken of (the last). `token`: the predicted token that is spoken of, an id or what
    stands for it (the likeliest). `top`: tokens to name. `heads`: pairs (layer, head), counted from 0.
    """

    _data: _heed.ModelData

    def _ids(self, what: Text) -> Any:
        raise NotImplementedError

    def ablate(self, what: Text, heads: Iterable[tuple[int, int]], to: str = "zero", *, row: int | None = None,
               token: int | str | None = None, top: int = 5, threads: int = 0) -> Effect:
        """The text with the outputs of these heads at zero, or at their mean over the text (to="mean")."""
        options = self._options(what, row, token, top, threads)
        return self._effect(what, _heed.ablate(self._data, self._ids(what), list(heads), to, options))

    def patch(self, what: Text, other: Text, heads: Iterable[tuple[int, int]], *, row: int | None = None,
              token: int | str | None = None, top: int = 5, threads: int = 0) -> Effect:
        """The text with the outputs of these heads, row by row, from a run on another text of as many tokens."""
        options = self._options(what, row, token, top, threads)
        return self._effect(what, _heed.patch(self._data, self._ids(what), self._ids(other), list(heads), options))

    def attribute(self, what: Text, token: int | str | None = None, *, row: int | None = None,
                  threads: int = 0) -> Attribution:
        """Each head's direct share in a logit, the scales of norms held at what they are."""
        made = _heed.attribute(self._data, self._ids(what), self._options(what, row, token, 1, threads))
        id = made.pop("token")
        biases, mlps = np.asarray(made.pop("biases")), np.asarray(made.pop("mlps"))
        return Attribution(id=id, token=self._texts(what, [id])[0], biases=biases, mlps=mlps, **made)

    def lens(self, what: Text, *, row: int | None = None, token: int | str | None = None, top: int = 5,
             threads: int = 0) -> Lens:
        """What the stream behind each layer would predict: the last norm and the unembedding on it (the logit lens)."""
        row, id, layers = _heed.lens(self._data, self._ids(what), self._options(what, row, token, top, threads))
        made = []
        for chances, probability, rank in layers:
            names = self._texts(what, [one for one, _ in chances])
            tokens = [LensToken(one, name, chance) for (one, chance), name in zip(chances, names)]
            made.append(LensLayer(tokens, probability, rank))
        return Lens(row, id, self._texts(what, [id])[0], made)

    def rollout(self, what: Text, row: int | Iterable[int] | None = None, *, threads: int = 0) -> Floats:
        """Attention rollout (Abnar and Zuidema 2020): what a row comes from, [L], or several rows, [R, L].

        It is the product over layers of (mean over heads of the weights + I) / 2, without a matrix of a layer.
        """
        ids = self._ids(what)
        if row is None:
            row = len(ids) - 1
        if isinstance(row, Iterable):
            return _heed.rollout(self._data, ids, list(row), threads)
        alone: Floats = _heed.rollout(self._data, ids, [row], threads)[0]
        return alone

    def _texts(self, what: Text, ids: list[int]) -> list[str]:
        return _heed.texts_of(self._data, ids, what if isinstance(what, str) else None)

    def _options(self, what: Text, row: int | None, token: int | str | None, top: int,
                 threads: int) -> tuple[int | None, int | None, int, int]:
        if isinstance(token, str):
            token = self._id_of(what, row, token, threads)
        return row, token, top, threads

    # Of several tokens that read the same, the likeliest.
    def _id_of(self, what: Text, row: int | None, token: str, threads: int) -> int:
        everything = (row, None, self._data.info["vocabulary"], threads)
        chances = _heed.lens(self._data, self._ids(what), everything)[2][-1][0]
        for (id, _), name in zip(chances, self._texts(what, [id for id, _ in chances])):
            if name == token:
                return id
        raise ValueError(f"token is {token!r}, which is no token of the model; one as lens() names them is expected")

    def _effect(self, what: Text, made: dict[str, Any]) -> Effect:
        if not made.pop("predicts"):
            return Effect(made["moved"], None, None, None, None, None)
        tokens = made.pop("tokens")
        names = self._texts(what, [id for id, _, _ in tokens])
        shifts = [TokenShift(id, name, before, after) for (id, before, after), name in zip(tokens, names)]
        return Effect(tokens=shifts, **made)
