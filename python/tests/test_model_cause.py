"""Causal questions about heads, compared with hooks in transformers' models, for every family."""

import numpy as np
import pytest
import torch
from tiny_models import CAUSAL, FAMILIES, ids_of, make, save

import heed

# Both are in f32, as in test_pretrained.py; relative to the largest number.
RELATIVE = 1e-4
LENGTH = 21  # beyond the windows
HEADS = [(0, 1), (2, 3)]


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request, tmp_path_factory):
    theirs = make(request.param)
    return heed.load_model(save(theirs, tmp_path_factory.mktemp(request.param))), theirs


@pytest.fixture(scope="module", params=CAUSAL)
def decoder(request, tmp_path_factory):
    theirs = make(request.param)
    return heed.load_model(save(theirs, tmp_path_factory.mktemp(request.param))), theirs


def near(ours, theirs, bound=RELATIVE):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    return ours.shape == theirs.shape and np.abs(ours - theirs).max() <= bound * np.abs(theirs).max()


def run(model, ids, **more):
    with torch.no_grad():
        return model(torch.as_tensor(ids)[None], output_hidden_states=True, output_attentions=True, **more)


def layers_of(model):
    for path in ("transformer.h", "transformer.layer", "model.layers", "gpt_neox.layers", "bert.encoder.layer",
                 "distilbert.transformer.layer", "roberta.encoder.layer", "electra.encoder.layer", "mpnet.encoder.layer", "nomic_bert.layers"):
        try:
            return model.get_submodule(path)
        except AttributeError:
            continue
    raise AssertionError


def submodule(layer, *paths):
    for path in paths:
        try:
            return layer.get_submodule(path)
        except AttributeError:
            continue
    return None


def outputs_of_heads(layer):
    """The module whose input is the concatenated outputs of the layer's heads."""
    return submodule(layer, "attn.c_proj", "self_attn.o_proj", "attention.dense", "attention.output.dense", "attention.out_lin",
                     "attention.attn.o", "attn.Wo")


def last_norm(model):
    return submodule(model, "transformer.ln_f", "model.norm", "gpt_neox.final_layer_norm")


def changed(model, ids, change):
    """Runs the model with change(layer, heads [L, H, d]) overwriting the heads' outputs."""
    handles = []
    heads = model.config.num_attention_heads
    for number, layer in enumerate(layers_of(model)):
        def hook(_, args, number=number):
            x = args[0].clone()
            change(number, x[0].unflatten(-1, (heads, -1)))
            return (x, *args[1:])
        handles.append(outputs_of_heads(layer).register_forward_pre_hook(hook))
    try:
        return run(model, ids)
    finally:
        for handle in handles:
            handle.remove()



def check_effect(effect, before, after, ids, row, causal):
    was, now = before.hidden_states[-1][0].double(), after.hidden_states[-1][0].double()
    moved = ((now - was).norm(dim=-1) / was.norm(dim=-1)).mean().item()
    assert moved > 0.01 and abs(effect.moved - moved) < 1e-3 * moved
    if not causal:
        assert effect.tokens is None and effect.loss_after is None
        return
    for found, loss in [(before, effect.loss_before), (after, effect.loss_after)]:
        expected = torch.nn.functional.cross_entropy(found.logits[0, :-1].double(), torch.as_tensor(ids)[1:]).item()
        assert abs(loss - expected) < RELATIVE * expected
    chances = [found.logits[0, row].double().softmax(-1).numpy() for found in (before, after)]
    assert effect.row == row and effect.tokens[0].id == chances[0].argmax()
    assert chances[1].argmax() in [shift.id for shift in effect.tokens]
    for shift in effect.tokens:
        assert shift.token == f"#{shift.id}"  # without a tokenizer, a token's text is its id
        assert abs(shift.before - chances[0][shift.id]) < RELATIVE and abs(shift.after - chances[1][shift.id]) < RELATIVE
    divergence = (chances[0] * np.log(chances[0] / chances[1])).sum()
    assert abs(effect.divergence - divergence) < RELATIVE * (1 + divergence)


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_ablation(pair, to):
    ours, theirs = pair
    ids = ids_of(LENGTH)

    def silence(number, heads):
        for layer, head in HEADS:
            if layer == number:
                heads[:, head] = heads[:, head].mean(0) if to == "mean" else 0

    effect = ours.ablate(ids, HEADS, to, row=LENGTH - 3)
    check_effect(effect, run(theirs, ids), changed(theirs, ids, silence), ids, LENGTH - 3, ours.info["causal"])


def test_patching(pair):
    ours, theirs = pair
    ids, other = ids_of(LENGTH), ids_of(LENGTH, seed=11)
    kept = {}

    def keep(number, heads):
        for layer, head in HEADS:
            if layer == number:
                kept[layer] = heads[:, head].clone()

    def give(number, heads):
        for layer, head in HEADS:
            if layer == number:
                heads[:, head] = kept[layer]

    changed(theirs, other, keep)
    effect = ours.patch(ids, other, HEADS)
    check_effect(effect, run(theirs, ids), changed(theirs, ids, give), ids, LENGTH - 1, ours.info["causal"])


def held(norm, at):
    """The norm as a linear function with the scale of `at`, without its bias."""
    zero_centred = "Gemma" in type(norm).__name__
    weight = norm.weight.double() + (1 if zero_centred else 0)
    if isinstance(norm, torch.nn.LayerNorm):
        scale = (at.double().var(unbiased=False) + norm.eps).rsqrt()
        return lambda x: weight * (x - x.mean(-1, keepdim=True)) * scale
    epsilon = norm.eps if zero_centred else norm.variance_epsilon
    scale = (at.double().square().mean() + epsilon).rsqrt()
    return lambda x: weight * x * scale


def inputs_during(model, modules, ids):
    """The input and output of each module, for all rows."""
    seen, handles = {}, []
    for module in modules:
        def hook(module, args, output):
            seen[module] = args[0][0], (output[0] if isinstance(output, tuple) else output)[0]
        handles.append(module.register_forward_hook(hook))
    run(model, ids)
    for handle in handles:
        handle.remove()
    return seen


def test_attributions_are_the_shares_of_what_each_module_adds(decoder):
    ours, theirs = decoder
    ids, row, token = ids_of(LENGTH), LENGTH - 4, 17
    norm, unembedding = last_norm(theirs), theirs.get_output_embeddings()
    projections = [outputs_of_heads(layer) for layer in layers_of(theirs)]
    behind = [submodule(layer, "post_attention_layernorm") if submodule(layer, "post_feedforward_layernorm") else None
              for layer in layers_of(theirs)]
    mlps = [(submodule(layer, "post_feedforward_layernorm") or layer.mlp) for layer in layers_of(theirs)]
    seen = inputs_during(theirs, [norm, *projections, *mlps, *filter(None, behind)], ids)
    linear = held(norm, seen[norm][0][row])
    divisor, factor = (getattr(theirs.config, name, 1) for name in ("logits_scaling", "residual_multiplier"))  # Granite's
    direction = unembedding.weight[token].double() / divisor
    count = theirs.config.num_attention_heads
    made = ours.attribute(ids, token, row=row)
    assert (made.row, made.id) == (row, token)
    share = lambda added: (direction @ linear(added.double() * factor)).item()  # noqa: E731
    for layer, (projection, between, mlp) in enumerate(zip(projections, behind, mlps)):
        weight = projection.weight.double()
        weight = weight if type(projection).__name__ == "Conv1D" else weight.T  # [inputs, outputs]
        through = held(between, seen[between][0][row]) if between else lambda x: x
        given = seen[projection][0][row].double().unflatten(0, (count, -1))
        expected = [share(through(given[head] @ weight.unflatten(0, (count, -1))[head])) for head in range(count)]
        assert np.abs(made.heads[layer] - expected).max() < RELATIVE * abs(made.logit) + RELATIVE * np.abs(expected).max()
        bias = share(through(projection.bias.double())) if projection.bias is not None else 0
        scale = np.abs(made.heads).max() + np.abs(made.mlps).max()
        assert abs(made.biases[layer] - bias) < RELATIVE * scale
        assert abs(made.mlps[layer] - share(seen[mlp][1][row])) < RELATIVE * scale
    with torch.no_grad():
        logit = unembedding(seen[norm][1][row])[token].item() / divisor
    assert abs(made.logit - logit) < RELATIVE * (1 + abs(logit))
    sum_of_all = made.heads.sum() + made.biases.sum() + made.mlps.sum() + made.embedding + made.constant
    assert abs(sum_of_all - made.logit) < RELATIVE * scale


def test_the_lens_is_the_last_norm_and_the_unembedding_at_every_layer(decoder):
    ours, theirs = decoder
    ids, row = ids_of(LENGTH), 13
    streams = [layers.numpy()[0, row] for layers in run(theirs, ids).hidden_states[:-1]]
    streams.append(inputs_during(theirs, [last_norm(theirs)], ids)[last_norm(theirs)][0][row].numpy())
    made = ours.lens(ids, row=row, top=101)
    for layer, stream in zip(made.layers, streams, strict=True):
        with torch.no_grad():
            logits = theirs.get_output_embeddings()(last_norm(theirs)(torch.tensor(stream))).double()
            logits /= getattr(theirs.config, "logits_scaling", 1)
        cap = getattr(theirs.config, "final_logit_softcapping", None)
        chances = (torch.tanh(logits / cap) * cap if cap else logits).softmax(-1).numpy()
        assert near([one.probability for one in layer.top], chances[[one.id for one in layer.top]])
        assert abs(layer.probability - chances[made.id]) < RELATIVE
        assert layer.top[layer.rank].id == made.id
    assert made.layers[-1].rank == 0


def test_a_lens_on_an_encoder_reads_its_head(tmp_path):
    theirs = make("bert")
    ours = heed.load_model(save(theirs, tmp_path))
    ids = ids_of(LENGTH)
    made = ours.lens(ids, row=4, top=3)
    for layer, stream in zip(made.layers, run(theirs, ids).hidden_states, strict=True):
        with torch.no_grad():
            chances = theirs.cls(stream[0, 4]).double().softmax(-1).numpy()
        assert near([one.probability for one in layer.top], np.sort(chances)[::-1][:3])


def test_rollout_is_the_product_of_all_layers(pair):
    ours, theirs = pair
    ids = ids_of(LENGTH)
    product = np.eye(LENGTH)
    for weights in run(theirs, ids).attentions:
        product = (weights[0].double().mean(0).numpy() + np.eye(LENGTH)) / 2 @ product
    rows = [0, LENGTH - 1, 7]
    assert near(ours.rollout(ids, rows), product[rows], 1e-5)  # weights are at most 1, as in test_pretrained.py
    assert near(ours.rollout(ids, 5), product[5], 1e-5)
    assert near(ours.rollout(ids), product[-1], 1e-5)


def test_faults_are_said(tmp_path):
    encoder = heed.load_model(save(make("bert"), tmp_path))
    with pytest.raises(ValueError, match="a model of family 'bert' has logits that are not a sum over its layers"):
        encoder.attribute(ids_of(5))
    with pytest.raises(ValueError, match="to is 'half'; zero or mean is expected"):
        encoder.ablate(ids_of(5), [(0, 0)], "half")
    with pytest.raises(ValueError, match=r"heads\[0\] is 3.0; layer 0 to 2 and head 0 to 3 are expected"):
        encoder.ablate(ids_of(5), [(3, 0)])
    with pytest.raises(ValueError, match="token is 'word', which is not a token of the model"):
        encoder.lens(ids_of(5), token="word")
