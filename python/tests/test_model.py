"""heed.load_model, heed.train and heed.open."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

import heed

ROOT = pathlib.Path(__file__).parents[2]
INDUCTION = ROOT / "models" / "induction"
WORDS = "one two three four five one two three four five"
TINY = dict(layers=1, heads=2, model_dim=8, context=8, symbols=6, batch=3, steps=30, warmup=5, threads=1)


@pytest.fixture(scope="module")
def model():
    return heed.load_model(INDUCTION)


def test_it_knows_what_followed_the_last_time(model):
    assert repr(model) == "<heed.TrainedModel: 2 layers of 4 heads, 64 symbols>"
    assert model.tokens(WORDS) == WORDS.split() and model.tokenizer is None
    (token, probability), *others = model.expected_after(WORDS)
    assert token == "one" and probability >= 0.5 and len(others) == 2
    logits = model.logits(WORDS)
    assert logits.shape == (10, 64)
    shares = np.exp(logits[-1].astype(np.float64))
    # Logits up to 20, for one row and for all, each rounded in f32: at most 1e-5 apart.
    assert abs(shares.max() / shares.sum() - probability) < 1e-5


def test_its_page_holds_it(model, tmp_path):
    model.page(tmp_path / "life.html", "<i> a <i>", name="Two layers")
    text = (tmp_path / "life.html").read_text()
    assert '"name":"Two layers","text":"\\u003ci> a \\u003ci>"' in text and 'id="data-unembedding.weight"' in text
    with pytest.raises(ValueError, match="the text has 65 words; 1 to 64 are expected"):
        model.page(tmp_path / "none.html", "a " * 65)
    assert not (tmp_path / "none.html").exists()


def test_it_writes_on(model):
    added = []
    # The output of heed generate.
    assert model.generate("to be or not to be", 3, temperature=0, add=added.append) == " or not to"
    assert added == [" or", " not", " to"]
    assert model.generate("to be", 20, temperature=3, seed=4) == model.generate("to be", 20, temperature=3, seed=4)


def test_what_a_callback_raises_comes_through(model):
    def stop(token):
        raise KeyError(token)

    with pytest.raises(KeyError, match="or"):
        model.generate("to be or not to be", 3, temperature=0, add=stop)


def test_a_layer_is_looked_at_as_a_call(model):
    first, second = model.look(WORDS, layer=0), model.look(WORDS, layer=1)
    assert "previous-token" in [head["name"] for head in first.summaries]
    assert "induction" in [head["name"] for head in second.summaries]
    assert second.tokens == WORDS.split() and second.weights.shape == (1, 4, 10, 10)
    assert np.allclose(second.weights.sum(-1), 1, atol=1e-5)
    assert np.allclose(np.triu(second.weights, 1), 0)
    whole = model.look(WORDS)
    assert whole.layers == [("0", 4), ("1", 4)] and whole.title == WORDS
    assert np.array_equal(whole.weights, np.concatenate([first.weights, second.weights], 1))


@pytest.mark.parametrize("call, message", [
    (lambda m: m.look(WORDS, layer=2), "layer is 2; 0 to 1 is expected"),
    (lambda m: m.look(""), "the text has no tokens; at least one is expected"),
    (lambda m: m.generate("a", 0), "tokens is 0; 1 or more is expected"),
    (lambda m: m.generate("a", top_p=0), "top_p is 0; a number above 0, at most 1, is expected"),
    (lambda m: m.generate("a", temperature=-1), "temperature is -1; a finite number of at least 0 is expected"),
])
def test_it_refuses_in_one_sentence(model, call, message):
    with pytest.raises(ValueError) as refused:
        call(model)
    assert str(refused.value) == message


def test_models_that_come_with_heed_are_read_by_their_names(tmp_path, monkeypatch):
    for name in ("induction", "stories"):
        ours, folder = heed.load_model(name), heed.load_model(ROOT / "models" / name)
        assert isinstance(ours, heed.TrainedModel) and ours.info == folder.info
        np.testing.assert_array_equal(ours.logits([1, 2, 3]), folder.logits([1, 2, 3]))
    monkeypatch.chdir(tmp_path)
    mine = heed.train("induction", **TINY)  # a folder of that name takes precedence
    assert heed.load_model("induction").settings == mine.settings != ours.settings


@pytest.mark.parametrize("name, folder", [("gpt2", "gpt2"), ("Qwen/Qwen2.5-0.5B", "Qwen2.5-0.5B")])
def test_a_name_of_huggingface_co_is_told_how_to_get_it(name, folder):
    with pytest.raises(OSError) as refusal:
        heed.load_model(name)
    assert str(refusal.value) == (
        f"'{name}' is not a folder; these two lines fetch the model of that name, and ./{folder} is expected then:\n"
        f"  pip install huggingface_hub\n  hf download {name} --include '*.json' '*.safetensors' --local-dir {folder}")


def test_a_folder_that_is_none_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="is not a folder; a model folder with config.json, or a GGUF file, is expected"):
        heed.load_model(tmp_path / "none")


def test_training_goes_on_bit_for_bit(tmp_path):
    seen = []
    whole = heed.train(tmp_path / "whole", progress=lambda step, loss: seen.append((step, loss)), **TINY)
    assert [step for step, _ in seen] == list(range(31)) and seen[-1][1] < seen[1][1] + 1
    assert whole.settings["model_dim"] == 8 and whole.settings["task"] == "induction"
    heed.train(tmp_path / "parts", stop_at=11, **TINY)
    heed.train(tmp_path / "parts", resume=True)
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == ["checkpoint.safetensors", "config.json", "model.safetensors", "vocabulary.json"]
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name
    assert np.array_equal(heed.load_model(tmp_path / "whole").logits("a b a"), whole.logits("a b a"))


def test_what_progress_raises_stops_a_training_that_can_go_on(tmp_path):
    def stop(step, loss):
        if step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        heed.train(tmp_path / "parts", progress=stop, **TINY)
    steps = []
    heed.train(tmp_path / "parts", resume=True, progress=lambda step, loss: steps.append(step))
    assert steps[0] == 7 and steps[-1] == 30
    heed.train(tmp_path / "whole", **TINY)
    for name in ("checkpoint.safetensors", "model.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes(), name


def test_it_learns_a_text(tmp_path):
    (tmp_path / "text.txt").write_text("abcdefgh " * 5)
    learnt = heed.train(tmp_path / "out", tmp_path / "text.txt", **(TINY | dict(steps=300, learning_rate=0.02)))
    assert learnt.generate("abc", 5, temperature=0) == "defgh"
    learnt.save(tmp_path)
    assert heed.load_model(tmp_path).generate("abc", 5, temperature=0) == "defgh"


def test_paths_of_bytes_are_taken(tmp_path):
    (tmp_path / "text.txt").write_text("abcdefgh " * 5)
    folder, few = os.fsencode(tmp_path / "out"), {name: TINY[name] for name in TINY if name != "warmup"} | dict(steps=2)
    trained = heed.train(folder, os.fsencode(tmp_path / "text.txt"), **few)
    assert trained.settings["warmup"] == 2  # all of the steps, where they are fewer than the default
    trained.save(folder)
    trained.page(os.fsencode(tmp_path / "page.html"))
    assert heed.load_model(folder).settings == trained.settings
    assert heed.train(folder, tmp_path / "text.txt", resume=True).settings == trained.settings
    assert heed.Tokenizer.from_file(folder + b"/tokenizer.json").encode("abc").ids
    x = np.ones((1, 2, 3, 4), np.float32)
    heed.look(x, x, x).save(tmp_path / "looked.safetensors")
    assert heed.open(os.fsencode(tmp_path / "looked.safetensors")).weights.shape == (1, 2, 3, 3)


def test_training_refuses_in_one_sentence(tmp_path):
    def refusal(error=ValueError, **keywords):
        with pytest.raises(error) as refused:
            heed.train(tmp_path / "out", **(TINY | keywords))
        return str(refused.value)

    assert refusal(layers=0) == "layers is 0; a whole number from 1 to 1000 is expected"
    assert refusal(TypeError, layer=2) == "train() got an unexpected keyword argument 'layer'"
    assert refusal(heads=3) == "model_dim is 8; a multiple of the 3 heads is expected"
    assert "could not be opened" in refusal(OSError, text=tmp_path / "none")
    assert refusal(learning_rate=float("inf")) == "learning_rate is inf; a finite number above 0 is expected"
    assert refusal(weight_decay=float("nan")) == "weight_decay is nan; a finite number of at least 0 is expected"
    assert refusal(warmup=31) == "warmup is 31; at most the 30 of steps is expected"
    for stop_at in (0, -1):
        assert refusal(stop_at=stop_at) == f"stop_at is {stop_at}; 1 or more is expected"
    assert refusal(threads=-5) == "threads is -5; 0 (all of the machine) or more is expected"
    for name, wrong, kind in (("resume", "yes", "True or False"), ("checkpoint_every", 2.5, "a whole number"),
                              ("checkpoint_every", None, "a whole number"), ("stop_at", "9", "a whole number"),
                              ("threads", None, "a whole number"), ("threads", 1.5, "a whole number")):
        assert refusal(TypeError, **{name: wrong}) == f"{name} is {wrong!r}; {kind} is expected"
    assert not (tmp_path / "out").exists()
    heed.train(tmp_path / "out", stop_at=1, **TINY)
    assert refusal() == f"{tmp_path}/out already holds a training; resuming it, or another folder, is expected"
    started = "; the training was started with "
    assert refusal(resume=True, steps=9) == f"steps is 9{started}30, and keeps it"
    assert refusal(resume=True, clip=0.5) == f"clip is 0.5{started}1, and keeps it"
    assert refusal(resume=True, attention_only=True) == f"attention_only is True{started}False, and keeps it"
    assert refusal(resume=True, text=tmp_path / "a") == ("text is given; the training was started with the task 'induction'")


@pytest.fixture
def command():
    found = pathlib.Path(heed.__file__).parents[2] / "cli" / "heed"
    if not found.exists():
        pytest.skip(f"there is no {found}")
    return found


def test_a_saved_document_is_what_look_gives(command, tmp_path):
    rng = np.random.default_rng(5)
    arrays = {name: rng.standard_normal((1, 2, 6, 8), dtype=np.float32) for name in ("query", "key", "value")}
    arguments = []
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        arguments += [f"--{name}", tmp_path / f"{name}.npy"]
    words = ["a", "b", "a", "c", "b", "a"]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    document = tmp_path / "doc.safetensors"
    subprocess.run([command, "look", *arguments, "--causal", "--tokens", tmp_path / "words.txt", "--save", document],
                   check=True, stdout=subprocess.DEVNULL)
    opened, looked = heed.open(document), heed.look(*arrays.values(), causal=True, tokens=words)
    assert opened.about == looked.about and str(opened) == str(looked)
    assert opened.tokens == words and opened.output is None and opened.cost == []
    for name in ("lse", "entropy", "induction", "received", "top_k_index", "top_k_weight"):
        assert np.array_equal(getattr(opened, name), getattr(looked, name), equal_nan=True), name
    # One is computed in f64, the other by the kernel in f32.
    assert np.abs(opened.weights - looked.weights).max() <= 2e-6
    assert list(opened.row(4, head=1)) == list(looked.row(4, head=1))
    opened.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_an_explanation_is_opened_too(command, tmp_path):
    document = tmp_path / "explained.safetensors"
    subprocess.run([command, "explain", "the cat sat", "--save", document], check=True, stdout=subprocess.DEVNULL)
    opened = heed.open(document)
    assert opened.tokens == ["the", "cat", "sat"] and opened.output.shape == (1, 1, 3, 28)
    assert np.allclose(opened.weights.sum(-1), 1, atol=1e-5)


def test_what_is_no_document_is_an_os_error():
    with pytest.raises(OSError, match="holds the parameters of a model, not a call of attention"):
        heed.open(INDUCTION / "model.safetensors")
