"""Causal questions about the heads of heed.Model: its methods and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import _heed
from ._look import Floats
from ._places import CONTINUES, is_place, place_of, whole

Text = str | Sequence[int] | Floats
Places = int | str | Iterable[int | str]


@dataclass(frozen=True)
class TokenShift:
    id: int
    token: str  #: readable text; "#17" if the model has no text for the id
    before: float  #: probability
    after: float


@dataclass(frozen=True)
class Effect:
    """The effect of a change inside a model. Only `moved` is set if the model does not predict the next token."""

    moved: float  #: mean over rows of |h' - h| / |h|, for the hidden states after the last norm
    row: int | None
    tokens: list[TokenShift] | None  #: the most likely tokens before and after the change, those before it first
    divergence: float | None  #: KL(before || after) at the row, nats
    loss_before: float | None  #: mean over the text of -log p(next token), nats
    loss_after: float | None


@dataclass(frozen=True)
class Attribution:
    """The direct contributions to a logit. Together they sum to the logit."""

    row: int
    id: int
    token: str
    logit: float  #: before the final softcap
    heads: Floats  #: [layers, H], f64
    biases: Floats  #: [layers], from each layer's output-projection bias
    mlps: Floats  #: [layers], everything else that a layer adds
    embedding: float
    constant: float  #: from the last norm's bias and the bias of the logits


@dataclass(frozen=True)
class LensToken:
    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class LensLayer:
    top: list[LensToken]  #: the most likely tokens
    probability: float  #: of `token`
    rank: int  #: the rank of `token` among all tokens, from 0


@dataclass(frozen=True)
class Lens:
    row: int
    id: int
    token: str
    layers: list[LensLayer]  #: for the embedding, then after each layer


@dataclass(frozen=True)
class StreamPart:
    """A summand of the residual stream at one position."""

    name: str  #: "4.2" (layer 4, head 2), "MLP 3", "token", "position" or "biases"
    share: float  #: what it adds to the score, together with the whole other side
    read: int | None  #: for a head: the key with its largest weight at this position
    read_weight: float  #: that weight


@dataclass(frozen=True)
class ScoreSplit:
    """One score of a head, split by what wrote its query and what wrote its key."""

    head: tuple[int, int]  #: layer and head
    row: int
    key: int
    score: float  #: scale <q, k>: the sum of `table`
    biased: float  #: the score that the softmax sees: after softcap and bias
    weight: float
    query_parts: list[StreamPart]
    key_parts: list[StreamPart]
    table: Floats  #: [query parts, key parts], f64

    def pairs(self, count: int = 10) -> list[tuple[str, str, float]]:
        """The largest entries of the table by size: names of the query's and of the key's part, and the share."""
        order = np.argsort(-np.abs(self.table), axis=None, kind="stable")[:count]
        places = (np.unravel_index(at, self.table.shape) for at in order)
        return [(self.query_parts[i].name, self.key_parts[j].name, float(self.table[i, j])) for i, j in places]

    def __sub__(self, other: ScoreSplit) -> ScoreSplit:
        """Why this score and not another one: of another key, or in another text."""
        if self.table.shape != other.table.shape:
            raise ValueError(f"the other table has shape {list(other.table.shape)}; {list(self.table.shape)} is expected")
        table = self.table - other.table
        query_parts = [replace(part, share=float(share)) for part, share in zip(self.query_parts, table.sum(1))]
        key_parts = [replace(part, share=float(share)) for part, share in zip(self.key_parts, table.sum(0))]
        return replace(self, score=self.score - other.score, biased=self.biased - other.biased,
                       weight=self.weight - other.weight, query_parts=query_parts, key_parts=key_parts, table=table)


def _split(made: dict[str, Any]) -> ScoreSplit:
    for side in ("query_parts", "key_parts"):
        made[side] = [StreamPart(name, share, read if read >= 0 else None, weight) for name, share, read, weight in made[side]]
    return ScoreSplit(**made)


@dataclass(frozen=True)
class CircuitEdge:
    """A read: what one part of the model wrote at a position, and what read it."""

    writer: str  #: "4.2" (layer 4, head 2), "MLP 3", "token", "position" or "biases"
    read: int | None  #: for a head: the key with its largest weight there
    read_weight: float  #: that weight
    place: int  #: the position
    into: str  #: "logit", "value", "key" or "query"
    reader: tuple[int, int] | None  #: layer and head; None for the logit
    reader_row: int
    share: float  #: in the logit, with norms held
    patched: float  #: how far the logit falls if the reader alone does not see it; NaN if not patched


@dataclass(frozen=True)
class Circuit:
    """The heads, and the reads between them, through which a logit comes about."""

    row: int
    id: int
    token: str
    than: int | None
    logit: float  #: before the final softcap; a difference if there is `than`
    threshold: float  #: reads with at least this share were checked
    edges: list[CircuitEdge]  #: from the logit backwards
    denied: list[CircuitEdge]  #: patching moves the logit by less than half of the threshold; not followed


@dataclass(frozen=True)
class HeadKeyShare:
    key: int
    weight: float  #: p_ij
    share: float  #: in the logit


@dataclass(frozen=True)
class PathOfTwo:
    """What a later head of the same row does with what a head wrote."""

    reader: tuple[int, int]  #: layer and head
    into: str  #: "value", "key" or "query"
    share: float  #: in the logit; of keys and queries, what the reader would write less without the head


@dataclass(frozen=True)
class HeadPaths:
    """What passes through one head into a logit."""

    row: int
    id: int
    token: str
    logit: float  #: before the final softcap; a difference if there is `than`
    share: float  #: of the head at the row: the sum over `keys`
    keys: list[HeadKeyShare]
    later: list[PathOfTwo]  #: the largest by size first


@dataclass(frozen=True)
class Composition:
    """How well what one head writes fits what a later one reads, by the weights alone (Elhage et al. 2021)."""

    query: Floats  #: [layers, H, layers, H]: reader, then writer; 0 unless the writer's layer comes first
    key: Floats  #: the same
    value: Floats  #: the same
    random: float  #: the score to expect of independent random weights

    def pairs(self, into: str, count: int = 10) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
        """The largest scores into "query", "key" or "value": writer, reader, score."""
        if into not in ("query", "key", "value"):
            raise ValueError(f"into is {into!r}; query, key or value is expected")
        scores: Floats = getattr(self, into)
        if whole("count", count) < 0:
            raise ValueError(f"count is {count}; 0 or more is expected")
        layers, heads = scores.shape[:2]
        places = [(r, h, w, v) for r in range(layers) for h in range(heads) for w in range(r) for v in range(heads)]
        places.sort(key=lambda place: -float(scores[place]))
        return [((w, v), (r, h), float(scores[r, h, w, v])) for r, h, w, v in places[:count]]


@dataclass(frozen=True)
class HeadExample:
    text: int  #: index of the text
    row: int
    key: int
    weight: float  #: p_ij
    moved: float  #: p_ij |v_j W_O|


@dataclass(frozen=True)
class HeadHabit:
    """A token, or a distance, at which a head moves more than elsewhere."""

    what: int  #: the token's id, or the distance row - key
    rows: int  #: number of rows with it
    moved: float  #: their share of all that the head moves
    usual: float  #: for tokens: their share of all tokens


@dataclass(frozen=True)
class HeadExamples:
    """Where a head moves most."""

    head: tuple[int, int]  #: layer and head
    name: str  #: what it looks like over all texts, by shares of what rows take
    best: list[HeadExample]  #: at most one a text, the largest `moved` first
    mean: float  #: of `moved` over all rows
    rows: list[HeadHabit]  #: tokens it looks from
    keys: list[HeadHabit]  #: tokens it looks to
    distances: list[HeadHabit]


def _numbers(name: str, places: Sequence[int | str], words: Sequence[str], count: int) -> list[int]:
    """The numbers of these places; a word stands for all its places."""
    numbers = []
    for one in places:
        same = [] if is_place(one) else [at for at, word in enumerate(words) if one in (word, word.removeprefix(CONTINUES))]
        numbers += same or [place_of(name, one, words, count)]
    return numbers


def _edges(made: list[tuple[Any, ...]]) -> list[CircuitEdge]:
    return [CircuitEdge(writer, read if read >= 0 else None, *rest) for writer, read, *rest in made]


class Causes:
    """Methods of heed.Model.

    `row`: the row whose prediction is examined (default: the last). `token`: the examined token, an id or its text
    (default: the most likely). `top`: how many tokens to list. `heads`: pairs (layer, head), counted from 0.
    """

    _data: _heed.ModelData

    def _ids(self, what: Text) -> Any:
        raise NotImplementedError

    def ablate(self, what: Text, heads: Iterable[tuple[int, int]], to: str = "zero", *, row: int | None = None,
               token: int | str | None = None, top: int = 5, threads: int = 0) -> Effect:
        """Runs the text with the outputs of these heads set to zero, or to their mean over the text (to="mean")."""
        options = self._options(what, row, token, top, threads)
        return self._effect(what, _heed.ablate(self._data, self._ids(what), list(heads), to, options))

    def patch(self, what: Text, other: Text, heads: Iterable[tuple[int, int]], *, row: int | None = None,
              token: int | str | None = None, top: int = 5, threads: int = 0) -> Effect:
        """Runs the text with the outputs of these heads, row by row, from a run on another text with as many tokens."""
        options = self._options(what, row, token, top, threads)
        return self._effect(what, _heed.patch(self._data, self._ids(what), self._ids(other), list(heads), options))

    def attribute(self, what: Text, token: int | str | None = None, *, row: int | None = None,
                  threads: int = 0) -> Attribution:
        """Each head's direct contribution to a logit, with the scales of norms held constant."""
        made = _heed.attribute(self._data, self._ids(what), self._options(what, row, token, 1, threads))
        id = made.pop("token")
        biases, mlps = np.asarray(made.pop("biases")), np.asarray(made.pop("mlps"))
        return Attribution(id=id, token=self._texts(what, [id])[0], biases=biases, mlps=mlps, **made)

    def lens(self, what: Text, *, row: int | None = None, token: int | str | None = None, top: int = 5,
             threads: int = 0) -> Lens:
        """The prediction after each layer: the last norm and the unembedding applied to the stream (the logit lens)."""
        row, id, layers = _heed.lens(self._data, self._ids(what), self._options(what, row, token, top, threads))
        made = []
        for chances, probability, rank in layers:
            names = self._texts(what, [one for one, _ in chances])
            tokens = [LensToken(one, name, chance) for (one, chance), name in zip(chances, names)]
            made.append(LensLayer(tokens, probability, rank))
        return Lens(row, id, self._texts(what, [id])[0], made)

    def rollout(self, what: Text, row: int | Iterable[int] | None = None, *, threads: int = 0) -> Floats:
        """Attention rollout (Abnar and Zuidema 2020): the input tokens that flow into a row, [L], or into rows, [R, L].

        It is the product over layers of (mean over heads of the weights + I) / 2. No layer's matrix is stored.
        """
        ids = self._ids(what)
        if row is None:
            row = len(ids) - 1
        if isinstance(row, Iterable):
            return _heed.rollout(self._data, ids, list(row), threads)
        alone: Floats = _heed.rollout(self._data, ids, [row], threads)[0]
        return alone

    def why(self, what: Text, row: Places, key: Places, head: tuple[int, int] | None = None, *,
            threads: int = 0) -> ScoreSplit:
        """Why a row looks at a key: the score split into a table of what wrote its query and what wrote its key.

        Rows and keys are numbers or words, one or several. Of several rows and keys, the pair with the largest weight is taken; without `head`, the head too. The difference of
        two results says why one key and not another, or one text and not another.
        """
        ids = self._ids(what)
        asked = [list(places) if isinstance(places, Iterable) and not isinstance(places, str) else [places]
                 for places in (row, key)]
        named = any(isinstance(one, str) for places in asked for one in places)
        words = self._texts(what, [int(one) for one in ids]) if named else []
        rows, keys = (_numbers(name, places, words, len(ids)) for name, places in zip(("row", "key"), asked))
        if head is not None:
            head = whole("head", head[0]), whole("head", head[1])
        return _split(_heed.why(self._data, ids, rows, keys, head, threads))

    def circuit(self, what: Text, token: int | str | None = None, *, row: int | None = None, than: int | str | None = None,
                edges: int = 30, patch: bool = True, threads: int = 0) -> Circuit:
        """Traces a predicted token back to what the heads read: at most `edges` reads, each checked by patching.

        `than`: another token, whose logit is subtracted."""
        tokens = [self._id_of(what, row, one, threads) if isinstance(one, str) else one for one in (token, than)]
        made = _heed.circuit(self._data, self._ids(what), (row, tokens[0], tokens[1]), edges, patch, threads)
        id = made.pop("token")
        return Circuit(id=id, token=self._texts(what, [id])[0], edges=_edges(made.pop("edges")),
                       denied=_edges(made.pop("denied")), **made)

    def paths(self, what: Text, head: tuple[int, int], token: int | str | None = None, *, row: int | None = None,
              than: int | str | None = None, threads: int = 0) -> HeadPaths:
        """What passes through one head into a predicted token's logit: from each key, and on through each later head."""
        tokens = [self._id_of(what, row, one, threads) if isinstance(one, str) else one for one in (token, than)]
        made = _heed.paths(self._data, self._ids(what), (whole("head", head[0]), whole("head", head[1])),
                           (row, tokens[0], tokens[1]), threads)
        id = made.pop("token")
        keys = [HeadKeyShare(*one) for one in made.pop("keys")]
        later = [PathOfTwo(*one) for one in made.pop("later")]
        return HeadPaths(id=id, token=self._texts(what, [id])[0], keys=keys, later=later, **made)

    def composition(self, *, threads: int = 0) -> Composition:
        """Which heads' outputs fit what later heads read: a score for each pair, without any text."""
        return Composition(*_heed.composition(self._data, threads))

    def examples(self, texts: Iterable[Text], head: tuple[int, int] | None = None, *, best: int = 10, habits: int = 5,
                 threads: int = 0) -> list[HeadExamples]:
        """Where, over many texts, each head (or one) moves most from one token to another."""
        texts = texts if isinstance(texts, str) else list(texts)
        if isinstance(texts, str) or any(np.ndim(text) != 1 for text in texts if not isinstance(text, str)):
            raise TypeError(f"texts is {'a str' if isinstance(texts, str) else 'a list of other things'}; a list of texts, "
                            "each a str or a list of ids, is expected")
        ids = [[whole("a token", one) for one in self._ids(text)] for text in texts]
        if head is not None:
            head = whole("head", head[0]), whole("head", head[1])
        return [HeadExamples(at, name, [HeadExample(*one) for one in found], mean, *([HeadHabit(*one) for one in all] for all in rest))
                for at, name, found, mean, *rest in _heed.examples(self._data, ids, head, whole("best", best), whole("habits", habits), threads)]

    def lost(self, what: Text, first: int = 4, last: int = 64, *, threads: int = 0) -> Floats:
        """What each head loses if it sees only the first and the last keys: the mean share of its weights on the
        others, [layers, H]. A head that loses much needs the whole cache (a retrieval head)."""
        return _heed.lost(self._data, self._ids(what), whole("first", first), whole("last", last), threads)

    def _texts(self, what: Text, ids: list[int]) -> list[str]:
        return _heed.texts_of(self._data, ids, what if isinstance(what, str) else None)

    def _options(self, what: Text, row: int | None, token: int | str | None, top: int,
                 threads: int) -> tuple[int | None, int | None, int, int]:
        if isinstance(token, str):
            token = self._id_of(what, row, token, threads)
        return row, token, top, threads

    # Returns the most likely of several tokens with the same text.
    def _id_of(self, what: Text, row: int | None, token: str, threads: int) -> int:
        everything = (row, None, self._data.info["vocabulary"], threads)
        chances = _heed.lens(self._data, self._ids(what), everything)[2][-1][0]
        for (id, _), name in zip(chances, self._texts(what, [id for id, _ in chances])):
            if name == token:
                return id
        raise ValueError(f"token is {token!r}, which is not a token of the model; a token as lens() names it is expected")

    def _effect(self, what: Text, made: dict[str, Any]) -> Effect:
        if not made.pop("predicts"):
            return Effect(made["moved"], None, None, None, None, None)
        tokens = made.pop("tokens")
        names = self._texts(what, [id for id, _, _ in tokens])
        shifts = [TokenShift(id, name, before, after) for (id, before, after), name in zip(tokens, names)]
        return Effect(tokens=shifts, **made)
