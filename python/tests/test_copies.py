"""Copies and pickles of every class. A copy equals the original and shares nothing that can change, or the class refuses in
one sentence. A class that the table does not list fails the test. A damaged pickle is refused before use."""

import copy
import importlib
import inspect
import json
import pickle
import pkgutil

import numpy as np
import pytest

import heed
import heed.nn

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnx")

import heed.onnx  # noqa: E402
import heed.torch  # noqa: E402
import heed.transformers  # noqa: E402
from tiny_models import make  # noqa: E402

heed.transformers.register()
RNG = np.random.default_rng(5)
WORDS = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
         "model": {"type": "WordLevel", "vocab": {"a": 0, "bc": 1, "?": 2}, "unk_token": "?"}}


def floats(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def cache_of(**options):
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=8, group=8, **options)
    cache.append(floats(1, 2, 30, 8), floats(1, 2, 30, 8), offsets=[0, 19, 30])
    cache.add_received(np.abs(floats(2, 4, int(cache.rows.max()))))
    cache.fork(0)
    cache.evict(0, [17])
    return cache


def latent_cache():
    cache = heed.KvCache(batch=2, kv_heads=2, key_dim=8, value_dim=6, group=8, format="int4", capacity=40,
                         values_in_keys=True)
    cache.append(floats(1, 2, 30, 8), offsets=[0, 19, 30])
    cache.fork(0)
    cache.evict(0, [17])
    return cache


def differential():
    q, v = floats(1, 4, 3, 8), floats(1, 2, 5, 6)
    k, lam = floats(1, 4, 5, 8), np.ones(2, np.float32)
    result = heed.differential_attention(q, k, v, lam=lam, need="weights")
    return result, heed.differential_attention_backward(q, k, v, lam, result, result.output)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Contains a model that transformers saved and a model that heed trained."""
    path = tmp_path_factory.mktemp("models")
    make("llama").save_pretrained(path / "llama")
    (path / "llama" / "tokenizer.json").write_text(json.dumps(WORDS))
    (path / "trained").mkdir()
    heed.train(path / "trained", steps=2, layers=1, heads=1, model_dim=8, context=8, symbols=8, batch=2)
    return path


def read(model):
    cache = model.cache()
    model.hidden_states([1, 2, 3], cache=cache)
    return cache


def attended(**options):
    return heed.attention(floats(1, 2, 3, 4), floats(1, 2, 3, 4), floats(1, 2, 3, 4), **options)


def looked():
    return heed.look(floats(1, 2, 6, 4), floats(1, 2, 6, 4), floats(1, 2, 6, 4), causal=True)


def gradients():
    q, k, v, g = (floats(1, 2, 3, 4) for _ in range(4))
    result = heed.attention(q, k, v, need="lse")
    return heed.attention_backward(q, k, v, result.output, result.lse, g)


def block_mask():
    kept = RNG.random((3, 4, 4)) < 0.5
    return heed.SparseMask.block_mask([2, 1], [[1, 0], [1, 0]], partial=kept, block_size=(4, 4), queries=7, keys=8)


def transformers_cache():
    cache = heed.transformers.Cache(page_size=3)
    for layer in range(2):
        cache.update(torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4), layer)
    return cache


def rows_of_a_cache():
    return transformers_cache().update(torch.randn(2, 2, 1, 4), torch.randn(2, 2, 1, 4), 1)[0]


def row_mask():
    from heed._hf_row_mask import RowMask

    runs = torch.tensor([[[[0, 1]], [[0, 2]], [[1, 3]]]], dtype=torch.int32)
    return RowMask.make(runs, torch.tensor([[True, True, False]]), (1, 1, 3, 3), 0)


def captured(**options):
    model = make("gpt2")
    model.set_attn_implementation("heed")
    with torch.no_grad(), heed.transformers.capture(top_k=2, **options) as maps:
        model(torch.tensor([[1, 2, 3, 4]]))
    return maps


def torch_attended():
    q = torch.from_numpy(floats(1, 2, 3, 4))
    return heed.torch.attention(q, q, q, need=["entropy"], top_k=2)


def onnx_rep():
    from onnx import TensorProto, helper

    x = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 3, 4]) for name in "qkvy"]
    graph = helper.make_graph([helper.make_node("Attention", ["q", "k", "v"], ["y"])], "g", x[:3], x[3:])
    return heed.onnx.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]))


# Test names, and functions that make the objects. A name begins with the class.
OBJECTS = {
    "KvCache": lambda: cache_of(capacity=40),
    "KvCache paged": lambda: cache_of(layout="paged", capacity=200, page_size=4, format="bf16"),
    "KvCache ring": lambda: cache_of(layout="ring", sinks=1, window=12),
    "KvCache int8": lambda: cache_of(layout="paged", capacity=200, format="int8", rotate=True),
    "KvCache int4": lambda: cache_of(capacity=40, format="int4"),
    "KvCache fp8": lambda: cache_of(layout="ring", sinks=1, window=12, format="fp8"),
    "KvCache values in keys": lambda: latent_cache(),
    "KvCache over": lambda: heed.KvCache.over(floats(2, 2, 9, 8), floats(2, 2, 9, 8), [9, 4]),
    "SparseMask": lambda: heed.SparseMask(),
    "SparseMask documents": lambda: heed.masks.documents([3, 4]),
    "SparseMask neighbourhood": lambda: heed.masks.neighbourhood((4, 6), (3, -1), dilation=(1, 2), causal=(True, False)),
    "SparseMask axial": lambda: heed.masks.axial((4, 6), first_query=6),
    "SparseMask bigbird": lambda: heed.masks.bigbird(4, 1, 1, 1, 3, 18, 22),
    "SparseMask rows": lambda: heed.SparseMask.rows(RNG.integers(0, 9, (2, 3, 5, 2, 2)), 8),
    "SparseMask columns": lambda: heed.SparseMask.columns(RNG.integers(0, 5, (2, 8, 4)), 5),
    "SparseMask key lists": lambda: heed.SparseMask.key_lists([[3, -1, 0], [-1, -1, -1], [4, 2, 1]], 5),
    "SparseMask flash": lambda: heed.SparseMask.flash(RNG.integers(0, 6, (1, 2, 5, 1)), causal=True, queries=5),
    "SparseMask blocks": block_mask,
    "SparseMask expression": lambda: heed.SparseMask.expression(
        "j <= i && doc[i] == doc[j] || wide[h]", 5, 5, doc=[0, 0, 1, 1, 1], wide=np.array([True, False])),
    "SparseMask of several": lambda: heed.masks.prefix_lm(2, 7, 8) & block_mask(),
    "ScoreMod": lambda: heed.ScoreMod.expression("s - 0.5 * slope[h] * abs(i - j)", slope=[1.0, 0.25]),
    "DifferentialResult": lambda: differential()[0],
    "DifferentialGradients": lambda: differential()[1],
    "AttentionResult": lambda: attended(need=("lse", "weights"), top_k=2),
    "AttentionGradients": gradients,
    "AttentionPlan": lambda: heed.plan_attention(*[floats(1, 2, 9, 8)] * 3, need="weights"),
    "PlannedPass": lambda: heed.plan_attention(*[floats(1, 2, 9, 8)] * 3, kernel="fused").passes[0],
    "Generator": lambda: heed.nn.Generator(3),
    "Embedding": lambda: heed.nn.Embedding(5, 4, 1),
    "Linear": lambda: heed.nn.Linear(4, 3, generator=1),
    "Linear without a bias": lambda: heed.nn.Linear(4, 3, bias=False, generator=1, dtype="float64"),
    "SelfAttention": lambda: heed.nn.SelfAttention(4, 3, 2, 1),
    "MultiHeadAttention": lambda: heed.nn.MultiHeadAttention(8, 4, kv_heads=2, generator=1),
    "MultiHeadAttention across": lambda: heed.nn.MultiHeadAttention(8, 2, context_dim=6, bias=False, output_projection=False,
                                                                    generator=1),
    "LayerResult": lambda: heed.nn.MultiHeadAttention(8, 4, generator=1)(floats(3, 8), need="lse"),
    "Tokenizer": lambda: heed.Tokenizer.from_json(json.dumps(WORDS)),
    "Tokenizer of a file": lambda folder: heed.Tokenizer.from_file(folder / "llama" / "tokenizer.json"),
    "Tokenizer of a model": lambda folder: heed.load_model(folder / "llama").tokenizer,
    "Model": lambda folder: heed.load_model(folder / "llama"),
    "TrainedModel": lambda folder: heed.load_model(folder / "trained"),
    "ModelCache": lambda folder: read(heed.load_model(folder / "llama")),
    "Report": looked,
    "Head": lambda: looked()[1],
    "Explanation": lambda: heed.explain("to be or not"),
    "Explanation of a model": lambda: heed.explain("to be or not", model="induction"),
    "Run": lambda folder: captured(to=folder / f"{len(list(folder.iterdir()))}.heed"),
    "Maps": captured,
    "Maps for a report": lambda: captured(report=True),
    "Cache": transformers_cache,
    "CachedRows": rows_of_a_cache,
    "RowMask": row_mask,
    "Attended": torch_attended,
    "Summary": lambda: heed.torch.scaled_dot_product_attention(*[torch.ones(1, 1, 3, 4)] * 3, return_summary=True)[-1],
    "MultiheadAttention": lambda: heed.torch.MultiheadAttention(4, 2),
    "HeedBackendRep": onnx_rep,
}

# Classes that can be copied but not pickled, and how the refusal begins.
REPORT = "heed.Report cannot be pickled because it reads the arrays of its call again"
NOT_PICKLED = {"Report": REPORT, "Head": REPORT, "Explanation of a model": REPORT}
# Classes that need no entry above, and why.
PARTS = {
    "Memory": "the memory of an array",
    "ModelData": "part of a Model",
    "ReportData": "part of a Report",
    "Tokenizer": "part of a Tokenizer",
    "TrainedModelData": "part of a TrainedModel",
    "CallMap": "part of Maps and Runs",
    "HeedBackend": "has only class methods",
    "Layout": "a tuple of Shardings",
    "Sharding": "needs MPI; its test is below",
}
MODULES = ["heed", "heed.masks", "heed.nn", "heed.torch", "heed.transformers", "heed.onnx"]


def classes():
    """The classes of the extension and those in __all__ of public modules."""
    extension = {name for name, one in vars(heed._heed).items() if inspect.isclass(one)}
    public = {name for module in map(importlib.import_module, MODULES) for name in module.__all__
              if inspect.isclass(getattr(module, name))}
    return extension | public


def test_every_public_class_is_listed():
    answered = {name.split(" ")[0] for name in OBJECTS} | set(PARTS)
    assert classes() <= answered, "a class that holds data supports copying and pickling, or refuses in one sentence"


def test_every_public_module_is_searched():
    found = {f"heed.{module.name}" for module in pkgutil.iter_modules(heed.__path__) if not module.name.startswith("_")}
    assert found - {"heed.distributed"} == set(MODULES[1:])


@pytest.fixture
def made(request, folder):
    make_one = OBJECTS[request.param]
    return make_one(folder) if "folder" in inspect.signature(make_one).parameters else make_one()


def each(names=OBJECTS):
    return pytest.mark.parametrize("made", names, indirect=True)


def says(one):
    """The observable state of an object, to be compared."""
    match one:
        case heed.KvCache():
            stats = one.stats()
            rows = [[one.positions(b), one.keys(b), one.values(b), one.received(b)] for b in range(one.batch)]
            return [repr(one), one.lengths, rows, [stats[name] for name in ("rows", "capacity", "pages", "free_pages",
                                                                            "shared_pages")], one.page_size, one.rotate]
        case heed.SparseMask():
            return [one.shape, one.dense()]
        case heed.ScoreMod():
            x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) / 24
            return [repr(one), heed.attention(x, x, x, score_mod=one)]
        case heed._heed.Generator():
            return one.__getstate__()
        case heed.Tokenizer():
            return [one.size, one.encode("a bc a nothing"), one.decode([1, 0])]
        case heed.Model():
            return [repr(one), one.info, one.hidden_states([1, 2, 3])]
        case heed._heed.ModelCache():
            return [one.length, one.__getstate__()]
        case heed.Head():
            return [str(one), repr(one), one.weights]
        case heed.Explanation():
            return [str(one), str(one.report)]
        case heed.Report():
            return [str(one), one.title, one.summaries, one.lse, one.map, one.tile((1, 3))]
        case heed.transformers.Cache():
            return [[layer.kv, layer.length, layer.sequences, layer.dtype] for layer in one.layers]
        case heed.transformers.Run():
            return [repr(one), list(one)]
        case heed.transformers.Maps():
            return [repr(one), list(one), one._seen and str(one.report())]
        case torch.nn.Module():
            return [type(one).__name__, dict(one.state_dict())]
        case heed.onnx.HeedBackendRep():
            return list(one.run([np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)] * 3))
        case torch.Tensor():
            return (one + 0).numpy()
    if hasattr(one, "parameters"):
        return [type(one).__name__, one.parameters(), getattr(one, "heads", None), getattr(one, "kv_heads", None)]
    if type(one).__module__.startswith("heed._heed"):
        names = [name for name, value in vars(type(one)).items() if not name.startswith("_") and not callable(value)]
        return {name: getattr(one, name) for name in names}
    return one


def assert_same(a, b):
    a, b = says(a), says(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        assert_same(list(a.values()), list(b.values()))
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b):
            assert_same(one, other)
    elif isinstance(a, float):
        assert a == b or (a != a and b != b)
    else:
        assert a == b


@each()
def test_copies_equal_the_original(made):
    for copied in (copy.copy, copy.deepcopy):
        other = copied(made)
        if not isinstance(made, torch.Tensor):
            assert type(other) is type(made)
        assert_same(made, other)


@each(sorted(set(OBJECTS) - set(NOT_PICKLED)))
@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_unpickled_objects_equal_the_original(made, protocol):
    again = pickle.loads(pickle.dumps(made, protocol))
    assert_same(made, again)
    assert_same(again, copy.deepcopy(again))


@each(sorted(NOT_PICKLED))
def test_a_class_that_cannot_be_pickled_says_what_to_do(made, request):
    with pytest.raises(TypeError, match=NOT_PICKLED[request.node.callspec.params["made"]]):
        pickle.dumps(made)


def test_internal_parts_name_the_object_to_pickle(folder):
    model = heed.load_model(folder / "trained")
    for part, sentence in ((model._data, "pickle the heed.Model that"), (model._trained, "pickle the heed.TrainedModel that"),
                           (heed.Tokenizer.from_json(json.dumps(WORDS))._data, "pickle the heed.Tokenizer that"),
                           (attended(need="lse").lse.base.obj, "copy or pickle the array"), (looked()._data, "heed.open")):
        with pytest.raises(TypeError, match=sentence):
            pickle.dumps(part)
    with pytest.raises(TypeError, match="copy or pickle the array"):
        copy.deepcopy(attended(need="lse").lse.base.obj)


CHANGES = {  # how to change an object of each mutable class
    "KvCache": lambda cache: cache.truncate(0, 3),
    "Generator": lambda generator: generator.rand([3]),
    "Linear": lambda layer: layer.parameters()["weight"].fill(7),
    "MultiHeadAttention": lambda layer: layer.parameters()["query.weight"].fill(7),
    "AttentionResult": lambda result: result.output.fill(7),
    "AttentionGradients": lambda result: result.dq.fill(7),
    "LayerResult": lambda result: result.attention.lse.fill(7),
    "Cache": lambda cache: cache.crop(-2),
    "Model": lambda model: model.info.update(layers=77),
    "ModelCache": lambda cache: cache.clear(),
    "Report": lambda report: report.lse.fill(7),
    "MultiheadAttention": lambda module: module.in_proj_weight.data.fill_(7),
}


@each(sorted(CHANGES))
def test_changing_a_deep_copy_leaves_the_original(made, request):
    kept, other = copy.deepcopy(made), copy.deepcopy(made)
    CHANGES[type(made).__name__](other)
    assert_same(made, kept)
    CHANGES[type(made).__name__](made)
    assert_same(made, other) if type(made).__name__ != "Generator" else None
    with pytest.raises(AssertionError):
        assert_same(made, kept)


@pytest.mark.parametrize("name", [name for name in OBJECTS if name.startswith("KvCache")])
def test_a_cache_and_its_copies_continue_with_the_same_bits(name):
    made = OBJECTS[name]()
    caches = [made, copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))]
    if name == "KvCache over":
        for cache in caches[1:]:
            cache.reserve(40)
        assert all(cache.stats()["bytes"] > 0 for cache in caches[1:])
        caches = caches[1:]
    rows, q = (floats(1, 2, 13, 8), floats(1, 2, 13, 8)), floats(1, 4, 2, 8)
    if made.values_in_keys:
        rows = rows[:1]
    outputs = []
    for cache in caches:
        cache.truncate(0, int(cache.lengths[0]) - 1)
        cache.append(*rows, offsets=[0, 13], sequences=[0])
        cache.append(*rows, offsets=[0, 13], sequences=[cache.fork(1)])
        outputs.append([heed.attention(q, cache, sequences=[b], causal=True) for b in range(cache.batch)])
        assert_same(caches[0], cache)
    assert all(np.array_equal(a, b) for one in outputs for a, b in zip(one, outputs[0]))


def test_two_references_to_a_cache_stay_one_object():
    cache = cache_of(capacity=40)
    pair = copy.deepcopy([cache, cache])
    assert pair[0] is pair[1] is not cache
    pair = pickle.loads(pickle.dumps([cache, cache]))
    assert pair[0] is pair[1]


def test_a_prompt_is_read_once_for_many_continuations():
    """The recipe of transformers: deepcopy the cache of a prompt for each continuation."""
    model = make("llama")
    model.set_attn_implementation("heed")
    prompt, cache = torch.tensor([[5, 6, 7, 8, 9, 10]]), heed.transformers.Cache()
    with torch.no_grad():
        model(prompt, past_key_values=cache)
        before = copy.deepcopy(cache)
        for end in ([11, 12], [13], [14, 15, 16]):
            text = torch.cat([prompt, torch.tensor([end])], 1)
            new = model.generate(text, max_new_tokens=6, do_sample=False, past_key_values=copy.deepcopy(cache))
            assert torch.equal(new, model.generate(text, max_new_tokens=6, do_sample=False))
    assert_same(cache, before)


def test_a_report_is_copied_with_its_other_kinds():
    first, second = looked(), looked()
    first._kinds = second._kinds = {"encoder": first, "cross": second}
    other = copy.deepcopy(first)
    assert other.kind("encoder") is other and other.kind("cross").kind("encoder") is other
    assert_same(other.kind("cross"), second)


def test_a_pickled_model_is_read_from_its_folder(folder, tmp_path):
    make("llama").save_pretrained(tmp_path / "model")
    kept = pickle.dumps(heed.load_model(tmp_path / "model"))
    make("llama", num_hidden_layers=2).save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="layers of the model in .* is 2; 3, as in the pickle, is expected"):
        pickle.loads(kept)
    make("llama").save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(WORDS))
    words = pickle.dumps(heed.load_model(tmp_path / "model").tokenizer)
    (tmp_path / "model" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="has no tokenizer; the tokenizer of the pickled model is expected"):
        pickle.loads(words)
    (tmp_path / "model" / "config.json").unlink()
    with pytest.raises(OSError, match="config.json"):
        pickle.loads(kept)


def test_a_cache_of_another_model_is_refused(folder):
    model, other = heed.load_model(folder / "llama"), heed.load_model(folder / "trained")
    with pytest.raises(ValueError, match="cache has 1 layer; 3, as in the model, are expected"):
        model.hidden_states([1, 2], cache=read(other))
    with pytest.raises(ValueError, match="cache has 3 layers; 1, as in the model"):
        other.hidden_states([1, 2], cache=model.cache())
    cache = model.cache()
    state = cache.__getstate__()
    empty = type(cache).__new__(type(cache))
    empty.__setstate__([])
    with pytest.raises(ValueError, match="cache has 0 layers"):
        model.hidden_states([1, 2], cache=empty)
    long = type(cache).__new__(type(cache))
    long.__setstate__([*state[:2], read(model).__getstate__()[2]])
    with pytest.raises(ValueError, match="layers of the cache hold 0 and 3 tokens; equal numbers are expected"):
        model.hidden_states([1, 2], cache=long)
    wide = type(cache).__new__(type(cache))
    wide.__setstate__([heed.KvCache(kv_heads=2, key_dim=4, capacity=4).__getstate__()] * 3)
    with pytest.raises(ValueError, match="cache has 1 sequence, 2 heads and head_dim 4; 1, 2 and 8, as in the model"):
        model.hidden_states([1, 2], cache=wide)


class Derived(heed.KvCache):
    pass


def test_a_subclass_needs_its_own_reduce():
    cache = Derived(kv_heads=1, key_dim=4, capacity=4)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="Derived would be copied or pickled as its base .*KvCache; a __reduce__ method of its own "
                                            "is expected"):
            copied(cache)


STATES = sorted(name for name in OBJECTS if hasattr(getattr(heed._heed, name.split(" ")[0], None), "__setstate__"))
NOTHING = [None, 5, "a text", "\ud800", b"bytes", (), [], {}, (1, 2), [1], {"key": 1}, {"\ud800": 1}, {1: 2}, ("s", {}, 3)]


def damaged(state):
    """Variants of a state with one part removed or replaced, at any depth."""
    if isinstance(state, dict):
        for key in state:
            yield {name: value for name, value in state.items() if name != key}
            yield from ({**state, key: value} for value in NOTHING)
            yield from ({**state, key: value} for value in damaged(state[key]))
    elif isinstance(state, list | tuple):
        for place in range(len(state)):
            changed = list(state)
            del changed[place]
            yield type(state)(changed)
            for value in [*NOTHING, *damaged(state[place])]:
                changed = list(state)
                changed[place] = value
                yield type(state)(changed)
    elif isinstance(state, bytes):
        yield state[:-1]
        yield state + b"1"
    elif isinstance(state, int):
        yield from (-1, 2**40, 2**70)


@each(STATES)
def test_a_damaged_pickle_is_refused_in_one_sentence(made):
    kind, states = type(made), [*NOTHING, *damaged(made.__getstate__())]
    made.__getstate__()
    refused = 0
    for state in states:
        other = kind.__new__(kind)
        try:
            other.__setstate__(state)
        except (TypeError, ValueError, MemoryError) as error:
            assert "std::" not in str(error) and "incompatible function" not in str(error), (state, error)
            refused += 1
            with pytest.raises(TypeError):  # the object stays uninitialised
                other.__getstate__()
        else:
            repr(other)
            other.__getstate__()
    assert refused > 5


def test_setstate_refuses_an_initialised_object():
    cache = cache_of(capacity=40)
    with pytest.warns(RuntimeWarning, match="already-initialized"), pytest.raises(TypeError):
        cache.__setstate__(cache.__getstate__())
    assert_same(cache, copy.copy(cache))


def test_shardings_and_layouts_are_copied():
    distributed = pytest.importorskip("heed.distributed", exc_type=ImportError)
    rows = distributed.Sharding.zigzag(20, 3)
    layout = distributed.Layout(rows, rows, 2, 4)
    for again in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert again(rows) == rows and again(layout) == layout
    for state in NOTHING:
        with pytest.raises((TypeError, ValueError)):
            distributed.Sharding.__new__(distributed.Sharding).__setstate__(state)
