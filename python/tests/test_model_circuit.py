"""heed.Model.circuit: patching beside hooks in transformers' models, shares beside formulas in f64 NumPy."""

import numpy as np
import pytest
import torch
from test_model_cause import layers_of, outputs_of_heads
from test_model_why import IDS, LENGTH, held_layer_norm, held_rms, last_stream, numpy, parts_of, run
from tiny_models import make, save

import heed

# Runs in f32 whose logits are of size 10: some hundred roundings of 2^-24, enlarged by norms and exponentials.
NEAR = 2e-4
INPUTS = ("query", "key", "value")


def projections(name, attention):
    if name == "gpt2":
        return dict.fromkeys(INPUTS, attention.c_attn)
    return dict(query=attention.q_proj, key=attention.k_proj, value=attention.v_proj)


class Theirs:
    """A model of transformers in which one head, at one row, can be made to read other numbers."""

    def __init__(self, name, model):
        self.name, self.model = name, model
        self.streams, self.heads, _ = run(model)
        self.streams[-1] = last_stream(model)  # before the last norm
        self.layers, self.config = layers_of(model), model.config
        self.count = self.config.num_attention_heads
        self.size = self.heads[0].shape[1] // self.count
        self.group = self.count // getattr(self.config, "num_key_value_heads", self.count)

    def attention(self, layer):
        return self.layers[layer].attn if self.name == "gpt2" else self.layers[layer].self_attn

    def write(self, layer, alone, all):
        if self.name == "gpt2":
            c_proj = self.attention(layer).c_proj
            return numpy(c_proj.bias) if alone is None else alone @ numpy(c_proj.weight)
        o_proj = self.attention(layer).o_proj
        factor = getattr(self.config, "residual_multiplier", 1)
        w, bias = factor * numpy(o_proj.weight), 0 if o_proj.bias is None else factor * numpy(o_proj.bias)
        if alone is None:
            return bias
        if self.name != "gemma2":
            return w @ alone
        norm = self.layers[layer].post_attention_layernorm
        return held_rms(w @ all, 1 + numpy(norm.weight), self.config.rms_norm_eps)[0](w @ alone)

    def parts_at(self, place, depth):
        body = self.model.transformer if self.name == "gpt2" else None
        embedded = ([("token", numpy(body.wte.weight)[IDS[place]]), ("position", numpy(body.wpe.weight)[place])]
                    if body else [("token", self.streams[0][place])])
        return dict(zip(*parts_of(self.model, self.streams, self.heads, place, depth, embedded, self.write)))

    def columns(self, into, head):
        """Of the projection's outputs, those of a head's input."""
        first = (head if into == "query" else head // self.group) * self.size
        if self.name == "gpt2":
            first += INPUTS.index(into) * self.count * self.size
        return slice(first, first + self.size)

    def logits(self, row, *hooks):
        handles = [module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook)
                   for module, hook, before in hooks]
        with torch.no_grad():
            hidden = self.model.base_model(torch.as_tensor(IDS)[None])[0][0, row]
            logits = self.model.get_output_embeddings()(hidden)
        for handle in handles:
            handle.remove()
        return logits.double().numpy()

    def without(self, edge, row):
        """The logits if the reader alone does not see what the writer wrote."""
        if edge.into == "logit":
            rest = self.streams[-1][edge.place] - self.parts_at(edge.place, len(self.layers))[edge.writer]
            with torch.no_grad():
                norm = self.model.transformer.ln_f if self.name == "gpt2" else self.model.model.norm
                return numpy(self.model.get_output_embeddings()(norm(torch.as_tensor(rest).float())))
        (layer, head), place = edge.reader, edge.place
        module = projections(self.name, self.attention(layer))[edge.into]
        norm = self.layers[layer].ln_1 if self.name == "gpt2" else self.layers[layer].input_layernorm
        rest = self.streams[layer][place] - self.parts_at(place, layer)[edge.writer]
        columns, seen = self.columns(edge.into, head), []
        with torch.no_grad():
            changed = module(norm(torch.as_tensor(rest).float()[None, None]))[0, 0, columns]

        def change(_, __, output):
            output = output.clone()
            output[0, place, columns] = changed
            return output

        out = slice(head * self.size, (head + 1) * self.size)
        outputs = outputs_of_heads(self.layers[layer])
        self.logits(row, (module, change, False), (outputs, lambda _, x: seen.append(x[0][0, edge.reader_row, out].clone()), True))

        def replace(_, x):
            x = x[0].clone()
            x[0, edge.reader_row, out] = seen[0]
            return (x,)

        return self.logits(row, (outputs, replace, True))


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "mistral", "gemma2", "granite"])
def test_patching_is_what_transformers_computes(name, tmp_path):
    model = make(name)
    ours = heed.load_model(save(model, tmp_path))
    theirs = Theirs(name, model)
    row = LENGTH - 1
    whole = theirs.logits(row)
    scale = 1 / getattr(model.config, "logits_scaling", 1)
    circuit = ours.circuit(IDS, edges=40)
    assert circuit.id == whole.argmax() and circuit.row == row
    assert abs(circuit.logit - scale * whole[circuit.id]) < NEAR * np.abs(whole).max()
    kinds = set()
    for edge in [*circuit.edges, *circuit.denied][:60]:
        expected = scale * (whole - theirs.without(edge, row))[circuit.id]
        assert abs(edge.patched - expected) < NEAR * np.abs(whole).max(), (edge, expected)
        kinds.add(edge.into)
    assert kinds == {"logit", "value", "key", "query"}


def test_shares_are_the_formulas(tmp_path):
    model = make("gpt2")
    ours = heed.load_model(save(model, tmp_path))
    theirs = Theirs("gpt2", model)
    row, depth, body = LENGTH - 1, 2, model.transformer
    circuit = ours.circuit(IDS, edges=200, patch=False)
    change, _ = held_layer_norm(theirs.streams[-1][row], body.ln_f)
    direction = np.array([change(one) for one in np.eye(32)]) @ numpy(model.lm_head.weight)[circuit.id]
    fused, bias = numpy(body.h[depth].attn.c_attn.weight), numpy(body.h[depth].attn.c_attn.bias)

    def of(into, head, place, part=None):
        """A head's input, or a part of it."""
        change, shift = held_layer_norm(theirs.streams[depth][place], body.h[depth].ln_1)
        x, more = (change(theirs.streams[depth][place]) + shift, bias) if part is None else (change(part), 0 * bias)
        return (x @ fused + more)[theirs.columns(into, head)]

    seen = set()
    for edge in circuit.edges:
        part = theirs.parts_at(edge.place, depth if edge.reader else 3).get(edge.writer)
        if edge.into == "logit":
            expected = direction @ part
        elif edge.reader[0] != depth or edge.writer == "biases":
            continue
        else:
            head = edge.reader[1]
            w = numpy(body.h[depth].attn.c_proj.weight)[head * 8:(head + 1) * 8]
            worth = np.array([of("value", head, j) for j in range(LENGTH)]) @ w @ direction
            keys = np.array([of("key", head, j) for j in range(LENGTH)])
            scores = keys @ of("query", head, row) / 8 ** 0.5

            def written(scores):
                p = np.exp(scores - scores.max())
                return p @ worth / p.sum()

            if edge.into == "value":
                p = np.exp(scores - scores.max())
                expected = p[edge.place] / p.sum() * of("value", head, edge.place, part) @ w @ direction
            elif edge.into == "query":
                expected = written(scores) - written(scores - keys @ of("query", head, row, part) / 8 ** 0.5)
            else:
                less = np.zeros(LENGTH)
                less[edge.place] = of("key", head, edge.place, part) @ of("query", head, row) / 8 ** 0.5
                expected = written(scores) - written(scores - less)
        assert abs(edge.share - expected) < NEAR * max(1, abs(circuit.logit)), (edge, expected)
        assert np.isnan(edge.patched)
        seen.add(edge.into)
    assert seen == {"logit", "value", "key", "query"}
    shares = ours.attribute(IDS)
    for edge in circuit.edges:
        if edge.into == "logit" and "." in edge.writer:
            layer, head = map(int, edge.writer.split("."))
            assert abs(edge.share - shares.heads[layer, head]) < 1e-6  # W_O's product is in f32 here


def test_the_induction_circuit_is_found():
    text = "to be or not to be or"
    model = heed.load_model("induction")
    circuit = model.circuit(text)
    assert circuit.token == "not" and len(circuit.edges) <= 30
    reads = {(edge.writer, edge.place, edge.into, edge.reader) for edge in circuit.edges}
    for head in range(4):
        assert (f"1.{head}", 6, "logit", None) in reads
        assert ("token", 3, "value", (1, head)) in reads  # "not"
    writers = [edge for edge in circuit.edges if edge.into == "key" and edge.reader[0] == 1]
    assert len(writers) == 4 and {edge.writer for edge in writers} == {"0.3"}
    assert all(edge.place == 3 and edge.read == 2 for edge in writers)  # at "not", which read "or"
    assert ("token", 2, "value", (0, 3)) in reads


def test_another_tokens_logit_is_subtracted():
    text, model = "to be or not to be or", heed.load_model("induction")
    not_, or_ = model.circuit(text, "not", patch=False), model.circuit(text, "or", patch=False)
    both = model.circuit(text, "not", than="or", patch=False)
    assert abs(both.logit - (not_.logit - or_.logit)) < 1e-9
    assert both.than == or_.id


@pytest.mark.parametrize("name, arguments, message", [
    ("bert", {}, "a model of family 'bert' has logits that are not a sum over its layers, so its heads have no shares in them"),
    ("llama", dict(edges=0), "edges is 0; 1 to 1000 is expected"),
    ("llama", dict(token=101), "token is 101; 0 to 100 is expected"),
    ("llama", dict(token=7, than=7), "than is 7, the token that is traced; another one is expected"),
    ("llama", dict(than=-1), "than is -1; 0 to 100 is expected"),
    ("llama", dict(row=LENGTH), f"row is {LENGTH}; 0 to {LENGTH - 1} is expected"),
])
def test_wrong_questions_are_refused(name, arguments, message, tmp_path):
    model = heed.load_model(save(make(name), tmp_path))
    with pytest.raises(ValueError) as error:
        model.circuit(IDS, **arguments)
    assert str(error.value) == message
