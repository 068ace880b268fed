"""What Python shares with the command: the same tables and words; explain, generate, show, serve, atlas."""

import json
import os
import pathlib
import subprocess
import sys
import types
import urllib.request

import numpy as np
import pytest

import heed
from heed._command import command_path

TEXT = "to be or not to be or"


@pytest.fixture(scope="module", autouse=True)
def command():
    """Runs the command; what it prints."""
    path = command_path("this test")
    return lambda *arguments: subprocess.run([path, *map(str, arguments)], check=True, capture_output=True, encoding="utf-8").stdout


@pytest.fixture(scope="module")
def model():
    return heed.load_model("induction")


@pytest.mark.parametrize("text", [TEXT, "the cat sat on the mat", "to be"])
def test_a_report_prints_the_table_of_the_command(command, model, text):
    printed = str(model.look(text)).split("\n\n", 1)[1].splitlines()
    shown = command("look", "--model", "induction", text).splitlines()
    begin = shown.index(next(line for line in shown if line.startswith("head ")))
    assert printed == shown[begin:begin + len(printed)]
    assert not shown[begin + len(printed)].startswith(("1", " "))


def test_a_table_of_heads_has_the_columns_of_the_command_in_its_order(command, model):
    shown = command("look", "--model", "induction", TEXT, "--brief").splitlines()
    words = next(line for line in shown if line.startswith("head ")).replace("looks like", "looks_like").split()
    columns = [name for name in model.look(TEXT).heads().columns if name != "layer"]
    assert [name.replace(" ", "_") for name in columns[:len(words)]] == words


def test_ranks_are_those_of_who(command, model):
    text = "the cat sat on a mat"
    found = json.loads(command("who", "on", "cat", "--model", "induction", text, "--json"))["heads"]
    pairs = model.look(text).pair("on", "cat")
    assert [(pair["rank"], pair["looks like"]) for pair in pairs] == [(head["rank"], head["looks_like"]) for head in found]
    assert min(head["rank"] for head in found) == 1


def test_explain_prints_as_the_command_and_saves_its_page(command, tmp_path, model):
    found = heed.explain(TEXT, model="induction")
    assert str(found) == repr(found) == command("explain", "--model", "induction", TEXT)
    assert found.report["1.2"].name == "induction"
    found.save(tmp_path / "ours.html")
    command("explain", "--model", "induction", TEXT, "--html", tmp_path / "theirs.html")
    assert (tmp_path / "ours.html").read_bytes() == (tmp_path / "theirs.html").read_bytes()
    found.save(tmp_path / "report.safetensors")
    assert str(heed.open(tmp_path / "report.safetensors")["0.0"]) == str(found.report["0.0"])
    followed = command("explain", "--model", "induction", TEXT, "--word", "or:2")
    assert str(heed.explain(TEXT, "induction", word="or:2")) == followed
    # A loaded model is named by its path, which may fill several lines.
    assert str(heed.explain(TEXT, model, word="or:2")).partition("It reads: ")[2] == followed.partition("It reads: ")[2] != ""


def test_explain_without_a_model_is_the_lesson(command, tmp_path):
    found = heed.explain("the cat sat", causal=True, heads=2, seed=4)
    assert str(found) == command("explain", "the cat sat", "--causal", "--heads", 2, "--seed", 4)
    assert found.report is None
    assert "--help  me" in str(heed.explain("--help me"))
    found.save(tmp_path / "steps.safetensors")
    assert heed.open(tmp_path / "steps.safetensors").tokens == ["the", "cat", "sat"]
    with pytest.raises(ValueError, match="^word is 'dog', which is not in the sentence"):
        heed.explain("the cat sat", word="dog")
    with pytest.raises(ValueError, match="path is 'a.png'; a path that ends in .html, .htm or .safetensors is expected"):
        found.save("a.png")


def test_generate_writes_as_the_command_does(command):
    shown = command("generate", "induction", "--prompt", TEXT, "--tokens", 3, "--temperature", 0, "--json")
    assert json.loads(shown)["text"].endswith(heed.generate("induction", TEXT, 3, temperature=0))
    model = heed.load_model("induction")
    assert heed.generate(model, TEXT, 3, seed=2) == model.generate(TEXT, 3, seed=2)
    assert heed.generate(model, TEXT, max_new_tokens=3, seed=2) == model.generate(TEXT, 3, seed=2)
    assert model.generate(TEXT, 3, max_new_tokens=3, seed=2) == model.generate(TEXT, 3, seed=2)
    with pytest.raises(ValueError) as refused:
        heed.generate("induction", TEXT, 2, max_new_tokens=3)
    assert str(refused.value) == "tokens is 2 and max_new_tokens is 3; the same number, or one of the two, is expected"


def test_show_opens_the_page_in_the_browser(monkeypatch, model):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    for one in (model.look(TEXT), heed.explain(TEXT, "induction"), heed.explain("the cat sat")):
        path = one.show()
        assert opened.pop() == path.as_uri() and path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_server_ends_with_its_python():
    done = subprocess.run([sys.executable, "-c", "import heed; r = heed.explain('a b a', model='induction').report; "
                           "s = r.serve(); print(s._process.pid, r.serve()._process.poll())"], capture_output=True, text=True, check=True)
    process, _ = done.stdout.split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def test_a_report_of_far_positions_opens_again(tmp_path):
    rows = np.random.default_rng(1).normal(size=(1, 1, 12, 8)).astype(np.float32)
    heed.look(rows, rows, rows, query_offset=1000).save(tmp_path / "far.safetensors")
    assert len(heed.open(tmp_path / "far.safetensors")) == 1


def test_serve_answers_until_it_is_stopped(model):
    with model.look(TEXT).serve() as server:
        with urllib.request.urlopen(server.url, timeout=20) as answer:
            assert b"<!DOCTYPE html>" in answer.read()
        assert repr(server) == f"<heed server: {server.url}>"
    assert repr(server) == "<heed server: stopped>"
    with pytest.raises(ValueError, match="^port is '70000'"):
        model.look(TEXT).serve(70000)


def test_atlas_draws_the_poster_of_the_command(command, tmp_path, model):
    model.look(TEXT).atlas(tmp_path / "ours.svg", title="heads")
    command("look", "--model", "induction", TEXT, "--save", tmp_path / "saved.safetensors")
    command("atlas", tmp_path / "saved.safetensors", "--out", tmp_path / "theirs.svg", "--title", "heads")
    assert (tmp_path / "ours.svg").read_text().count("<use") == (tmp_path / "theirs.svg").read_text().count("<use") > 100
    with pytest.raises(ValueError, match="^path is '.*maps.jpg'"):
        model.look(TEXT).atlas(tmp_path / "maps.jpg")


def test_without_the_command_one_sentence_says_so():
    program = "import heed\ntry:\n    heed.explain('a b')\nexcept FileNotFoundError as error:\n    print(error)"
    if pathlib.Path(heed.__file__).with_name("command").exists():
        pytest.skip("this package was installed with the command")
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, env=os.environ | {"PATH": "/nowhere"})
    assert ran.stdout == ("heed.explain needs the command heed, which is neither in the package nor on PATH: install it as README.md says, "
                          "or build it with HEED_BUILD_CLI=ON\n")


def test_heads_are_named_by_number_and_label(model):
    report = model.look(TEXT)
    assert len(report) == len(list(report)) == 8
    assert report[6].label == report["1.2"].label == report[1, 2].label == report[-2].label == "1.2"
    head = report["0.0"]
    assert head.name == "2 back" and repr(head).startswith("<heed.Head 0.0: 2 back 0.7")
    assert np.array_equal(head.weights, report.weights[0, 0])
    assert list(head.row(6)) == list(report.row(6, head="0.0"))
    assert str(head).splitlines()[1] in str(report).splitlines()
    with pytest.raises(IndexError, match="head is 8; 0 to 7 is expected"):
        report[8]


def test_lists_are_arrays_of_f32():
    lists = [[0.5, 1, 2], [1, 0, 1], [2.5, 1, 0]]
    array = np.array(lists, np.float32)
    assert np.array_equal(heed.attention(lists, lists, lists, causal=True), heed.attention(array, array, array, causal=True))
    masked = heed.attention(lists, lists, lists, mask=[[True, False, False], [True, True, False], [True, True, True]])
    assert masked.dtype == np.float32 and np.array_equal(masked, heed.attention(array, array, array, causal=True))
    assert np.array_equal(heed.look(lists, lists, lists).weights, heed.look(array, array, array).weights)
    assert heed.look(weights=[[1.0, 0.0], [0.25, 0.75]]).weights.tolist() == [[[[1, 0], [0.25, 0.75]]]]
    with pytest.raises(ValueError, match="q has lists of different lengths; nested lists with the shape of an array"):
        heed.attention([[1.0], [1.0, 2.0]], lists, lists)
    with pytest.raises(TypeError, match="k has lists of other things than numbers; nested lists of numbers"):
        heed.attention(lists, [["a"]], lists)


@pytest.mark.parametrize("given, hint", [
    ({"need_weights": True}, "did you mean need='weights'?"), ({"weights": True}, "did you mean need='weights'?"),
    ({"is_causal": True}, "did you mean 'causal'?"), ({"attn_mask": None}, "did you mean 'mask'?"),
    ({"dropout_p": 0.1}, "did you mean 'dropout'?"), ({"softmax_scale": 1}, "did you mean 'scale'?"),
    ({"enable_gqa": True}, "because k and v may always have fewer heads than q"), ({"return_lse": True}, "did you mean need='lse'?")])
def test_names_of_other_libraries_get_a_hint(given, hint):
    x = np.ones((2, 4), np.float32)
    with pytest.raises(TypeError) as refused:
        heed.attention(x, x, x, **given)
    assert str(refused.value).endswith(hint)


def test_query_key_and_value_are_named_q_k_v():
    x = np.ones((2, 4), np.float32)
    with pytest.raises(TypeError, match=r"attention\(\) got an unexpected keyword argument 'query'; did you mean 'q'\?"):
        heed.attention(query=x, key=x, value=x)
    with pytest.raises(TypeError, match=r"k is missing; attention\(q, k, v\), or attention\(q, cache\), is expected"):
        heed.attention(x)


def test_a_result_is_not_unpacked_by_order():
    x = np.ones((2, 4), np.float32)
    with pytest.raises(TypeError, match=r"an AttentionResult cannot be unpacked.*; result.output, result.weights, … are expected"):
        output, weights = heed.attention(x, x, x, need="weights")


@pytest.mark.parametrize("is_value", [True, False])
def test_a_notebook_draws_a_plot_once(monkeypatch, model, is_value):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = []
    monkeypatch.setattr(pyplot, "get_backend", lambda: "module://matplotlib_inline.backend_inline")
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=drawn.append, Image=str))
    monkeypatch.setitem(sys.modules, "IPython.core.pylabtools", types.SimpleNamespace(print_figure=repr))
    for plot in (model.look(TEXT).plot, model.look(TEXT, 0).plot):
        pyplot.close("all")
        drawn.clear()
        figure = plot()
        if is_value:
            figure._ipython_display_()  # the value of a cell
        for number in pyplot.get_fignums():
            pyplot.figure(number)._ipython_display_()  # the end of the cell
        assert len(drawn) == 1
