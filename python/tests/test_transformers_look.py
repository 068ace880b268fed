"""heed.transformers.look, capture(report=True) and tokens' texts, on small models with random weights and small
tokenizers."""

import copy
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import heed  # noqa: E402
import heed.transformers  # noqa: E402
import small_tokenizers  # noqa: E402
from heed._hf_pieces import texts_of  # noqa: E402

TEXT = "The animal was too tired, it was unbelievable"
SMALL = {"vocab_size": 450, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
         "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
GROUPED = SMALL | {"num_key_value_heads": 2, "head_dim": 8}
T5 = {"vocab_size": 450, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
      "decoder_start_token_id": 0, "eos_token_id": None, "pad_token_id": 0}


def of(kind, config, settings):
    return lambda: getattr(transformers, kind)(getattr(transformers, config)(**settings))


MODELS = {
    "BERT": (of("BertModel", "BertConfig", SMALL), "WordPiece"),
    "GPT-2": (of("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 450, "n_embd": 32, "n_layer": 3, "n_head": 4,
                                                   "n_positions": 128, "bos_token_id": 1, "eos_token_id": None}), "byte-level"),
    "Llama": (of("LlamaForCausalLM", "LlamaConfig", GROUPED), "SentencePiece"),
    "Gemma 2": (of("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {
        "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}), "byte-level"),
    "GPT-OSS": (of("GptOssForCausalLM", "GptOssConfig", GROUPED | {
        "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1}), "byte-level"),
    "GPT-Neo": (of("GPTNeoForCausalLM", "GPTNeoConfig", {
        "vocab_size": 450, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
        "window_size": 4, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None}), "byte-level"),
    "T5": (of("T5ForConditionalGeneration", "T5Config", T5), "SentencePiece"),
    "BART": (of("BartForConditionalGeneration", "BartConfig", {
        "vocab_size": 450, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 128,
        "decoder_start_token_id": 2, "eos_token_id": None, "forced_eos_token_id": None}), "byte-level"),
}
# Models with attention of their own, which refuse "heed": the report contains the weights that they return.
BY_HAND = {
    "GPT-Neo": MODELS["GPT-Neo"],
    "MPNet": (of("MPNetForMaskedLM", "MPNetConfig", SMALL | {"pad_token_id": 1}), "WordPiece"),
    "DeBERTa 2": (of("DebertaV2ForMaskedLM", "DebertaV2Config", SMALL | {
        "relative_attention": True, "pos_att_type": ["c2p", "p2c"]}), "WordPiece"),
    "Bloom": (of("BloomForCausalLM", "BloomConfig", {"vocab_size": 450, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
              "byte-level"),
    "Falcon": (of("FalconForCausalLM", "FalconConfig", {
        "vocab_size": 450, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}), "byte-level"),
    "MPT": (of("MptForCausalLM", "MptConfig", {"vocab_size": 450, "d_model": 32, "n_layers": 2, "n_heads": 4,
                                               "max_seq_len": 128}), "byte-level"),
    "XGLM": (of("XGLMForCausalLM", "XGLMConfig", {
        "vocab_size": 450, "d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4}), "byte-level"),
    "BLIP": (of("BlipTextLMHeadModel", "BlipTextConfig", SMALL | {"encoder_hidden_size": 32}), "WordPiece"),
}
MODELS |= BY_HAND
MODELS["Switch"] = of("SwitchTransformersForConditionalGeneration", "SwitchTransformersConfig", T5 | {
    "num_decoder_layers": 2, "num_sparse_encoder_layers": 0, "num_sparse_decoder_layers": 0}), "byte-level"  # by hand, too
MODELS["Pegasus-X"] = of("PegasusXForConditionalGeneration", "PegasusXConfig", {
    "vocab_size": 450, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 128, "block_size": 4,
    "num_global_tokens": 2, "decoder_start_token_id": 0, "eos_token_id": None, "forced_eos_token_id": None}), "byte-level"
LONG = {"attention_window": 4}
MODELS["Longformer"] = of("LongformerForMaskedLM", "LongformerConfig", SMALL | LONG), "byte-level"
MODELS["LED"] = of("LEDForConditionalGeneration", "LEDConfig", LONG | {
    "vocab_size": 450, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_encoder_position_embeddings": 64,
    "max_decoder_position_embeddings": 64, "decoder_start_token_id": 2, "eos_token_id": None}), "byte-level"
SINGLE = ["BERT", "GPT-2", "Llama", "Gemma 2", "GPT-OSS", *BY_HAND]


@functools.cache
def made(name):
    torch.manual_seed(1)
    model = MODELS[name][0]().eval()
    for parameter in model.parameters():  # small initial weights would make all attention uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model, small_tokenizers.KINDS[MODELS[name][1]]()


def attentions(model, **given):
    """The results of eager attention, by field. Some models take their attention only when they are made."""
    eager = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    eager.load_state_dict(model.state_dict())
    with torch.no_grad():
        return eager(**given, output_attentions=True)


def joined(layers):
    return np.concatenate([layer.numpy() for layer in layers], 1)


@pytest.mark.parametrize("name", SINGLE)
def test_its_weights_are_eagers(name):
    model, tokenizer = made(name)
    report = heed.transformers.look(model, tokenizer, TEXT)
    given = tokenizer(TEXT, return_tensors="pt")
    expected = joined(attentions(model, **given).attentions)
    assert np.abs(report.weights - expected).max() <= 2e-5  # f32 logits and softmax, in another order
    assert [heads for _, heads in report.layers] == [4] * len(report.layers) and report.layers[1][0] == "1"
    assert report.title == TEXT and TEXT in repr(report) and report.kinds == []
    assert len(report.tokens) == given["input_ids"].shape[1]


@pytest.mark.parametrize("name", ["T5", "BART", "Switch"])
def test_encoder_decoder_and_cross_are_told_apart(name):
    model, tokenizer = made(name)
    report = heed.transformers.look(model, tokenizer, TEXT, target="it was wide")
    assert report.kinds == ["encoder", "decoder", "cross"]
    given = {"input_ids": tokenizer(TEXT, return_tensors="pt")["input_ids"]}
    target = tokenizer("it was wide", return_tensors="pt")["input_ids"]
    given["decoder_input_ids"] = torch.cat((torch.tensor([[model.config.decoder_start_token_id]]), target), 1)
    expected = attentions(model, **given)
    for kind in report.kinds:
        one = report.kind(kind)
        assert np.abs(one.weights - joined(getattr(expected, f"{kind}_attentions"))).max() <= 2e-5, kind
        assert [layer for layer, _ in one.layers] == [str(n) for n in range(len(one.layers))]
    cross = report.kind("cross")
    assert cross.key_tokens == report.tokens and cross.tokens == report.kind("decoder").tokens
    assert "it was wide" in cross.title and TEXT in cross.title and ".kind('cross')" in repr(report)
    with pytest.raises(ValueError, match="kind is 'crss'; 'encoder' or 'decoder' or 'cross' is expected"):
        report.kind("crss")


def test_an_encoder_whose_weights_are_in_blocks_is_left_out():
    model, tokenizer = made("Pegasus-X")
    report = heed.transformers.look(model, tokenizer, TEXT, target="it was wide")
    assert report.kinds == ["decoder", "cross"]
    target = tokenizer("it was wide", return_tensors="pt")["input_ids"]
    expected = attentions(model, input_ids=tokenizer(TEXT, return_tensors="pt")["input_ids"],
                          decoder_input_ids=torch.cat((torch.zeros(1, 1, dtype=torch.int64), target), 1))
    for kind in report.kinds:
        assert np.abs(report.kind(kind).weights - joined(getattr(expected, f"{kind}_attentions"))).max() <= 2e-5, kind


def banded(layer, hidden):
    """The weights of Longformer's layer without global tokens, as full attention under a mask."""
    def heads(projection):
        return projection(hidden).unflatten(2, (4, 8)).transpose(1, 2)

    count, reach = hidden.shape[1], layer.one_sided_attn_window_size
    places = torch.arange(count)
    scores = heads(layer.query) @ heads(layer.key).transpose(2, 3) / 8**0.5
    return scores.masked_fill((places[:, None] - places).abs() > reach, -torch.inf).softmax(-1)


@pytest.mark.parametrize("text", [TEXT, "x y z"])  # one is longer than the window, the other has as many tokens as it
@pytest.mark.parametrize("name", ["Longformer", "LED"])
def test_a_window_is_shown_at_its_keys(name, text):
    model, tokenizer = made(name)
    given = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"]}
    assert (given["input_ids"].shape[1] == 5) == (text != TEXT)
    report = heed.transformers.look(model, tokenizer, text, target=None if name == "Longformer" else "it was wide")
    encoder = model.longformer if name == "Longformer" else model.led.encoder
    with torch.no_grad():
        hidden = encoder(**given, output_hidden_states=True).hidden_states
        layers = [layer.attention.self for layer in encoder.encoder.layer] if name == "Longformer" else [
            layer.self_attn.longformer_self_attn for layer in encoder.layers]
        expected = joined([banded(layer, one) for layer, one in zip(layers, hidden)])
    assert np.abs(report.weights - expected).max() <= 2e-5
    assert len(report.key_tokens) == given["input_ids"].shape[1]


@pytest.mark.parametrize("kind, config, settings, shape", [
    ("LongformerForSequenceClassification", "LongformerConfig", SMALL | LONG, "[1, 4, 6, 6]"),  # 5 of its window, 1 global
    ("NystromformerForMaskedLM", "NystromformerConfig", SMALL | {"num_landmarks": 3, "segment_means_seq_len": 6}, "[1, 4, 6, 3]"),
    ("FunnelModel", "FunnelConfig", {"vocab_size": 450, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48,
                                     "block_sizes": [1, 1]}, "[1, 4, 3, 6]"),
])
def test_weights_on_other_than_tokens_are_refused(kind, config, settings, shape):
    model = of(kind, config, settings)()
    with pytest.raises(ValueError) as refused:
        heed.transformers.look(model, made("BERT")[1], "x y z was")
    assert str(refused.value) == (f"{kind} returns encoder weights of shape {shape}, whose rows or keys are not the tokens of "
                                  f"the text; weights of each token on each token are expected")


def test_an_encoder_of_one_token_is_no_decoder():
    model, tokenizer = made("Switch")
    report = heed.transformers.look(model, tokenizer, "x", target="it was wide")
    shapes = {kind: report.kind(kind).weights.shape[1:] for kind in report.kinds}
    target = report.kind("decoder").weights.shape[2]
    assert shapes == {"encoder": (8, 1, 1), "decoder": (8, target, target), "cross": (8, target, 1)}


def test_an_encoder_joined_to_a_decoder_is_shown():
    tokenizer, decodes = made("BERT")[1], {"is_decoder": True, "add_cross_attention": True}
    torch.manual_seed(2)
    encoder = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(**SMALL, **decodes)).eval()
    joined_model = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder)
    joined_model.config.decoder_start_token_id = 2
    report = heed.transformers.look(joined_model, tokenizer, TEXT, target="it was wide")
    assert report.kinds == ["encoder", "decoder", "cross"]
    expected = attentions(encoder, **tokenizer(TEXT, return_tensors="pt")).attentions
    assert np.abs(report.weights - joined(expected)).max() <= 2e-5
    assert {layer.attention.self.config._attn_implementation for layer in encoder.encoder.layer} == {"sdpa"}


def test_without_a_target_it_is_what_the_model_writes():
    model, tokenizer = made("T5")
    report = heed.transformers.look(model, tokenizer, TEXT, max_new_tokens=5)
    written = model.generate(tokenizer(TEXT, return_tensors="pt")["input_ids"], max_new_tokens=5, do_sample=False)
    assert report.kind("cross").weights.shape[2] == written.shape[1]


def test_a_model_that_cannot_switch_shows_no_future_keys():
    report = heed.transformers.look(*made("Falcon"), TEXT)
    assert not np.triu(report.weights, 1).any() and made("Falcon")[0].config._attn_implementation == "sdpa"


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "heed"])
def test_the_model_is_left_as_it_was(implementation):
    heed.transformers.register()
    model = copy.deepcopy(made("Llama")[0])
    model.set_attn_implementation(implementation)
    model.train()
    model.model.layers[1].eval()
    heed.transformers.look(model, made("Llama")[1], TEXT)
    assert model.config._attn_implementation == implementation
    assert model.training and model.model.layers[0].training and not model.model.layers[1].training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_document_of_it_answers_alike(tmp_path):
    report = heed.transformers.look(*made("Gemma 2"), TEXT)
    for name in ("look.safetensors", "look.html"):
        report.save(tmp_path / name)
    opened = heed.open(tmp_path / "look.safetensors")
    assert opened.layers == report.layers and opened.tokens == report.tokens
    assert np.abs(opened.weights - report.weights).max() <= 1e-6
    assert TEXT in (tmp_path / "look.html").read_text(encoding="utf-8")


def test_layers_can_be_chosen_and_keep_their_numbers():
    model, tokenizer = made("GPT-2")
    report = heed.transformers.look(model, tokenizer, TEXT, layers=[2])
    whole = heed.transformers.look(model, tokenizer, TEXT)
    assert report.layers == [("2", 4)] and np.array_equal(report.weights, whole.weights[:, 8:])


@pytest.mark.parametrize("ask, kind, message", [
    (lambda m, t: heed.transformers.look(t, m, TEXT), TypeError,
     f"model is of type {type(small_tokenizers.byte_level()).__name__}; a model of transformers is expected"),
    (lambda m, t: heed.transformers.look(m, "gpt2", TEXT), TypeError,
     "tokenizer is of type str; a tokenizer of transformers is expected"),
    (lambda m, t: heed.transformers.look(m, t, [TEXT]), TypeError, "text is of type list; a str is expected"),
    (lambda m, t: heed.transformers.look(m, t, ""), ValueError,
     "text is '', from which the tokenizer makes no tokens; at least one is expected"),
    (lambda m, t: heed.transformers.look(m, t, TEXT, title=3), TypeError, "title is 3; a str is expected"),
    (lambda m, t: heed.transformers.look(m, t, TEXT, layers=[9]), ValueError,
     "layers has 9; numbers from 0 to 2, of the layers that ran, are expected"),
    (lambda m, t: heed.transformers.look(m, t, TEXT, layers=[0, 3]), ValueError,
     "layers has 3; numbers from 0 to 2, of the layers that ran, are expected"),
    (lambda m, t: heed.transformers.look(m, t, TEXT, target="x"), ValueError,
     "target is 'x', but GPT2LMHeadModel is not an encoder with a decoder; None is expected"),
])
def test_mistakes_are_sentences(ask, kind, message):
    with pytest.raises(kind) as refused:
        ask(*made("GPT-2"))
    assert str(refused.value) == message


@pytest.mark.parametrize("name, target, given, count", [
    ("BERT", None, "text", 142), ("GPT-2", None, "text", 140), ("BART", None, "text", 140), ("BART", "x" * 139, "target", 140),
    ("GPT-Neo", None, "text", 140)])
def test_a_text_that_is_longer_than_the_positions_is_named(name, target, given, count):
    model, tokenizer = made(name)
    with pytest.raises(ValueError) as refused:
        heed.transformers.look(model, tokenizer, "x" if target else "x " * 140 if name == "BERT" else "x" * 140, target=target)
    assert str(refused.value) == (f"{given} has {count} tokens, but {type(model).__name__} has 128 positions; fewer tokens are "
                                  f"expected")


def test_other_errors_of_a_model_are_its_own():
    model, tokenizer = copy.deepcopy(made("GPT-2")[0]), made("GPT-2")[1]
    model.transformer.wte = torch.nn.Embedding(1, 32)
    with pytest.raises(IndexError, match="index out of range"):
        heed.transformers.look(model, tokenizer, TEXT)
    assert heed.transformers.look(*made("Llama"), "x" * 140).weights.shape[-1] == 142  # its positions have no end


@pytest.mark.parametrize("name", ["GPT-2", "BART"])
def test_capture_gives_the_same_of_any_forward_pass(name):
    model, tokenizer = made(name)
    ours = copy.deepcopy(model)
    ours.set_attn_implementation("heed")
    given = dict(tokenizer(TEXT, return_tensors="pt"))
    given.pop("token_type_ids", None)
    if name == "BART":
        given["decoder_input_ids"] = torch.tensor([[0, 7, 8, 9]])
    with torch.no_grad(), heed.transformers.capture(report=True) as maps:
        ours(**given)
    tokens = heed.transformers.pieces(tokenizer, given["input_ids"][0])
    report = maps.report(tokens, [] if name == "GPT-2" else ["a", "b", "c", "d"], title="mine")
    expected = attentions(model, **given)
    kinds = {"encoder": report, "decoder": None, "cross": None} if name == "BART" else {"": report}
    for kind in kinds:
        one = report.kind(kind) if kind else report
        field = f"{kind}_attentions" if kind else "attentions"
        assert np.abs(one.weights - joined(getattr(expected, field))).max() <= 2e-5
    assert report.tokens == tokens and report.title == "mine"
    assert {call.kind for call in maps} == ({"encoder", "decoder", "cross"} if name == "BART" else {"decoder"})


def test_tokens_of_another_length_are_refused(tmp_path):
    ours, tokenizer = copy.deepcopy(made("BART")[0]), made("BART")[1]
    ours.set_attn_implementation("heed")
    given = {"input_ids": tokenizer("was too tired", return_tensors="pt")["input_ids"], "decoder_input_ids": torch.tensor([[0, 7]])}
    count = given["input_ids"].shape[1]
    with torch.no_grad(), heed.transformers.capture(report=True) as maps:
        ours(**given)
    with torch.no_grad(), heed.transformers.capture(weights=True, to=tmp_path / "run.heed"):
        ours(**given)
    names = list("abcdefghijkl")
    for report in (maps.report, heed.open(tmp_path / "run.heed").report):
        assert report(names[:count], names[:2]).kind("cross").key_tokens == names[:count]
        for wrong, message in (
                ({"tokens": names[:1]}, f"tokens has 1 entry; 2 or {count}"),
                ({"tokens": names[:2], "target_tokens": names[:2]}, f"tokens has 2 entries; {count}"),
                ({"target_tokens": names[:count]}, f"target_tokens has {count} entries; 2"),
                ({"token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, f"token_ids has 9 entries; 2 or {count}"),
                ({"target_token_ids": [1]}, "target_token_ids has 1 entry; 2")):
            with pytest.raises(ValueError) as refused:
                report(**wrong)
            assert str(refused.value) == f"{message}, one for each row or key, are expected"


def test_steps_of_generation_have_a_report_each():
    ours, tokenizer = copy.deepcopy(made("GPT-2")[0]), made("GPT-2")[1]
    ours.set_attn_implementation("heed")
    given = tokenizer(TEXT, return_tensors="pt")
    count = given["input_ids"].shape[1]
    with torch.no_grad(), heed.transformers.capture(report=True, weights=True) as maps:
        written = ours.generate(**given, max_new_tokens=4, do_sample=False)
    tokens = heed.transformers.pieces(tokenizer, written[0])
    step = maps.report(tokens[:count + 2], call=2)
    assert step.weights.shape == (1, 12, 1, count + 2) and step.tokens == tokens[count + 1:count + 2]
    of_layer = maps.of_layer(1)[2].weights.numpy()
    assert np.abs(step.weights[:, 4:8] - of_layer).max() <= 2e-6
    with pytest.raises(ValueError, match="call is 4; 0 to 3 is expected"):
        maps.report(call=4)


def test_folders_and_maps_with_weights_have_reports_too(tmp_path):
    model, tokenizer = made("BART")
    ours = copy.deepcopy(model)
    ours.set_attn_implementation("heed")
    given = {"input_ids": tokenizer(TEXT, return_tensors="pt")["input_ids"]} | {"decoder_input_ids": torch.tensor([[0, 7, 8, 9]])}
    with torch.no_grad(), heed.transformers.capture(weights=True, to=tmp_path / "run.heed"):
        ours(**given)
    report = heed.open(tmp_path / "run.heed").report(heed.transformers.pieces(tokenizer, given["input_ids"][0]), list("abcd"))
    expected = attentions(model, **given)
    for kind in ("encoder", "decoder", "cross"):
        assert np.abs(report.kind(kind).weights - joined(getattr(expected, f"{kind}_attentions"))).max() <= 2e-5
    assert report.kind("cross").tokens == list("abcd")
    with torch.no_grad(), heed.transformers.capture(entropy=True) as bare:
        ours(**given)
    with pytest.raises(ValueError, match=r"capture\(report=True\) or capture\(weights=True\) is expected"):
        bare.report()
    with pytest.raises(ValueError, match="report is True together with to"), heed.transformers.capture(report=True, to=tmp_path / "x"):
        pass


TEXTS = [TEXT, "naïve café — “quoted” €5, Ünïcödé", "日本語 and 🦊 emoji 👩‍👩‍👧", "a  b\n\n\tc ", "attentively 2023 don't.", "x"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", small_tokenizers.KINDS)
def test_texts_of_tokens_are_what_the_tokenizer_decodes(kind, text):
    tokenizer = small_tokenizers.KINDS[kind]()
    ids = tokenizer(text)["input_ids"]
    found = texts_of(tokenizer, ids)
    assert len(found) == len(ids)
    whole = "".join(text for text, n, _ in found if n == 0)
    assert whole == tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def test_long_texts_are_read_in_one_way():
    for kind, make in small_tokenizers.KINDS.items():
        tokenizer = make()
        text = " ".join(TEXTS * 5)
        ids = tokenizer(text)["input_ids"]
        whole = "".join(text for text, n, _ in texts_of(tokenizer, ids) if n == 0)
        assert whole == tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False), kind


@pytest.mark.parametrize("kind", small_tokenizers.KINDS)
def test_pieces_are_shown_as_people_read_them(kind):
    tokenizer = small_tokenizers.KINDS[kind]()
    shown = heed.transformers.pieces(tokenizer, tokenizer("The street was unbeautiful, 🦊")["input_ids"])
    assert not any(mark in piece for piece in shown for mark in ("Ġ", "▁", "##", "\ufffd", "<0x"))
    words = [piece for piece in shown if piece[0] not in "[<"]
    assert "".join(words).replace("·", "").replace(" ", "").lower().startswith("thestreetwasunbeautiful,")
    assert words[0].lower() in ("the", "t") and any(piece.startswith("·") for piece in shown)
    assert "street" in shown and "was" in shown
    if kind == "WordPiece":
        assert shown[0] == "[CLS]" and shown[-2:] == ["[UNK]", "[SEP]"]
    else:
        assert shown[-4:] == ["🦊 1/4", "🦊 2/4", "🦊 3/4", "🦊 4/4"]
    if kind == "SentencePiece":
        assert shown[0] == "<s>"


def test_special_tokens_without_brackets_get_some():
    tokenizer = small_tokenizers.byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": ["end"]})
    number = tokenizer.convert_tokens_to_ids("end")
    assert heed.transformers.pieces(tokenizer, [number, tokenizer.eos_token_id]) == ["⟨end⟩", "<|endoftext|>"]
