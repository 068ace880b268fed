"""Folders of heed.train, compared with transformers: GPT2LMHeadModel opens them and gives the same logits and
tokens."""

import pathlib

import numpy as np
import pytest
import torch
import transformers

import heed

MODELS = pathlib.Path(__file__).parents[2] / "models"
TEXT = "to be or not to be, that is: é€😀 e\u0301\n\tthe end  of\r\nit\n" * 3
TINY = dict(layers=2, heads=2, model_dim=8, context=24, batch=3, steps=20, warmup=5, threads=1)


def opened(folder):
    model, about = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"]
    return model.eval()


def largest_difference(folder, ids, logits):
    """The difference relative to the largest logit."""
    with torch.no_grad():
        theirs = opened(folder)(torch.tensor([ids])).logits[0].numpy()
    return np.abs(theirs - logits).max() / np.abs(theirs).max()


def test_characters_are_the_same_tokens(tmp_path):
    (tmp_path / "text.txt").write_bytes(TEXT.encode())
    model = heed.train(tmp_path / "out", tmp_path / "text.txt", **TINY)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    piece = TEXT[28:50]
    ids = tokenizer(piece)["input_ids"]
    assert len(ids) == len(piece) and tokenizer.decode(ids) == piece
    assert [tokenizer.convert_ids_to_tokens(i) for i in ids] == model.tokens(piece) == list(piece)
    assert largest_difference(tmp_path / "out", ids, model.logits(piece)) < 1e-5
    with pytest.raises(Exception, match="UNK"):
        tokenizer("q")


def test_blocks_without_an_mlp_add_nothing(tmp_path):
    model = heed.train(tmp_path / "out", attention_only=True, symbols=6, **TINY)
    assert largest_difference(tmp_path / "out", [0, 1, 2, 0, 1], model.logits("a b c a b")) < 1e-5


@pytest.mark.parametrize("name, text", [("induction", "a b c d a b c"), ("stories", "Anna had a red ball. She ")])
def test_the_models_that_come_with_heed(name, text):
    model = heed.load_model(MODELS / name)
    if name == "stories":
        ids = transformers.AutoTokenizer.from_pretrained(MODELS / name)(text)["input_ids"]
    else:
        ids = [0, 1, 2, 3, 0, 1, 2]
    assert largest_difference(MODELS / name, ids, model.logits(text)) < 1e-5


def test_what_transformers_saves_is_read_back(tmp_path):
    """transformers keeps heed's own settings in config.json."""
    opened(MODELS / "induction").save_pretrained(tmp_path)
    (tmp_path / "vocabulary.json").write_text('{"symbols":64}')
    again, kept = heed.load_model(tmp_path), heed.load_model(MODELS / "induction")
    assert again.settings == kept.settings
    assert np.array_equal(again.logits("a b c a b"), kept.logits("a b c a b"))
