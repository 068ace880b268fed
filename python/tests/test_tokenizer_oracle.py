"""heed.Tokenizer compared with PyPI's tokenizers: the same ids, offsets and decoded texts, for random texts of all
scripts."""

import functools
import json
import os
import random

import heed
import minilm
import pytest
import random_texts
import tokenizer_kinds
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models

TEXTS = int(os.environ.get("HEED_TOKENIZER_TEXTS", "40_000"))  # per kind
AT_A_TIME = 2000


@functools.cache
def made(kind: str) -> Tokenizer:
    if kind == "MiniLM":
        theirs = Tokenizer.from_file(str(minilm.folder() / "tokenizer.json"))
        theirs.no_truncation()
        theirs.no_padding()
        return theirs
    return tokenizer_kinds.KINDS[kind]()


def compare(text: str, theirs: Tokenizer, ours: heed.Tokenizer, encoding, whole: bool) -> None:
    """Compares the results for one text. `encoding` is the reference's. With `whole`, decoding keeps special tokens."""
    got = ours.encode(text)
    assert got.ids == encoding.ids, f"{ascii(text)}\nheed       {shown(ours, got.ids)}\ntokenizers {encoding.tokens}"
    assert got.offsets == encoding.offsets, f"{ascii(text)}\nheed       {got.offsets}\ntokenizers {encoding.offsets}\nof {encoding.tokens}"
    heeds, decoded = ours.decode(got.ids, skip_special=not whole), theirs.decode(got.ids, skip_special_tokens=not whole)
    assert heeds == decoded, f"{ascii(text)}\nheed       {ascii(heeds)}\ntokenizers {ascii(decoded)}\nof {encoding.tokens}"


def shown(ours: heed.Tokenizer, ids: list[int]) -> list[str | None]:
    return [ours.token(id) for id in ids]


@pytest.mark.parametrize("kind", [*tokenizer_kinds.KINDS, "MiniLM"])
def test_random_texts_give_the_same_ids_places_and_decoded_texts(kind):
    theirs = made(kind)
    ours = heed.Tokenizer.from_json(theirs.to_str(), kind)
    special = tuple(token.content for token in theirs.get_added_tokens_decoder().values())
    rng = random.Random(kind)
    for done in range(0, TEXTS, AT_A_TIME):
        texts = [random_texts.text(rng, special) for _ in range(min(AT_A_TIME, TEXTS - done))]
        for n, (text, encoding) in enumerate(zip(texts, theirs.encode_batch(texts))):
            compare(text, theirs, ours, encoding, whole=n % 2 == 0)


@pytest.mark.parametrize("kind", tokenizer_kinds.KINDS)
def test_vocabularies_are_the_same(kind):
    theirs = made(kind)
    ours = heed.Tokenizer.from_json(theirs.to_str(), kind)
    vocabulary = theirs.get_vocab(with_added_tokens=True)
    assert ours.size == max(vocabulary.values()) + 1
    for token, id in vocabulary.items():
        assert (ours.id(token), ours.token(id)) == (id, token)


@pytest.mark.parametrize("kind", tokenizer_kinds.KINDS)
def test_without_special_tokens_and_with_any_ids(kind):
    theirs = made(kind)
    ours = heed.Tokenizer.from_json(theirs.to_str(), kind)
    rng = random.Random(kind)
    for _ in range(-(-TEXTS // 100)):
        text = random_texts.text(rng)
        encoding, got = theirs.encode(text, add_special_tokens=False), ours.encode(text, add_special=False)
        assert (got.ids, got.offsets) == (encoding.ids, encoding.offsets), ascii(text)
        ids = [rng.randrange(theirs.get_vocab_size()) for _ in range(rng.randrange(1, 12))]
        assert ours.decode(ids, skip_special=False) == theirs.decode(ids, skip_special_tokens=False), ids


@pytest.mark.parametrize("pattern", ["", "ab", Regex("a+"), Regex("x*"), Regex("b$"), Regex(r"\s+|é"), Regex("(?=b)"), Regex("a|b*")])
def test_decoders_replace_what_a_pattern_matches(pattern):
    tokens = ["xaab", "", "éb  ba", "abab"]
    theirs = Tokenizer(models.WordLevel({token: id for id, token in enumerate(tokens)}, unk_token=""))
    theirs.decoder = decoders.Replace(pattern, "<>")
    ours = heed.Tokenizer.from_json(theirs.to_str())
    assert ours.decode([0, 1, 2, 3]) == theirs.decode([0, 1, 2, 3])


CLASSES = [r"\w", r"\W", r"\d", r"\D", r"\p{^L}", r"\P{L}", r"\p{Letter}", r"\p{Punct}", r"\p{Symbol}", r"\p{Number}", r"\p{Han}", r"\p{alpha}",
           r"[\w\-]", r"[^\W\d]", r"[\w&&[^a-f]]", r"\[[:alpha:]\]|[[:alpha:]]",
           *(f"[[:{name}:]]" for name in ("punct", "^punct", "alnum", "alpha", "word", "digit", "graph", "print", "upper", "lower", "space", "^alpha"))]
POINTS = [chr(point) for point in range(0x323B0) if not 0xD800 <= point < 0xE000 and chr(point) not in "<>"]


@pytest.mark.parametrize("pattern", CLASSES)
def test_classes_of_patterns_have_the_same_code_points(pattern):
    token_of = {"".join(POINTS[begin:begin + 40_000]): begin // 40_000 for begin in range(0, len(POINTS), 40_000)}
    theirs = Tokenizer(models.WordLevel(token_of, unk_token=""))
    theirs.decoder = decoders.Replace(Regex(pattern), "<>")
    ours = heed.Tokenizer.from_json(theirs.to_str())
    for id in token_of.values():
        assert ours.decode([id]) == theirs.decode([id])


END, BREAK = AddedToken("<end>", rstrip=True, normalized=False), AddedToken("\n", lstrip=True, normalized=False)


@pytest.mark.parametrize("added, text", [
    ([AddedToken("  ", lstrip=True, rstrip=True, normalized=False)], "a    b"), ([END, BREAK], "a<end>\nb"), ([END, BREAK], "<end> \n"),
    ([END, AddedToken("\n", normalized=False)], "a<end>\nb"), ([END, BREAK], "a\n<end>"),
])
def test_added_tokens_that_share_spaces_are_found_alike(added, text):
    theirs = tokenizer_kinds.llama_3()
    theirs.add_tokens(added)
    ours = heed.Tokenizer.from_json(theirs.to_str())
    encoding = theirs.encode(text)
    assert (ours.encode(text).ids, ours.encode(text).offsets) == (encoding.ids, encoding.offsets)


def test_a_token_whose_spaces_another_took_past_its_end_is_passed_over():
    tokenizer = tokenizer_kinds.llama_3()  # the package tokenizers panics here
    tokenizer.add_tokens([END, BREAK])
    ours = heed.Tokenizer.from_json(tokenizer.to_str())
    assert ours.encode("<end>\n  b", add_special=False).ids == [ours.id("<end>"), ours.id("b")]


def test_special_tokens_that_the_normaliser_changes_are_decoded_alike():
    theirs = tokenizer_kinds.bert()
    theirs.add_special_tokens([AddedToken("[X]", normalized=True, special=True), AddedToken("[y]", normalized=True, special=True), AddedToken("[Z]", normalized=False)])
    ours = heed.Tokenizer.from_json(theirs.to_str())
    for token in ("[X]", "[y]", "[Z]", "[CLS]", "able"):
        for skip in (True, False):
            ids = [theirs.token_to_id(token)]
            assert ours.decode(ids, skip_special=skip) == theirs.decode(ids, skip_special_tokens=skip), token


def file_of(vocabulary: dict[str, int], added: list[tuple[str, int]]) -> str:
    made = json.loads(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str())
    made["model"]["vocab"] = vocabulary
    made["added_tokens"] = [{"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                             "normalized": False, "special": True} for content, id in added]
    return json.dumps(made | {"pre_tokenizer": {"type": "Whitespace"}})


WITH_GAP, SHARED = {"a": 0, "b": 1, "c": 5}, {"a": 0, "b": 1, "c": 1}


# The package tokenizers counts the model's tokens, and ignores the ids in a file for added tokens.
@pytest.mark.parametrize("vocabulary, added", [
    (WITH_GAP, []), (WITH_GAP, ["<x>"]), (WITH_GAP, ["<x>", "<y>", "<z>"]), (WITH_GAP, ["c", "<x>"]),
    (WITH_GAP, ["<x>", "c", "<y>"]), (SHARED, ["<x>"]),
])
def test_added_tokens_have_the_same_ids_beside_vocabularies_with_gaps(vocabulary, added):
    theirs = Tokenizer.from_str(file_of(vocabulary, [(token, 0) for token in added]))
    ids = [(token, theirs.token_to_id(token)) for token in added]
    ours = heed.Tokenizer.from_json(file_of(vocabulary, ids))
    text = "a b c <x> <y> <z>"
    assert ours.encode(text).ids == theirs.encode(text).ids
    assert ours.size == max(id for _, id in theirs.get_vocab().items()) + 1
    wrong = [(token, id + (token == added[-1])) for token, id in ids]  # the last one's id, off by one
    if added:
        with pytest.raises(OSError, match=f"an added token '{added[-1]}' with id {wrong[-1][1]}, but the vocabulary gives"):
            heed.Tokenizer.from_json(file_of(vocabulary, wrong))


def test_files_that_give_merges_as_text_and_no_type_are_read():
    theirs = made("gpt_2")
    old = json.loads(theirs.to_str())
    old["model"]["merges"] = [" ".join(pair) for pair in old["model"]["merges"]]
    del old["model"]["type"]
    ours = heed.Tokenizer.from_json(json.dumps(old))
    assert ours.encode("the able “quotes”").ids == theirs.encode("the able “quotes”").ids


def is_read(read, text: str) -> bool:
    try:
        read(text)
    except Exception:
        return False
    return True


def test_members_that_cut_or_fill_texts_are_read_or_refused_alike():
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    fill = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}
    odd = [5, -1, 1.5, 2**70, True, "x", "Right", "OnlySecond", [], {}, {"Fixed": 4}, {"Fixed": "4"}]
    files = [{name: value} for name in ("truncation", "padding", "unknown") for value in [*odd, None]]
    for name, whole in (("truncation", cut), ("padding", fill)):
        files += [{name: whole | {member: value}} for member in whole for value in odd]
        files += [{name: {other: value for other, value in whole.items() if other != member}} for member in whole]
    plain = {"added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}
    known = [is_read(Tokenizer.from_str, json.dumps({"version": "1.0"} | file | plain)) for file in files]
    assert 10 < sum(known) < len(known) - 10
    for file, is_known in zip(files, known):
        assert is_read(heed.Tokenizer.from_json, json.dumps(file | plain)) == is_known, file
