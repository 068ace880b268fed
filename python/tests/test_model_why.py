"""heed.Model.why: sums for every family, beside transformers' weights; whole tables beside formulas in f64 NumPy."""

import numpy as np
import pytest
import torch
from test_model_cause import layers_of, outputs_of_heads
from tiny_models import FAMILIES, ids_of, make, save

import heed

# Streams are in f32: their roundings are 2^-24 of numbers up to 10, and a score sums some hundred products of them.
NEAR = 2e-5
LENGTH = 21
ROW = 17
IDS = ids_of(LENGTH)


def near(ours, theirs, size, bound=NEAR):
    return np.abs(np.asarray(ours) - np.asarray(theirs)).max() <= bound * max(size, 1)


def run(model):
    """The streams before the layers and after the last, the outputs of heads, and the weights."""
    inputs = []
    handles = [outputs_of_heads(layer).register_forward_pre_hook(lambda _, x: inputs.append(x[0][0].double().numpy()))
               for layer in layers_of(model)]
    with torch.no_grad():
        made = model(torch.as_tensor(IDS)[None], output_hidden_states=True, output_attentions=True)
    for handle in handles:
        handle.remove()
    return [x[0].double().numpy() for x in made.hidden_states], inputs, [x[0].double().numpy() for x in made.attentions]


def last_stream(model):
    """The stream after the last layer: the input of the last norm."""
    seen = []
    norm = model.transformer.ln_f if hasattr(model, "transformer") else model.model.norm
    handle = norm.register_forward_pre_hook(lambda _, x: seen.append(x[0][0].double().numpy()))
    with torch.no_grad():
        model(torch.as_tensor(IDS)[None])
    handle.remove()
    return seen[0]


def visible(weights, row):
    return [key for key in range(LENGTH) if weights[row, key] > 1e-6]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_table_sums_to_the_score_in_every_layer(name, tmp_path):
    theirs = make(name)
    ours = heed.load_model(save(theirs, tmp_path))
    _, _, attentions = run(theirs)
    cap = getattr(theirs.config, "attn_logit_softcapping", None)
    for layer, weights in enumerate(attentions):
        for head in range(weights.shape[0]):
            keys = visible(weights[head], ROW)
            first, last = (ours.why(IDS, ROW, key, (layer, head)) for key in (keys[0], keys[-1]))
            for split in (first, last):
                size = np.abs(split.table).max()
                assert split.head == (layer, head) and split.row == ROW
                assert near(split.table.sum(), split.score, size, 1e-12)
                shown = cap * np.tanh(split.score / cap) if cap else split.score
                if name != "mpnet":  # whose bias by distance is added behind
                    assert near(shown, split.biased, size), (layer, head, shown, split.biased)
                assert abs(split.weight - weights[head, ROW, split.key]) < 1e-5
                assert len(split.query_parts) == len(split.key_parts) == sum(split.table.shape) / 2
                assert near(sum(part.share for part in split.key_parts), split.score, size, 1e-12)
            expected = np.log(weights[head, ROW, keys[0]] / weights[head, ROW, keys[-1]])
            assert abs((first - last).biased - expected) < 1e-3  # weights of 1e-6 have few digits


def numpy(tensor):
    return tensor.detach().double().numpy()


def held_rms(x, weight, epsilon):
    return lambda part: weight * part / np.sqrt(np.mean(x * x) + epsilon), np.zeros_like(x)


def held_layer_norm(x, norm):
    scale = np.sqrt(np.var(x) + norm.eps)
    weight = numpy(norm.weight)
    return lambda part: weight * (part - part.mean()) / scale, numpy(norm.bias)


def turn(x, at, base):
    half = len(x) // 2
    angle = at * base ** (-np.arange(half) / half)
    low, high = x[:half], x[half:]
    return np.concatenate([low * np.cos(angle) - high * np.sin(angle), high * np.cos(angle) + low * np.sin(angle)])


def parts_of(theirs, streams, heads, at, depth, embedded, write, norms=()):
    """Names and vectors. write(layer, head's output, all outputs) is what a head adds; `norms` are of the stream (BERT)."""
    count = theirs.config.num_attention_heads
    names, parts, bias = [one for one, _ in embedded], [x for _, x in embedded], np.zeros(streams[0].shape[1])
    for layer in range(depth):
        out = heads[layer][at]
        size = len(out) // count
        for head in range(count):
            alone = np.zeros_like(out)
            alone[head * size:(head + 1) * size] = out[head * size:(head + 1) * size]
            names.append(f"{layer}.{head}")
            parts.append(write(layer, alone, out))
        bias = bias + write(layer, None, out)
        for norm in norms:
            change, shift = norm(layer, at)
            parts, bias = [change(part) for part in parts], change(bias) + shift
        names.append(f"MLP {layer}")
        parts.append(streams[layer + 1][at] - sum(parts) - bias)
    return [*names, "biases"], [*parts, bias]


def check_table(ours, theirs, depth, head, key, parts_at, project, scale):
    """project(part, side, place, is_bias) is a part's query or key."""
    split = ours.why(IDS, ROW, key, (depth, head))
    tables = []
    for side, place, told in (("query", ROW, split.query_parts), ("key", key, split.key_parts)):
        names, parts = parts_at(place)
        assert [part.name for part in told] == names
        tables.append(np.array([project(part, side, place, name == "biases") for name, part in zip(names, parts)]))
    expected = scale * tables[0] @ tables[1].T
    assert near(split.table, expected, np.abs(expected).max()), np.abs(split.table - expected).max()


def test_gpt2s_table_is_the_formulas(tmp_path):
    theirs = make("gpt2")
    ours = heed.load_model(save(theirs, tmp_path))
    streams, heads, _ = run(theirs)
    body, depth, head, size = theirs.transformer, 2, 1, 8
    block = body.h[depth]

    def write(layer, alone, _):
        c_proj = body.h[layer].attn.c_proj
        return numpy(c_proj.bias) if alone is None else alone @ numpy(c_proj.weight)

    def parts_at(at):
        embedded = [("token", numpy(body.wte.weight)[IDS[at]]), ("position", numpy(body.wpe.weight)[at])]
        return parts_of(theirs, streams, heads, at, depth, embedded, write)

    def project(part, side, at, is_bias):
        change, shift = held_layer_norm(streams[depth][at], block.ln_1)
        first = (0 if side == "query" else 32) + head * size
        made = (change(part) + is_bias * shift) @ numpy(block.attn.c_attn.weight) + is_bias * numpy(block.attn.c_attn.bias)
        return made[first:first + size]

    check_table(ours, theirs, depth, head, 5, parts_at, project, size ** -0.5)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
def test_llamas_relatives_tables_are_the_formulas(name, tmp_path):
    theirs = make(name)
    ours = heed.load_model(save(theirs, tmp_path))
    streams, heads, _ = run(theirs)
    config, body, depth, head = theirs.config, theirs.model, 2, 3
    size, offset = getattr(config, "head_dim", None) or 8, 1 if name == "gemma2" else 0
    base = (config.rope_parameters or {})["rope_theta"]
    attention, epsilon = body.layers[depth].self_attn, config.rms_norm_eps

    def write(layer, alone, all):
        w = numpy(body.layers[layer].self_attn.o_proj.weight)
        if alone is None:
            return 0
        if name != "gemma2":
            return w @ alone
        norm = body.layers[layer].post_attention_layernorm
        return held_rms(w @ all, 1 + numpy(norm.weight), epsilon)[0](w @ alone)

    def parts_at(at):
        return parts_of(theirs, streams, heads, at, depth, [("token", streams[0][at])], write)

    def project(part, side, at, _):
        x = streams[depth][at]
        change = held_rms(x, offset + numpy(body.layers[depth].input_layernorm.weight), epsilon)[0]
        w = numpy((attention.q_proj if side == "query" else attention.k_proj).weight)
        own = head if side == "query" else head // 2
        w = w[own * size:(own + 1) * size]
        made = w @ change(part)
        if name == "qwen3":
            norm = attention.q_norm if side == "query" else attention.k_norm
            made = held_rms(w @ change(x), numpy(norm.weight), epsilon)[0](made)
        return turn(made, at, base)

    scale = config.query_pre_attn_scalar ** -0.5 if name == "gemma2" else size ** -0.5
    check_table(ours, theirs, depth, head, 15, parts_at, project, scale)


def test_berts_table_is_the_formulas(tmp_path):
    theirs = make("bert")
    ours = heed.load_model(save(theirs, tmp_path))
    streams, heads, _ = run(theirs)
    body, depth, head, size = theirs.bert, 2, 1, 8
    layers, tables = body.encoder.layer, body.embeddings

    def write(layer, alone, _):
        dense = layers[layer].attention.output.dense
        return numpy(dense.bias) if alone is None else numpy(dense.weight) @ alone

    def first_sum(layer, at):
        dense = layers[layer].attention.output.dense
        return streams[layer][at] + numpy(dense.weight) @ heads[layer][at] + numpy(dense.bias)

    def norm_1(layer, at):
        return held_layer_norm(first_sum(layer, at), layers[layer].attention.output.LayerNorm)

    def norm_2(layer, at):
        change, shift = norm_1(layer, at)
        x = change(first_sum(layer, at)) + shift
        with torch.no_grad():
            inner = layers[layer].intermediate(torch.as_tensor(x).float()[None])
            fed = numpy(layers[layer].output.dense(inner))[0]
        return held_layer_norm(x + fed, layers[layer].output.LayerNorm)

    def parts_at(at):
        position = numpy(tables.position_embeddings.weight)[at]
        whole = numpy(tables.word_embeddings.weight)[IDS[at]] + numpy(tables.token_type_embeddings.weight)[0] + position
        share = held_layer_norm(whole, tables.LayerNorm)[0](position)
        embedded = [("token", streams[0][at] - share), ("position", share)]
        return parts_of(theirs, streams, heads, at, depth, embedded, write, (norm_1, norm_2))

    def project(part, side, _, is_bias):
        linear = getattr(layers[depth].attention.self, side)
        return (numpy(linear.weight) @ part + is_bias * numpy(linear.bias))[head * size:(head + 1) * size]

    check_table(ours, theirs, depth, head, 5, parts_at, project, size ** -0.5)


def test_the_shipped_induction_models_keys_are_written_by_a_head_that_looks_one_back():
    model = heed.load_model("induction")
    text = "to be or not to be or"
    split = model.why(text, 5, 2)
    assert split.head[0] == 1 and split.weight > 0.9
    writer = max(split.key_parts, key=lambda part: part.share)
    assert writer.name.startswith("0.") and writer.read == 1
    weights = model.weights(text, layer=0)[int(writer.name[2:])]
    assert weights[np.arange(1, 7), np.arange(6)].min() > 0.5  # each word looks at the one before
    assert split.pairs(1)[0][1] == writer.name


def test_of_several_places_the_heaviest_pair_is_taken(tmp_path):
    ours = heed.load_model(save(make("llama"), tmp_path))
    weights = np.stack([ours.weights(IDS, layer=layer) for layer in range(3)])
    split = ours.why(IDS, [4, 9, 17], [2, 3, 8])
    best = max(weights[layer, head, row, key] for layer in range(3) for head in range(4) for row in (4, 9, 17) for key in (2, 3, 8))
    assert abs(split.weight - best) < 1e-6
    assert abs(weights[(*split.head, split.row, split.key)] - best) < 1e-6


@pytest.mark.parametrize("arguments, message", [
    ((LENGTH, 0), f"row is {LENGTH}; 0 to {LENGTH - 1} is expected"),
    ((3, -LENGTH - 1), f"key is {-LENGTH - 1}; 0 to {LENGTH - 1} is expected"),
    ((list(range(20)) * 2, 0), "rows has 40 places; 1 to 32 are expected"),
    ((3, []), "keys has 0 places; 1 to 32 are expected"),
    ((3, 5), "keys has 5, which row 3 may not see; a visible key is expected"),
    ((3, 2, (3, 0)), "head is 3.0; layers 0 to 2 with heads 0 to 3 are expected"),
])
def test_wrong_questions_are_refused(arguments, message, tmp_path):
    ours = heed.load_model(save(make("llama"), tmp_path))
    with pytest.raises(ValueError) as error:
        ours.why(IDS, *arguments)
    assert str(error.value) == message


def test_wrong_types_and_tokens_are_refused_in_one_sentence():
    model = heed.load_model("induction")
    for call, error, message in [
        (lambda: model.why([1, 2, 3], 2.5, 0), TypeError, "row is 2.5; a whole number is expected"),
        (lambda: model.why([1, 2, 3], 2, 0, ("a", 0)), TypeError, "head is 'a'; a whole number is expected"),
        (lambda: model.why([1, 2, 99999], 2, 0), ValueError, "tokens[2] is 99999; 0 to 63 is expected"),
    ]:
        with pytest.raises(error) as refused:
            call()
        assert str(refused.value) == message


def test_rows_and_keys_may_be_words():
    model, text = heed.load_model("induction"), "to be or not to be or"
    named, numbered = model.why(text, "be", ["or", 3]), model.why(text, [1, 5], [2, 6, 3])  # each place of a word
    assert (named.row, named.key, named.head) == (numbered.row, numbered.key, numbered.head) == (5, 2, numbered.head)
    assert (named.table == numbered.table).all()
    with pytest.raises(ValueError, match="key is 'cat', which is not one of the 7 words"):
        model.why(text, 5, "cat")
