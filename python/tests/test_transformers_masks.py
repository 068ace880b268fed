"""transformers' masks as intervals: the same pairs as in its own matrix, in memory that grows linearly with the
length."""

import copy
import itertools
import logging
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_transformers import GROUPED, MODELS, TOLERANCE, assert_close, config, inputs, pair  # noqa: E402
from transformers import masking_utils  # noqa: E402
from transformers.masking_utils import (and_masks, bidirectional_mask_function, blockwise_overlay,  # noqa: E402
                                        causal_mask_function, chunked_causal_mask_function, or_masks,
                                        packed_sequence_mask_function, padding_mask_function, sdpa_mask,
                                        sliding_window_bidirectional_mask_function, sliding_window_causal_mask_function,
                                        sliding_window_overlay)

import heed.transformers  # noqa: E402
from heed._hf_masks import heed_mask  # noqa: E402
from heed._hf_row_mask import RowMask, logger, _said  # noqa: E402

heed.transformers.register()
# (queries, keys, position of the first query, of the first key): a prompt, one of a document, a generation step, a
# chunk of a prompt, a prompt and a step with a static cache, a step and a chunk with a sliding cache, one row, none.
SHAPES = [(7, 7, 0, 0), (24, 24, 0, 0), (1, 9, 8, 0), (3, 9, 6, 0), (5, 12, 0, 0), (1, 12, 5, 0), (1, 6, 10, 5),
          (4, 9, 10, 5), (1, 1, 0, 0), (0, 4, 0, 0), (9, 7, 0, 0)]


def paddings(batch, length):
    """Padding masks by name, from none to scattered keys."""
    yield "none", None
    every = torch.ones(batch, length, dtype=torch.bool)
    yield "all seen", every
    for name, hidden in (("left", slice(0, 3)), ("right", slice(-2, None)), ("nothing seen", slice(None))):
        held = every.clone()
        held[-1, hidden] = False
        yield name, held
    yield "holes", torch.rand(batch, length) > 0.3
    yield "short", every[:, : max(1, length - 2)]


def functions(batch, length, packed):
    """Mask functions by name, with the form that their rows become; masks of models compared with transformers' own."""
    ids = torch.randint(-1, 3, (batch, length))
    blocks = ids.sort(dim=1).values
    left = torch.randint(0, 4, (batch,))
    found = {
        "causal": causal_mask_function,
        "bidirectional": bidirectional_mask_function,
        "window": sliding_window_causal_mask_function(3),
        "window of one": sliding_window_causal_mask_function(1),
        "window of both sides": sliding_window_bidirectional_mask_function(2),
        "chunks": chunked_causal_mask_function(4, left),
        "blocks (Gemma 3, PaliGemma)": or_masks(causal_mask_function, blockwise_overlay(blocks)),
        "blocks in pieces": or_masks(causal_mask_function, blockwise_overlay(ids)),
        "blocks in a window (Gemma 3)": and_masks(or_masks(causal_mask_function, blockwise_overlay(blocks)),
                                                  sliding_window_overlay(3)),
        "sequences": and_masks(causal_mask_function, packed_sequence_mask_function(blocks)),
        "padding in parts": or_masks(padding_mask_function(torch.rand(batch, length) > 0.7), causal_mask_function),
        "prefix, of a function of its own": or_masks(causal_mask_function, lambda b, h, q, k: k < 3),
        "a function of its own": and_masks(causal_mask_function, lambda b, h, q, k: (q - k) % 3 != 1),
        "too many runs": lambda b, h, q, k: (q + k) % 2 != 1,
    }
    compatible = getattr(masking_utils, "packed_sequence_compatibility_function", None)
    if packed and compatible is not None:
        positions = torch.cat([torch.arange(n) for n in (3, 1, length - 4)]).expand(batch, -1)
        sequences = masking_utils.find_packed_sequence_indices(positions)
        for name in ("causal", "window", "chunks", "a function of its own"):
            found[f"{name} in sequences"] = compatible(found[name], positions, sequences)
    return found


def said(caplog):
    """heed's log records. If the variable CI is set, transformers' own records reach the same handler."""
    return [record for record in caplog.records if record.name == logger.name]


def matrix(mask, queries, keys):
    """The matrix that the attention function derives from a mask; None has transformers' meaning."""
    if isinstance(mask, RowMask):
        ours = mask.dense()
        assert torch.equal(torch.from_numpy(mask.sparse().dense()).expand(ours.shape), ours)
        return ours
    return mask


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_a_mask_allows_the_pairs_that_transformers_matrix_does(batch, shape):
    torch.manual_seed(4)
    queries, keys, first, first_key = shape
    length = max(keys + first_key, queries + first)
    packed = queries == keys and queries > 4 and first == 0
    for (name, function), (side, padding) in itertools.product(functions(batch, length, packed).items(),
                                                               paddings(batch, length)):
        call = {"batch_size": batch, "q_length": queries, "kv_length": keys, "q_offset": first, "kv_offset": first_key,
                "mask_function": function, "attention_mask": padding, "allow_is_causal_skip": False}
        expected = sdpa_mask(**call)
        got = heed_mask(**call)
        assert got.shape == expected.shape and got.dtype == torch.bool
        assert torch.equal(matrix(got, queries, keys), expected), (name, side)
        assert isinstance(got, RowMask) or "own" in name or name == "too many runs", (name, side)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_none_says_what_the_attention_function_sees_to_by_itself(shape):
    queries, keys, first, first_key = shape
    length = max(keys + first_key, queries + first)
    for function, causal in ((causal_mask_function, True), (sliding_window_causal_mask_function(3), True),
                             (bidirectional_mask_function, False)):
        for side, padding in paddings(2, length):
            call = {"batch_size": 2, "q_length": queries, "kv_length": keys, "q_offset": first, "kv_offset": first_key,
                    "mask_function": function, "attention_mask": padding}
            expected = sdpa_mask(**call, allow_is_causal_skip=False)
            got = heed_mask(**call, allow_is_causal_skip=causal, allow_is_bidirectional_skip=not causal)
            if got is None:
                plain = torch.ones(queries, keys, dtype=torch.bool)
                assert (expected == (plain.tril() if causal and queries > 1 else plain)).all(), side
            else:
                assert torch.equal(matrix(got, queries, keys), expected), side
    assert heed_mask(1, 8, 8) is None
    assert heed_mask(1, 8, 8, mask_function=bidirectional_mask_function, allow_is_bidirectional_skip=True) is None
    assert heed_mask(1, 1, 8, 7) is None
    assert heed_mask(1, 4, 8) is not None  # a prompt with a static cache: these are not the last rows


def padded(length):
    seen = torch.ones(2, length, dtype=torch.bool)
    seen[1, :3] = False
    return seen


def test_a_model_may_cut_and_expand_a_mask_which_stays_small():
    call = {"batch_size": 2, "q_length": 9, "kv_length": 9, "attention_mask": padded(9),
            "mask_function": sliding_window_causal_mask_function(4)}
    plain, mask = sdpa_mask(**call), heed_mask(**call)
    holes = {**call, "attention_mask": torch.arange(18).reshape(2, 9) % 2 == 0, "mask_function": causal_mask_function}
    for plain, mask in ((sdpa_mask(**x), heed_mask(**x)) for x in (call, holes)):
        for cut in (lambda x: x[:, :, :, :5], lambda x: x[:, :, -3:, :], lambda x: x[..., 2:7], lambda x: x[1:],
                    lambda x: x, lambda x: x[:, :, 2:4, 1:], lambda x: x.expand(-1, 4, -1, -1),
                    lambda x: x.to("cpu").contiguous(), lambda x: x[:1].expand(3, 1, 9, 9),
                    lambda x: x.clone().detach(), lambda x: x[:, :, 5:2],
                    lambda x: x.to(torch.bool), lambda x: x[:, :1], lambda x: torch.cat((x, x[..., 2:5], x), -1)):
            expected, got = cut(plain), cut(mask)
            assert isinstance(got, RowMask) and got.shape == expected.shape
            assert torch.equal(got.dense(), expected)
            assert torch.equal(torch.from_numpy(got.sparse().dense()).expand(expected.shape), expected)


def test_whatever_else_is_done_to_a_mask_gets_the_matrix_and_is_said_once(caplog):
    call = {"batch_size": 2, "q_length": 9, "kv_length": 9, "attention_mask": padded(9)}
    plain, mask = sdpa_mask(**call), heed_mask(**call)
    _said.clear()
    with caplog.at_level(logging.WARNING, "heed.transformers"):
        for _ in range(2):
            for change in (lambda x: torch.where(x, 0.0, -1.0), lambda x: ~x, lambda x: x & plain, lambda x: plain & x,
                           lambda x: x.to(torch.float32), lambda x: x[:, 0], lambda x: x[:, :, ::2],
                           lambda x: torch.cat((x, x), 0), lambda x: x.all()):
                got, expected = change(mask), change(plain)
                assert type(got) is torch.Tensor and torch.equal(got, expected)
    messages = [record.message for record in said(caplog)]
    assert messages.count("a model applies aten.bitwise_not.default to its mask, so the mask becomes a matrix") == 1
    with pytest.raises(RuntimeError, match='writes to a mask of attn_implementation="heed"'):
        mask.masked_fill_(plain, False)


def test_a_mask_that_nobody_can_describe_is_a_matrix_and_named_once(caplog):
    def every_other(batch, head, query, key):
        return (query + key) % 2 == 0

    _said.clear()
    with caplog.at_level(logging.WARNING, logger.name):
        for _ in range(2):
            mask = heed_mask(1, 40, 40, mask_function=and_masks(causal_mask_function, every_other))
            assert type(mask) is torch.Tensor
    (record,) = said(caplog)
    assert record.message == (f"the mask of {__name__}.{every_other.__qualname__} is stored as a matrix because its rows have more than 8 runs of keys each")


def test_a_mask_of_a_models_own_is_asked_some_rows_at_a_time(monkeypatch):
    largest = []

    def own(batch, head, query, key):
        largest.append(query.numel() * key.numel())
        return (key <= query) & (key // 16 != 2)

    monkeypatch.setattr("heed._hf_masks.CHUNK", 512)
    got = heed_mask(1, 128, 128, mask_function=own)
    assert isinstance(got, RowMask) and got.runs.shape[-2] == 2 and max(largest) <= 512
    assert torch.equal(got.dense(), sdpa_mask(1, 128, 128, mask_function=own, allow_is_causal_skip=False))


# Models.

def left(ids):
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    return mask


def right(ids):
    mask = torch.ones_like(ids)
    mask[1, -4:] = 0
    return mask


def holes(ids):
    mask = torch.ones_like(ids)
    mask[0, 2], mask[1, 4:6], mask[1, 7] = 0, 0, 0
    return mask


@pytest.mark.parametrize("padding", [left, right, holes])
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_eager_with_any_padding_and_no_matrix_is_made(name, padding, caplog):
    eager, ours = pair(name)
    given = inputs(name, padded=False)
    given["attention_mask"] = padding(given["input_ids"])
    _said.clear()
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger.name):
        expected, got = eager(**given).logits, ours(**given).logits
    seen = slice(None) if name == "T5" else given["attention_mask"].bool()
    # The delta rule of Qwen3-Next enlarges rounding errors: with holes, on a Zen 3, eager's logits are 1.9e-5 from those in
    # f64, and heed's 0.8e-5.
    assert_close(got[seen], expected[seen], 1e-4 if name == "Qwen3-Next" else TOLERANCE)
    assert not said(caplog)


@pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma 2"])  # transformers' own GPT-OSS mixes the sequences
def test_packed_sequences_are_as_if_alone(name, caplog):
    _, ours = pair(name)
    ids = inputs(name)["input_ids"][:1]
    positions = torch.cat((torch.arange(4), torch.arange(5)))[None]
    _said.clear()
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger.name):
        packed = ours(ids, position_ids=positions, use_cache=False).logits
        alone = torch.cat([ours(part, use_cache=False).logits for part in (ids[:, :4], ids[:, 4:])], 1)
    assert_close(packed, alone)
    assert not said(caplog)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("cache", ["static", "dynamic"])
@pytest.mark.parametrize("name", ["Llama", "Mistral", "Gemma 2", "GPT-OSS"])
def test_generation_with_any_cache_chooses_the_same_tokens(name, cache, padded):
    """A static cache has unused key positions; a sliding one drops the first keys."""
    eager, ours = pair(name)
    given = inputs(name, padded)
    expected, got = (model.generate(**given, max_new_tokens=8, do_sample=False, cache_implementation=cache)
                     for model in (eager, ours))
    assert torch.equal(got, expected)


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_a_prompt_in_pieces_is_as_the_whole(name):
    eager, ours = pair(name)
    given = inputs(name)
    with torch.no_grad():
        whole = eager(**given).logits[:, 6:]
        first = ours(given["input_ids"][:, :6], attention_mask=given["attention_mask"][:, :6], use_cache=True)
        got = ours(given["input_ids"][:, 6:], attention_mask=given["attention_mask"],
                   past_key_values=first.past_key_values).logits
    assert_close(got, whole)


@pytest.mark.parametrize("floating", [False, True])
def test_a_matrix_of_the_users_is_passed_through(floating):
    eager, ours = pair("Llama")
    ids = inputs("Llama")["input_ids"]
    torch.manual_seed(5)
    allowed = ((torch.rand(2, 1, 9, 9) > 0.4) | torch.eye(9, dtype=torch.bool)).tril()
    added = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = eager(ids, attention_mask=added).logits
        assert_close(ours(ids, attention_mask=added if floating else allowed).logits, expected)


def test_blocks_that_see_both_ways():
    """Gemma 3's image tokens see one another. Everything else is causal, also in windows."""
    torch.manual_seed(1)
    settings = GROUPED | {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    eager = transformers.Gemma3ForCausalLM(config("Gemma3TextConfig", **settings)).eval()
    for parameter in eager.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    ours = copy.deepcopy(eager)
    eager.set_attn_implementation("eager")
    ours.set_attn_implementation("heed")
    ids = inputs("Llama")["input_ids"]
    groups = torch.tensor([[-1, 0, 0, 0, 0, 0, -1, 1, 1]]).expand(2, -1)

    def logits(model):
        masks = {"config": model.config, "inputs_embeds": model.get_input_embeddings()(ids),
                 "attention_mask": left(ids), "past_key_values": None}
        full = masking_utils.create_causal_mask(**masks, block_sequence_ids=groups)
        sliding = masking_utils.create_causal_mask(**masks, or_mask_function=blockwise_overlay(groups),
                                                   and_mask_function=sliding_window_overlay(4))
        if model is ours:
            assert isinstance(full, RowMask) and isinstance(sliding, RowMask)
        with torch.no_grad():
            masks = {"full_attention": full, "sliding_attention": sliding}
            return model(ids, attention_mask=masks, use_cache=False).logits

    assert_close(logits(ours)[left(ids).bool()], logits(eager)[left(ids).bool()])


@pytest.mark.parametrize("name", ["Llama", "T5", "BERT"])
def test_layers_that_are_compiled_take_a_mask_too(name):
    _, ours = pair(name)
    given = inputs(name) | ({} if name == "BERT" else {"use_cache": False})
    with torch.no_grad():
        expected = ours(**given).logits
        blocks = {"Llama": lambda: ours.model.layers, "BERT": lambda: ours.bert.encoder.layer,
                  "T5": lambda: [*ours.encoder.block, *ours.decoder.block]}[name]()
        for block in blocks:
            block.compile(backend="aot_eager")
        assert_close(ours(**given).logits, expected)
    torch._dynamo.reset()


LONG = """
import resource, sys
import torch, transformers
import heed.transformers

heed.transformers.register()
name, how = sys.argv[1:]
settings = dict(vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
                num_key_value_heads=1, head_dim=16, max_position_embeddings=1 << 15, bos_token_id=1, eos_token_id=None,
                pad_token_id=0)
settings |= {"sliding_window": 256} if name == "Mistral" else {}
config = getattr(transformers, name + "Config")(**settings)
model = getattr(transformers, name + "Model")._from_config(config, attn_implementation=how).eval()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

def run(length):
    mask = torch.ones(1, length, dtype=torch.int64)
    if name == "Llama":
        mask[0, : length // 8] = 0
    with torch.no_grad():
        model(torch.full((1, length), 3), attention_mask=mask, use_cache=False)

class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(made):
            if type(x) is torch.Tensor:
                self.size = max(self.size, x.untyped_storage().nbytes())
        return made

run(1024)
before = peak()
run(1 << 15)
grown = peak() - before
with Largest() as largest:
    run(1 << 15)
print(grown, largest.size)
"""


@pytest.mark.parametrize("name", ["Llama", "Mistral"])  # with padding, with a window
def test_memory_grows_with_the_length(name):
    """At 32,768 tokens the matrix alone would take 1 GiB. Checks the process's growth and the largest tensor."""
    ran = subprocess.run([sys.executable, "-c", LONG, name, "heed"], check=True, capture_output=True, text=True)
    grown, largest = map(int, ran.stdout.split())
    assert grown < 100 << 20
    assert largest <= (1 << 15) * 16 * 8  # a row of 16 f64 numbers per token


def test_a_run_without_keys_sees_none_after_its_row():
    """As where keys are cut away: row 0 saw keys 5 to 8, of 3 keys it sees none."""
    runs = torch.tensor([[[[5, 9]], [[0, 2]]]], dtype=torch.int32)
    mask = RowMask.make(runs, None, (1, 1, 2, 9), 0)
    assert not mask.is_causal()
    assert mask.keys(0, 3).is_causal() and not mask.keys(0, 3).dense()[0, 0, 0].any()
