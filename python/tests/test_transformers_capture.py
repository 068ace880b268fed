"""capture: all results of the library, for chosen layers, heads and rows, in memory or in a folder."""

import json
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_transformers import MODELS, NEWER, assert_close, inputs, pair  # noqa: E402

import heed.transformers  # noqa: E402
from heed import _heed  # noqa: E402
from heed._run import open_run  # noqa: E402

heed.transformers.register()
MODELS = [name for name in MODELS if name not in NEWER]  # test_transformers.py captures these, too
OF_ROWS = [name for name in _heed.ROW_RESULTS if name not in ("lse", "masked_mass")]
EVERYTHING = {"top_k": 3, "received": True, "weights": True, "received_last": 4, "map": (3, 3)} | dict.fromkeys(OF_ROWS, True)


def captured(name, padded=True, **asked):
    _, ours = pair(name)
    with torch.no_grad(), heed.transformers.capture(**asked) as maps:
        ours(**inputs(name, padded))
    return maps


def cut(call, heads, rows):
    """The expected capture of these heads and rows, from the weights of all."""
    weights = call.weights[:, heads][:, :, rows]
    top = weights.topk(3)
    return {name: getattr(call, name)[:, heads][:, :, rows] for name in ("lse", *OF_ROWS)} | {
        "weights": weights, "entropy": torch.special.entr(weights).sum(-1), "received": weights.sum(-2),
        "top_k_weight": top.values}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("heads", "rows"), [
    (None, None), ([1], None), ([0, 3], None), ([2, 3], None), ([0, 1, 2], None), (None, slice(2, 5)),
    ([3], slice(-2, None)), (None, [0, 4, 5, -1]), ([0, 2], [1]), (2, range(3)), (None, slice(5, 2)),
], ids=str)
def test_chosen_heads_and_rows_are_those_of_all(name, heads, rows):
    if name not in ("Llama", "T5", "GPT-OSS", "Mistral") and heads is not None and rows is not None:
        pytest.skip("as Llama")
    everything = {key: value for key, value in EVERYTHING.items() if key not in ("received_last", "map")}
    whole = captured(name, **everything)
    limited = captured(name, **everything, heads=heads, rows=rows)
    assert len(limited) == len(whole)
    for got, call in zip(limited, whole, strict=True):
        count, queries = call.lse.shape[1:]
        chosen = [heads] if isinstance(heads, int) else list(range(count)) if heads is None else heads
        numbers = np.arange(queries)
        numbers = sorted(numbers[rows if isinstance(rows, slice) else list(rows)]) if rows is not None else numbers
        assert got.heads == (None if heads is None else chosen)
        assert got.rows == (None if rows is None else list(numbers))
        for field, expected in cut(call, chosen, numbers).items():
            torch.testing.assert_close(getattr(got, field), expected, rtol=2e-5, atol=2e-5)  # lse may be -inf


@pytest.mark.parametrize("name", MODELS)
def test_received_by_the_last_rows_and_maps_are_sums_of_weights(name):
    for call in captured(name, **EVERYTHING):
        queries, keys = call.weights.shape[2:]
        assert_close(call.received_last, call.weights[:, :, -4:].sum(-2))
        assert_close(call.map.sum((-1, -2)), call.weights.sum((-1, -2)))
        if queries == keys == 9:
            assert_close(call.map, call.weights.unflatten(3, (3, 3)).unflatten(2, (3, 3)).sum((3, 5)))
    for call in captured(name, **EVERYTHING, heads=[1, 2], rows=slice(3, 9)):
        assert_close(call.received_last, call.weights[:, :, -4:].sum(-2))
        assert_close(call.map.sum((-1, -2)), call.weights.sum((-1, -2)))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("limits", [{}, {"heads": [1, 3]}, {"rows": [2]}], ids=str)
def test_tiles_are_pieces_of_the_weights(name, limits):
    tiles = [(0, 3, 0, 4), (4, 7, 2, 7), (5, 50, 3, 50), (40, 41, 0, 2)]
    whole = captured(name, weights=True)
    for got, call in zip(captured(name, tiles=tiles, **limits), whole, strict=True):
        weights = call.weights[:, limits.get("heads", slice(None))]
        assert len(got.tiles) == 4
        for tile, (row, row_end, key, key_end) in zip(got.tiles, tiles, strict=True):
            assert_close(tile, weights[:, :, row:row_end, key:key_end])


def test_layers_are_those_that_are_chosen():
    assert [call.layer for call in captured("T5", layers=[0, 5])] == [0, 5]
    (call,) = captured("Llama", layers=1, entropy=True)
    assert call.layer == 1
    assert_close(call.entropy, captured("Llama", entropy=True)[1].entropy)


def test_the_output_is_that_of_a_run_without_capture():
    for name in MODELS:
        _, ours = pair(name)
        given = inputs(name)
        with torch.no_grad():
            expected = ours(**given).logits
            for asked in ({}, EVERYTHING, {"masked_mass": True}, {"heads": [0], "weights": True},
                          {"rows": [3], "top_k": 2}, {"layers": 1}):
                with heed.transformers.capture(**asked):
                    assert torch.equal(ours(**given).logits, expected)


def test_gradients_are_tracked_and_weights_are_returned_as_without_capture():
    _, ours = pair("Llama")
    given = inputs("Llama")
    expected = torch.autograd.grad(ours(**given).logits.square().mean(), ours.model.embed_tokens.weight)[0]
    with heed.transformers.capture(entropy=True, map=(2, 2), heads=[1]) as maps:
        found = ours(**given, output_attentions=True)
    got = torch.autograd.grad(found.logits.square().mean(), ours.model.embed_tokens.weight)[0]
    assert_close(got, expected, 1e-4)
    assert_close(maps[0].entropy, torch.special.entr(found.attentions[0][:, [1]]).sum(-1))
    assert not maps[0].entropy.requires_grad and maps[0].map.shape == (2, 1, 2, 2)


def test_steps_of_generation_have_the_rows_that_they_have():
    _, ours = pair("Mistral")
    with heed.transformers.capture(rows=[0, 8], weights=True, layers=0, tiles=[(0, 1, 0, 4)]) as maps:
        ours.generate(**inputs("Mistral"), max_new_tokens=3, do_sample=False)
    assert [call.rows for call in maps] == [[0, 8], [0], [0]]
    assert [tuple(call.weights.shape) for call in maps] == [(2, 4, 2, 9), (2, 4, 1, 4), (2, 4, 1, 4)]


def test_masked_mass_is_the_share_that_a_window_took_away():
    eager, ours = pair("Mistral")
    given = inputs("Mistral", padded=False)
    with torch.no_grad(), heed.transformers.capture(masked_mass=True, layers=0) as maps:
        ours(**given)
    ours.config.sliding_window = 64
    with torch.no_grad(), heed.transformers.capture(weights=True, layers=0) as all_keys:
        ours(**given)
    row, key = torch.arange(9)[:, None], torch.arange(9)
    assert_close(maps[0].masked_mass, (all_keys[0].weights * (key <= row - 4)).sum(-1))
    assert float(maps[0].masked_mass.max()) > 0.1
    with torch.no_grad(), heed.transformers.capture(masked_mass=True, layers=0, rows=[8, 2], heads=[1, 2]) as some:
        ours.config.sliding_window = 4
        ours(**given)
    assert_close(some[0].masked_mass, maps[0].masked_mass[:, 1:3, [2, 8]])


# Folders.

def test_a_run_in_a_folder_reads_as_it_would_be_in_memory(tmp_path):
    asked = EVERYTHING | {"tiles": [(0, 2, 0, 3)], "heads": [0, 2]}
    expected = captured("T5", **asked)
    run = captured("T5", **asked, to=tmp_path / "run.heed")
    opened = open_run(tmp_path / "run.heed")
    names = sorted(path.name for path in (tmp_path / "run.heed").iterdir())
    assert names == [*(f"{n:04d}-layer-{n:02d}.safetensors" for n in range(6)), "index.json"]
    assert len(run) == len(opened) == len(expected) == 6 and opened.layers == list(range(6))
    for source in (run, opened):
        for got, call in zip(source, expected, strict=True):
            assert (got.layer, got.module, got.heads, got.rows) == (call.layer, "T5Attention", [0, 2], None)
            assert got.arrays().keys() == call.arrays().keys()
            for name, array in got.arrays().items():
                np.testing.assert_array_equal(array, call.arrays()[name].numpy())
    assert str(opened[1]) == str(expected[1])
    assert len(opened[1:3]) == 2 and opened.of_layer(5)[0].layer == opened[-1].layer == 5
    assert str(opened).startswith(f"<Run {tmp_path / 'run.heed'}: calls 6, layers 6, each with lse, entropy, received")


def test_a_file_is_a_safetensors_file(tmp_path):
    from safetensors.numpy import load_file

    run = captured("Llama", weights=True, top_k=2, to=tmp_path / "run.heed")
    for place, path in enumerate(sorted((tmp_path / "run.heed").glob("*.safetensors"))):
        found = load_file(path)
        assert found.keys() == {"lse", "weights", "top_k_index", "top_k_weight"}
        for name, array in found.items():
            np.testing.assert_array_equal(array, getattr(run[place], name))


def test_each_call_is_there_the_moment_it_is_done_and_a_killed_run_opens(tmp_path):
    folder = tmp_path / "run.heed"
    _, ours = pair("Llama")
    given = inputs("Llama")
    with torch.no_grad(), heed.transformers.capture(entropy=True, to=folder) as run:
        for count in (2, 4):
            ours(**given)
            assert len(run) == len(open_run(folder)) == count
        (folder / ".0004-layer-00.safetensors.part").write_bytes(b"half")
        killed = open_run(folder)
        assert json.loads((folder / "index.json").read_text())["complete"] is False
    ended = open_run(folder)
    assert ended.calls == killed.calls and ended.settings == killed.settings == {"entropy": True}
    np.testing.assert_array_equal(killed[3].entropy, run[3].entropy)


def test_a_folder_opens_without_pytorch(tmp_path):
    captured("Llama", entropy=True, to=tmp_path / "run.heed")
    program = """
import sys
for name in ("torch", "transformers", "safetensors"):
    sys.modules[name] = None
from heed._run import open_run
print(open_run(sys.argv[1])[1])
"""
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path / "run.heed")], check=True, capture_output=True,
                         text=True)
    assert ran.stdout == "<layer 1, LlamaAttention: lse [2, 4, 9], entropy [2, 4, 9]>\n"


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "run.heed").mkdir()
    (tmp_path / "run.heed" / "mine").write_text("mine")
    with pytest.raises(FileExistsError) as error, heed.transformers.capture(to=tmp_path / "run.heed"):
        pass
    assert str(error.value) == f"to is '{tmp_path / 'run.heed'}', which already exists; a new folder is expected"
    assert [path.name for path in (tmp_path / "run.heed").iterdir()] == ["mine"]


def test_a_capture_of_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(RuntimeError, match="collected nothing"), heed.transformers.capture(to=tmp_path / "run.heed"):
        pass
    assert not list(tmp_path.iterdir())


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="which has no index.json"):
        open_run(tmp_path)
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(ValueError, match="not of the format 'heed-run-1'"):
        open_run(tmp_path)
    captured("Llama", to=tmp_path / "run.heed")
    path = tmp_path / "run.heed" / "0000-layer-00.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="holds lse"):
        open_run(tmp_path / "run.heed")[0]


@pytest.mark.parametrize(("asked", "error", "message"), [
    ({"heads": [4]}, ValueError, "heads has 4; numbers below 4, the heads of LlamaAttention, are expected"),
    ({"heads": [-1]}, ValueError, r"heads is \[-1\]; whole numbers of 0 or more, at least one, are expected"),
    ({"layers": []}, ValueError, r"layers is \[\]; whole numbers of 0 or more, at least one, are expected"),
    ({"heads": "a"}, TypeError, "heads is 'a'; whole numbers are expected"),
    ({"rows": 1.5}, TypeError, "rows is 1.5; whole numbers are expected"),
    ({"rows": [1, 3], "map": (2, 2)}, ValueError, r"rows is \[1, 3\]; a slice of step 1 is expected with received_last or map"),
    ({"tiles": 3}, TypeError, r"tiles is 3; a list of \(row_begin, row_end, key_begin, key_end\) is expected"),
    ({"tiles": [3]}, TypeError, r"tiles is \[3\]; a list of \(row_begin, row_end, key_begin, key_end\) is expected"),
    ({"tiles": [(0, 1, 3)]}, ValueError, r"tiles has \(0, 1, 3\); \(row_begin, row_end, key_begin, key_end\), with no empty range, "),
    ({"top_k": -1}, ValueError, "top_k"),
    ({"map": (0, 3)}, ValueError, "map"),
])
def test_what_is_wrong_is_said_in_one_sentence(asked, error, message):
    with pytest.raises(error, match=message):
        captured("Llama", **asked)


def test_an_encoder_joined_to_a_decoder_is_captured():
    """EncoderDecoderModel replaces its encoder's config; the encoder's layers keep the one that they had."""
    small = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(2)
    encoder = transformers.BertModel(transformers.BertConfig(**small)).eval()
    decoder = transformers.BertLMHeadModel(transformers.BertConfig(**small, is_decoder=True, add_cross_attention=True)).eval()
    joined = transformers.EncoderDecoderModel(encoder=encoder, decoder=decoder)
    joined.set_attn_implementation("heed")
    ids = torch.arange(5)[None]
    with torch.no_grad(), heed.transformers.capture(weights=True) as maps:
        joined(input_ids=ids, decoder_input_ids=ids)
    assert [call.kind for call in maps] == ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]
    used = [layer.attention.self.config for layer in encoder.encoder.layer]
    assert {config._attn_implementation for config in used} == {"sdpa"}  # as before
    for config in [encoder.config, *used]:
        config._attn_implementation_internal = "eager"
    with torch.no_grad():
        expected = encoder(input_ids=ids, output_attentions=True).attentions
    for call, weights in zip(maps, expected):
        assert_close(call.weights, weights)


def test_what_is_compiled_is_captured_with_limits_too():
    _, ours = pair("Llama")
    given = inputs("Llama")
    compiled = torch.compile(ours, backend="aot_eager")
    asked = {"heads": [1], "rows": slice(-2, None), "weights": True}
    with torch.no_grad():
        compiled(**given, use_cache=False)
        with heed.transformers.capture(**asked) as expected:
            ours(**given, use_cache=False)
        with heed.transformers.capture(**asked) as maps:
            compiled(**given, use_cache=False)
    assert len(maps) == len(expected) == 2
    assert all(torch.equal(one.weights, other.weights) for one, other in zip(maps, expected, strict=True))
    torch._dynamo.reset()
