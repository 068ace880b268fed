"""heed.transformers.Cache compared with eager attention and transformers' own cache, on small models with random
weights."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import randomise, small  # noqa: E402
from test_transformers import GENERATE, assert_close, inputs, pair  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

import heed.transformers  # noqa: E402

heed.transformers.register()
Cache = heed.transformers.Cache
LAYOUTS = {
    "paged": {},
    "small pages that grow": {"page_size": 3, "capacity": 1},
    "contiguous": {"layout": "contiguous", "capacity": 2},
    "ring with room for all": {"layout": "ring", "sinks": 3, "window": 40},
}


def prompt(name, padded=True):
    return {key: value for key, value in inputs(name, padded).items() if key != "decoder_input_ids"}


def cache_for(name, **options):
    if name != "T5":
        return Cache(**options)
    return transformers.EncoderDecoderCache(Cache(**options), Cache(**options))


def generate(model, given, **more):
    return model.generate(**given, **({"max_new_tokens": 12, "do_sample": False} | more))


def layers_of(cache):
    parts = [cache] if isinstance(cache, Cache) else [cache.self_attention_cache, cache.cross_attention_cache]
    return [layer for part in parts for layer in part.layers]


@pytest.mark.parametrize("name", GENERATE)
def test_generation_chooses_the_tokens_of_eager_attention(name):
    eager, ours = pair(name)
    given = prompt(name)
    expected = generate(eager, given)
    for layout in LAYOUTS.values():
        cache = cache_for(name, **layout)
        assert torch.equal(generate(ours, given, past_key_values=cache), expected)
        # 9 prompt tokens and 11 generated ones; for T5 cross-attention only the prompt's.
        lengths = [20, 20] if name != "T5" else [12, 12, 9, 9]
        assert [layer.kv.lengths.tolist() for layer in layers_of(cache)] == [[length] * 2 for length in lengths]
        assert layers_of(cache)[0].kv.layout == layout.get("layout", "paged")


@pytest.mark.parametrize("made", [transformers.DynamicCache, Cache])
def test_one_cache_for_self_and_cross_attention_equals_eager_or_is_refused(made):
    eager, ours = pair("T5")
    given = prompt("T5", padded=False)
    assert torch.equal(generate(ours, given, past_key_values=made()), generate(eager, given, past_key_values=made()))
    given = prompt("T5")
    with pytest.raises(RuntimeError, match="must match the size"):  # the mask has the 9 keys of the prompt, the cache one more
        generate(eager, given, past_key_values=made())
    with pytest.raises(ValueError, match=r"attention_mask has 9 keys and the call of T5Attention 10: expected past_key_values="
                                         r"transformers.EncoderDecoderCache"):
        generate(ours, given, past_key_values=made())
    assert torch.equal(generate(ours, given), generate(eager, given))


# Hybrids of Mamba states and attention, latent attention, shared keys, blocks of keys.
KINDS = ["qwen3", "gemma3_text", "gemma3n_text", "deepseek_v3", "cohere2", "llama4_text", "jamba", "qwen3_next", "phi3"]


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_other_kinds_take_it_by_their_config(kind):
    torch.manual_seed(0)
    config = small(CONFIG_MAPPING[kind]())
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    randomise(model)
    model.generation_config.eos_token_id = None
    words = torch.randint(4, 24, (2, 9), generator=torch.Generator().manual_seed(2))
    given = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    given["attention_mask"][1, :3] = 0
    model.set_attn_implementation("eager")
    expected = generate(model, given, max_new_tokens=6)
    model.set_attn_implementation("heed")
    cache = Cache(model.config, page_size=4)
    assert torch.equal(generate(model, given, max_new_tokens=6, past_key_values=cache), expected)
    assert any(getattr(layer, "kv", None) is not None for layer in cache.layers)


@pytest.mark.parametrize("name", ["GPT-2", "Mistral", "T5"])
def test_beam_search_shares_pages_and_finds_the_same(name):
    eager, ours = pair(name)
    given = prompt(name)
    search = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 10}
    expected = generate(eager, given, **search)
    cache = cache_for(name, page_size=2)
    assert torch.equal(generate(ours, given, past_key_values=cache, **search), expected)
    assert layers_of(cache)[0].kv.stats()["shared_pages"] > 0
    assert all(layer.kv.batch == 2 * 3 for layer in layers_of(cache))  # two prompts, one sequence per beam


def test_a_batch_is_reordered_repeated_and_selected():
    _, ours = pair("Llama")
    words = torch.randint(3, 50, (3, 7), generator=torch.Generator().manual_seed(3))
    theirs, cache = transformers.DynamicCache(), Cache(page_size=2)
    with torch.no_grad():
        for change in (None, lambda c: c.reorder_cache(torch.tensor([1, 1, 0])),
                       lambda c: c.batch_repeat_interleave(2), lambda c: c.batch_select_indices(torch.tensor([5, 0])),
                       lambda c: c.crop(-3)):
            for one in (theirs, cache):
                if change is not None:
                    change(one)
            words = words if change is None else torch.randint(3, 50, (len(theirs.layers[0].keys), 2))
            expected, got = (ours(words, past_key_values=one).logits for one in (theirs, cache))
            assert_close(got, expected)
            for layer, theirs_layer in zip(cache.layers, theirs.layers, strict=True):  # also those of dense()
                assert torch.equal(layer.keys + 0, theirs_layer.keys)
                assert torch.equal(layer.values + 0, theirs_layer.values)
    assert cache.get_seq_length() == theirs.get_seq_length() == 12


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_drafts_are_taken_back(layout):
    eager, ours = pair("Llama")
    given = {"input_ids": torch.tensor([[5, 6, 7, 8, 5, 6, 7, 8, 5, 6]])}
    expected = generate(eager, given, max_new_tokens=20)
    cache = Cache(layout=layout)
    cropped = []
    crop = cache.crop
    cache.crop = lambda tokens: (cropped.append(tokens), crop(tokens))
    got = generate(ours, given, max_new_tokens=20, prompt_lookup_num_tokens=3, past_key_values=cache)
    assert torch.equal(got, expected)
    assert min(cropped) < 0


def masked_by_hand(eager, words, allowed):
    """The logits of all words at once, where `allowed` [B, L, L] says which words each word sees."""
    mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)[:, None]
    return eager(words, attention_mask=mask).logits


def step_by_step(ours, words, seen, length, cache, change=lambda step: None):
    """The logits of the first `length` words together, then of each further word alone."""
    logits = [ours(words[:, :length], attention_mask=seen[:, :length], past_key_values=cache).logits]
    for step in range(length, words.shape[1]):
        change(step)
        logits.append(ours(words[:, step:step + 1], attention_mask=seen[:, :step + 1], past_key_values=cache).logits)
    return torch.cat(logits, 1)


def padded_words(length):
    words = torch.randint(3, 50, (2, length), generator=torch.Generator().manual_seed(4))
    seen = torch.ones_like(words)
    seen[1, :3] = 0
    at = torch.arange(length)
    return words, seen, (at <= at[:, None]) & seen[:, None].bool()


@pytest.mark.parametrize("name", ["Llama", "Mistral", "GPT-2"])
def test_a_ring_sees_its_sinks_and_its_window(name):
    eager, ours = pair(name)
    words, seen, allowed = padded_words(24)
    at = torch.arange(24)
    allowed = allowed & ((at < 4) | (at > at[:, None] - 6) | (at[:, None] < 10))  # prompt rows see the whole prompt
    if name == "Mistral":
        allowed &= at > at[:, None] - 4  # the model's own window
    cache = Cache(layout="ring", sinks=4, window=6)
    with torch.no_grad():
        got = step_by_step(ours, words, seen, 10, cache)
        assert_close(got[seen.bool()], masked_by_hand(eager, words, allowed)[seen.bool()])
    assert [layer.kv.rows.tolist() for layer in cache.layers] == [[10, 10]] * 2
    assert cache.layers[0].kv.positions(0).tolist() == [0, 1, 2, 3, 18, 19, 20, 21, 22, 23]


@pytest.mark.parametrize("name", ["Llama", "Mistral"])
def test_rows_may_be_evicted_from_each_sequence(name):
    eager, ours = pair(name)
    words, seen, allowed = padded_words(16)
    gone = {10: [[2, 3, 9], [4]], 13: [[5, 11], [9, 10, 12]]}  # step: positions evicted before it, per sequence
    for step, positions in gone.items():
        for b in (0, 1):
            allowed[b, step:, positions[b]] = False
    if name == "Mistral":
        allowed &= torch.arange(16) > torch.arange(16)[:, None] - 4
    cache = Cache(page_size=4)

    def evict(step):
        for layer in cache.layers:
            for b in (0, 1):
                layer.kv.evict(b, gone.get(step, [[], []])[b])

    with torch.no_grad(), heed.transformers.capture(weights=True, received=True, top_k=2) as maps:
        got = step_by_step(ours, words, seen, 10, cache, evict)
    with torch.no_grad():
        assert_close(got[seen.bool()], masked_by_hand(eager, words, allowed)[seen.bool()])
    for call in maps.of_layer(1)[1:]:  # one column per position
        step = call.weights.shape[3] - 1
        assert (call.weights[:, :, 0].masked_select(~allowed[:, None, step, :step + 1]) == 0).all()
        assert torch.equal(call.received, call.weights[:, :, 0])
        assert torch.equal(call.top_k_index[:, :, 0], call.weights[:, :, 0].topk(2).indices)
    with pytest.raises(RuntimeError, match="rows of the cache were evicted"):
        cache.layers[0].keys + 0


@pytest.mark.parametrize("format", ["int8", "int4", "fp8"])
@pytest.mark.parametrize("rotate", [False, True])
def test_rows_are_attended_as_they_are_kept(format, rotate):
    """A step over a quantised cache equals eager attention over transformers' cache with the dequantised numbers."""
    eager, ours = pair("Llama")
    words = torch.randint(3, 50, (2, 21), generator=torch.Generator().manual_seed(5))
    cache, theirs = Cache(format=format, group=8, rotate=rotate), transformers.DynamicCache()
    with torch.no_grad():
        plain = ours(words[:, :20], past_key_values=(exact := Cache())).logits
        assert torch.equal(ours(words[:, :20], past_key_values=cache).logits, plain)  # a prompt attends to itself
        for i, layer in enumerate(cache.layers):
            assert layer.kv.format == format and layer.kv.rotate == rotate
            theirs.update(layer.keys + 0, layer.values + 0, i)
            difference = (layer.keys - exact.layers[i].keys).abs().max()
            assert 0 < difference < 0.2 * exact.layers[i].keys.abs().max()  # int4's step is a fifteenth of the range
        expected, got = (model(words[:, 20:], past_key_values=one).logits for model, one in
                         ((eager, theirs), (ours, cache)))
    assert_close(got, expected)


@pytest.mark.parametrize("name", ["Llama", "GPT-OSS", "T5"])
def test_what_each_token_attended_to_is_captured(name):
    eager, ours = pair(name)
    given = prompt(name)
    steps = {"return_dict_in_generate": True, "output_attentions": True}
    found = generate(eager, given, max_new_tokens=5, **steps)
    attentions = found.attentions if name != "T5" else [
        [x for pair in zip(*both, strict=True) for x in pair]
        for both in zip(found.decoder_attentions, found.cross_attentions, strict=True)]
    with heed.transformers.capture(weights=True, entropy=True, top_k=2, received=True) as maps:
        generate(ours, given, max_new_tokens=5, past_key_values=cache_for(name))
    calls = list(maps) if name != "T5" else [call for call in maps if call.lse.shape[2] == 1]
    expected = [layer for step in attentions for layer in step]
    seen = given["attention_mask"].bool() if name != "T5" else None
    assert len(calls) == len(expected)
    for call, weights in zip(calls, expected, strict=True):
        rows = seen[:, None, :, None] if seen is not None and weights.shape[2] == 9 else torch.ones(1, 1, 1, 1).bool()
        # transformers' cache stores only what the window sees.
        weights = torch.nn.functional.pad(weights.where(rows, 0), (call.weights.shape[3] - weights.shape[3], 0))
        assert_close(call.weights.where(rows, 0), weights)
        assert_close(call.received, call.weights.sum(2))
        entropy = torch.special.entr(weights).sum(-1, keepdim=True)
        assert_close(call.entropy[..., None].where(rows, 0), entropy)
        top = weights.topk(min(2, weights.shape[3])).values
        assert_close(call.top_k_weight.where(rows, 0)[..., :top.shape[3]], top)


def test_chosen_heads_rows_and_tiles_of_steps_are_those_of_all():
    _, ours = pair("Llama")
    words = torch.randint(3, 50, (2, 12), generator=torch.Generator().manual_seed(6))

    def captured(**asked):
        cache = Cache(page_size=4)
        with torch.no_grad(), heed.transformers.capture(**asked) as maps:
            for first, last in ((0, 6), (6, 10), (10, 12)):
                ours(words[:, first:last], past_key_values=cache)
        return maps

    whole = captured(weights=True, entropy=True)
    some = captured(weights=True, entropy=True, received=True, heads=[1, 2], rows=[0, -1], tiles=[(1, 3, 2, 5)])
    tiles = captured(tiles=[(1, 3, 2, 5)])
    for all_of, part, tiled in zip(whole, some, tiles, strict=True):
        assert part.heads == [1, 2] and part.rows == [0, all_of.weights.shape[2] - 1]
        weights = all_of.weights[:, 1:3]
        assert_close(part.weights, weights[:, :, part.rows])
        assert_close(part.entropy, all_of.entropy[:, 1:3][:, :, part.rows])
        assert_close(part.received, weights[:, :, part.rows].sum(2))
        assert_close(part.tiles[0], weights[:, :, 1:3, 2:5])
        assert_close(tiled.tiles[0], all_of.weights[:, :, 1:3, 2:5])


def test_attentions_are_returned_and_other_implementations_get_copies():
    eager, ours = pair("Llama")
    words = torch.randint(3, 50, (2, 10), generator=torch.Generator().manual_seed(7))
    found = []
    for model, cache in ((eager, transformers.DynamicCache()), (ours, Cache()), (eager, Cache(page_size=3))):
        with torch.no_grad():
            for first, last in ((0, 6), (6, 9), (9, 10)):
                result = model(words[:, first:last], past_key_values=cache, output_attentions=True)
        found.append(result)
    for result in found[1:]:
        assert_close(result.logits, found[0].logits)
        for got, expected in zip(result.attentions, found[0].attentions, strict=True):
            assert_close(got, expected)


def test_queries_have_gradients_where_keys_need_none():
    eager, ours = pair("Llama")
    words = torch.randint(3, 50, (2, 7), generator=torch.Generator().manual_seed(9))
    gradients = []
    for model, cache in ((eager, transformers.DynamicCache()), (ours, Cache())):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("layers.1.self_attn.q_proj" in name)
        model(words[:, :5], past_key_values=cache)
        model(words[:, 5:], past_key_values=cache).logits.square().sum().backward()
        gradients.append(model.model.layers[1].self_attn.q_proj.weight.grad)
    assert_close(gradients[1], gradients[0], 5e-4)  # sums over 4 positions, some tens


def test_a_model_in_bfloat16_keeps_bfloat16():
    _, ours = pair("Llama")
    ours = ours.to(torch.bfloat16)
    words = torch.randint(3, 50, (1, 8), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        expected = ours(words).logits[:, -1]
        ours(words[:, :7], past_key_values=(cache := Cache()))
        got = ours(words[:, 7:], past_key_values=cache).logits[:, -1]
    assert cache.layers[0].kv.format == "bf16" and got.dtype == torch.bfloat16
    assert_close(got, expected, 2**-5)  # a few roundings of 2^-8 in each of two layers


def test_a_cache_is_emptied_and_used_again():
    eager, ours = pair("Llama")
    cache = Cache()
    for padded in (False, True):
        given = prompt("Llama", padded)
        assert torch.equal(generate(ours, given, past_key_values=cache), generate(eager, given))
        assert repr(cache) == "<Cache: layers 2, each with KvCache(paged f32, 2 sequences, 40 rows of 2 x 8)>"
        cache.reset()
        assert cache.get_seq_length() == 0
    assert repr(cache) == "<Cache: layers 2, each with nothing yet>"


def step(cache, rows):
    _, ours = pair("Llama")
    with torch.no_grad():
        for count in rows:
            ours(torch.full((2, count), 5), past_key_values=cache)
    return cache


MISTAKES = {
    "layout is 'pages'; 'contiguous'": lambda: Cache(layout="pages"),
    "format is 'int3'; 'f32'": lambda: Cache(format="int3"),
    "group is 9; a power of two": lambda: Cache(format="int8", group=9),
    "page_size is 0; 1 to 256": lambda: Cache(page_size=0),
    "window is 0; 1 to": lambda: Cache(layout="ring"),
    "sinks is 4 and window 0 in a paged cache": lambda: Cache(sinks=4),
    "capacity is 0; 1 or more": lambda: Cache(capacity=0),
    "rotate is True without a format": lambda: Cache(rotate=True),
    "5 rows arrive in a ring at once; at most its window, 4": lambda: step(Cache(layout="ring", window=4), [9, 5]),
    "a ring has evicted rows": lambda: step(Cache(layout="ring", window=4), [9]).crop(-1),
    "tokens_to_remove is 3; 0 or a negative": lambda: step(Cache(), [9]).crop(3),
    "layout is 'contiguous', but a sequence continues as several": lambda: step(
        Cache(layout="contiguous"), [3]).reorder_cache(torch.tensor([0, 0])),
    "keys require gradients": lambda: pair("Llama")[1](torch.full((1, 3), 5), past_key_values=Cache()),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_is_wrong_is_said(message):
    with pytest.raises(ValueError) as caught:
        MISTAKES[message]()
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_the_first_rows_make_the_room_that_was_asked_for():
    """`capacity` is per batch entry: a contiguous cache has that many rows per entry, a pool the same total."""
    for layout in ("contiguous", "paged"):
        cache = Cache(layout=layout, capacity=256, page_size=16)
        rows = torch.zeros(3, 2, 4, 8)
        cache.update(rows, rows, 0)
        kv = layers_of(cache)[0].kv
        stats = kv.stats()
        # Keys and values in f32: 3 entries x 256 rows x 2 heads x 8 numbers.
        assert stats["bytes"] >= 2 * 4 * 3 * 256 * 2 * 8, layout
        assert stats["bytes"] < 2 * 2 * 4 * 3 * 256 * 2 * 8, layout
        if layout == "paged":
            assert stats["pages"] == 3 * 256 // 16 and stats["free_pages"] == 3 * 256 // 16 - 3
        for _ in range(2):
            more = torch.zeros(3, 2, 126, 8)
            cache.update(more, more, 0)
        assert kv.stats()["rows"] == 3 * 256
        if layout == "contiguous":  # a pool grows before it is full
            assert kv.stats()["bytes"] == stats["bytes"]


def test_other_things_than_what_transformers_makes_are_refused():
    for call, text in ((lambda: heed.transformers.Cache("x"), "config is of type str; a configuration of transformers, or None, is expected"),
                       (lambda: heed.transformers.Cache(capacity="x"), "capacity is 'x'; a whole number is expected"),
                       (lambda: heed.transformers.pieces(None, [1]), "tokenizer is of type NoneType; a tokenizer of transformers is expected"),
                       (lambda: heed.transformers.word_times(None, None, None), "model is of type NoneType; a model of transformers is expected")):
        with pytest.raises(TypeError, match=f"^{text}$"):
            call()
