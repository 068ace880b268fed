"""attn_implementation="heed" with every type of model in the installed transformers: refused with a message, or the
numbers of eager. One class of each type runs. Its other classes, with the same layers under other heads, are refused
exactly if it is."""

import copy
import inspect
import re

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import small_models  # noqa: E402
from small_models import DECODED, LENGTH  # noqa: E402
from transformers import AttentionInterface  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

import heed.transformers  # noqa: E402

heed.transformers.register()
transformers.logging.set_verbosity_error()
TYPES = small_models.model_types()
# Several layers of f32 matrix products; attention between them differs by a few roundings. Largest difference seen:
# 4e-6.
TOLERANCE = 2e-5
SENTENCE = re.compile(r'attn_implementation is "heed", (but \w+ does not take its attention from transformers\' '
                      r'AttentionInterface|which does not know what \w+ passes as \w+): expected "eager"')
# Types that are not run, by reason. Their parts are types of their own, most of which are run.
NOT_SMALL = {
    "its sizes are in lists or in code, and too large": """
        blt dots3_note dots3_note_text edgetam_video florence2 inkling_mm_model janus neucodec pe_audio pe_audio_encoder
        qwen2_5_omni sam2 sam2_hiera_det_model sam2_video sam2_vision_model xcodec2""",
    "no config is made by names of fields alone": """
        chameleon csm depth_pro diffusion_gemma emu3 ernie4_5_vl_moe fun_asr_nano gemma4_assistant
        gemma4_unified_assistant granite4_vision kyutai_speech_to_text lw_detr mimi mimi_decoder molmo2
        moonshine_streaming nemotron_h_omni pocket_tts_audio_tokenizer pocket_tts_audio_tokenizer_decoder
        qwen2_5_omni_thinker qwen3_omni_moe qwen3_omni_moe_thinker sapiens2 shieldgemma2 step3p7 t5gemma2_encoder""",
    "its inputs are of a kind of their own": """
        audioflamingo3_encoder blip-2 blip_2_qformer decision_transformer dia efficientloftr fun_asr_nano_encoder
        gemma3n_audio gemma4_vision glm_image_vqmodel granite_speech5_ctc granite_speech5_encoder idefics
        inkling2_vision instructblip instructblipvideo jev kimi_k25_vision kosmos-2 minicpm_ocr_vision minicpmv4_7_vision
        muse_glimmer_assistant nemotron3_5_transcribe_word_timestamp pi0 pix2struct qwen3_asr_encoder sam3_tracker
        sam3_tracker_video sam3_video seamless_m4t seamless_m4t_v2 siglip2 siglip2_vision_model timesfm timesfm2_5
        video_llama_3_vision voxtral_realtime""",
}
NOT_RUN = {kind: reason for reason, kinds in NOT_SMALL.items() for kind in kinds.split()}
LARGEST = 1.5e7
# Widely used types, to make sure that not all are refused.
ACCEPTED = """albert bart bert clip deepseek_v3 distilbert electra gemma gemma2 gemma3_text gemma4_text gpt2 gpt_neox
    gpt_oss granite jamba llama llava m2m_100 mistral mixtral modernbert olmo2 opt phi3 qwen2 qwen2_vl qwen3 qwen3_moe
    roberta siglip smollm3 t5 vit wav2vec2 whisper xlm-roberta""".split()
NO_ATTENTION = ["muse_spark_audio"]
# Types that are compared with transformers' own sdpa, because their eager is unsuitable.
SDPA = {
    "colpali": "takes no token_type_ids, without which its eager is causal and all else is not",
    "nemotron3_5_asr": "its eager gives NaN to rows that see no key, and from there to all",
    "nemotron_asr_streaming": "the same",
    "nemotron_asr_streaming_encoder": "the same",
}


def representative(kind):
    """The most informative class: one with a causal head, else with any head, else the first."""
    found = small_models.classes(TYPES[kind])
    found = [model for model in found if model.config_class.model_type == kind] or found
    for end in ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "Model"):
        for one in found:
            if one.__name__.endswith(end):
                return one
    return found[0] if found else None


class Calls:
    """Counts calls of heed's function. Can instead attend to all keys alike, to see whether the test would notice."""

    def __init__(self):
        self.count, self.wrong = 0, False

    def __call__(self, module, query, key, value, *args, **kwargs):
        self.count += 1
        if self.wrong:
            mean = value.mean(2, keepdim=True).repeat_interleave(query.shape[1] // value.shape[1], 1)
            return mean.expand(-1, -1, query.shape[2], -1).transpose(1, 2).contiguous(), None
        return heed.transformers.heed_attention_forward(module, query, key, value, *args, **kwargs)


@pytest.fixture
def calls():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    counted = Calls()
    AttentionInterface.register("heed", counted)
    yield counted
    heed.transformers.register()
    torch.set_num_threads(threads)


def make(model, config, implementation):
    """The model. If it has too many parameters to run here, the test fails before it takes memory."""
    with torch.device("meta"):
        planned = model._from_config(copy.deepcopy(config), attn_implementation=implementation)
    assert sum(x.numel() for x in planned.parameters()) < LARGEST
    torch.manual_seed(0)
    return model._from_config(copy.deepcopy(config), attn_implementation=implementation).eval()


def tensors(value, name=""):
    """{path: tensor} for the output of a model, without its cache."""
    if isinstance(value, torch.Tensor):
        return {name: value} if value.is_floating_point() else {}
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    found = {}
    for key, part in (value.items() if hasattr(value, "items") else ()):
        if key != "past_key_values":
            found |= tensors(part, f"{name}.{key}")
    return found


@torch.no_grad()
def run(model, given):
    torch.manual_seed(3)  # some models draw random masks
    return tensors(model(**given))


def first_that_runs(model):
    """The first inputs that the model accepts, and its output."""
    for given in small_models.inputs(model):
        try:
            return given, run(model, given)
        except Exception as error:  # not for this model, whose errors have no common type
            last = error
    raise last


def paddings(model, given):
    """(side, inputs, positions that hold words)."""
    every = torch.ones(2, LENGTH, dtype=torch.bool)
    yield "none", given, every
    if "input_ids" in given and "attention_mask" in inspect.signature(model.forward).parameters:
        for side, padded in (("left", slice(0, 3)), ("right", slice(-3, None))):
            held = every.clone()
            held[1, padded] = False
            yield side, {**given, "attention_mask": held.long()}, held


def seen(found, side, held, given):
    """The outputs that a reader would use. Padded positions are left out. With padding on the left, summaries of the
    first position are left out too."""
    kept = {}
    for name, tensor in found.items():
        words = tensor.dim() > 1 and tensor.shape[:2] == held.shape
        decoded = "decoder_input_ids" in given and tensor.dim() > 1 and tensor.shape[1] == DECODED
        if side != "left" or words or decoded:
            kept[name] = tensor[held] if words else tensor
    return kept


def difference(got, expected):
    """The largest difference, relative to 1 + abs(expected); infinite if either is NaN."""
    assert got.keys() == expected.keys()
    worst = [((got[name] - x).abs() / (1 + x.abs())).max() for name, x in expected.items() if x.numel()]
    return max((float(x) if not x.isnan() else float("inf") for x in worst), default=0.0)


def check_causality(eager, ours, given):
    """If changing the last word does not change eager's output at earlier words, it must not with heed."""
    if "input_ids" not in given or "decoder_input_ids" in given:
        return
    other = {**given, "input_ids": given["input_ids"].clone()}
    other["input_ids"][:, -1] += 1
    before = torch.ones(2, LENGTH, dtype=torch.bool)
    before[:, -1] = False

    def moved(model):
        return difference(*(seen(run(model, x), "left", before, x) for x in (given, other)))

    if moved(eager) <= TOLERANCE:
        assert moved(ours) <= TOLERANCE


def test_what_is_named_here_is_there():
    assert {*NOT_RUN, *SDPA, *ACCEPTED, *NO_ATTENTION} <= set(TYPES)


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_is_refused_or_says_what_it_says_with_eager(kind, calls):
    model = representative(kind)
    if model is None:
        pytest.skip("its classes need a library that is not installed, or are not exported")
    if kind in NOT_RUN:
        pytest.skip(NOT_RUN[kind])
    try:
        config = small_models.small(CONFIG_MAPPING[kind]())
        ours = make(model, config, "heed")
    except ImportError as error:
        pytest.skip(" ".join(str(error).split())[:60])
    except ValueError as error:
        assert SENTENCE.fullmatch(str(error)) and kind not in ACCEPTED, error
        return
    eager = make(model, config, "eager")
    small_models.randomise(eager)
    ours.load_state_dict(eager.state_dict())
    given, said = first_that_runs(eager)
    assert said
    yardstick = eager
    if kind in SDPA:
        yardstick = make(model, config, "sdpa")
        yardstick.load_state_dict(eager.state_dict())
    for side, padded, held in paddings(eager, given):
        expected = seen(run(yardstick, padded), side, held, padded)
        calls.count = 0
        try:
            got = seen(run(ours, padded), side, held, padded)
        except ValueError as error:
            assert SENTENCE.fullmatch(str(error)), error
            return
        assert calls.count > 0 or kind in NO_ATTENTION
        assert difference(got, expected) <= TOLERANCE, side
    if kind not in NO_ATTENTION:
        check_causality(yardstick, ours, given)
        calls.wrong = True
        assert difference(run(ours, given), run(yardstick, given)) > 10 * TOLERANCE, "this test would see nothing"


@pytest.mark.parametrize("kind", TYPES)
def test_all_classes_of_a_type_are_refused_or_none(kind):
    def is_refused(model):
        try:
            model.__new__(model).get_correct_attn_implementation("heed")
        except ValueError as error:
            assert SENTENCE.fullmatch(str(error)), error
            return True
        return False

    found = small_models.classes(TYPES[kind])
    assert len({is_refused(model) for model in found}) <= 1
