"""Scores of heads about repeated tokens, compared with docs/heads.md computed from whole weights and ids.

Covers reports of models, arrays and files."""

import numpy as np
import pytest
import small_tokenizers
import tiny_models
import tokenizer_kinds
import torch
import transformers

import heed
import heed.transformers

# "the" and " the" are two tokens with the same display. Emoji share bytes, which are tokens with different displays.
TEXT = "the sun is the sun. 🤗 and 🦊 and 🤗🦊 saw\nthe sun. the the\nsun 🤖 is 🤗 the sun."
ABOUT_COPIES = ("induction", "duplicate-token", "same-token")


def copies_of(rule, ids, row):
    """The keys that a rule selects, comparing ids."""
    places = np.arange(len(ids))
    same = ids == ids[row]
    if rule == "induction":
        return np.array([key for key in places[1:row] if same[key - 1]], int)
    return places[same & (places < row if rule == "duplicate-token" else places != row)]


def scores_of(weights, ids, rule, causal):
    """(score over all weights, score without the first key) of one head with weights [L, L]."""
    all_part = all_whole = rest_part = rest_whole = 0.0
    for row, p in enumerate(weights.astype(np.float64)):
        allowed = row + 1 if causal else len(ids)
        keys = copies_of(rule, ids, row)
        keys = keys[keys < allowed]
        if 0 < len(keys) < allowed:
            even = len(keys) / allowed
            all_part += p[keys].sum() - even
            all_whole += 1 - even
        keys = keys[keys > 0]
        rest = 1 - p[0]
        if 0 < len(keys) < allowed - 1 and rest > 1e-6:
            even = rest * len(keys) / (allowed - 1)
            rest_part += p[keys].sum() - even
            rest_whole += rest - even
    score = np.clip(all_part / all_whole, 0, 1) if all_whole > 0 else np.nan
    names_nothing = rest_whole < 0.1 * all_whole or not rest_whole > 0
    return score, np.nan if names_nothing else np.clip(rest_part / rest_whole, 0, 1)


def expect_scores(report, weights, ids, causal=True):
    """Compares with weights [H, L, L] of all heads in f32: sums of up to L² of them, within 1e-5."""
    assert len(report.summaries) == len(weights)
    for head, of_head in zip(report.summaries, weights):
        for rule in ABOUT_COPIES:
            expected = scores_of(of_head, np.asarray(ids), rule, causal)
            found = head["scores"][rule], head["rest_scores"][rule]
            np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=f"{head['place']}, {rule}")


def heads_of(weights):
    return weights.reshape(-1, *weights.shape[-2:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    made = tokenizer_kinds.gpt_2()
    tiny_models.save(tiny_models.make("gpt2", vocab_size=made.get_vocab_size()), path)
    made.save(str(path / "tokenizer.json"))
    return path


def test_the_text_tells_ids_and_what_is_shown_apart(folder):
    model = heed.load_model(folder)
    ids, shown = model.token_ids(TEXT), model.tokens(TEXT)
    apart = {(a, b) for a, s in zip(ids, shown) for b, t in zip(ids, shown) if a != b and s == t}
    alike = {s for a, s in zip(ids, shown) for b, t in zip(ids, shown) if a == b and s != t}
    assert apart and len(alike) > 2


@pytest.mark.parametrize("keep", [True, False])
def test_a_model_compares_the_ids_of_a_text(folder, keep):
    model = heed.load_model(folder)
    ids = model.token_ids(TEXT)
    expect_scores(model.look(TEXT, keep=keep), heads_of(model.weights(TEXT)), ids)


def test_an_encoder_compares_the_ids_of_a_text(tmp_path):
    made = small_tokenizers.word_piece().backend_tokenizer
    tiny_models.save(tiny_models.make("bert", vocab_size=made.get_vocab_size()), tmp_path)
    made.save(str(tmp_path / "tokenizer.json"))
    model = heed.load_model(tmp_path)
    text = "the animal saw the animal, and the animal saw it: the animal"
    expect_scores(model.look(text), heads_of(model.weights(text)), model.token_ids(text), causal=False)


@pytest.mark.parametrize("keep", [True, False])
def test_ids_give_the_report_of_their_text(folder, keep):
    model = heed.load_model(folder)
    of_text, of_ids = model.look(TEXT, keep=keep), model.look(model.token_ids(TEXT), keep=keep)
    assert of_ids.tokens == of_text.tokens == model.tokens(TEXT)
    assert of_ids.token_ids == of_text.token_ids == model.token_ids(TEXT)
    for one, other in zip(of_ids.summaries, of_text.summaries):
        np.testing.assert_equal(one, other)


def test_ids_without_a_tokenizer_have_scores_of_copies(tmp_path):
    model = heed.load_model(tiny_models.save(tiny_models.make("llama"), tmp_path))
    ids = np.random.default_rng(4).integers(0, 12, 60)
    report = model.look(ids)
    assert report.tokens == [] and report.token_ids == ids.tolist()
    expect_scores(report, heads_of(model.weights(ids)), ids)
    assert all(np.isnan(head["scores"]["separators"]) for head in report.summaries)  # identified by their texts


def test_repeated_random_ids_name_induction_heads():
    model = heed.load_model("induction")
    ids = np.tile(np.random.default_rng(5).permutation(model.info["vocabulary"])[:20], 2)
    assert [head["name"] for head in model.look(ids).summaries].count("induction") >= 2


def test_a_saved_report_keeps_its_ids(folder, tmp_path):
    model = heed.load_model(folder)
    model.look(TEXT).save(tmp_path / "doc.safetensors")
    opened = heed.open(tmp_path / "doc.safetensors")
    assert opened.token_ids == opened.key_token_ids == model.token_ids(TEXT)
    expect_scores(opened, heads_of(model.weights(TEXT)), opened.token_ids)


def test_arrays_are_compared_by_ids_where_they_are_given():
    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, 30, 8), dtype=np.float32) for _ in range(3))
    ids = rng.integers(0, 6, 30)
    weights = heed.attention(q, k, v, causal=True, need="weights").weights
    texts = ["same"] * 30
    for given in (dict(token_ids=ids), dict(token_ids=ids, tokens=texts), dict(tokens=[str(one) for one in ids])):
        expect_scores(heed.look(q, k, v, causal=True, **given), weights, ids)
        expect_scores(heed.look(weights=weights, **given), weights, ids)
    layers = heed.look([q, q], [k, k], [v, v], causal=True, token_ids=ids)
    expect_scores(layers, np.concatenate([weights, weights]), ids)
    with pytest.raises(ValueError, match="token_ids has 3 entries; 30, one for each query, are expected"):
        heed.look(q, k, v, token_ids=[1, 2, 3])
    with pytest.raises(ValueError, match="key_token_ids has 3 entries; 30, one for each key, are expected"):
        heed.look(q, k, v, key_token_ids=[1, 2, 3])
    with pytest.raises(TypeError, match=r"token_ids is \['a'\]; a list of whole numbers, one for each query, is expected"):
        heed.look(q, k, v, token_ids=["a"])


def test_keys_with_ids_of_their_own():
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((1, 6, 8), dtype=np.float32), rng.standard_normal((1, 6, 8), dtype=np.float32)
    report = heed.look(q, k, k, token_ids=[1, 2, 3, 4, 5, 6], key_token_ids=[9, 9, 9, 9, 9, 1])
    weights = heed.attention(q, k, k, need="weights").weights[0]
    (head,) = report.summaries
    even = 1 / 6  # only row 0 has a copy
    np.testing.assert_allclose(head["scores"]["same-token"], np.clip((weights[0, 5] - even) / (1 - even), 0, 1), atol=1e-5)


def test_models_of_transformers_are_compared_by_ids(folder):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = tokenizer(TEXT)["input_ids"]
    weights = heads_of(heed.load_model(folder).weights(ids))
    expect_scores(heed.transformers.look(theirs, tokenizer, TEXT), weights, ids)
    heed.transformers.register()
    theirs.set_attn_implementation("heed")
    with torch.no_grad(), heed.transformers.capture(report=True, weights=True) as maps:
        theirs(torch.tensor([ids]))
    expect_scores(maps.report(token_ids=ids), weights, ids)
