"""Models whose weights are written by hand: heed says of them what was built in."""

import numpy as np
import pytest
import torch
import transformers as t
from tiny_models import save

import heed

LETTERS, PLACES = 12, 16
WIDTH, SIZE = 48, 24  # of the stream, and of a head: two heads a layer
TOKEN, PLACE, COPY = slice(0, LETTERS), slice(LETTERS, LETTERS + PLACES), slice(LETTERS + PLACES, 2 * LETTERS + PLACES)


def empty(layers):
    config = t.GPT2Config(n_embd=WIDTH, n_layer=layers, n_head=2, n_inner=8, vocab_size=LETTERS, n_positions=PLACES)
    model = t.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.fill_(1 if "ln_" in name and name.endswith("weight") else 0)
        model.transformer.wte.weight[:, TOKEN] = torch.eye(LETTERS)
        model.transformer.wpe.weight[:, PLACE] = torch.eye(PLACES)
    return model


def build(model, layer, head, query, key, value, output):
    """Matrices [WIDTH, SIZE] and, for the output, [SIZE, WIDTH]."""
    attention = model.transformer.h[layer].attn
    with torch.no_grad():
        for index, matrix in enumerate((query, key, value)):
            at = index * WIDTH + head * SIZE
            attention.c_attn.weight[:, at:at + SIZE] = torch.as_tensor(matrix)
        attention.c_proj.weight[head * SIZE:(head + 1) * SIZE] = torch.as_tensor(output)


def map_to(rows, shift=0, scale=1.0):
    """Component i of the rows goes to component i + shift of a head."""
    made = np.zeros((WIDTH, SIZE))
    for i, row in enumerate(range(rows.start, rows.stop)):
        if 0 <= i + shift < SIZE:
            made[row, i + shift] = scale
    return made


def looks_back(model, head, into, by=1):
    """A head of layer 0 that looks `by` places back, and copies the token there into some components of the stream."""
    build(model, 0, head, map_to(PLACE, scale=30.0), map_to(PLACE, shift=by), map_to(TOKEN), map_to(into).T)


@pytest.fixture(scope="module")
def copying(tmp_path_factory):
    """One layer: head 1 copies the token of the place before."""
    model = empty(1)
    looks_back(model, 1, TOKEN)
    return heed.load_model(save(model, tmp_path_factory.mktemp("copying")))


@pytest.fixture(scope="module")
def induction(tmp_path_factory):
    """Head 0.1 notes which token came before; head 1.0 finds the note that equals its token, and copies the token there."""
    model = empty(2)
    looks_back(model, 1, COPY)
    build(model, 1, 0, map_to(TOKEN, scale=30.0), map_to(COPY), map_to(TOKEN), map_to(TOKEN, scale=20.0).T)
    # Three ones among WIDTH components: a norm makes the zeros negative, and these biases make them 0 again.
    mean = 3 / WIDTH
    zero = mean / (mean - mean * mean) ** 0.5
    with torch.no_grad():
        model.transformer.h[1].attn.c_attn.bias[:LETTERS] = 30 * zero
        model.transformer.h[1].attn.c_attn.bias[WIDTH:WIDTH + LETTERS] = zero
    return heed.load_model(save(model, tmp_path_factory.mktemp("induction")))


def test_a_head_that_copies(copying):
    ids = [3, 7, 2, 9, 5]
    split = copying.why(ids, 4, 3, (0, 1))
    assert split.weight > 0.99
    assert split.pairs(1)[0][:2] == ("position", "position")
    circuit = copying.circuit(ids)
    assert circuit.id == 9  # what stands one back
    assert [(edge.writer, edge.into) for edge in circuit.edges[:2]] == [("0.1", "logit"), ("token", "value")]
    value = circuit.edges[1]
    assert value.place == 3 and value.reader == (0, 1) and value.patched > 0
    paths = copying.paths(ids, (0, 1))
    assert max(paths.keys, key=lambda one: one.share).key == 3
    assert paths.share == pytest.approx(sum(one.share for one in paths.keys), abs=1e-12)
    assert copying.paths(ids, (0, 0)).share == 0  # it writes nothing
    best = copying.examples([ids], (0, 1), best=1)[0]
    assert best.name == "previous-token"
    assert best.distances[0].what == 1 and best.distances[0].moved > 0.99


def test_an_induction_pair(induction):
    ids = [0, 3, 7, 2, 3]  # after the second 3 comes what stood behind the first; place 0 notes itself
    circuit = induction.circuit(ids)
    assert circuit.id == 7 and circuit.row == 4
    reads = {(edge.writer, edge.place, edge.into, edge.reader) for edge in circuit.edges}
    assert {("1.0", 4, "logit", None), ("token", 2, "value", (1, 0)), ("0.1", 2, "key", (1, 0)),
            ("token", 4, "query", (1, 0)), ("token", 1, "value", (0, 1))} <= reads
    split = induction.why(ids, 4, 2, (1, 0))
    assert split.weight > 0.99
    assert split.pairs(1)[0][:2] == ("token", "0.1")  # K-composition
    assert split.pairs(1)[0][2] > 0.9 * split.score
    written = next(part for part in split.key_parts if part.name == "0.1")
    assert written.read == 1 and written.share > 0.9 * split.score
    later = induction.paths(ids, (0, 1)).later[0]
    assert (later.reader, later.into) == ((1, 0), "key") and later.share > 0


def test_the_weights_say_which_composition_was_built(induction, tmp_path):
    made = induction.composition()
    for into in ("query", "value"):
        assert made.key[1, 0, 0, 1] > 2 * getattr(made, into)[1, 0, 0, 1]
    assert made.pairs("key", 1)[0][:2] == ((0, 1), (1, 0))
    assert (made.key[1, 0, 0, 0], made.key[1, 1, 0, 1]) == (0, 0)  # heads without weights
    through_query, through_value = empty(2), empty(2)
    looks_back(through_query, 1, COPY)
    build(through_query, 1, 0, map_to(COPY), map_to(TOKEN), map_to(TOKEN), map_to(TOKEN).T)
    looks_back(through_value, 1, COPY)
    build(through_value, 1, 0, map_to(PLACE), map_to(PLACE, shift=1), map_to(COPY), map_to(TOKEN).T)
    for name, model in (("query", through_query), ("value", through_value)):
        made = heed.load_model(save(model, tmp_path / name)).composition()
        scores = {into: getattr(made, into)[1, 0, 0, 1] for into in ("query", "key", "value")}
        assert max(scores, key=scores.get) == name, scores
