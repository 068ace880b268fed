"""heed.look: the report's numbers, its text, and its page; and tiles of the weights."""

import html
import re
import subprocess
import sys

import numpy as np
import pytest

import heed

WORDS = ["Life", "is", "short", ",", "eat", "dessert", "first"]


@pytest.fixture
def call():
    rng = np.random.default_rng(3)
    return [rng.standard_normal((2, 3, 7, 8), dtype=np.float32) for _ in range(3)]


@pytest.fixture
def report(call):
    return heed.look(*call, tokens=WORDS, causal=True)


def test_its_numbers_are_those_of_attention(call, report):
    result = heed.attention(*call, causal=True, need=("weights", "lse", "entropy", "received"), top_k=5)
    for field in ("output", "lse", "entropy", "received", "top_k_index", "top_k_weight"):
        assert np.array_equal(getattr(report, field), getattr(result, field)), field
    # One is computed in f64 from the f32 lse, the other by the fused kernel in f32: some roundings of numbers up to
    # 1.
    assert np.abs(report.weights - result.weights).max() <= 2e-6
    assert report.map[-1].shape == (2, 3, 1, 1)
    assert np.allclose(report.map[-1], 7)  # 7 rows with weights that sum to 1


def test_it_prints_a_table_of_the_heads(report):
    text = str(report)
    assert text.startswith("3 heads, 2 batch entries, 7 queries, 7 keys, D 8, f32, fused (")
    assert "causal" in text.splitlines()[0]
    assert len(re.findall(r"^[01]/[012] ", text, re.M)) == 6
    assert "attended to most: Life (0)" in text
    assert repr(report).startswith("<heed.Report: 'Life is short , eat dessert first': 3 heads, 2 batch entries")
    assert len(repr(report)) < 200


def test_its_arrays_live_on_without_it(call):
    entropy = heed.look(*call).entropy
    assert np.array_equal(entropy, heed.attention(*call, need="entropy").entropy)


def test_in_a_notebook_it_is_the_page_in_a_frame_that_may_only_run_and_save(report):
    shown = report._repr_html_()
    frame = re.fullmatch(r"<iframe srcdoc='([^']*)'" r' sandbox="allow-scripts allow-downloads" title="heed" style="[^"]*"></iframe>', shown)
    assert frame
    page = html.unescape(frame[1])
    assert page == report.page()
    assert page.startswith("<!DOCTYPE html>") and "dessert" in page


def test_a_cell_of_a_notebook_is_bounded_and_says_what_it_lacks(tmp_path):
    heads, length = 24, 300  # 5.8 MB of weights in 16 bits, as base64
    draw = np.random.default_rng(3)
    report = heed.look(*(draw.standard_normal((heads, length, 8), dtype=np.float32) for _ in range(3)))
    shown = report._repr_html_()
    assert 1_500_000 < len(shown) < 4_100_000
    assert shown.endswith("<p>A cell holds at most 4 MB. This one leaves out single weights (its maps have 128 x 128 bins): "
                          '<code>report.save("look.html")</code> writes a page with all of it.</p>')
    report.save(tmp_path / "look.html")
    assert (tmp_path / "look.html").stat().st_size > 5_800_000
    assert len(report.page()) > 5_800_000


def test_a_cell_of_very_many_heads_is_a_table():
    x = np.ones((9000, 2, 1), np.float32)
    shown = heed.look(x, x, x)._repr_html_()
    assert len(shown) < 100_000 and shown.startswith("<pre>9000 heads, 2 queries")
    assert 'report.save("look.html")' in shown


def test_the_page_can_be_saved(report, tmp_path):
    report.save(tmp_path / "page.html", title="words and more")
    assert "words and more" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(OSError, match="nowhere"):
        report.save(tmp_path / "nowhere" / "page.html")


@pytest.mark.parametrize("name, begin", [("maps.png", b"\x89PNG\r\n"), ("MAPS.PNG", b"\x89PNG\r\n"),
                                         ("maps.svg", b"<?xml"), ("maps.pdf", b"%PDF"), ("page.htm", b"<!DOCTYPE html>")])
def test_the_ending_says_what_is_saved(report, tmp_path, name, begin):
    if not name.endswith("htm"):
        pytest.importorskip("matplotlib").use("Agg")
    report.save(tmp_path / name, title="words and more")
    assert (tmp_path / name).read_bytes().startswith(begin)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(OSError, match="nowhere"):
        report.save(tmp_path / "nowhere" / name)


@pytest.mark.parametrize("name", ["maps.jpg", "maps", "maps.png.bak", ".png"])
def test_other_endings_are_refused(report, tmp_path, name):
    with pytest.raises(ValueError) as refused:
        report.save(tmp_path / name)
    assert str(refused.value) == (f"path is '{tmp_path / name}'; a path that ends in .html or .htm (the page), in .png, .svg "
                                  "or .pdf (the maps), or in .safetensors (a document) is expected")
    assert not list(tmp_path.iterdir())


def test_what_it_costs_is_told_where_asked(call, report):
    assert heed.look(*call, cost=True).cost[0]["what"] == "plain forward"
    assert all(line["what"] != "plain forward" for line in report.cost)


def test_tokens_must_be_as_many_as_queries(call):
    with pytest.raises(ValueError, match="token"):
        heed.look(*call, tokens=WORDS[:-1])


def test_a_tile_is_a_piece_of_the_weights(call):
    q, k, _ = call
    result = heed.attention(*call, causal=True, need=("weights", "lse"))
    tile = heed.attention_tile(q, k, result.lse, rows=(2, 5), keys=(0, 4), head=1, causal=True)
    assert tile.shape == (2, 1, 3, 4)
    assert np.abs(tile[:, 0] - result.weights[:, 1, 2:5, 0:4]).max() <= 2e-6  # as above
    with pytest.raises(ValueError, match="row"):
        heed.attention_tile(q, k, result.lse, rows=(2, 8), keys=(0, 4))


def test_without_matplotlib_one_sentence_says_so():
    program = """
import sys
sys.modules["matplotlib"] = None
import heed, numpy
x = numpy.ones((2, 4), numpy.float32)
try:
    heed.look(x, x, x).plot()
except ImportError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "heed.Report.plot needs matplotlib, which is not installed: pip install matplotlib\n"


def test_it_plots_a_map_of_each_head(report):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    figure = report.plot(batch=1)
    shown = [axis for axis in figure.axes if axis.images]
    assert len(shown) == 3
    assert np.array_equal(shown[2].images[0].get_array(), report.weights[1, 2])
    assert [label.get_text() for label in shown[0].get_xticklabels()] == WORDS
    assert len([axis for axis in report.plot(heads=[1]).axes if axis.images]) == 1
    with pytest.raises(ValueError, match="heads is empty"):
        report.plot(heads=[])


def test_a_long_word_leaves_room_for_the_map(call):
    pytest.importorskip("matplotlib").use("Agg")
    words = ["x" * 300, "a" * 16, *WORDS[2:]]
    figure = heed.look(*call, tokens=words).plot(heads=[0])
    figure.canvas.draw()
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["x" * 15 + "…", *words[1:]]
    assert axis.get_window_extent().width > figure.bbox.width / 2
