"""heed.transformers.look(picture=…) and word_times, on small models with random weights. The grid is that of the
processor's own output; times are those of transformers' return_token_timestamps."""

import io
import json
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
image = pytest.importorskip("PIL.Image")

import heed  # noqa: E402
import heed.transformers  # noqa: E402
import small_tokenizers  # noqa: E402
from heed._hf_times import path_of, smoothed, starts_of  # noqa: E402
from transformers.models.whisper import generation_whisper  # noqa: E402

VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32,
          "patch_size": 8}
TEXT = {"vocab_size": 460, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}


def photo(height=40, width=60):
    return image.fromarray((np.random.default_rng(0).random((height, width, 3)) * 255).astype("uint8"))


def picture_on(report):
    """The picture of a report's page."""
    return json.loads(re.search(r'id="page">\s*(.*?)</script>', report.page(), re.S)[1])["picture"]


def test_vit_has_the_grid_of_its_pixels_after_the_class_token():
    torch.manual_seed(0)
    model = transformers.ViTModel(transformers.ViTConfig(**VISION | {"image_size": (32, 48)}))
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 48})
    report = heed.transformers.look(model, processor, picture=photo())
    shown = picture_on(report)
    assert (shown["rows"], shown["columns"], shown["first"]) == (4, 6, 1)
    assert report.key_tokens[0] == "[CLS]" and report.key_tokens[1] == "0,0" and report.key_tokens[-1] == "3,5"
    model.set_attn_implementation("eager")
    expected = model(**processor(images=photo(), return_tensors="pt"), output_attentions=True).attentions
    assert np.allclose(report.weights[0, 4:], expected[1][0].detach(), atol=1e-6)


def test_the_picture_is_shown_as_the_model_sees_it():
    model = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION))
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    report = heed.transformers.look(model, processor, picture=photo())
    assert report._patches[1:] == (4, 4, 1)
    seen = np.asarray(image.open(io.BytesIO(report._patches.picture)), np.float64) / 255
    pixels = processor(images=photo(), return_tensors="pt")["pixel_values"][0].permute(1, 2, 0).numpy()
    assert np.abs(seen - (pixels * processor.image_std + processor.image_mean)).max() < 0.51 / 255


def llava():
    tokenizer = small_tokenizers.byte_level()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    tokenizer.pad_token = tokenizer.eos_token = "<image>"
    number = tokenizer.convert_tokens_to_ids("<image>")
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}), tokenizer,
        patch_size=8, vision_feature_select_strategy="default", image_token="<image>", num_additional_image_tokens=1)
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION), text_config=transformers.LlamaConfig(**TEXT), image_token_id=number,
        vision_feature_layer=-1))
    return model, processor, number


def test_llava_has_its_patches_where_the_processor_put_them():
    model, processor, number = llava()
    report = heed.transformers.look(model, processor, "look: <image> what?", picture=photo())
    ids = processor(text=["look: <image> what?"], images=[photo()], return_tensors="pt")["input_ids"][0].tolist()
    places = [n for n, one in enumerate(ids) if one == number]
    text = next(one for one in (report.kind(name) for name in report.kinds) if one._data.keys == len(ids))
    assert text._patches[1:] == (4, 4, places[0]) and len(places) == 16
    encoder = next(one for one in (report.kind(name) for name in report.kinds) if one._data.keys == 17)
    assert encoder._patches[1:] == (4, 4, 1)


def test_qwen_has_the_grid_of_the_processor_after_merging():
    from heed._hf_picture import grid_of, patches_of

    processor = transformers.Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=28 * 28 * 24)
    made = processor(images=photo(80, 120), return_tensors="pt")
    frames, rows, columns = made["image_grid_thw"][0].tolist()
    count = frames * rows * columns // processor.merge_size ** 2
    config = transformers.Qwen2VLConfig(image_token_id=7)
    model = type("Model", (), {"config": config})()
    ids = torch.tensor([[5, 6, *[7] * count, 8]])
    grid = grid_of(model, {"input_ids": ids, **made})
    assert patches_of(grid, ids.shape[1], True) == (rows // 2, columns // 2, 2)
    assert patches_of(grid, rows * columns, False) is None  # its encoder reads the patches in blocks of 2 x 2


@pytest.mark.parametrize("given, message", [
    ({"grid": (4, 4), "first_patch": 2}, "grid is 4 x 4 patches from key 2 on, but there are 17 keys"),
    ({"grid": (0, 4)}, "grid is 0 x 4 patches from key 0 on, but there are 17 keys")])
def test_a_grid_that_does_not_fit_is_refused(given, message):
    x = np.random.default_rng(1).standard_normal((1, 17, 8), np.float32)
    with pytest.raises(ValueError, match=re.escape(message)):
        heed.look(x, x, x).set_picture(b"", **given)


def test_a_file_that_is_no_picture_is_refused(tmp_path):
    x = np.random.default_rng(1).standard_normal((1, 17, 8), np.float32)
    report = heed.look(x, x, x).set_picture(b"GIF89a", (4, 4), 1)
    with pytest.raises(ValueError, match="the picture is neither PNG nor JPEG; one of the two is expected"):
        report.save(tmp_path / "look.html")


def test_the_path_and_the_filter_are_those_of_whisper():
    draw = np.random.default_rng(2)
    for _ in range(20):
        rows, columns = draw.integers(1, 12), draw.integers(4, 40)
        cost = draw.standard_normal((rows, columns)).round(int(draw.integers(0, 3)))
        expected = generation_whisper._dynamic_time_warping(cost)
        assert [list(one) for one in expected] == [list(one) for one in path_of(cost)]
        heads = torch.tensor(draw.standard_normal((2, rows, columns)))
        assert np.array_equal(generation_whisper._median_filter(heads[None], 7)[0].numpy(), smoothed(heads.numpy(), 7))


def whisper():
    torch.manual_seed(3)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        vocab_size=332, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=1500, max_target_positions=64,
        decoder_start_token_id=330, eos_token_id=0, pad_token_id=0, bos_token_id=0, suppress_tokens=[0, 330, 331],
        begin_suppress_tokens=None)).eval()
    model.generation_config.alignment_heads = [[0, 1], [1, 3], [1, 0]]
    model.generation_config.no_timestamps_token_id = 331
    return model


class Sounds:
    """A processor of sounds, with a small tokenizer."""

    def __init__(self):
        self.tokenizer = small_tokenizers.byte_level()
        self.tokenizer.add_special_tokens({"additional_special_tokens": ["<|startoftranscript|>", "<|notimestamps|>"]})
        self.features = transformers.WhisperFeatureExtractor(feature_size=16)

    def __call__(self, sound, **options):
        return self.features(sound, **options)


def test_word_times_are_the_token_timestamps_of_transformers():
    model, processor = whisper(), Sounds()
    sound = np.random.default_rng(4).standard_normal(16000 * 4).astype(np.float32)
    made = processor(sound, sampling_rate=16000, return_tensors="pt", return_attention_mask=True)
    model.set_attn_implementation("eager")
    told = model.generate(made["input_features"], attention_mask=made["attention_mask"], max_new_tokens=20, do_sample=False,
                          return_token_timestamps=True, return_dict_in_generate=True)
    ids, times = told["sequences"][0].tolist(), told["token_timestamps"][0].tolist()
    assert ids[:2] == [330, 331] and len(ids) == 22
    words = list(heed.transformers.word_times(model, processor, sound, ids=ids[:-1]))
    starts = [round(time, 2) for time in times[2:-1]]
    assert words and words[0]["start"] == starts[0] and words[-1]["end"] == 4.0
    assert {word["start"] for word in words} <= set(starts)
    assert all(word["start"] <= word["end"] for word in words)
    from heed._hf_capture import capture
    from heed._hf_look import attending

    with torch.no_grad(), attending(model, "heed"), capture(weights=True) as maps:
        model(input_features=made["input_features"], decoder_input_ids=torch.tensor([ids[:-1]]))
    layers = {one.kind_layer: one.weights[0] for one in maps if one.kind == "cross"}
    chosen = np.stack([np.asarray(layers[layer][head], np.float64) for layer, head in model.generation_config.alignment_heads])
    found = [round(0.02 * frame, 2) for frame in starts_of(chosen[:, 2:, :200], 7)]
    assert found == starts
