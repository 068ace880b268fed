"""heed.Report: questions by word, head and pair; for a call, layers, weights alone, and documents."""

import sys
import types

import numpy as np
import pytest

import heed
from heed._cause import _numbers

WORDS = ["The", "animal", "was", "tired", "and", "the", "street", "was", "wide"]
LAYERS, HEADS, LENGTH = 3, 4, len(WORDS)


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


@pytest.fixture(scope="module")
def layers():
    draw = np.random.default_rng(7)
    return [[2 * draw.standard_normal((1, HEADS, LENGTH, 8)) for _ in range(LAYERS)] for _ in range(3)]


@pytest.fixture(scope="module")
def weights(layers):
    """The weights [1, layers x heads, L, L], by NumPy."""
    scores = np.concatenate([q @ k.swapaxes(2, 3) / np.sqrt(8) for q, k in zip(*layers[:2])], 1)
    raised = np.exp(scores) * np.tril(np.ones((LENGTH, LENGTH)))
    return raised / raised.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def report(layers):
    return heed.look(*layers, tokens=WORDS, causal=True)


def of_weights(weights):
    return heed.look(weights=np.split(weights, LAYERS, 1), tokens=WORDS)


@pytest.fixture(params=["calls", "weights", "document of calls", "document of weights"])
def each(request, report, weights, tmp_path):
    made = of_weights(weights) if "weights" in request.param else report
    if "document" not in request.param:
        return made
    made.save(tmp_path / "kept.safetensors")
    return heed.open(tmp_path / "kept.safetensors")


def test_layers_and_heads_are_counted_from_0(each):
    assert each.layers == [("0", HEADS), ("1", HEADS), ("2", HEADS)]
    assert each.label(9) == each.label("2.1") == each.label((2, 1)) == "2.1"
    lines = list(each.heads())
    assert [(line["layer"], line["head"]) for line in lines] == [(n // HEADS, n % HEADS) for n in range(LAYERS * HEADS)]
    assert [summary["place"] for summary in each.summaries][5] == "layer 1, head 1"


def test_its_numbers_are_numpys(each, weights):
    assert np.allclose(each.weights, weights, atol=1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(weights * np.log(weights), -1)
    assert np.allclose(each.entropy, entropy, atol=1e-12)
    assert np.allclose(each.received, weights.sum(2), atol=1e-12)


def test_a_row_is_asked_for_by_its_word(each, weights):
    row = weights[0, 6, WORDS.index("street")]
    asked = list(each.row("street", head="1.2"))
    order = np.argsort(-row[:7], kind="stable")[:5]
    assert [line["key"] for line in asked] == order.tolist() and asked[0]["word"] == WORDS[order[0]]
    assert np.allclose([line["weight"] for line in asked], row[order])
    assert [line["key"] for line in each.row(6, head=6, top=7)] == np.argsort(-row[:7], kind="stable").tolist()
    for named in ("was:2", "Was:2", "#7"):
        assert list(each.row(named, head=0)) == list(each.row(7, head=0))
    every = each.row("street")
    largest = weights[0, :, 6].max(-1)
    assert np.allclose(every["weight"], np.sort(largest)[::-1])
    assert (every[0]["layer"], every[0]["head"]) == divmod(int(largest.argmax()), HEADS)


def test_a_pair_ranks_the_heads(each, weights):
    asked = each.pair("street", "animal")
    found = weights[0, :, 6, 1]
    order = np.argsort(-found, kind="stable")
    assert [HEADS * line["layer"] + line["head"] for line in asked] == order.tolist()
    assert np.allclose(asked["weight"], found[order])
    assert asked["rank"] == [1 + int((weights[0, n, 6] > found[n]).sum()) for n in order]


def test_keys_that_a_row_may_not_see_are_not_listed(each, weights):
    assert [line["key"] for line in each.row(3, head=2, top=9)] == np.argsort(-weights[0, 2, 3, :4], kind="stable").tolist()
    asked = each.pair(3, 6)
    assert set(asked["weight"]) == {0.0} and set(asked["rank"]) == {0}


@pytest.mark.parametrize("form", ["mask", "bias"])
def test_a_mask_forbids_keys_of_a_row(layers, form):
    allowed = np.random.default_rng(1).random((LENGTH, LENGTH)) < 0.7
    allowed[4] = [True, False] + [True] * 7
    given = allowed if form == "mask" else np.where(allowed, 0, -np.inf)
    report = heed.look(*(x[0] for x in layers), **{form: given}, top_k=2)
    assert sorted(line["key"] for line in report.row(4, head=1, top=9)) == [0, *range(2, 9)]
    assert set(report.pair(4, 1)["rank"]) == {0} and set(report.pair(4, 2)["weight"]) != {0.0}
    least = min(range(9), key=lambda key: (key == 1, report.weights[0, 0, 4, key]))
    assert next(line for line in report.pair(4, least) if line["head"] == 0)["rank"] == 8


def test_a_weight_of_0_may_be_seen(layers):
    weights = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.25, 0.75]])
    report = heed.look(weights=weights, top_k=1)
    assert report.pair(2, 0)[0] == {"head": 0, "looks like": report.summaries[0]["name"], "weight": 0.0, "rank": 3}
    assert [line["key"] for line in report.row(2, top=3)] == [2, 1, 0] and len(report.row(1, top=3)) == 2


def test_a_key_whose_weight_underflows_is_seen_beside_a_mask(layers):
    allowed = np.ones((LENGTH, LENGTH), bool)
    allowed[4, 1] = False
    slopes = np.full(HEADS, 300.0)
    report = heed.look(*(x[0] for x in layers), mask=allowed, alibi=slopes, top_k=2)
    assert set(report.pair(4, 0)["weight"]) == {0.0} and min(report.pair(4, 0)["rank"]) > 1
    assert set(report.pair(4, 1)["rank"]) == {0}
    assert len(report.row(4, head=0, top=9)) == LENGTH - 1


def test_a_row_of_nan_ranks_no_key(layers):
    q = layers[0][0].copy()
    q[0, 1, 5] = np.nan
    report = heed.look(q, layers[1][0], layers[2][0], causal=True)
    asked = list(report.pair(5, 2))
    assert np.isnan(asked[-1]["weight"]) and (asked[-1]["head"], asked[-1]["rank"]) == (1, 0)
    assert all(one["weight"] >= other["weight"] for one, other in zip(asked, asked[1:-1]))
    assert len(report.row(5, head=1, top=9)) == len(report.row(5, head=1)) == 0


def test_a_tile_is_a_piece_of_the_weights(each, weights, layers):
    assert np.allclose(each.tile((2, 5), slice(1, 4)), weights[:, :, 2:5, 1:4], atol=1e-12)
    assert np.allclose(each.tile("street", None, head="2.0", batch=0), weights[:1, 8:9, 6:7], atol=1e-12)


def test_tiles_pairs_and_rows_of_long_texts_are_computed(layers, weights):
    report = heed.look(*layers, causal=True)
    report.weights = None  # as for texts whose matrices are too large
    assert np.allclose(report.tile((2, 5), (0, 4), head="1.3"), weights[:, 7:8, 2:5, 0:4], atol=1e-12)
    assert np.allclose(sorted(report.pair(6, 1)["weight"]), sorted(weights[0, :, 6, 1]))
    assert [line["key"] for line in report.row(8, head=0, top=9)] == np.argsort(-weights[0, 0, 8]).tolist()


@pytest.mark.parametrize("ask, message", [
    (lambda r: r.row("was"), "row is 'was', which occurs at 2 and 7; one of these numbers, or 'was:1' to "
     "'was:2', is expected"),
    (lambda r: r.row("was:3"), "row is 'was:3', but the text has 'was' 2 times"),
    (lambda r: r.row("#9"), "row is 9; 0 to 8 is expected"),
    (lambda r: r.row("anmial"), "row is 'anmial', which is not one of the 9 words; did you mean 'animal'?"),
    (lambda r: r.pair("tired", "xyz"), "key is 'xyz', which is not one of the 9 words; words are spelled like its tokens"),
    (lambda r: r.row(9), "row is 9; 0 to 8 is expected"),
    (lambda r: r.row(1, head="3.0"), "head is '3.0'; 'layer.head', from '0.0' to '2.3', is expected"),
    (lambda r: r.row(1, head=12), "head is 12; 0 to 11 is expected"),
    (lambda r: r.row(1, head=0, top=0), "top is 0; 1 or more is expected"),
    (lambda r: r.row(1, batch=1), "batch is 1; 0 to 0 is expected"),
    (lambda r: r.tile((3, 10)), "rows is (3, 10); (first, last + 1) within 0 to 9 is expected"),
    (lambda r: r.kind("cross"), "kind is 'cross'; nothing (there is only one kind) is expected"),
])
def test_what_is_not_there_is_said(report, ask, message):
    with pytest.raises(ValueError) as refused:
        ask(report)
    assert str(refused.value) == message


def test_a_model_reads_a_text():
    model = heed.load_model("induction")
    wanted = model.look("to be or not to be or")
    for given in ("induction", model):
        report = heed.look("to be or not to be or", model=given)
        assert report.title == wanted.title == "to be or not to be or" and np.array_equal(report.weights, wanted.weights)
    assert heed.look("to be", model=model, title="Hamlet").title == "Hamlet"
    assert heed.look(model.token_ids("to be or"), model=model).weights.shape[-1] == 3


def test_special_tokens_are_no_part_of_the_title(layers):
    report = heed.look(*layers, tokens=["[CLS]", *WORDS[1:8], "[SEP]"])
    assert report.title == " ".join(WORDS[1:8])


def test_a_word_that_the_tokenizer_cut_is_said(layers):
    words = ["un", "·believ", "·able", *WORDS[3:]]
    report = heed.look(*layers, tokens=words)
    assert report.title == "unbelievable tired and the street was wide"
    assert list(report.row("believ", head=0)) == list(report.row(1, head=0))
    with pytest.raises(ValueError, match="'unbelievable', which is split into 'un' '·believ' '·able', 0 to 2; one of these"):
        report.row("unbelievable")


def test_a_character_that_the_tokenizer_cut_is_said(layers):
    report = heed.look(*layers, tokens=["so", "😀 1/2", "😀 2/2", "€ 1/3", "€ 2/3", "€ 3/3", *WORDS[6:]])
    for word, cut in (("😀", "'😀 1/2' '😀 2/2', 1 to 2"), ("€", "'€ 1/3' '€ 2/3' '€ 3/3', 3 to 5")):
        with pytest.raises(ValueError) as refused:
            report.row(word)
        assert str(refused.value) == f"row is {word!r}, which is split into {cut}; one of these is expected"


def test_a_word_of_which_a_character_was_cut_is_said(layers):
    report = heed.look(*layers, tokens=["Vi", "·ệ 1/2", "ệ 2/2", "·t", *WORDS[4:]])
    with pytest.raises(ValueError, match="row is 'Việt', which is split into 'Vi' '·ệ 1/2' 'ệ 2/2' '·t', 0 to 3; one of"):
        report.row("Việt")
    with pytest.raises(ValueError, match="row is 'ệ', which is split into '·ệ 1/2' 'ệ 2/2', 1 to 2; one of"):
        report.row("ệ")


def test_a_place_is_a_place_where_tokens_are_spelled_alike(layers):
    report = heed.look(*layers, tokens=["#5", "#2", *WORDS[2:]])
    assert list(report.row("#5", head=0)) == list(report.row(5, head=0))
    assert list(report.row("#2:1", head=0)) == list(report.row(1, head=0))
    assert [line["key"] for line in heed.look(*layers).row("#5", head=0)] == [line["key"] for line in report.row(5, head=0)]
    assert _numbers("places", ["#5", "was"], report.tokens, LENGTH) == [5, 2, 7]


def test_the_table_of_heads_prints_and_sorts(report):
    table = report.heads()
    assert len(table) == LAYERS * HEADS and {"entropy", "distance", "looks like", "layer"} <= set(table.columns)
    for line, summary in zip(table, report.summaries):
        assert line["runner-up"] == (summary["runner_up"]["name"] if summary["runner_up"] else "")
        assert line["runner-up"] == "" or line["runner-up score"] == summary["runner_up"]["score"]
    ordered = table.sort_values("entropy", ascending=False)
    assert ordered["entropy"] == sorted(table["entropy"], reverse=True)
    lines = repr(ordered).splitlines()
    assert lines[0].split()[:4] == ["layer", "head", "looks", "like"] and max(map(len, lines[:-1])) <= 110
    assert lines[-1].startswith("further columns: ")
    with pytest.raises(KeyError, match="column is 'entrpy'; one of layer, head"):
        table.sort_values("entrpy")
    assert "<td>" in table._repr_html_() and "<script" not in table._repr_html_()


def test_a_table_holds_text_as_text():
    from heed._table import Table

    shown = Table([{"word": "<b>\n\x1b[31m", "weight": float("nan")}])
    assert "<b>" not in shown._repr_html_() and "\x1b" not in repr(shown)


def test_with_pandas_it_is_a_data_frame(report, monkeypatch):
    made = types.ModuleType("pandas")
    made.DataFrame = lambda lines: ("frame", lines)
    monkeypatch.setitem(sys.modules, "pandas", made)
    kind, lines = report.heads()
    assert kind == "frame" and len(lines) == LAYERS * HEADS and lines[5]["layer"] == 1


def test_print_and_repr_stay_short(report):
    assert len(repr(report)) < 250
    assert repr(report).startswith("<heed.Report: 'The animal was tired and the street was wide': 3 layers, 12 heads, 9 queries")
    assert "\n2.3 " in str(report)


def test_the_page_says_the_text(report, tmp_path):
    page = report.page()
    assert '"title":"The animal was tired and the street was wide"' in page
    assert report.page(tmp_path / "page.html", title="Other") == (tmp_path / "page.html").read_text()
    assert '"title":"Other"' in (tmp_path / "page.html").read_text()


def test_all_layers_are_plotted(report):
    pytest.importorskip("matplotlib").use("Agg")
    figure = report.plot()
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == LAYERS * HEADS and np.array_equal(shown[5].images[0].get_array(), report.weights[0, 5])
    assert [axis.get_title() for axis in report.plot(heads=["1.2"]).axes] == [f"1.2: {report.summaries[6]['name']}"]


def test_weights_of_one_call_may_lack_axes_and_layers_have_other_heads(weights):
    assert heed.look(weights=weights[0, 0]).weights.shape == (1, 1, LENGTH, LENGTH)
    assert heed.look(weights=[weights[:, :4], weights[:, 4:5]]).layers == [("0", 4), ("1", 1)]


def test_what_weights_may_see_is_causal_where_the_rest_is_0(weights):
    assert "causal" in of_weights(weights).about and (of_weights(weights).key_end[0] == np.arange(1, LENGTH + 1)).all()
    everywhere = np.full((1, 2, 3, 3), 1 / 3)
    assert "causal" not in heed.look(weights=everywhere).about
    allowed = np.tril(np.ones((LENGTH, LENGTH), bool), 2)
    assert "mask" in heed.look(weights=weights, allowed=allowed).about


@pytest.mark.parametrize("call, kind, message", [
    (lambda x: heed.look(x, x), TypeError, "v is missing; q, k and v, or weights, are expected"),
    (lambda x: heed.look(x, x, x, weights=x), TypeError,
     "q is given together with weights, which are already computed; one of the two is expected"),
    (lambda x: heed.look(weights=np.ones((2, 2))), ValueError,
     "weights sums to 2 in row [0, 0, 0]; at most 1, as after a softmax and before dropout, is expected"),
    (lambda x: heed.look(weights=[np.eye(2)[None], np.eye(3)[None]]), ValueError,
     "weights has shape [1, 3, 3] in layer 1; [1, 2, 2], as in layer 0 but for the heads, is expected, with at least three axes"),
    (lambda x: heed.look([np.ma.masked_greater(x, 0)] * 2, [x] * 2, [x] * 2), ValueError,
     "q is a masked array with masked elements; a plain array is expected, as filled() returns"),
    (lambda x: heed.look(weights=[np.eye(2)[None], np.ma.masked_less(np.eye(2)[None], 1)]), ValueError,
     "weights has a masked array with masked elements; plain arrays are expected, as filled() returns"),
    (lambda x: heed.look(weights="x"), TypeError,
     "weights is of type str; an array [B, H, Lq, Lk], or a list of them, is expected"),
    (lambda x: heed.look("to be"), TypeError,
     "q is a text, but model is missing; a model to read it, such as model='induction', is expected"),
    (lambda x: heed.look("to be", model="induction", causal=True), TypeError,
     "causal is given together with model, which computes it; heed.load_model(…).look() has the options of a model"),
    (lambda x: heed.look(model="induction"), TypeError, "q is missing; the text that the model reads is expected"),
    (lambda x: heed.look(x, x, x, allowed=x), TypeError, "allowed is given without weights; mask is expected"),
    (lambda x: heed.look(x, x, x, tokens="ab"), TypeError,
     "tokens is 'ab'; a list of texts, one for each query, is expected"),
    (lambda x: heed.look(x, x, x, tokens=5), TypeError, "tokens is 5; a list of texts, one for each query, is expected"),
    (lambda x: heed.look(x, x, x, tokens=["a", 2]), TypeError, "tokens has 2; texts are expected"),
    (lambda x: heed.look(x, x, x, tokens=["a", "\ud800"]), ValueError,
     "one of tokens is '\\ud800', in which '\\ud800' is half of a character; whole characters are expected"),
    (lambda x: heed.look(x, x, x, title=3), TypeError, "title is 3; a str is expected"),
    (lambda x: heed.look("to be", model=3), TypeError,
     "model is 3; the name or the folder of a model, or a heed.Model, is expected"),
    (lambda x: heed.explain("to be", model=3), TypeError,
     "model is 3; the name or the folder of a model, or a heed.Model, is expected"),
    (lambda x: heed.look(x, x, x, tokens=["a"]), ValueError,
     "tokens has 1 entry; 2, one for each query, are expected"),
    (lambda x: heed.look(x, x, x, top_k="all"), TypeError, "top_k is 'all'; a whole number is expected"),
    (lambda x: heed.look(x, x, x, is_causal=True), TypeError,
     "look() got an unexpected keyword argument 'is_causal'; did you mean 'causal'?"),
    (lambda x: heed.attention(x, x, x, attn_mask=x), TypeError,
     "attention() got an unexpected keyword argument 'attn_mask'; did you mean 'mask'?"),
    (lambda x: heed.attention(x, x, x, colour=x), TypeError, "attention() got an unexpected keyword argument 'colour'"),
    (lambda x: heed.look(x, x, x, query_tokens=["a", "b"]), TypeError,
     "look() got an unexpected keyword argument 'query_tokens'; did you mean 'tokens'?"),
    (lambda x: heed.look([[1]], [[-1e39]], [[1]]), ValueError,
     "k has lists with the number -1e+39, which float32 cannot hold; smaller numbers or a float64 array are expected"),
    (lambda x: heed.look([x, x], [x], [x, x]), ValueError,
     "q, k and v are not lists of the same number of layers; three such lists, or three arrays, are expected"),
])
def test_mistakes_are_sentences(call, kind, message):
    with pytest.raises(kind) as refused:
        call(np.ones((1, 2, 2, 4), np.float32))
    assert str(refused.value) == message


@pytest.mark.parametrize("given, kind, message", [
    ({"temperature": "x"}, TypeError, "temperature is 'x'; a number is expected"),
    ({"top_p": None}, TypeError, "top_p is None; a number is expected"),
    ({"tokens": 2.5}, TypeError, "tokens is 2.5; a whole number is expected"),
    ({"top_k": "all"}, TypeError, "top_k is 'all'; a whole number is expected"),
    ({"seed": -1}, ValueError, "seed is -1; 0 to 18446744073709551615 is expected"),
    ({"cache": 8}, TypeError, "cache is 8; a str is expected"),
    ({"prompt": 3}, TypeError, "prompt is 3; a text, or token ids, are expected"),
    ({"prompt": [1, 2.5]}, TypeError, "prompt[1] is 2.5; a whole number is expected"),
    ({"prompt": "to \ud83d"}, ValueError,
     "prompt is 'to \\ud83d', in which '\\ud83d' is half of a character; whole characters are expected"),
])
def test_mistakes_of_generation_are_sentences(given, kind, message):
    with pytest.raises(kind) as refused:
        heed.generate("induction", **({"prompt": "to be", "tokens": 2} | given))
    assert str(refused.value) == message
