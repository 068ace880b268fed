"""Folders without tokenizer.json: tokenizers from vocab.txt, or from vocab.json and merges.txt.

They are compared with transformers' tokenizers from the same files."""

import json
import os
import pathlib
import random
import shutil

import heed
import minilm
import pytest
import random_texts
import tiny_models
import tokenizer_kinds
import transformers
from tokenizers import Tokenizer

TEXTS = -(-3000 // int(os.environ.get("HEED_TEST_SHARE", "1")))  # per folder
END = "<|endoftext|>"
SPECIAL = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]"}


def entry(content: str, **other: bool) -> dict:
    return dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False) | other


def vocabulary_of(made: Tokenizer) -> list[str]:
    vocabulary = made.get_vocab(with_added_tokens=False)
    return sorted(vocabulary, key=vocabulary.get)


@pytest.fixture(scope="module")
def words() -> dict[str, list[str]]:
    """The tokens of vocab.txt, for lower-case and cased models."""
    return {kind: vocabulary_of(tokenizer_kinds.bert(lowercase=kind == "uncased")) for kind in ("uncased", "cased")}


@pytest.fixture(scope="module")
def pairs() -> tuple[dict[str, int], list[list[str]]]:
    """vocab.json, and the pairs of merges.txt."""
    model = json.loads(tokenizer_kinds.gpt_2().to_str())["model"]
    return model["vocab"], model["merges"]


def write(folder: pathlib.Path, settings: dict[str, object]) -> None:
    for name, values in settings.items():
        (folder / f"{name}.json").write_text(json.dumps(values))


def write_bert(folder: pathlib.Path, tokens: list[str], **settings: object) -> None:
    (folder / "vocab.txt").write_bytes("".join(token + "\n" for token in tokens).encode())
    write(folder, settings)


def write_gpt2(folder: pathlib.Path, pairs: tuple[dict[str, int], list[list[str]]], **settings: object) -> None:
    (folder / "vocab.json").write_text(json.dumps(pairs[0]))
    (folder / "merges.txt").write_bytes("".join(line + "\n" for line in ["#version: 0.2", *map(" ".join, pairs[1])]).encode())
    write(folder, settings)


def model_in(folder: pathlib.Path, family: str) -> heed.Model:
    if not (folder / "config.json").exists():
        tiny_models.save(tiny_models.make(family, vocab_size=1600), folder)
    return heed.load_model(folder)


def compare(ours: heed.Tokenizer, theirs: Tokenizer, seed: str) -> None:
    assert ours.size == max(theirs.get_vocab(with_added_tokens=True).values()) + 1
    rng = random.Random(seed)
    added = theirs.get_added_tokens_decoder()
    for id, token in added.items():
        assert (ours.id(token.content), ours.is_special(id)) == (id, token.special), token
    texts = [random_texts.text(rng, tuple(token.content for token in added.values())) for _ in range(TEXTS)]
    for n, (text, expected) in enumerate(zip(texts, theirs.encode_batch(texts))):
        got = ours.encode(text)
        assert got.ids == expected.ids, f"{ascii(text)}\nheed       {[ours.token(id) for id in got.ids]}\ntokenizers {expected.tokens}"
        assert got.offsets == expected.offsets, f"{ascii(text)}\nheed       {got.offsets}\ntokenizers {expected.offsets}"
        if n % 2:
            assert ours.decode(got.ids) == theirs.decode(got.ids), ascii(text)


BERT = {
    "alone": {},
    "lower": dict(tokenizer_config=dict(do_lower_case=True, strip_accents=None, tokenizer_class="BertTokenizer", **SPECIAL)),
    "cased": dict(tokenizer_config=dict(do_lower_case=False, never_split=None, do_basic_tokenize=True)),
    "accents kept": dict(tokenizer_config=dict(do_lower_case=True, strip_accents=False)),
    "accents stripped": dict(tokenizer_config=dict(do_lower_case=False, strip_accents=True, tokenizer_class="BertTokenizerFast")),
    "ideographs": dict(tokenizer_config=dict(tokenize_chinese_chars=False, tokenizer_class="DistilBertTokenizer")),
    "special map": dict(tokenizer_config=dict(do_lower_case=False, mask_token="[PAD]"),
                        special_tokens_map=SPECIAL | dict(mask_token=entry("[MASK]", lstrip=True), pad_token="[NOTHING]",
                                                          additional_special_tokens=["<x>"])),
    "added": dict(tokenizer_config=dict(do_lower_case=True),
                  added_tokens={"unbelievable": 1501, "ABLE": 1500, "[GAP]": 1502},
                  special_tokens_map=SPECIAL | dict(extra_special_tokens=["[GAP]"])),
    "decoder": dict(tokenizer_config=dict(
        do_lower_case=True, extra_special_tokens={}, added_tokens_decoder={
            "4": entry("[MASK]", lstrip=True), "1500": entry("Ünïcödé", normalized=True), "1501": entry("ablest", single_word=True),
            "0": entry("[PAD]", special=True)}),
        special_tokens_map=dict(cls_token="[SEP]"), added_tokens={"never read": 0}),
    "other names": dict(tokenizer_config=dict(cls_token="[MASK]", sep_token="<end>", mask_token=None, pad_token=entry("the", rstrip=True) |
                                              {"__type": "AddedToken"})),
}


@pytest.mark.parametrize("kind", BERT)
def test_vocab_txt_gives_the_tokens_of_transformers_bert_tokenizer(kind, words, tmp_path):
    settings = BERT[kind]
    write_bert(tmp_path, words["uncased" if settings.get("tokenizer_config", {}).get("do_lower_case", True) else "cased"], **settings)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path).backend_tokenizer
    compare(model_in(tmp_path, "bert").tokenizer, theirs, kind)


GPT2 = {
    "alone": {},
    "prefix": dict(tokenizer_config=dict(add_prefix_space=True, tokenizer_class="GPT2Tokenizer", model_max_length=1024)),
    "begin": dict(tokenizer_config=dict(add_bos_token=True, bos_token="<s>", errors="replace")),
    "both ends": dict(tokenizer_config=dict(add_bos_token=True, add_eos_token=True)),
    "special map": dict(special_tokens_map=dict(unk_token=entry(END, normalized=True), pad_token="<pad>", bos_token=END, eos_token=END)),
    "added": dict(added_tokens={"<|im_start|>": 1500, " able": 1501}, tokenizer_config=dict(additional_special_tokens=["<|im_start|>"])),
    "decoder": dict(tokenizer_config=dict(tokenizer_class="GPT2TokenizerFast", pad_token="<pad>", added_tokens_decoder={
        "0": entry(END, normalized=True, special=True), "1500": entry("<pad>", special=True, rstrip=True), "1501": entry("unlikely", normalized=True)})),
}


@pytest.mark.parametrize("kind", GPT2)
def test_vocab_json_and_merges_txt_give_the_tokens_of_transformers_gpt2_tokenizer(kind, pairs, tmp_path):
    write_gpt2(tmp_path, pairs, **GPT2[kind])
    theirs = transformers.GPT2Tokenizer.from_pretrained(tmp_path).backend_tokenizer
    compare(model_in(tmp_path, "gpt2").tokenizer, theirs, kind)


def test_the_class_goes_before_the_family(words, tmp_path):
    write_bert(tmp_path, words["uncased"], tokenizer_config=dict(tokenizer_class="BertTokenizer"))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    ours = model_in(tmp_path, "gpt2")
    assert ours.token_ids("the able") == theirs("the able")["input_ids"]


def test_minilms_vocabulary_alone_gives_the_tokens_of_its_tokenizer_json(tmp_path):
    source = minilm.folder()
    for name in ("config.json", "model.safetensors", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(source / name, tmp_path)
    theirs = Tokenizer.from_file(str(source / "tokenizer.json"))
    theirs.no_truncation()
    theirs.no_padding()
    write_bert(tmp_path, vocabulary_of(theirs))
    compare(heed.load_model(tmp_path).tokenizer, theirs, "MiniLM")


def test_a_model_whose_vocabulary_files_are_of_another_kind_takes_ids_alone(words, tmp_path):
    write_bert(tmp_path, words["uncased"], tokenizer_config=dict(tokenizer_class="BertJapaneseTokenizer"))
    model = model_in(tmp_path, "bert")
    assert model.tokenizer is None and len(model.hidden_states([1, 2, 3])) == 3
    with pytest.raises(ValueError, match="the model has vocab.txt and no tokenizer.json, which heed cannot build for 'BertJapaneseTokenizer', so the text cannot be split into tokens"):
        model.look("the able")
