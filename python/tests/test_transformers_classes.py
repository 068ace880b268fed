"""attn_implementation="heed" for every model type in the installed transformers: one refusal, or eager's numbers.

One class per type runs. The others have the same layers with other heads; they are refused if the first one is."""

import copy
import inspect
import pathlib
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
# Some layers of f32 matrix products, in which attention differs by some rounding errors; largest seen: 4e-6.
TOLERANCE = 2e-5
SENTENCE = re.compile(r'attn_implementation is "heed", (but \w+ does not take its attention from transformers\' '
                      r'AttentionInterface: expected "eager", with which heed.transformers.look\(\) shows the weights that '
                      r'the model returns|which does not know what \w+ passes as \w+: expected "eager")')
# Types that do not run here, by reason. Their parts are types of their own, and most of those run.
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
NO_ATTENTION = ["muse_spark_audio"]
# Types whose eager attention is no valid reference; they are compared with transformers' sdpa.
SDPA = {
    "colpali": "takes no token_type_ids, without which its eager is causal and all else is not",
    "nemotron3_5_asr": "its eager gives NaN to rows that see no key, and from there to all",
    "nemotron_asr_streaming": "the same",
    "nemotron_asr_streaming_encoder": "the same",
}


DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/model-types.md"
NATIVE, RUN, NOT_RUN_HERE, EAGER, NONE = (
    "Read from a folder", 'In transformers with attn_implementation="heed"',
    'In transformers with attn_implementation="heed", but not run by the tests',
    'With attn_implementation="eager" alone', "Without a model")


def listed():
    """{heading of docs/model-types.md: the types that it lists}."""
    parts = [part.strip().split("\n") for part in DOCUMENT.read_text().split("\n## ")[1:]]
    return {lines[0]: " ".join("\n".join(lines).split("\n\n")[-1].split("\n")).split(", ") for lines in parts}


LISTED = {kind: heading for heading, kinds in listed().items() if heading != NATIVE for kind in kinds}


def representative(kind):
    """The most informative class: with a causal head, with another head, or the first."""
    found = small_models.classes(TYPES[kind])
    found = [model for model in found if model.config_class.model_type == kind] or found
    for end in ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "Model"):
        for one in found:
            if one.__name__.endswith(end):
                return one
    return found[0] if found else None


class Calls:
    """heed's function with a call counter. `wrong` makes it attend to all keys alike, to see that the test notices."""

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
    """The model. If it has too many parameters to run here, the test fails before allocating them."""
    with torch.device("meta"):
        planned = model._from_config(copy.deepcopy(config), attn_implementation=implementation)
    assert sum(x.numel() for x in planned.parameters()) < LARGEST
    torch.manual_seed(0)
    return model._from_config(copy.deepcopy(config), attn_implementation=implementation).eval()


def tensors(value, name=""):
    """{path: tensor} of a model's results, without its cache."""
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
    torch.manual_seed(3)  # some models draw their masks
    return tensors(model(**given))


def first_that_runs(model):
    """(inputs, outputs) of the first inputs that the model accepts."""
    for given in small_models.inputs(model):
        try:
            return given, run(model, given)
        except Exception as error:  # the model does not accept these inputs
            last = error
    raise last


def paddings(model, given):
    """(side, inputs, positions of words)."""
    every = torch.ones(2, LENGTH, dtype=torch.bool)
    yield "none", given, every
    if "input_ids" in given and "attention_mask" in inspect.signature(model.forward).parameters:
        for side, padded in (("left", slice(0, 3)), ("right", slice(-3, None))):
            held = every.clone()
            held[1, padded] = False
            yield side, {**given, "attention_mask": held.long()}, held


def seen(found, side, held, given):
    """The results to compare: no padded positions, and with left padding no summary of the first position."""
    kept = {}
    for name, tensor in found.items():
        words = tensor.dim() > 1 and tensor.shape[:2] == held.shape
        decoded = "decoder_input_ids" in given and tensor.dim() > 1 and tensor.shape[1] == DECODED
        if side != "left" or words or decoded:
            kept[name] = tensor[held] if words else tensor
    return kept


def difference(got, expected):
    """The largest difference, relative to 1 + abs(expected); infinite if there is a NaN."""
    assert got.keys() == expected.keys()
    worst = [((got[name] - x).abs() / (1 + x.abs())).max() for name, x in expected.items() if x.numel()]
    return max((float(x) if not x.isnan() else float("inf") for x in worst), default=0.0)


def check_causality(eager, ours, given):
    """If another last word does not change eager's results before it, it must not change heed's."""
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
    assert {*NOT_RUN, *SDPA, *NO_ATTENTION} <= set(TYPES)
    assert set(LISTED) == set(TYPES) and sum(map(len, listed().values())) == len(TYPES) + len(listed()[NATIVE])


def test_the_families_of_folders_are_those_of_the_document(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    with pytest.raises(OSError) as error:
        heed.load_model(tmp_path)
    assert re.search("heed runs ([^.]*)[.]", str(error.value))[1].split(", ") == listed()[NATIVE]


@pytest.mark.parametrize("kind", TYPES)
def test_a_model_is_refused_or_says_what_it_says_with_eager(kind, calls):
    model = representative(kind)
    if model is None:
        assert LISTED[kind] == NONE
        pytest.skip("its classes need a library that is not installed, or are not exported")
    if kind in NOT_RUN:
        pytest.skip(NOT_RUN[kind])
    try:
        config = small_models.small(CONFIG_MAPPING[kind]())
        ours = make(model, config, "heed")
    except ImportError as error:
        assert LISTED[kind] in (NOT_RUN_HERE, EAGER)
        pytest.skip(" ".join(str(error).split())[:60])
    except ValueError as error:
        assert SENTENCE.fullmatch(str(error)) and LISTED[kind] == EAGER, error
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
            assert SENTENCE.fullmatch(str(error)) and LISTED[kind] == EAGER, error
            return
        assert calls.count > 0 or kind in NO_ATTENTION
        assert difference(got, expected) <= TOLERANCE, side
    assert LISTED[kind] == RUN
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
    refused = {is_refused(model) for model in found}
    assert len(refused) <= 1
    if kind in NOT_RUN:
        assert LISTED[kind] == (EAGER if True in refused else NOT_RUN_HERE)
