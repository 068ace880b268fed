"""heed.Model.generate compared with transformers' generate: the same tokens and the same text."""

import json
import re

import numpy as np
import pytest
import tokenizers
import torch
import transformers

import heed
import tiny_models

TEXT = "the cat sat on the mat, é€😀: don't, naïve café 日本語 " * 4


def greedy(model, ids, count):
    with torch.no_grad():
        made = model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, use_cache=True, pad_token_id=0)
    return made[0, len(ids):].tolist()


@pytest.mark.parametrize("name", tiny_models.CAUSAL)
def test_greedy_tokens_are_transformers(name, tmp_path):
    theirs = tiny_models.make(name)
    ours = heed.load_model(tiny_models.save(theirs, tmp_path))
    ids = tiny_models.ids_of(7).tolist()
    written = [token["id"] for token in ours.watch(ids, 50, temperature=0, pairs=0)]
    assert written == greedy(theirs, ids, 50)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("penalty", [1.3, 0.7])
def test_a_penalty_of_repetition_counts_as_in_transformers(file, penalty, tmp_path):
    tiny_models.save(tiny_models.make("llama"), tmp_path)
    ids = tiny_models.ids_of(7).tolist()
    plain = heed.load_model(tmp_path).watch(ids, 50, temperature=0, pairs=0)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) if file == "config.json" else {}
    (tmp_path / file).write_text(json.dumps(config | {"repetition_penalty": penalty}))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ours = heed.load_model(tmp_path)
    written = ours.watch(ids, 50, temperature=0, pairs=0)
    assert [token["id"] for token in written] == greedy(theirs, ids, 50) != [token["id"] for token in plain]
    # The probability is the model's own.
    scores = ours.logits([*ids, written[0]["id"]])[-1].astype(np.float64)
    chances = np.exp(scores - scores.max())
    assert written[1]["probability"] == pytest.approx((chances / chances.sum())[written[1]["id"]], rel=1e-4)


@pytest.mark.filterwarnings("ignore:Unfeasible length")
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
@pytest.mark.parametrize("settings", [
    {"min_new_tokens": 9}, {"min_length": 20}, {"min_length": 5}, {"min_new_tokens": 9, "min_length": 30}, {"min_new_tokens": 0, "min_length": 30},
    {"min_new_tokens": 9, "repetition_penalty": 1.4}, {"min_new_tokens": None, "min_length": 12}, {"min_new_tokens": 500}])
def test_a_text_ends_no_earlier_than_in_transformers(file, settings, tmp_path):
    tiny_models.save(tiny_models.make("llama"), tmp_path)
    ids = tiny_models.ids_of(7).tolist()
    free = [token["id"] for token in heed.load_model(tmp_path).watch(ids, 40, temperature=0, pairs=0)]
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    ends = [free[0], free[3], free[12]]  # so that texts would end at once
    (tmp_path / "config.json").write_text(json.dumps(config | {"eos_token_id": ends} | (settings if file == "config.json" else {})))
    if file == "generation_config.json":
        (tmp_path / file).write_text(json.dumps(settings | {"eos_token_id": ends}))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ours = heed.load_model(tmp_path)
    written = [token["id"] for token in ours.watch(ids, 40, temperature=0, pairs=0)]
    assert written == greedy(theirs, ids, 40)
    least = settings["min_new_tokens"] if settings.get("min_new_tokens") is not None else settings["min_length"] - len(ids)
    assert not set(written[:max(least, 0)]) & set(ends)
    for seed in range(5):
        drawn = [token["id"] for token in ours.watch(ids, 40, temperature=1e30, seed=seed, pairs=0)]
        assert not set(drawn[:max(least, 0)]) & set(ends) and len(drawn) > min(least, 39)


@pytest.mark.parametrize("key", ["min_new_tokens", "min_length"])
def test_a_least_length_that_is_none_is_refused(key, tmp_path):
    tiny_models.save(tiny_models.make("llama"), tmp_path)
    for wrong in ("-1", "2.5", '"9"', "[9]", "true", "9223372036854775808"):
        (tmp_path / "generation_config.json").write_text(f'{{"{key}": {wrong}}}')
        with pytest.raises(ValueError, match=rf"generation_config.json' has {key} .*; 0 to 9223372036854775807 is expected"):
            heed.load_model(tmp_path).watch([5, 6], 2)
    (tmp_path / "generation_config.json").write_text(json.dumps({key: 9, "eos_token_id": list(range(101))}))
    with pytest.raises(ValueError, match="every token of the model ends a text; one that goes on is expected, because of min_new_tokens or min_length"):
        heed.load_model(tmp_path).watch([5, 6], 2)


# Another value, and the one that changes nothing.
SETTINGS = {
    "no_repeat_ngram_size": (2, 0), "encoder_repetition_penalty": (1.5, 1.0), "encoder_no_repeat_ngram_size": (2, 0),
    "bad_words_ids": ([[55]], []), "suppress_tokens": ([55], []), "begin_suppress_tokens": ([55], []), "forced_bos_token_id": (3, None), "forced_eos_token_id": (3, None), "forced_decoder_ids": ([[1, 3]], []),
    "exponential_decay_length_penalty": ([5, 1.1], None), "sequence_bias": ([[[5], 2.0]], None), "guidance_scale": (1.5, 1.0),
    "num_beams": (4, 1), "constraints": ([1], None), "force_words_ids": ([[5]], None), "penalty_alpha": (0.6, 0.0),
    "dola_layers": ("low", None), "stop_strings": (["a"], []), "token_healing": (True, False), "watermarking_config": ({"bias": 2.5}, None)}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_settings_that_would_change_the_text_are_refused_by_their_names(file, tmp_path):
    tiny_models.save(tiny_models.make("llama"), tmp_path)
    (tmp_path / "generation_config.json").unlink(missing_ok=True)
    config = json.loads((tmp_path / "config.json").read_text()) if file == "config.json" else {}

    def ours(settings):
        (tmp_path / file).write_text(json.dumps(config | settings))
        return heed.load_model(tmp_path)

    for key, (value, neutral) in SETTINGS.items():
        shown = json.dumps(value, separators=(",", ":"))
        message = rf"{file}' has {key} {re.escape(shown)}, which heed cannot apply; .* is expected$"
        with pytest.raises(ValueError, match=message):
            ours({key: value}).watch([5, 6], 2)
        assert ours({key: value}).logits([5, 6]).shape[0] == 2
        for same in (neutral, None):
            assert len(ours({key: same}).watch([5, 6], 2, temperature=0)) == 2
    for wrong in (0, -1.5, "high", 1e39, 1e-40):
        with pytest.raises(ValueError, match=f"has repetition_penalty {re.escape(json.dumps(wrong))}; a number of f32 above 0 is expected"):
            ours({"repetition_penalty": wrong}).watch([5, 6], 2)
    options = {"temperature": 0.1, "top_k": 1, "top_p": 0.5, "do_sample": True}
    assert len(ours(options).watch([5, 6], 2)) == 2


def test_what_was_attended_to_are_the_heaviest_weights(tmp_path):
    ours = heed.load_model(tiny_models.save(tiny_models.make("llama"), tmp_path))
    ids = tiny_models.ids_of(9).tolist()
    (token,) = ours.watch(ids, 1, temperature=0, pairs=3, head=(1, 2))
    row = ours.weights(ids, layer=1)[2, -1]
    order = np.argsort(-row)[:3]
    assert [place for place, *_ in token["attended"]] == order.tolist()
    # From a whole pass and from one row over a cache, in f32.
    assert np.allclose([weight for _, _, weight, _ in token["attended"]], row[order], atol=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT-2 with a byte-level BPE of few merges, so that non-ASCII characters take several tokens."""
    path = tmp_path_factory.mktemp("gpt2")
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"],
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bpe.train_from_iterator([TEXT], trainer)
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe).save_pretrained(path)
    torch.manual_seed(3)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=bpe.get_vocab_size(), n_positions=64,
                                     bos_token_id=0, eos_token_id=0, initializer_range=0.5)
    transformers.GPT2LMHeadModel(config).save_pretrained(path)
    return path


def test_the_text_is_whole_letters_of_the_same_text(folder):
    ours, tokenizer = heed.load_model(folder), transformers.AutoTokenizer.from_pretrained(folder)
    for seed in range(6):
        pieces = []
        written = ours.watch(TEXT[:30], 30, temperature=2, seed=seed, add=pieces.append)
        text = tokenizer.decode([token["id"] for token in written], skip_special_tokens=True)
        assert "".join(pieces) == text == ours.generate(TEXT[:30], 30, temperature=2, seed=seed)
        assert len(pieces) == len(written)


def test_halves_of_letters_wait_for_the_rest(folder):
    ours = heed.load_model(folder)
    for seed in range(40):
        pieces = []
        ours.watch("the cat", 40, temperature=5, seed=seed, add=pieces.append)
        # A piece is empty, or consists of whole characters.
        assert all(piece.encode().decode() == piece for piece in pieces)
        if any(not piece for piece in pieces[:-1]):
            return
    raise AssertionError("no letter took two tokens")


def test_it_stops_at_the_end_of_a_text(folder):
    ours = heed.load_model(folder)
    for seed in range(200):
        written = ours.watch("the cat", 60, temperature=8, seed=seed, pairs=0)
        if len(written) < 60:
            assert written[-1]["id"] == 0 and all(token["id"] != 0 for token in written[:-1])
            return
    raise AssertionError("no text ended")


def test_without_a_prompt_it_begins_with_the_token_that_begins_texts(folder):
    assert heed.load_model(folder).watch("", 1)[0]["id"] == 0


def cycle_model(folder, tokenizer, cycle):
    """A model that continues any token of the cycle by the next one."""
    size = tokenizer.get_vocab_size()
    width = (size + 7) // 8 * 8
    config = transformers.LlamaConfig(vocab_size=size, hidden_size=width, intermediate_size=8, num_hidden_layers=1,
                                      num_attention_heads=4, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" not in name:
                weights.zero_()
        model.model.embed_tokens.weight[:, :size] = torch.eye(size)
        for token, after in zip(cycle, cycle[1:] + cycle[:1]):
            model.lm_head.weight[after, token] = 1
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return heed.load_model(folder)


def bytes_of_sentencepiece():
    """A tokenizer whose tokens are bytes ("<0xE2>"), "a", "b" and pieces of spaces."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a"]
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={word: place for place, word in enumerate(words)}, merges=[("▁", "a")],
                                                      unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    normal, decoders = tokenizers.normalizers, tokenizers.decoders
    made.normalizer = normal.Sequence([normal.Prepend("▁"), normal.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    return made


def written(model, prompt, count):
    made = model.watch(prompt, count, temperature=0, pairs=0)
    return [token["id"] for token in made], "".join(token["text"] for token in made)


@pytest.mark.parametrize("letter", ["é", "€", "😀", "中文"])
@pytest.mark.parametrize("prompt", ["a{}", "a{}{}{}", "b {} a{}"])
def test_letters_of_byte_tokens_come_whole(letter, prompt, tmp_path):
    tokenizer = bytes_of_sentencepiece()
    model = cycle_model(tmp_path, tokenizer, [1 + byte for byte in letter.encode()])
    ids = model.token_ids(prompt.replace("{}", letter))
    new, text = written(model, prompt.replace("{}", letter), 48)  # whole letters: one that is cut breaks its run
    assert text == tokenizer.decode(ids + new)[len(tokenizer.decode(ids)):]


def test_text_goes_on_behind_a_byte_that_is_no_letter(tmp_path):
    tokenizer = bytes_of_sentencepiece()
    a, b, space_a = (tokenizer.token_to_id(word) for word in ("a", "b", "▁a"))
    model = cycle_model(tmp_path, tokenizer, [a, 1 + 0xC3, 1 + 0xA9, 1 + 0x80, b, space_a, 1 + ord(" ")])
    assert written(model, "b a", 14)[1].count("b a") == 2


def test_a_letter_that_the_prompt_begins_is_completed(tmp_path):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={word: byte for byte, word in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}, merges=[]))
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    cycle = tokenizer.encode("😀abc").ids
    model = cycle_model(tmp_path, tokenizer, cycle)
    assert written(model, [tokenizer.encode("x").ids[0], cycle[0]], 10)[1] == "😀abc😀"
