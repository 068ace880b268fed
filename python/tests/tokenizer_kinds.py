"""Tokenizers like those of well-known models, trained on made-up sentences by PyPI's tokenizers.

Each function returns one; KINDS lists them by name."""

import json
from collections.abc import Callable, Iterator

import random_texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def corpus() -> Iterator[str]:
    return iter(random_texts.sentences(3000))


def around(before: list[tuple[str, int]], after: list[tuple[str, int]]) -> processors.TemplateProcessing:
    """A template with tokens before and after the text."""
    names = [name for name, _ in before] + ["$A"] + [name for name, _ in after]
    return processors.TemplateProcessing(single=" ".join(names), special_tokens=before + after)


def train_byte_level(made: Tokenizer, special: list[str], vocabulary: int = 1500) -> None:
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def gpt_2() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    train_byte_level(made, ["<|endoftext|>"])
    return made


def roberta() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    train_byte_level(made, ["<s>", "<pad>", "</s>", "<unk>"])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=True)])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    return made


def gpt_neox() -> Tokenizer:
    """Like GPT-NeoX's: runs of spaces are added tokens."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    made.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    train_byte_level(made, ["<|endoftext|>", "<|padding|>"])
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in range(8, 1, -1)])
    return made


def llama_3() -> Tokenizer:
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA_3), "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    train_byte_level(made, [])
    made.add_special_tokens(["<|begin_of_text|>", "<|eot_id|>"])
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                               around([("<|begin_of_text|>", made.token_to_id("<|begin_of_text|>"))], [])])
    return made


def qwen_2() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_2), "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    train_byte_level(made, [])
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return made


def clip() -> Tokenizer:
    """Like CLIP's: word ends are marked."""
    made = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CLIP), "removed", invert=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<|startoftext|>", "<|endoftext|>"], show_progress=False, end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False,
                                                       add_prefix_space=False)
    return made


def bert(lowercase: bool = True) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=1500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    made.post_processor = around([("[CLS]", 2)], [("[SEP]", 3)])
    return made


def bert_cased() -> Tokenizer:
    made = bert(lowercase=False)
    made.decoder = decoders.WordPiece(cleanup=False)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return made


def train_unigram(made: Tokenizer, special: list[str]) -> None:
    made.train_from_iterator(corpus(), trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=special, unk_token="<unk>", show_progress=False))


def xlm_roberta() -> Tokenizer:
    """Unigram with Unicode normalisation (NFKC)."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    train_unigram(made, ["<s>", "<pad>", "</s>", "<unk>"])
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    made.post_processor = around([("<s>", 0)], [("</s>", 2)])
    return made


def camembert() -> Tokenizer:
    """Unigram whose vocabulary begins with tokens that are not used."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    train_unigram(made, ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"])
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    made.post_processor = around([("<s>", 5)], [("</s>", 6)])
    return made


def t5() -> Tokenizer:
    """Unigram with SentencePiece's normalisation table."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), "▁")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    train_unigram(made, ["<pad>", "</s>", "<unk>"])
    made.decoder = decoders.Metaspace()
    made.add_special_tokens([f"<extra_id_{n}>" for n in range(3)])
    made.post_processor = around([], [("</s>", 1)])
    return made


def albert() -> Tokenizer:
    """Unigram, lower case, without accents."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
                                            normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()])
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    train_unigram(made, ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    made.decoder = decoders.Metaspace(prepend_scheme="first")
    made.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True)])
    made.post_processor = around([("[CLS]", 2)], [("[SEP]", 3)])
    return made


def with_bytes(special: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and merges of a SentencePiece BPE with a token for each byte."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=1200, limit_alphabet=80, show_progress=False))
    model = json.loads(made.to_str())["model"]
    tokens = special + BYTES + sorted(model["vocab"], key=model["vocab"].get)
    return {token: id for id, token in enumerate(tokens)}, [tuple(pair) for pair in model["merges"]]


def llama_2() -> Tokenizer:
    vocabulary, merges = with_bytes(["<unk>", "<s>", "</s>"])
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["<unk>", "<s>", "</s>"])
    made.post_processor = around([("<s>", 1)], [])
    return made


def mistral() -> Tokenizer:
    """Llama 2's, with a pre-tokenizer instead of the normalizer."""
    made = llama_2()
    made.normalizer = None
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return made


def gemma() -> Tokenizer:
    vocabulary, merges = with_bytes(["<pad>", "<eos>", "<bos>", "<unk>"])
    made = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    made.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False), AddedToken("<b>", normalized=False)])
    made.post_processor = around([("<bos>", 2)], [])
    return made


def words() -> Tokenizer:
    """Whole words, with pre-tokenizers that the other kinds lack."""
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Strip(left=True, right=False)])
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.Punctuation("merged_with_next")])
    made.train_from_iterator(corpus(), trainers.WordLevelTrainer(vocab_size=800, special_tokens=["[UNK]"], show_progress=False))
    made.add_tokens([AddedToken("able", single_word=True), AddedToken("Émoi"), AddedToken(" to ", rstrip=True)])
    return made


def gpt_1() -> Tokenizer:
    """A BPE of characters with marked word ends."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder()
    made.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=1500, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))
    return made


def charsmap() -> bytes:
    """SentencePiece's table nmt_nfkc, taken from a model that it trains."""
    import io

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=corpus(), model_writer=model, vocab_size=400, minloglevel=2,
                                             normalization_rule_name="nmt_nfkc", character_coverage=0.99, hard_vocab_limit=False)
    return sentencepiece_model_pb2.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


KINDS: dict[str, Callable[[], Tokenizer]] = {
    one.__name__: one for one in (gpt_2, roberta, gpt_neox, llama_3, qwen_2, clip, bert, bert_cased, xlm_roberta, camembert, t5, albert, llama_2,
                                  mistral, gemma, words, gpt_1)}
