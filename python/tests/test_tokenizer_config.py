"""tokenizer_config.json beside tokenizer.json: heed's ids equal those of transformers' AutoTokenizer, or heed
refuses."""

import inspect
import json
import os
import re

import pytest
import tiny_models
import tokenizer_kinds
import transformers
from transformers import tokenization_utils_base, tokenization_utils_tokenizers

import heed

KINDS = {  # family of the model, its tokenizer.json, the class in tokenizer_config.json
    "bert": ("bert", tokenizer_kinds.bert, "BertTokenizer"),
    "bert, cased": ("bert", tokenizer_kinds.bert_cased, "BertTokenizerFast"),
    "distilbert": ("distilbert", tokenizer_kinds.bert, "DistilBertTokenizer"),
    "gpt2": ("gpt2", tokenizer_kinds.gpt_2, "GPT2Tokenizer"),
    "llama 3": ("llama", tokenizer_kinds.llama_3, "PreTrainedTokenizerFast"),
    "llama 3, of llama 2's class": ("llama", tokenizer_kinds.llama_3, "LlamaTokenizer"),
    "llama 2": ("llama", tokenizer_kinds.llama_2, "LlamaTokenizer"),
    "mistral": ("mistral", tokenizer_kinds.mistral, "LlamaTokenizerFast"),
    "roberta": ("roberta", tokenizer_kinds.roberta, "RobertaTokenizer"),
    "mpnet": ("mpnet", tokenizer_kinds.bert, "MPNetTokenizer"),
    "electra": ("electra", tokenizer_kinds.bert, "BertTokenizer"),
    "xlm-roberta": ("xlm-roberta", tokenizer_kinds.xlm_roberta, "XLMRobertaTokenizer"),
    "camembert": ("camembert", tokenizer_kinds.camembert, "CamembertTokenizer"),
    "t5": ("llama", tokenizer_kinds.t5, "TokenizersBackend"),
    "qwen2": ("qwen2", tokenizer_kinds.qwen_2, "Qwen2Tokenizer"),
    "qwen3": ("qwen3", tokenizer_kinds.qwen_2, "Qwen2TokenizerFast"),
    "gemma": ("gemma2", tokenizer_kinds.gemma, "GemmaTokenizer"),
    "gpt_neox": ("gpt_neox", tokenizer_kinds.gpt_neox, "GPTNeoXTokenizer"),
}
ALIKE = ("bert, cased", "distilbert", "electra", "llama 3, of llama 2's class", "mistral", "qwen3")  # share another kind's code
TEXTS = ["The ANIMAL wasn't Ünable, 3.14!", "  two  spaces\n\nand 中文字 café 한국어 e\u0301 ﬁ ", "able", "", "[MASK] <mask> <s>text</s> <unk><pad>",
         "x<new>y <new> z <other>able <image>", "🤗 <|endoftext|><bos>b <|begin_of_text|> the able"]


def entry(content, **flags):
    return dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False) | flags


TOKEN = ["<new>", "able", entry("<new>", lstrip=True, rstrip=True, normalized=True) | {"__type": "AddedToken"}, None]
FLAG = [True, False]
VALUES = {
    "do_lower_case": FLAG, "strip_accents": [*FLAG, None], "tokenize_chinese_chars": FLAG, "add_prefix_space": FLAG, "legacy": [*FLAG, None],
    "add_bos_token": FLAG, "add_eos_token": FLAG,
    **{f"{name}_token": TOKEN for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")},
    "image_token": ["<image>", entry("<image>", rstrip=True) | {"__type": "AddedToken"}],
    "additional_special_tokens": [["<new>", "<other>"], []], "extra_special_tokens": [["<other>", "<new>"], {"a_token": "<image>"}, {}],
    "added_tokens_decoder": ["next", "again", {}],
    "tokenizer_class": ["PreTrainedTokenizerFast", "GPT2Tokenizer", "LlamaTokenizer", "BertTokenizer", "Qwen2Tokenizer", "T5Tokenizer", None],
    "split_special_tokens": FLAG, "fix_mistral_regex": FLAG, "init_inputs": [[]], "auto_map": [{"AutoModel": "a.B"}],
    "fast_tokenizer_files": [[], ["tokenizer.json", "tokenizer.4.0.0.json"]],
}
NO_IDS = {  # keys that change no id, and the reason
    "model_max_length": (5, "a call cuts texts only where it is asked to"), "max_len": (5, "its older name"), "max_length": (5, "likewise"),
    "stride": (1, "of texts that are cut"), "truncation_side": ("left", "likewise"), "truncation_strategy": ("longest_first", "likewise"),
    "padding_side": ("left", "a call pads only where it is asked to"), "pad_token_type_id": (1, "likewise"), "pad_to_multiple_of": (8, "likewise"),
    "clean_up_tokenization_spaces": (True, "of decoding"), "spaces_between_special_tokens": (False, "of decoding"),
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": (True, "of decoding"), "errors": ("ignore", "of decoding"),
    "trim_offsets": (False, "of offsets"), "model_input_names": (["input_ids"], "which arrays a call gives"), "verbose": (False, "of messages"),
    "chat_template": ("{{ messages }}", "of chats"), "response_template": (None, "of chats"), "response_schema": (None, "of chats"),
    "chat_control_tokens": (["<a>"], "of chats"), "use_default_system_prompt": (True, "of chats"), "name_or_path": ("x", "a name"),
    "processor_class": ("X", "a name"), "backend": ("tokenizers", "a name"), "files_loaded": ([], "names"), "special_tokens_map_file": ("x", "not read"),
    "do_basic_tokenize": (False, "of a class that is gone"), "never_split": (["able"], "likewise"), "sp_model_kwargs": ({}, "likewise"),
    "wordpieces_prefix": ("@@", "likewise"), "clean_text": (False, "likewise"), "unk_id": (0, "where there is no tokenizer.json"),
    "nobody_knows_this": (True, "an unknown key"),
}
# transformers sets these itself or takes them from its caller; no settings file contains them.
INNER = {"tokenizer_object", "gguf_file", "tokenizer_file", "vocab_file", "vocab", "merges", "post_processor", "tokenizer_truncation",
         "tokenizer_padding", "_json_truncation", "_json_padding", "_spm_precompiled_charsmap", "model_specific_special_tokens", "tokenizer",
         "is_local", "local_files_only", "kwargs", "self", "__class__"}
REFUSED = {  # key and value: the reason that heed gives
    ("tokenizer_class", "T5Tokenizer"): "of 'T5Tokenizer', which heed does not know",
    ("split_special_tokens", True): "with split_special_tokens, which heed does not know",
    ("fix_mistral_regex", True): "with fix_mistral_regex, which heed does not know",
    ("fast_tokenizer_files", ("tokenizer.json", "tokenizer.4.0.0.json")): "with fast_tokenizer_files, which heed does not know",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for kind, (family, tokenizer, name) in KINDS.items():
        path = made[kind] = tmp_path_factory.mktemp("folder")
        tiny_models.save(tiny_models.make(family), path)
        tokenizer().save(str(path / "tokenizer.json"))
        write(path, kind)
    return made


def write(folder, kind, **settings):
    lower = {"do_lower_case": False} if kind == "bert, cased" else {}
    config = {"tokenizer_class": KINDS[kind][2]} | lower | settings
    (folder / "tokenizer_config.json").write_text(json.dumps({name: value for name, value in config.items() if value != "none"}))


def theirs_of(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def lack_of(model):
    with pytest.raises(ValueError) as error:
        model.token_ids("able")
    return str(error.value)


def expect_ids(folder, label, refused=None):
    """Checks the folder: equal ids, or the expected refusal. Returns whether transformers accepts it."""
    model = heed.load_model(folder)
    try:
        theirs = theirs_of(folder)
        expected = [theirs(text)["input_ids"] for text in TEXTS]
    except Exception:  # settings of a type that the class does not accept
        expected = None
    if refused is not None:
        assert model.tokenizer is None and refused in lack_of(model), label
        model.hidden_states([1, 2, 3])
    elif expected is not None:
        assert model.tokenizer is not None, f"{label}: {lack_of(model)}"
        for text, ids in zip(TEXTS, expected):
            got = model.tokenizer.encode(text).ids
            assert got == ids, f"{label}, {text!r}:\nheed         {got}\ntransformers {ids} {theirs.convert_ids_to_tokens(ids)}"
    return expected is not None


def decoder_of(folder, which):
    """The added tokens of tokenizer.json plus one; or the last of them with other flags."""
    made = json.loads((folder / "tokenizer.json").read_text())
    tokens = {str(one.pop("id")): one for one in made["added_tokens"]}
    if which == "next":
        return tokens | {str(max([len(made["model"]["vocab"]) - 1, *map(int, tokens)]) + 1): entry("xtra able")}
    return tokens | {id: token | {"lstrip": True, "rstrip": True, "normalized": False} for id, token in list(tokens.items())[-1:]}


@pytest.mark.parametrize("kind", KINDS)
def test_each_key_is_followed_or_the_tokenizer_refused(kind, folders):
    folder, taken, tried = folders[kind], 0, 0
    mismatched = {"WordPiece": ("GPT2Tokenizer", "LlamaTokenizer", "Qwen2Tokenizer"), "BPE": ("BertTokenizer",),
                  "Unigram": ("GPT2Tokenizer", "LlamaTokenizer", "BertTokenizer", "Qwen2Tokenizer")}
    model = json.loads((folder / "tokenizer.json").read_text())["model"]["type"]
    for key, values in VALUES.items():
        if kind in ALIKE and values is TOKEN:
            continue
        for value in values:
            written = decoder_of(folder, value) if key == "added_tokens_decoder" and isinstance(value, str) else value
            write(folder, kind, **{key: "none" if value is None and key == "tokenizer_class" else written})
            refused = REFUSED.get((key, tuple(value) if isinstance(value, list) else value)) if not isinstance(value, dict) else None
            family_class = KINDS[kind][0] in ("mistral", "qwen2")  # independent of the folder's settings
            if key == "tokenizer_class" and family_class:
                refused = None
            elif key == "tokenizer_class" and value in mismatched[model]:
                refused = "which is for"
            taken += expect_ids(folder, f"{kind}, {key} {value!r}", refused)
            tried += 1
    write(folder, kind)
    assert taken > 0.85 * tried


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_change_no_id_are_passed_over(kind, folders):
    write(folders[kind], kind, **{key: value for key, (value, reason) in NO_IDS.items() if reason})
    assert expect_ids(folders[kind], kind)
    write(folders[kind], kind)


def test_every_key_that_the_installed_transformers_reads_is_known():
    sources = [tokenization_utils_base.PreTrainedTokenizerBase.__init__, tokenization_utils_base.PreTrainedTokenizerBase._from_pretrained,
               tokenization_utils_base.PreTrainedTokenizerBase.from_pretrained, tokenization_utils_tokenizers.TokenizersBackend.__init__]
    read = re.compile(r"""(?:kwargs|tokenizer_config)(?:\.(?:pop|get)\(|\[)\s*"(\w+)\"""")
    keys = {key for source in sources for key in read.findall(inspect.getsource(source))}
    for _, _, name in KINDS.values():
        keys |= set(inspect.signature(getattr(transformers, name).__init__).parameters)
    of_callers = {"proxies", "subfolder", "_from_pipeline", "_from_auto", "_commit_hash", "chat_template_file"}
    args = {"args"}
    assert keys - set(VALUES) - set(NO_IDS) - INNER - of_callers - args == set()


FILES = {
    "tokens of special_tokens_map.json": {"special_tokens_map.json": {"pad_token": "<new>", "mask_token": entry("<image>", lstrip=True),
                                                                      "additional_special_tokens": ["<other>"]}},
    "special_tokens_map.json beside other lists": {
        "special_tokens_map.json": {"additional_special_tokens": ["<other>"], "extra_special_tokens": {"a_token": "<image>"}},
        "tokenizer_config.json": {"additional_special_tokens": ["<new>"]}},
    "special_tokens_map.json beside an empty object": {
        "special_tokens_map.json": {"additional_special_tokens": ["<other>"]}, "tokenizer_config.json": {"extra_special_tokens": {}}},
    "special_tokens_map.json beside an object and a list": {
        "special_tokens_map.json": {"additional_special_tokens": ["<other>"]},
        "tokenizer_config.json": {"extra_special_tokens": {"a_token": "<image>"}, "additional_special_tokens": ["<new>"]}},
    "special_tokens_map.json beside an empty object and a list": {
        "special_tokens_map.json": {"additional_special_tokens": ["<other>"]},
        "tokenizer_config.json": {"extra_special_tokens": {}, "additional_special_tokens": ["<new>"]}},
    "a token of added_tokens.json": {"added_tokens.json": "next"},
    "both, and neither is read": {"special_tokens_map.json": {"pad_token": "<new>"}, "added_tokens.json": "next",
                                  "tokenizer_config.json": {"added_tokens_decoder": {}}},
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama 3", "llama 2", "t5", "qwen2", "gemma"])
def test_older_files_of_tokens_are_followed(kind, name, folders):
    folder = folders[kind]
    try:
        for file, content in FILES[name].items():
            if content == "next":
                size = max(int(id) for id in decoder_of(folder, "next"))
                content = {"xtra able": size}
            if file == "tokenizer_config.json":
                write(folder, kind, **content)
            else:
                (folder / file).write_text(json.dumps(content))
        assert expect_ids(folder, f"{kind}, {name}")
    finally:
        write(folder, kind)
        for file in ("special_tokens_map.json", "added_tokens.json"):
            (folder / file).unlink(missing_ok=True)


WIDE = entry("<new>", lstrip=True, rstrip=True) | {"__type": "AddedToken"}
ROLES = [{"pad_token": WIDE, "mask_token": "<new>"}, {"pad_token": "<new>", "mask_token": WIDE}, {"bos_token": "<new>", "pad_token": WIDE, "mask_token": "<new>"},
         {"pad_token": WIDE, "extra_special_tokens": ["<new>"]}, {"eos_token": WIDE | {"content": "<|end_of_text|>"}, "pad_token": "<|end_of_text|>"}]


@pytest.mark.parametrize("roles", ROLES)
@pytest.mark.parametrize("kind", ["bert", "llama 3", "gpt2"])
def test_one_token_in_several_roles_has_the_flags_that_transformers_gives_it(kind, roles, folders):
    write(folders[kind], kind, **roles)
    try:
        assert expect_ids(folders[kind], f"{kind}, {roles}")
    finally:
        write(folders[kind], kind)


@pytest.mark.parametrize("family", sorted({family for family, _, _ in KINDS.values()} | {"qwen3", "gemma3", "mistral", "nomic_bert"}))
def test_without_a_class_the_family_has_one(family, tmp_path):
    tiny_models.save(tiny_models.make(family), tmp_path)
    for tokenizer in (tokenizer_kinds.bert, tokenizer_kinds.gpt_2, tokenizer_kinds.llama_2):
        tokenizer().save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text("{}")
        model = heed.load_model(tmp_path)
        if model.tokenizer is None:
            assert "which is for" in lack_of(model)
        else:
            expect_ids(tmp_path, family)


def test_the_class_of_config_json_counts_where_the_other_file_has_none(folders):
    folder = folders["llama 2"]
    config = json.loads((folder / "config.json").read_text())
    try:
        (folder / "config.json").write_text(json.dumps(config | {"tokenizer_class": "GemmaTokenizer"}))
        write(folder, "llama 2", tokenizer_class="none")
        assert expect_ids(folder, "GemmaTokenizer by config.json")
        write(folder, "llama 2")
        assert expect_ids(folder, "LlamaTokenizer by tokenizer_config.json")
    finally:
        (folder / "config.json").write_text(json.dumps(config))


def test_without_the_file_tokenizer_json_is_read_as_it_stands(folders):
    folder = folders["bert, cased"]
    os.remove(folder / "tokenizer_config.json")
    made = tokenizer_kinds.Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = heed.load_model(folder)
    for text in TEXTS:
        assert model.tokenizer.encode(text).ids == made.encode(text).ids
    write(folder, "bert, cased")


@pytest.mark.parametrize("settings, message", [
    ({"auto_map": {"AutoTokenizer": ["a.B", None]}}, "with auto_map, which heed does not know"),
    ({"auto_map": ["a.B", None]}, "with auto_map, which heed does not know"),
    ({"init_inputs": ["vocab.txt"]}, "with init_inputs, which heed does not know"),
    ({"added_tokens_decoder": {"9999": entry("brandnew")}}, "the added token 'brandnew' with id 9999, but the vocabulary gives "),
])
def test_what_makes_another_tokenizer_is_refused(settings, message, folders):
    write(folders["gpt2"], "gpt2", **settings)
    model = heed.load_model(folders["gpt2"])
    assert message in lack_of(model)
    model.hidden_states([1, 2, 3])
    write(folders["gpt2"], "gpt2")


@pytest.mark.parametrize("content, message", [
    ('{"do_lower_case": 3}', "tokenizer_config.json' has settings whose do_lower_case is neither true nor false"),
    ("[]", "tokenizer_config.json' has settings that is not a JSON object"),
    ('{"added_tokens_decoder": {"x": {"content": "a"}}}', "with 'x', which is not an id"),
])
def test_a_file_that_is_not_as_it_should_be_is_refused(content, message, folders):
    (folders["bert"] / "tokenizer_config.json").write_text(content)
    with pytest.raises(OSError, match=re.escape(message)):
        heed.load_model(folders["bert"])
    write(folders["bert"], "bert")
