"""heed.Tokenizer: reading files, errors, readable tokens."""

import json
import pathlib

import heed
import pytest
import small_tokenizers
import tokenizer_kinds
from heed._hf_pieces import pieces

TEXTS = ("The animal did not cross the street, 🦊 it's unbelievable! naïve “quotes”…", "  two  spaces\n\nlines 中文 한국어 e\u0301",
         "attention", "", "UNBELIEVABLE 3.14 \x00 \U0001f469\u200d\U0001f680")


@pytest.fixture(scope="module")
def gpt_2(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer_kinds.gpt_2().save(str(path))
    return path


def test_a_file_is_read_and_a_text_goes_there_and_back(gpt_2):
    tokenizer = heed.Tokenizer.from_file(gpt_2)
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        assert tokenizer.decode(encoded.ids) == text
        assert "".join(text[begin:end] for begin, end in sorted(set(encoded.offsets))) == text


def test_tokens_and_ids_stand_for_each_other(gpt_2):
    tokenizer = heed.Tokenizer.from_file(gpt_2)
    assert tokenizer.token(tokenizer.id("Ġ")) == "Ġ"
    assert tokenizer.token(tokenizer.size) is None
    assert tokenizer.token(-1) is None
    assert tokenizer.id("no such token") is None
    assert tokenizer.is_special(tokenizer.id("<|endoftext|>"))
    assert not tokenizer.is_special(tokenizer.id("Ġ"))
    assert repr(tokenizer) == f"<heed.Tokenizer of {tokenizer.size} tokens>"


def test_special_tokens_are_added_and_left_out_as_asked():
    tokenizer = heed.Tokenizer.from_json(tokenizer_kinds.bert().to_str())
    assert tokenizer.encode("able").ids == [2, *tokenizer.encode("able", add_special=False).ids, 3]
    assert tokenizer.decode(tokenizer.encode("able").ids) == "able"
    assert tokenizer.decode(tokenizer.encode("able").ids, skip_special=False) == "[CLS] able [SEP]"


def test_errors_say_what_is_wrong(gpt_2, tmp_path):
    tokenizer = heed.Tokenizer.from_file(gpt_2)
    with pytest.raises(ValueError, match=r"ids has 99999, which is not a token"):
        tokenizer.decode([99999])
    with pytest.raises(ValueError, match=r"ids has -1, which is not a token"):
        tokenizer.shown([-1])
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("half of a pair: \ud800")
    with pytest.raises(OSError, match="missing.json"):
        heed.Tokenizer.from_file(tmp_path / "missing.json")
    with pytest.raises(OSError, match="'other.json' has a model of type 'Words', which heed does not know"):
        heed.Tokenizer.from_json(json.dumps({"model": {"type": "Words"}}), "other.json")


@pytest.mark.parametrize("kind", small_tokenizers.KINDS)
def test_tokens_are_shown_as_the_pieces_of_transformers_tokenizers(kind):
    theirs = small_tokenizers.KINDS[kind]()
    made = json.loads(theirs.backend_tokenizer.to_str())
    made["added_tokens"] = [one for one in made["added_tokens"] if not one["content"].startswith("<0x")]  # for training
    ours = heed.Tokenizer.from_json(json.dumps(made))
    for text in TEXTS:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text).ids == ids
        assert ours.shown(ids) == pieces(theirs, ids)
