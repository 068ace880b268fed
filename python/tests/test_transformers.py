"""attn_implementation="heed" compared with "eager", on small models with random weights."""

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import heed.transformers  # noqa: E402

heed.transformers.register()
SMALL = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "max_position_embeddings": 64}
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
# Two layers of f32 matrix products, in which attention differs by some rounding errors; logits are around 1.
TOLERANCE = 2e-5


def config(kind, **settings):
    return getattr(transformers, kind)(**settings, bos_token_id=1, eos_token_id=None, pad_token_id=0)


MODELS = {
    "BERT": lambda: transformers.BertForMaskedLM(config("BertConfig", **SMALL)),
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        config("GPT2Config", vocab_size=50, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "Llama": lambda: transformers.LlamaForCausalLM(config("LlamaConfig", **GROUPED)),
    "Mistral": lambda: transformers.MistralForCausalLM(config("MistralConfig", **GROUPED, sliding_window=4)),
    "Gemma 2": lambda: transformers.Gemma2ForCausalLM(
        config("Gemma2Config", **GROUPED, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=4)),
    "GPT-OSS": lambda: transformers.GptOssForCausalLM(
        config("GptOssConfig", **GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1)),
    "Gemma 3": lambda: transformers.Gemma3ForCausalLM(
        config("Gemma3TextConfig", **GROUPED, sliding_window=4, query_pre_attn_scalar=4, layer_types=["sliding_attention", "full_attention"])),
    "Gemma 4": lambda: transformers.Gemma4ForCausalLM(  # the last layer has the keys of the one before it
        config("Gemma4TextConfig", **{**GROUPED, "num_hidden_layers": 3}, sliding_window=4, global_head_dim=16, num_kv_shared_layers=1,
               layer_types=["sliding_attention", "full_attention", "full_attention"], hidden_size_per_layer_input=8,
               vocab_size_per_layer_input=50)),
    "Qwen3-Next": lambda: transformers.Qwen3NextForCausalLM(  # attention with a gate, beside a layer without attention
        config("Qwen3NextConfig", **{**GROUPED, "num_hidden_layers": 3}, layer_types=["full_attention", "linear_attention", "full_attention"],
               linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, num_experts=2,
               num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16)),
    "DeepSeek-V3": lambda: transformers.DeepseekV3ForCausalLM(  # values are narrower than keys
        config("DeepseekV3Config", **SMALL, num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
               v_head_dim=6, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16,
               first_k_dense_replace=1)),
    "GLM-4": lambda: transformers.Glm4ForCausalLM(config("Glm4Config", **GROUPED)),
    "Llama 4": lambda: transformers.Llama4ForCausalLM(  # a layer with windows of chunks, and one without positions
        config("Llama4TextConfig", **GROUPED, intermediate_size_mlp=48, attention_chunk_size=4, num_local_experts=2, no_rope_layers=[1, 0],
               interleave_moe_layer_step=2)),
    "T5": lambda: transformers.T5ForConditionalGeneration(config(
        "T5Config", vocab_size=50, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)),
}
if int(transformers.__version__.partition(".")[0]) < 5:  # before version 5 these have attention of their own
    del MODELS["BERT"], MODELS["T5"]
for name, missing in {"Gemma 4": "Gemma4ForCausalLM", "Qwen3-Next": "Qwen3NextForCausalLM", "Llama 4": "Llama4ForCausalLM"}.items():
    if not hasattr(transformers, missing):
        del MODELS[name]
NEWER = ["Gemma 3", "Gemma 4", "Qwen3-Next", "DeepSeek-V3", "GLM-4", "Llama 4"]
GENERATE = [name for name in ["GPT-2", "Llama", "Mistral", "Gemma 2", "GPT-OSS", "DeepSeek-V3", "Llama 4", "T5"] if name in MODELS]


def pair(name):
    """The model with eager attention, and a copy with heed's."""
    torch.manual_seed(1)
    eager = MODELS[name]().eval()
    for parameter in eager.parameters():  # small initial weights would make all attention uniform
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    ours = copy.deepcopy(eager)
    eager.set_attn_implementation("eager")
    ours.set_attn_implementation("heed")
    return eager, ours


def inputs(name, padded=True):
    torch.manual_seed(2)
    ids = torch.randint(3, 50, (2, 9))
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if padded:
        given["attention_mask"][1, :3] = 0
    if name == "T5":
        given["decoder_input_ids"] = torch.randint(3, 50, (2, 7))
    return given


def seen(given):
    """The positions to compare. Outputs at padded positions are unused and may differ."""
    return given["attention_mask"].bool() if "decoder_input_ids" not in given else slice(None)


def assert_close(got, expected, tolerance=TOLERANCE):
    assert got.shape == expected.shape
    assert bool(((got - expected).abs() <= tolerance * (1 + expected.abs())).all()), (got - expected).abs().max()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_eager(name, padded):
    eager, ours = pair(name)
    given = inputs(name, padded)
    with torch.no_grad():
        expected, got = eager(**given).logits, ours(**given).logits
    assert_close(got[seen(given)], expected[seen(given)])


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_eager(name):
    eager, ours = pair(name)
    given = inputs(name)
    for model in (eager, ours):
        model(**given).logits[seen(given)].square().mean().backward()
    compared = 0
    for (parameter, expected), (_, got) in zip(eager.named_parameters(), ours.named_parameters(), strict=True):
        if expected.grad is not None:
            assert_close(got.grad, expected.grad, 5e-4)  # the largest are some hundreds: sums over 16 positions
            compared += 1
    assert compared > 10


@pytest.mark.parametrize("name", GENERATE)
def test_generation_with_a_cache_chooses_the_same_tokens(name):
    eager, ours = pair(name)
    given = {key: value for key, value in inputs(name).items() if key != "decoder_input_ids"}
    expected, got = (model.generate(**given, max_new_tokens=8, do_sample=False) for model in (eager, ours))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", MODELS)
def test_attentions_are_returned_where_asked_for(name):
    eager, ours = pair(name)
    given = inputs(name)
    with torch.no_grad():
        expected, got = eager(**given, output_attentions=True), ours(**given, output_attentions=True)
    fields = ("encoder_attentions", "decoder_attentions", "cross_attentions") if name == "T5" else ("attentions",)
    for field in fields:
        assert len(got[field]) == len(expected[field]) >= 2
        for ours_layer, theirs in zip(got[field], expected[field], strict=True):
            rows = given["attention_mask"].bool()[:, None, :, None].expand(ours_layer[..., :1].shape) if (
                name != "T5") else torch.ones_like(ours_layer[..., :1], dtype=torch.bool)
            assert_close(ours_layer * rows, theirs * rows)
    assert ours(**given).get(fields[0]) is None  # and only in that field


@pytest.mark.parametrize("name", MODELS)
def test_what_is_captured_are_the_attentions_in_short(name):
    eager, ours = pair(name)
    given = inputs(name, padded=False)
    with torch.no_grad(), heed.transformers.capture(top_k=3, entropy=True, received=True, weights=True) as maps:
        ours(**given)
    with torch.no_grad():
        expected = eager(**given, output_attentions=True)
    if name == "T5":
        layers = [*expected.encoder_attentions,
                  *(w for both in zip(expected.decoder_attentions, expected.cross_attentions) for w in both)]
    else:
        layers = expected.attentions
    assert [call.layer for call in maps] == list(range(len(layers)))
    for call, weights in zip(maps, layers, strict=True):
        assert_close(call.weights, weights)
        assert_close(call.entropy, torch.special.entr(weights).sum(-1))
        assert_close(call.received, weights.sum(-2))
        assert_close(call.top_k_weight, weights.topk(3).values)


def test_a_capture_holds_no_more_than_it_was_asked_for_and_ends():
    _, ours = pair("Llama")
    given = inputs("Llama")
    with heed.transformers.capture(top_k=2) as maps:
        ours.generate(**given, max_new_tokens=3, do_sample=False)
    assert len(maps) == 6 and len(maps.of_layer(1)) == 3  # two layers, three steps
    assert [call.top_k_index.shape[2] for call in maps.of_layer(0)] == [9, 1, 1]
    assert maps[0].weights is None and maps[0].entropy is None and maps[0].received is None
    ours(**given)
    assert len(maps) == 6


@pytest.mark.parametrize("name", ["Llama", "Gemma 2"])
def test_a_model_in_half_precision(name):
    eager, ours = pair(name)
    given = inputs(name, padded=False)
    with torch.no_grad():
        expected = eager(**given).logits
        got = ours.bfloat16()(**given).logits
        plain = eager.bfloat16()(**given).logits
    assert got.dtype == torch.bfloat16
    error, yardstick = ((x.float() - expected).square().mean().sqrt() for x in (got, plain))
    assert bool(error <= 1.5 * yardstick), (error, yardstick)


# Handwritten attention, or a table of names: accepting "heed" would give wrong numbers, no numbers, or KeyError.
BY_HAND = {
    "CodeGenForCausalLM": ("CodeGenConfig", {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4,
                                             "n_positions": 64}),
    "MPNetForMaskedLM": ("MPNetConfig", SMALL),
    "BloomForCausalLM": ("BloomConfig", {"vocab_size": 50, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "GPTJForCausalLM": ("GPTJConfig", {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}),
    "GPTNeoForCausalLM": ("GPTNeoConfig", {"vocab_size": 50, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                                           "attention_types": [[["global", "local"], 1]]}),
    "FalconForCausalLM": ("FalconConfig", {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2,
                                           "num_attention_heads": 4}),
    "MptForCausalLM": ("MptConfig", {"vocab_size": 50, "d_model": 32, "n_layers": 2, "n_heads": 4}),
    "DebertaV2ForMaskedLM": ("DebertaV2Config", SMALL),
    "XLNetLMHeadModel": ("XLNetConfig", {"vocab_size": 50, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
}
if tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24):  # these take the function
    del BY_HAND["CodeGenForCausalLM"], BY_HAND["GPTJForCausalLM"]


@pytest.mark.parametrize("name", BY_HAND)
def test_a_model_with_attention_of_its_own_is_refused_however_heed_is_asked_for(name, tmp_path):
    kind, settings = BY_HAND[name]
    model_class = getattr(transformers, name)
    model = model_class(config(kind, **settings)).eval()
    model.save_pretrained(tmp_path)
    loaded = model.config._attn_implementation
    refused = (f'attn_implementation is "heed", but {name} does not take its attention from transformers\' '
               'AttentionInterface: expected "eager", with which heed.transformers.look() shows the weights that the model '
               'returns')
    for ask in (
        lambda: model_class._from_config(config(kind, **settings), attn_implementation="heed"),
        lambda: model_class(config(kind, **settings, attn_implementation="heed")),
        lambda: model_class.from_pretrained(tmp_path, attn_implementation="heed"),
        lambda: model.set_attn_implementation("heed"),
        lambda: model.set_attn_implementation({"": "heed"}),
    ):
        with pytest.raises(ValueError) as error:
            ask()
        assert str(error.value) == refused
    assert model.config._attn_implementation == loaded
    with pytest.raises(RuntimeError, match="collected nothing"), heed.transformers.capture():
        model(torch.tensor([[3, 4, 5]]))


def test_a_part_of_a_model_can_have_heed():
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
              "image_size": 16, "patch_size": 8}
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
        text_config=config("LlamaConfig", **GROUPED).to_dict(),
        vision_config=transformers.CLIPVisionConfig(**vision).to_dict(), image_token_index=4))
    model.set_attn_implementation({"text_config": "heed"})
    assert model.config.text_config._attn_implementation == "heed"
    assert model.config.vision_config._attn_implementation != "heed"
    model.set_attn_implementation("heed")
    assert model.config.vision_config._attn_implementation == "heed"


@pytest.mark.parametrize("capturing", [False, True])
def test_later_layers_may_keep_the_last_queries_only(capturing):
    """Gemma 4's layers that share keys and values do so. Causal then means that the last query sees all keys."""
    torch.manual_seed(1)
    model = transformers.Gemma4ForCausalLM._from_config(
        config("Gemma4TextConfig", **(GROUPED | {"num_hidden_layers": 4}), global_head_dim=8, num_kv_shared_layers=2,
               hidden_size_per_layer_input=8, vocab_size_per_layer_input=50,
               layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=16),
        attn_implementation="heed").eval()
    ids = inputs("Llama")["input_ids"]
    with torch.no_grad():
        expected = model(ids).logits[:, -3:]
        if capturing:
            with heed.transformers.capture():
                got = model(ids, logits_to_keep=3).logits
        else:
            got = model(ids, logits_to_keep=3).logits
    assert_close(got, expected)


@pytest.mark.parametrize("name", ["indices", "block_indices", "sinks", "cache"])
def test_what_heed_does_not_know_is_refused(name):
    q = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError) as error:
        heed.transformers.heed_attention_forward(torch.nn.Identity(), q, q, q, None, **{name: torch.zeros(1)})
    assert str(error.value) == (f'attn_implementation is "heed", which does not know what Identity passes as {name}: '
                                'expected "eager"')


def test_a_capture_of_nothing_says_so():
    eager, ours = pair("Llama")
    given = inputs("Llama")
    for run in (lambda: eager(**given), lambda: None):
        with pytest.raises(RuntimeError) as error, heed.transformers.capture():
            run()
        assert str(error.value) == ('capture() collected nothing: expected a model with attn_implementation="heed" to '
                                    'run within it, in the same thread')
    with pytest.raises(KeyError), heed.transformers.capture():  # an exception inside is not hidden
        raise KeyError


def test_what_is_compiled_is_captured_too():
    _, ours = pair("Llama")
    given = inputs("Llama", padded=False)
    compiled = torch.compile(ours, backend="aot_eager")
    with torch.no_grad():
        compiled(**given, use_cache=False)
        with heed.transformers.capture(entropy=True) as expected:
            ours(**given, use_cache=False)
        with heed.transformers.capture(entropy=True) as maps:
            compiled(**given, use_cache=False)
    assert len(maps) == len(expected) == 2
    assert all(torch.equal(one.entropy, other.entropy) for one, other in zip(maps, expected, strict=True))


def test_maps_print_in_short():
    _, ours = pair("Llama")
    with torch.no_grad(), heed.transformers.capture(top_k=2, entropy=True) as maps:
        ours(**inputs("Llama"))
        ours(**inputs("Llama"))
    assert str(maps) == "<Maps: calls 4, layers 2, each with lse, entropy, top_k=2>"
    assert str(maps[1]) == ("<layer 1, LlamaAttention: lse [2, 4, 9], entropy [2, 4, 9], top_k_index [2, 4, 9, 2], "
                            "top_k_weight [2, 4, 9, 2]>")


def test_it_compiles_without_a_break():
    _, ours = pair("Llama")
    given = inputs("Llama", padded=False)
    with torch.no_grad():
        expected = ours(**given, use_cache=False).logits
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        assert_close(compiled(**given, use_cache=False).logits, expected)


def test_without_transformers_one_sentence_says_so():
    program = """
import sys
sys.modules["transformers"] = None
try:
    import heed.transformers
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == ("heed.transformers needs transformers, which is not installed: "
                          "pip install transformers\n")


def test_a_version_without_what_heed_builds_on_is_named_in_one_sentence():
    program = """
import transformers.masking_utils
del transformers.masking_utils.sdpa_mask
try:
    import heed.transformers
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == ("heed.transformers needs transformers.masking_utils.sdpa_mask, which transformers "
                          f"{transformers.__version__} does not have: expected a version from 4.57 to 5.24\n")
