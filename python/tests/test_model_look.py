"""heed.Model.look compared with transformers: weights of every family in one report, and weights by norm from W_O."""

import numpy as np
import pytest
import tokenizers
import torch
from tiny_models import FAMILIES, ids_of, make, save

import heed

WEIGHTS = 1e-5  # as in test_pretrained: f32 sums in different orders, of weights that are at most 1


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "mpnet"])
def test_the_report_has_the_weights_of_all_layers(name, tmp_path):
    theirs = make(name)
    ours = heed.load_model(save(theirs, tmp_path))
    ids = ids_of(40)
    report = ours.look(ids)
    with torch.no_grad():
        expected = theirs(ids[None], output_attentions=True).attentions
    heads = ours.info["heads"]
    assert report.layers == [(str(n), heads) for n in range(ours.info["layers"])]
    assert report.tile().shape[1] == heads * len(expected)
    for layer, weights in enumerate(expected):
        found = report.tile()[0, layer * heads:(layer + 1) * heads]
        assert np.abs(found - weights[0].numpy()).max() <= WEIGHTS
        received = weights[0].sum(1).numpy()
        assert np.abs(report.received[0, layer * heads:(layer + 1) * heads] - received).max() <= WEIGHTS * 40


def test_calls_with_a_bias_of_their_own_are_not_kept(tmp_path):
    model = heed.load_model(save(make("mpnet"), tmp_path))
    with pytest.raises(ValueError, match="layer 0 has a mask or a bias of its own; heed cannot keep its calls"):
        model.look(ids_of(9))


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_by_norm_weights_are_shares_of_what_a_row_moves(name, tmp_path):
    theirs = make(name)
    ours = heed.load_model(save(theirs, tmp_path))
    ids, values = ids_of(25), []
    for layer in theirs.model.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda _, __, v: values.append(v[0]))
    with torch.no_grad():
        attentions = theirs(ids[None], output_attentions=True).attentions
    report = ours.look(ids, by="norm", layer=1)
    heads, d = ours.info["heads"], ours.info["head_dim"]
    output = theirs.model.layers[1].self_attn.o_proj.weight
    for head in range(heads):
        kv = head // (heads // ours.info["kv_heads"])
        moved = values[1][:, kv * d:(kv + 1) * d].double() @ output[:, head * d:(head + 1) * d].double().T
        sizes = attentions[1][0, head].double() * moved.norm(dim=1)
        shares = (sizes / sizes.sum(1, keepdim=True)).detach().numpy()
        assert np.abs(report.tile(head=head)[0, 0] - shares).max() <= WEIGHTS
        assert (report.top_k_index[0, head, :, 0] == shares.argmax(1)).all()


@pytest.mark.parametrize("by", ["attention", "norm"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "gemma3"])
def test_a_look_that_keeps_nothing_says_the_same_of_the_heads(name, by, tmp_path):
    model = heed.load_model(save(make(name), tmp_path))
    ids = ids_of(40)
    passing, kept = model.look(ids, by=by, keep=False), model.look(ids, by=by)
    assert [head["name"] for head in passing.summaries] == [head["name"] for head in kept.summaries]
    for array in ("lse", "entropy", "distance", "max_weight", "first", "previous", "received", "top_k_weight"):
        # A layer-specific scale is folded into the stored queries: a rounding of scores below 10.
        np.testing.assert_allclose(getattr(passing, array), getattr(kept, array), rtol=1e-5, atol=1e-5)
    assert passing.layers == kept.layers and passing.weights is None and passing.map == []
    assert str(passing) == passing._repr_html_()[5:-6].replace("&#x27;", "'")
    assert len(passing.heads()) == len(kept.heads()) and len(passing.row(30, 0)) == 5
    model.look(ids, 0, keep=False, top_k=0)


def test_what_takes_weights_is_refused_where_none_were_kept(tmp_path):
    report = heed.load_model(save(make("llama"), tmp_path)).look([1, 2, 3, 4, 5, 6, 7, 8], keep=False)
    for what, call in {"tile": report.tile, "tile, row or pair": lambda: report.pair(3, 2), "plot": report.plot, "page": report.page,
                       "save": lambda: report.save(tmp_path / "a.html")}.items():
        with pytest.raises(ValueError, match=f"{what}.* needs queries and keys, which look.keep=False. did not keep; look with keep=True"):
            call()


def test_retrieval_is_the_weight_on_the_needle(tmp_path):
    words = "the cat sat on the mat and the cat ran".split()
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(words))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="the"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    ours = heed.load_model(save(make("llama"), tmp_path))
    assert ours.look([0, 1, 2]).retrieval is None
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    ours = heed.load_model(tmp_path)
    weights = ours.weights(" ".join(words)).reshape(-1, 10, 10).astype(np.float64)
    on_cats = weights[:, :, [1, 8]].sum(2)
    rows = [i for i in range(2, 10) if i != 8]  # causal rows that are no "cat" themselves
    for keep in (True, False):
        found = ours.look(" ".join(words), needle="cat", keep=keep).retrieval
        assert [one["rows"] for one in found] == [len(rows)] * len(weights)
        np.testing.assert_allclose([one["last"] for one in found], on_cats[:, 9], atol=WEIGHTS)
        np.testing.assert_allclose([one["mean"] for one in found], on_cats[:, rows].mean(1), atol=WEIGHTS)
    with pytest.raises(ValueError, match="needle is 'dog', which is not in the text; words of the text are expected"):
        ours.look(" ".join(words), needle="dog")
    with pytest.raises(ValueError, match="needle is given together with ids; the text that contains it is expected"):
        ours.look([0, 1, 2], needle="cat")


def test_refusals(tmp_path):
    model = heed.load_model(save(make("llama"), tmp_path))
    with pytest.raises(ValueError, match="by is 'size'; 'attention' or 'norm' is expected"):
        model.look([1, 2], by="size")
    with pytest.raises(ValueError, match="layer is 9; 0 to "):
        model.look([1, 2], layer=9)
