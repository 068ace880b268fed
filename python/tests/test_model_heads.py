"""What a heed.Model says of its heads: composition scores, paths through one head, examples, and keys that a cache
lacks; beside formulas in f64 NumPy over transformers' weights and outputs."""

import numpy as np
import pytest
import torch
from test_model_circuit import NEAR, Theirs
from test_model_why import IDS, LENGTH, held_layer_norm, held_rms, numpy, run
from tiny_models import CAUSAL, ids_of, make, save

import heed

FAMILIES = ["gpt2", "llama", "qwen3", "gemma2", "granite"]


def weights_of(name, model, layer, head):
    """W_Q, W_K, W_V [d, D] and W_O [D, d] of a head, with the gains of norms."""
    config = model.config
    count = config.num_attention_heads
    group = count // getattr(config, "num_key_value_heads", count)
    if name == "gpt2":
        block = model.transformer.h[layer]
        size, width = config.n_embd // count, config.n_embd
        gain = np.diag(numpy(block.ln_1.weight)) @ (np.eye(width) - 1 / width)
        fused = numpy(block.attn.c_attn.weight).T @ gain
        parts = [fused[at * width:(at + 1) * width][head * size:(head + 1) * size] for at in range(3)]
        return [*parts, numpy(block.attn.c_proj.weight).T[:, head * size:(head + 1) * size]]
    block = model.model.layers[layer]
    attention, one = block.self_attn, 1 if name == "gemma2" else 0
    size = attention.head_dim
    gain = one + numpy(block.input_layernorm.weight)
    rows = [numpy(projection.weight)[at * size:(at + 1) * size] * gain for projection, at in
            ((attention.q_proj, head), (attention.k_proj, head // group), (attention.v_proj, head // group))]
    output = numpy(attention.o_proj.weight)[:, head * size:(head + 1) * size]
    if name == "qwen3":
        rows[0] = numpy(attention.q_norm.weight)[:, None] * rows[0]
        rows[1] = numpy(attention.k_norm.weight)[:, None] * rows[1]
    if name == "gemma2":
        output = (1 + numpy(block.post_attention_layernorm.weight))[:, None] * output
    return [*rows, output]


@pytest.mark.parametrize("name", FAMILIES)
def test_composition_is_the_formula(name, tmp_path):
    theirs = make(name)
    with torch.no_grad():  # gains of norms are 1, or 0, as transformers makes them
        for key, value in theirs.named_parameters():
            if "norm" in key or "ln_" in key:
                value.add_(0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(len(key))))
    made = heed.load_model(save(theirs, tmp_path)).composition()
    layers, heads = made.query.shape[:2]
    assert made.query.shape == made.key.shape == made.value.shape == (layers, heads, layers, heads)
    assert made.random == pytest.approx(theirs.config.hidden_size ** -0.5)
    norm = np.linalg.norm
    for layer in range(layers):
        for head in range(heads):
            q, k, v, o = weights_of(name, theirs, layer, head)
            qk, ov = q.T @ k, o @ v
            for earlier in range(layers):
                for writer in range(heads):
                    at = layer, head, earlier, writer
                    if earlier >= layer:
                        assert made.query[at] == made.key[at] == made.value[at] == 0
                        continue
                    _, _, v1, o1 = weights_of(name, theirs, earlier, writer)
                    ov1 = o1 @ v1
                    for ours, product, reader in ((made.query, qk.T @ ov1, qk), (made.key, qk @ ov1, qk),
                                                  (made.value, ov @ ov1, ov)):
                        assert ours[at] == pytest.approx(norm(product) / norm(reader) / norm(ov1), rel=1e-5)


def test_the_weights_alone_show_the_induction_circuit():
    made = heed.load_model("induction").composition()
    best = made.pairs("key", 4)
    assert {reader for _, reader, _ in best} == {(1, head) for head in range(4)}
    assert {writer for writer, _, _ in best} == {(0, 3)}  # the head that looks one back
    assert best[-1][2] > 1.5 * made.pairs("key", 5)[4][2] > made.random
    with pytest.raises(ValueError, match="into is 'keys'; query, key or value is expected"):
        made.pairs("keys")


def test_heads_whose_rows_depend_on_each_other_have_finite_scores(tmp_path):
    theirs = make("llama")
    with torch.no_grad():
        theirs.model.layers[1].self_attn.q_proj.weight[1] = 2 * theirs.model.layers[1].self_attn.q_proj.weight[0]
        theirs.model.layers[0].self_attn.o_proj.weight[:, :8] = 0  # head 0 writes nothing
    made = heed.load_model(save(theirs, tmp_path)).composition()
    q, k, _, _ = weights_of("llama", theirs, 1, 0)
    _, _, v1, o1 = weights_of("llama", theirs, 0, 1)
    expected = np.linalg.norm(q.T @ k @ o1 @ v1) / np.linalg.norm(q.T @ k) / np.linalg.norm(o1 @ v1)
    assert made.key[1, 0, 0, 1] == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(made.key).all() and (made.key[:, :, 0, 0] == 0).all()


def test_norms_between_layers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="normalises its stream between layers, so its heads have no composition scores"):
        heed.load_model(save(make("bert"), tmp_path)).composition()


class Direct:
    """The formulas of one head's share, and of what a later head does with it, at the last row of GPT-2 or Llama."""

    def __init__(self, name, model, token):
        self.name, self.model, self.row = name, model, LENGTH - 1
        self.theirs = Theirs(name, model)
        last = self.theirs.streams[-1][self.row]
        norm = model.transformer.ln_f if name == "gpt2" else model.model.norm
        change = (held_layer_norm(last, norm) if name == "gpt2" else
                  held_rms(last, numpy(norm.weight), model.config.rms_norm_eps))[0]
        unembedding = numpy(model.get_output_embeddings().weight)[token]
        self.direction = np.array([change(one) for one in np.eye(len(last))]) @ unembedding

    def of(self, into, layer, head, place, part=None):
        """A head's input before rotation, or a part of it."""
        x, block = self.theirs.streams[layer][place], self.theirs.layers[layer]
        if self.name == "gpt2":
            change, shift = held_layer_norm(x, block.ln_1)
            weight, bias = numpy(block.attn.c_attn.weight), numpy(block.attn.c_attn.bias)
        else:
            change, shift = held_rms(x, numpy(block.input_layernorm.weight), self.model.config.rms_norm_eps)
            weight, bias = numpy(getattr(block.self_attn, f"{into[0]}_proj").weight).T, 0
        made = (change(x) + shift) @ weight + bias if part is None else change(part) @ weight
        return made[self.theirs.columns(into, head)]

    def out(self, layer, head):
        size = self.theirs.size
        if self.name == "gpt2":
            return numpy(self.theirs.attention(layer).c_proj.weight)[head * size:(head + 1) * size]
        return numpy(self.theirs.attention(layer).o_proj.weight)[:, head * size:(head + 1) * size].T

    def worth(self, layer, head, part_at=lambda _: None):
        values = np.array([self.of("value", layer, head, place, part_at(place)) for place in range(LENGTH)])
        return values @ self.out(layer, head) @ self.direction


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_paths_are_the_formulas(name, tmp_path):
    model = make(name)
    ours = heed.load_model(save(model, tmp_path))
    _, _, attentions = run(model)
    layer, head, row = 0, 1, LENGTH - 1
    paths = ours.paths(IDS, (layer, head))
    direct = Direct(name, model, paths.id)
    weights = attentions[layer][head, row]
    size = max(1, abs(paths.logit))
    assert paths.row == row and [one.key for one in paths.keys] == list(range(LENGTH))
    assert np.abs([one.weight for one in paths.keys] - weights).max() < 1e-5
    assert np.abs([one.share for one in paths.keys] - weights * direct.worth(layer, head)).max() < NEAR * size
    assert paths.share == pytest.approx(sum(one.share for one in paths.keys), abs=1e-12)
    assert abs(paths.share - ours.attribute(IDS).heads[layer, head]) < 1e-5 * size
    assert sorted(one.reader for one in paths.later) == sorted([(l, h) for l in (1, 2) for h in range(4)] * 3)
    shares = [abs(one.share) for one in paths.later]
    assert shares == sorted(shares, reverse=True)
    for path in paths.later:
        depth, reader = path.reader
        written = [direct.theirs.parts_at(place, depth)[f"{layer}.{head}"] for place in range(LENGTH)]
        p = attentions[depth][reader, row]
        if path.into == "value":
            expected = p @ direct.worth(depth, reader, lambda place: written[place])
        elif name == "llama":
            continue  # its keys and queries are rotated
        else:
            keys = np.array([direct.of("key", depth, reader, place) for place in range(LENGTH)])
            query = direct.of("query", depth, reader, row)
            if path.into == "query":
                less = keys @ direct.of("query", depth, reader, row, written[row])
            else:
                less = np.array([direct.of("key", depth, reader, j, written[j]) for j in range(LENGTH)]) @ query
            worth, scores = direct.worth(depth, reader), keys @ query / 8 ** 0.5
            after = np.exp(scores - less / 8 ** 0.5)
            expected = p @ worth - after @ worth / after.sum()
        assert abs(path.share - expected) < NEAR * size, (path, expected)


@pytest.mark.parametrize("name", CAUSAL)
def test_paths_of_every_family_sum_to_the_share_of_the_head(name, tmp_path):
    ours = heed.load_model(save(make(name), tmp_path))
    shares = ours.attribute(IDS).heads
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        paths = ours.paths(IDS, (layer, head))
        assert abs(sum(one.share for one in paths.keys) - shares[layer, head]) < 1e-5 * max(1, abs(paths.logit))
        assert len(paths.later) == 3 * 4 * (shares.shape[0] - layer - 1)


def test_paths_of_the_difference_of_two_tokens():
    text, model = "to be or not to be or", heed.load_model("induction")
    one, other = (model.paths(text, (1, 0), token) for token in ("not", "to"))
    both = model.paths(text, (1, 0), "not", than="to")
    assert both.logit == pytest.approx(one.logit - other.logit, abs=1e-9)
    assert both.share == pytest.approx(one.share - other.share, abs=1e-9)
    assert max(one.keys, key=lambda key: key.share).key == 3  # "not", which it copies
    assert one.later == []
    first = model.paths(text, (0, 3), "not").later[0]
    assert first.into == "key" and first.reader[0] == 1 and first.share > 1
    with pytest.raises(ValueError, match=r"head is 2\.0; layers 0 to 1 with heads 0 to 3 are expected"):
        model.paths(text, (2, 0))


def test_examples_are_where_most_is_moved(tmp_path):
    theirs = make("llama")
    ours = heed.load_model(save(theirs, tmp_path))
    texts = [[int(one) for one in ids] for ids in (ids_of(LENGTH), reversed(ids_of(9).tolist()), [5, 7, 5, 7, 5])]
    found = ours.examples(texts, best=2, habits=1000)
    assert [one.head for one in found] == [(layer, head) for layer in range(3) for head in range(4)]
    alone = ours.examples(texts, (1, 2), best=2, habits=1000)
    assert len(alone) == 1 and alone[0].head == (1, 2) and alone[0].best == found[6].best
    tokens = np.concatenate(texts)
    for one in found:
        layer, head = one.head
        rows = []  # text, row, key, weight, moved
        for index, ids in enumerate(texts):
            seen = []
            handle = theirs.model.layers[layer].self_attn.v_proj.register_forward_hook(
                lambda _, __, output: seen.append(output[0].double().numpy()))
            with torch.no_grad():
                made = theirs(torch.as_tensor(ids)[None], output_attentions=True)
            handle.remove()
            value = seen[0][:, head // 2 * 8:head // 2 * 8 + 8]
            output = numpy(theirs.model.layers[layer].self_attn.o_proj.weight)[:, head * 8:head * 8 + 8]
            p = made.attentions[layer][0, head].double().numpy()
            moved = p * np.linalg.norm(value @ output.T, axis=1)
            for row, key in list(enumerate(moved.argmax(1)))[1:]:  # row 0 sees itself alone
                rows.append((index, row, key, p[row, key], moved[row, key]))
        best = sorted((max((r for r in rows if r[0] == index), key=lambda r: r[4]) for index in range(3)), key=lambda r: -r[4])
        for ours_, expected in zip(one.best, best[:2], strict=True):
            assert (ours_.text, ours_.row, ours_.key) == expected[:3]
            assert ours_.weight == pytest.approx(expected[3], abs=1e-5)
            assert ours_.moved == pytest.approx(expected[4], rel=1e-4)
        total = sum(row[4] for row in rows)
        assert one.mean == pytest.approx(total / len(rows), rel=1e-4)
        for habits, what_of in ((one.rows, lambda r: texts[r[0]][r[1]]), (one.keys, lambda r: texts[r[0]][r[2]]),
                                (one.distances, lambda r: r[1] - r[2])):
            assert sum(habit.rows for habit in habits) == len(rows)
            for habit in habits:
                of = [row for row in rows if what_of(row) == habit.what]
                assert habit.rows == len(of)
                assert habit.moved == pytest.approx(sum(row[4] for row in of) / total, rel=1e-4)
                usual = 0 if habits is one.distances else (tokens == habit.what).mean()
                assert habit.usual == pytest.approx(usual)
            more = [habit.moved - habit.usual for habit in habits]
            assert more == sorted(more, reverse=True)


def test_examples_of_nothing_and_of_wrong_heads_are_refused():
    model = heed.load_model("induction")
    for arguments, message in ((([],), "texts is empty; at least one text is expected"),
                               ((["to be"], (0, 9)), r"head is 0\.9; layers 0 to 1 with heads 0 to 3 are expected")):
        with pytest.raises(ValueError, match=message):
            model.examples(*arguments)
    for option in ({"best": 0}, {"best": 1001}, {"habits": -1}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} is .*is expected"):
            model.examples(["to be"], **option)
    with pytest.raises(TypeError, match="texts is a str; a list of texts, each a str or a list of ids, is expected"):
        model.examples("to be")


def test_lost_weights_are_those_outside_the_first_and_last_keys(tmp_path):
    theirs = make("mistral")  # a window of 8
    ours = heed.load_model(save(theirs, tmp_path))
    first, last = 2, 3
    lost = ours.lost(IDS, first, last)
    _, _, attentions = run(theirs)
    assert lost.shape == (3, 4)
    for layer, weights in enumerate(attentions):
        for head in range(4):
            rows = [weights[head, row, first:row + 1 - last].sum() for row in range(first + last, LENGTH)]
            assert lost[layer, head] == pytest.approx(np.mean(rows), abs=1e-5)
    with pytest.raises(ValueError, match=r"tokens has length 21; more than the cache keeps, 18 \+ 3, and than a prompt of 0 is expected"):
        ours.lost(IDS, 18, 3)
