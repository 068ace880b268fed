"""The page of `heed explain --model DIR --html` in a real browser: a model that computes while the user types."""

import json
import math
import pathlib
import re
import shutil
import subprocess
import urllib.parse

import numpy
import pytest
import safetensors.numpy

from browser import Browser, available

TEXTS = ["to be or not to be or", "Life is short, eat dessert first, Life is short, eat", "a", "a a a a",
         "<b>x</b> & \"y\" </script> <b>x</b> &", "é 猫 🙂 é 猫"]
pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def living(browser, heed, tmp_path):
    """living(fragment=""): opens the page and returns its path. Afterwards the console must be clean."""

    def run(*words, fragment="", model="induction"):
        path = tmp_path / "life.html"
        heed("explain", "--model", model, "--html", path, *words)
        browser.open(path.as_uri() + fragment)
        return path

    yield run
    assert browser.errors() == []


def settle(browser):
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def write(browser, text):
    """Types into the field as a person does: sets its text, then sends the event of a letter."""
    browser.run("""const field = document.getElementById('typed');
        field.value = arguments[0];
        field.dispatchEvent(new Event('input'));""", text)
    settle(browser)


def switch(browser, css):
    browser.run("document.querySelector(arguments[0]).click()", css)
    settle(browser)


def slide(browser, name, value):
    browser.run("""const input = document.querySelector(`[data-slider=${arguments[0]}] input`);
        input.value = arguments[1];
        input.dispatchEvent(new Event('input'));""", name, value)
    settle(browser)


def number(text):
    return float(text.replace("−", "-"))


def close(shown, value):
    """Whether they agree in the digits shown: four decimals, or three digits. f32 may differ by a millionth."""
    room = 0.5 * 10 ** (int(shown.split("e")[1].replace("−", "-")) - 2) if "e" in shown else 5e-5
    return math.isclose(number(shown), value, rel_tol=0, abs_tol=room + 2e-6)


def shown_weights(browser, layer, head):
    """The rows of a head's table as text; masked cells are None."""
    switch(browser, f'[data-head="{layer}.{head}"] .head-pick')
    return browser.run("""return [...document.querySelectorAll('table.weights tbody tr')].map(
        (row) => [...row.querySelectorAll('td')].map((cell) => cell.dataset.weight ?? null))""")


NEW_WORD = "new word: nothing to copy yet"


def shown_next(browser):
    """The prediction after each word: ("dessert", 99.9); None after a new word."""
    titles = browser.run("return [...document.querySelectorAll('.flow-end title')].map((title) => title.textContent)")
    found = [re.fullmatch(rf"after .*: (?:{NEW_WORD}|(.*) ([\d.]+) %)", title, re.S) for title in titles]
    return [(one[1], float(one[2])) if one[1] is not None else None for one in found]


def assert_shows(browser, heads, following, causal=True, words=None):
    """heads: weights [L, L] of each head, starting with layer 0. following: (token, probability) after each word.
    words: those that a model of symbols reads, which predicts nothing after a new word."""
    count = browser.run("return document.querySelectorAll('.layer-heads')[0].children.length")
    for index, weights in enumerate(heads):
        shown = shown_weights(browser, index // count, index % count)
        assert len(shown) == len(weights)
        for row, (texts, values) in enumerate(zip(shown, weights)):
            for key, (text, value) in enumerate(zip(texts, values)):
                if causal and key > row:
                    assert text is None
                else:
                    assert close(text, value), (index, row, key, text, value)
    for row, (shown, (wanted, probability)) in enumerate(zip(shown_next(browser), following, strict=True)):
        if words and words[row] not in words[:row]:
            assert shown is None
            continue
        token, share = shown
        assert token == wanted
        assert abs(share - 100 * probability) <= 0.05 + 1e-3


def test_is_one_small_file_that_loads_nothing(living):
    path = living()
    text = path.read_text()
    assert path.stat().st_size < 400_000
    assert "default-src 'none'" in text and " src=" not in text and "<link" not in text and "@import" not in text


@pytest.mark.parametrize("text", TEXTS)
def test_typed_words_give_the_numbers_of_the_command(living, browser, heed, text):
    living()
    write(browser, text)
    told = json.loads(heed("explain", "--model", "induction", "--json", text).stdout)
    words = browser.run("return [...document.querySelectorAll('#words .word')].map((word) => word.textContent)")
    assert [word.rstrip("₀₁₂₃₄₅₆₇₈₉") for word in words] == told["tokens"]
    assert_shows(browser, [head["weights"] for head in told["heads"]], [(one["token"], one["probability"]) for one in told["next"]],
                 words=told["tokens"])


def test_a_full_context_has_its_numbers_row_by_row(living, browser, heed):
    text = " ".join(f"w{i % 27}" for i in range(64))
    living(fragment="#shown=2.1&layer=0&word=40&text=" + text.replace(" ", "+"))
    told = json.loads(heed("explain", "--model", "induction", "--json", text).stdout)
    shown = browser.run("""return Object.fromEntries([...document.querySelectorAll('table.keys [data-key]')].map(
        (line) => [line.dataset.key, line.querySelector('.weight').textContent]))""")
    weights = told["heads"][2]["weights"][40]
    assert sorted(map(int, shown)) == list(range(64)) and all(close(shown[str(key)], weight) for key, weight in enumerate(weights))
    folded = browser.run("return [...document.querySelectorAll('details [data-key]')].map((line) => Number(line.dataset.key))")
    assert len(folded) == 54 and max(weights[key] for key in folded) <= sorted(weights)[-10]
    assert close(re.search(r"54 other words, together (\S+)", browser.text(".walk-steps summary"))[1], sum(weights[key] for key in folded))
    shown = shown_next(browser)
    assert shown[:27] == [None] * 27
    assert [token for token, _ in shown[27:]] == [one["token"] for one in told["next"][27:]]


def test_every_letter_changes_the_prediction(living, browser):
    living()
    write(browser, "to be or not to be o")
    assert shown_next(browser)[-1] is None
    browser.click("#typed")
    browser.press("r")
    settle(browser)
    assert shown_next(browser)[-1] == ("not", pytest.approx(99, abs=3))
    assert "or" in browser.text("#expected h2") and browser.text("#expected li:first-child .bar-name") == "not"


def colour_of(browser, css):
    return browser.run("""const style = getComputedStyle(document.querySelector(arguments[0]));
        return arguments[0].startsWith('#flow') ? style.fill : style.color;""", css)


@pytest.mark.parametrize("text", ["hello", "hello hello world", "é 猫 🙂"])
def test_a_new_word_is_answered_in_grey_that_there_is_nothing_to_copy(living, browser, text):
    living(fragment="#thought=9&text=" + urllib.parse.quote(text))
    last = text.split()[-1]
    assert shown_next(browser)[-1] is None
    assert browser.text("#expected").split("\n\n")[:2] == [f"After {last}", NEW_WORD]
    grey = browser.run("""const probe = document.body.appendChild(document.createElement('i'));
        probe.style.color = 'var(--soft)';
        return getComputedStyle(probe).color;""")
    assert colour_of(browser, "#expected p") == colour_of(browser, "#flow .flow-end.new text") == grey
    browser.wait("await new Promise((done) => setTimeout(done, 400))")  # until heads report on the prediction
    for part in ("#expected", "#story", "#heads"):
        assert "%" not in browser.text(part), part
    assert f"{last} is new" in browser.text("#story")
    assert "After a new word they mean nothing" in browser.text("#walk")


def test_the_command_says_the_same_of_a_new_word(heed):
    ends = [heed("explain", "--model", "induction", text).stdout.split("\n\n")[-1] for text in ("a b a c", "a b a", "a b a b")]
    assert ends[0].split() == "At the end it predicts nothing: c is a new word, with nothing to copy yet.".split()
    assert ends[1].startswith("At the end it predicts b ") and ends[2].startswith("At the end it predicts a ")


class Oracle:
    """The model in NumPy and f64, built from its file only."""

    def __init__(self, models):
        self.parameters = {name: array.astype(numpy.float64) for name, array in
                           safetensors.numpy.load_file(models / "model.safetensors").items()}

    def linear(self, x, name):  # GPT-2's weights are [inputs, outputs]
        return x @ self.parameters[name + ".weight"] + self.parameters[name + ".bias"]

    def norm(self, x, name):
        off = x - x.mean(-1, keepdims=True)
        return off / numpy.sqrt((off ** 2).mean(-1, keepdims=True) + 1e-5) * self.parameters[name + ".weight"] \
            + self.parameters[name + ".bias"]

    def run(self, tokens, causal=True, temperature=1.0, off=()):
        numbers = list(dict.fromkeys(tokens))
        x = self.parameters["transformer.wte.weight"][[numbers.index(token) for token in tokens]]
        x = x + self.parameters["transformer.wpe.weight"][:len(tokens)]
        weights = []
        for layer in range(2):
            name = f"transformer.h.{layer}."
            fused = self.linear(self.norm(x, name + "ln_1"), name + "attn.c_attn")
            query, key, value = (part.reshape(len(tokens), 4, 16).swapaxes(0, 1) for part in numpy.split(fused, 3, axis=1))
            scores = query @ key.swapaxes(1, 2) / 4 / temperature
            if causal:
                scores[:, ~numpy.tri(len(tokens), dtype=bool)] = -numpy.inf
            powers = numpy.exp(scores - scores.max(-1, keepdims=True))
            weights.append(powers / powers.sum(-1, keepdims=True))
            context = weights[-1] @ value
            for head in range(4):
                if (layer, head) in off:
                    context[head] = 0
            x = x + self.linear(context.swapaxes(0, 1).reshape(len(tokens), 64), name + "attn.c_proj")
        logits = self.norm(x, "transformer.ln_f") @ self.parameters["lm_head.weight"].T
        return numpy.concatenate(weights), logits, numbers

    def following(self, logits, numbers, temperature=1.0):
        powers = numpy.exp((logits - logits.max(-1, keepdims=True)) / temperature)
        shares = powers / powers.sum(-1, keepdims=True)
        best = shares.argmax(-1)
        return [(numbers[id] if id < len(numbers) else f"#{id}", share[id]) for id, share in zip(best, shares)]


@pytest.fixture(scope="module")
def oracle():
    return Oracle(pathlib.Path(__file__).parents[2] / "models" / "induction")


WORDS = "to be or not to be or"
FIRST = "the red fox met the blue fish and then the red"  # what the page opens with


@pytest.mark.parametrize("temperature", [0.3, 2.5])
def test_the_temperature_of_attention(living, browser, oracle, temperature):
    living()
    write(browser, WORDS)
    slide(browser, "temperature", temperature)
    weights, logits, numbers = oracle.run(WORDS.split(), temperature=temperature)
    assert_shows(browser, weights, oracle.following(logits, numbers), words=WORDS.split())


def test_the_temperature_of_the_prediction(living, browser, oracle):
    living()
    write(browser, WORDS)
    slide(browser, "answer", 2.2)
    weights, logits, numbers = oracle.run(WORDS.split())
    assert_shows(browser, weights, oracle.following(logits, numbers, 2.2), words=WORDS.split())


def test_attention_that_is_not_causal(living, browser, oracle):
    living()
    write(browser, WORDS)
    switch(browser, "#controls input[role=switch]")
    weights, logits, numbers = oracle.run(WORDS.split(), causal=False)
    assert_shows(browser, weights, oracle.following(logits, numbers), causal=False, words=WORDS.split())


@pytest.mark.parametrize("off", [[(0, 3)], [(1, 0), (1, 3)], [(layer, head) for layer in range(2) for head in range(4)]])
def test_heads_switched_off(living, browser, oracle, off):
    living()
    write(browser, WORDS)
    for layer, head in off:
        switch(browser, f'[data-head="{layer}.{head}"] .switch input')
    weights, logits, numbers = oracle.run(WORDS.split(), off=off)
    assert_shows(browser, weights, oracle.following(logits, numbers), words=WORDS.split())


def test_each_head_says_what_the_prediction_would_be_without_it(living, browser, oracle):
    living()
    write(browser, WORDS)
    browser.wait("while (!document.querySelector('[data-without=\"1.3\"]')) await new Promise((done) => setTimeout(done, 20))")
    for layer, head in [(0, 0), (0, 3), (1, 3)]:
        _, logits, numbers = oracle.run(WORDS.split(), off=[(layer, head)])
        powers = numpy.exp(logits[-1] - logits[-1].max())
        wanted = 100 * (powers / powers.sum())[numbers.index("not")]
        shown = browser.text(f'[data-without="{layer}.{head}"]')
        assert abs(float(shown.rstrip(" %")) - wanted) <= 0.051


@pytest.mark.parametrize("text", [FIRST, WORDS, "the cat sat"])
def test_heads_have_the_names_that_the_command_gives_them_for_this_text(living, browser, heed, text):
    living(*([] if text == FIRST else [text]))
    assert browser.run("return document.getElementById('typed').value") == text
    told = json.loads(heed("explain", "--model", "induction", "--json", text).stdout)["heads"]
    names = browser.run("""return Object.fromEntries([...document.querySelectorAll('.head-card')].map((card) =>
        [card.dataset.head, card.querySelector('.soft').textContent]))""")
    assert names == {head["label"]: head["looks_like"] for head in told}
    browser.run("document.querySelector('[data-key=story-next]').click()")
    settle(browser)
    assert "Layer 0, head 3 looks one word back" in browser.text("#story")  # whatever the text shows about it


def test_parameters_are_counted_once(living, browser, heed):
    models = pathlib.Path(__file__).parents[2] / "models" / "induction"
    arrays = safetensors.numpy.load_file(models / "model.safetensors")
    assert not any(arrays[name].any() for name in arrays if "mlp.c_proj" in name)  # MLPs in the file add 0
    count = sum(array.size for name, array in arrays.items() if "mlp" not in name and "ln_2" not in name)
    living()
    assert f" {count:,} parameters" in browser.text("#about")
    assert f" {count} parameters\n" in heed("explain", "--model", "induction", WORDS).stdout
    assert json.loads((models / "config.json").read_text())["heed"]["parameters"] == count


def place(browser, css):
    return browser.run("""const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return [box.left, box.top, box.right, box.bottom];""", css)


def test_a_switch_stands_apart_from_what_the_model_says_without_its_head(living, browser):
    living()
    browser.wait("while (!document.querySelector('[data-without=\"1.3\"]')) await new Promise((done) => setTimeout(done, 20))")
    assert browser.text('[data-head="0.0"] .without').startswith("if off: fox ")
    assert place(browser, '[data-head="0.0"] .without')[1] >= place(browser, '[data-head="0.0"] .switch')[3]
    switch(browser, '[data-head="0.0"] .switch input')
    browser.wait("while (!document.querySelector('[data-without=\"1.3\"]')) await new Promise((done) => setTimeout(done, 20))")
    browser.wait("await new Promise((done) => setTimeout(done, 300))")
    assert browser.text('[data-head="0.0"] .without').startswith("if on: fox ")


def share_of(oracle, off, word):
    _, logits, numbers = oracle.run(WORDS.split(), off=off)
    powers = numpy.exp(logits[-1] - logits[-1].max())
    return 100 * (powers / powers.sum())[numbers.index(word)]


def test_the_story_takes_all_heads_away_that_copy(living, browser, oracle):
    living(WORDS, fragment="#thought=4")
    every = [(1, head) for head in range(4)]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", browser.text("#story"))]
    best = int(re.search(r"without layer 1, head (\d)", browser.text("#story"))[1])
    for share, off in zip(shares, [[], [(0, 3)], [(1, best)], every], strict=True):
        assert abs(share - share_of(oracle, off, "not")) <= 0.051
    assert "without all 4 heads of layer 1 that copy" in browser.text("#story") and shares[3] < 10 < shares[2]
    switch(browser, "[data-key=story-switch]")
    weights, logits, numbers = oracle.run(WORDS.split(), off=every)
    assert_shows(browser, weights, oracle.following(logits, numbers), words=WORDS.split())
    assert browser.text('[data-layer="1"]') == "switch all on"
    told = browser.text("#story")
    assert "The 4 heads that copy are off. With them the model expects not" in told and "no head fetches what followed or₂" in told
    before, left = [float(share) for share in re.findall(r"([\d.]+) %", told)]
    assert abs(before - shares[0]) <= 0.051 and abs(left - share_of(oracle, every, "not")) <= 0.051
    assert "The heads that copy (1.0, 1.1, 1.2, 1.3) are off: this is a guess." in browser.text("#expected")
    switch(browser, '[data-layer="1"]')
    weights, logits, numbers = oracle.run(WORDS.split())
    assert_shows(browser, weights, oracle.following(logits, numbers), words=WORDS.split())


@pytest.mark.parametrize("text,off", [(FIRST, ""), (FIRST, "1.0,1.1,1.2,1.3"), (FIRST, "0.3"), ("x y y x y x x", "")])
def test_the_story_says_that_it_copies_only_where_it_does(living, browser, text, off):
    living()
    words = text.split()
    rows = [row for row, word in enumerate(words) if word in words[:row]]
    shown = browser.wait("""const found = [];
        for (const row of arguments[0]) {
          location.hash = `thought=3&word=${row}&off=${arguments[1]}&text=${encodeURIComponent(arguments[2])}`;
          await new Promise((done) => addEventListener('hashchange', done, {once: true}));
          found.push(['#expected li .bar-name', '#story'].map((css) => document.querySelector(css).innerText));
        }
        return found;""", rows, off, text)
    for row, (expected, told) in zip(rows, shown, strict=True):
        followed = any(words[place:place + 2] == [words[row], expected] for place in range(row))
        assert ("it has copied" in told) == (followed and not off.startswith("1")), told
        assert ("so it is a guess" in told) == (not followed and not off.startswith("1")), told
        assert ("heads that copy are off" in told) == off.startswith("1")
        fetched = re.search(r"fetches says: (\w+?)[₀-₉]*\.", told)
        assert not fetched or fetched[1] == expected


@pytest.mark.parametrize("model", ["induction", "stories"])
def test_little_is_blank_beside_the_steps(living, browser, model):
    living(model=model)
    browser.resize(1280, 900)
    settle(browser)
    card, part, steps = [place(browser, css)[3] for css in ("#walk", ".why-part", ".walk-steps li:last-child")]
    browser.resize(1360, 900)
    assert card - part < 250 and card - steps < 400


@pytest.mark.parametrize("model,count", [("induction", 3), ("stories", 42)])
def test_a_phone_shows_every_percentage(heed, tmp_path, model, count):
    heed("explain", "--model", model, "--html", "life.html")
    with Browser(width=500, height=844) as phone:
        phone.resize(390, 844)
        phone.open((tmp_path / "life.html").as_uri())
        settle(phone)
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        left, _, right, _ = place(phone, "#flow")
        shares = phone.run("""return [...document.querySelectorAll('.flow-end .share')].map((share) => {
            const box = share.getBoundingClientRect();
            return [box.left, box.right, share.textContent]; })""")
        assert len(shares) == count and all(left < begin and end <= right for begin, end, _ in shares)
        assert all(re.fullmatch(r"[\d.]+ %", text) for *_, text in shares)
        words = place(phone, "#words")
        chosen = place(phone, "#words [aria-checked=true]")
        assert words[1] <= chosen[1] and chosen[3] <= words[3] + 1  # scrolled into sight
        assert phone.errors() == []


def test_the_story_and_its_lines_follow_the_copied_word(living, browser):
    living(fragment="#text=to+be+or+not+to+be+or")
    switch(browser, "[data-key=story-next]")
    switch(browser, "[data-key=story-next]")
    story = browser.text("#story")
    assert "Layer 1, head " in story and "not" in story and "has noted or₁" in story
    lines = browser.run("return [...document.querySelectorAll('.line.followed')].map((line) => line.dataset.line)")
    assert "1 6 3" in lines and "0 3 2" in lines  # or₂ reads "not", which has read or₁
    switch(browser, "[data-key=story-next]")
    assert "expects not 100.0 %" in browser.text("#story")


def test_works_by_keyboard_and_the_address_keeps_the_place(living, browser):
    path = living()
    write(browser, "one two three one two")
    browser.run("document.querySelector('#words [tabindex=\"0\"]').focus()")
    browser.press("left", "left")
    settle(browser)
    assert browser.text("#expected h2") == "After three"
    browser.run("document.querySelector('[data-key=story-next]').focus()")
    browser.press("enter")
    settle(browser)
    assert browser.run("return document.activeElement.dataset.key") == "story-next"
    browser.wait("await new Promise((done) => setTimeout(done, 300))")
    fragment = browser.run("return location.hash")
    browser.open(path.as_uri() + fragment)
    assert browser.text("#expected h2") == "After three"
    assert browser.run("return document.getElementById('typed').value") == "one two three one two"
    assert browser.text("#story .place") == "2 of 5"


def test_no_text_is_markup_and_none_is_too_long(living, browser):
    living(fragment="#text=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E%20" * 3 + "&off=9.9,__proto__&layer=77&shown=x&word=1e9")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert "<img" in browser.text("#words")
    write(browser, " ".join(f"w{i}" for i in range(100)))
    assert browser.text("#said") == "The model reads at most 64 words; the rest is left out."
    write(browser, " ".join(f"w{i}" for i in range(64)))
    assert browser.text("#said") == "64 words are all that the model reads."
    assert browser.run("return document.querySelectorAll('#words .word').length") == 64
    write(browser, ("a" * 500 + " ") * 8)
    assert browser.text("#said") == "The page takes 4,000 characters, no more."
    write(browser, " ,, ")
    assert browser.run("return document.querySelectorAll('#words .word, #flow svg, #walk *').length") == 0
    assert "Type a word" in browser.text("#expected")


def test_a_model_with_mlp_layers_that_reads_characters(living, browser, heed, tmp_path):
    (tmp_path / "text.txt").write_text("abc abd abc abe <i> é " * 40)
    heed("train", tmp_path / "text.txt", "--out", tmp_path / "small", "--steps", "30", "--warmup", "5", "--context", "12",
         "--model-dim", "16", "--heads", "2")
    living("abc ab", model=tmp_path / "small")
    for text in ("abc ab", "<i> é ab"):
        write(browser, text)
        told = json.loads(heed("explain", "--model", tmp_path / "small", "--json", text).stdout)
        following = [({" ": "␣"}.get(one["token"], one["token"]), one["probability"]) for one in told["next"]]
        assert_shows(browser, [head["weights"] for head in told["heads"]], following)
    write(browser, "abQ")
    assert browser.text("#said").strip() == "The model does not know Q: left out."


def test_a_model_that_is_too_large_is_refused(heed, tmp_path):
    (tmp_path / "text.txt").write_text("abc " * 200)
    heed("train", tmp_path / "text.txt", "--out", tmp_path / "long", "--steps", "1", "--warmup", "1", "--context", "300",
         "--model-dim", "8", "--heads", "1", "--layers", "1")
    said = heed("explain", "--model", tmp_path / "long", "--html", tmp_path / "life.html", code=2).stderr
    assert "context of 300 tokens; at most 500000 and 256 are expected for a living page" in said
    assert not (tmp_path / "life.html").exists()


def choose(browser, layer, head, row):
    browser.run("document.querySelector(`.flow-row[data-row='${arguments[0]}']`).dispatchEvent(new MouseEvent('click', "
                "{bubbles: true, clientY: document.querySelector(`.flow-row[data-row='${arguments[0]}']`)"
                ".getBoundingClientRect().y + 5}))", row)
    settle(browser)
    switch(browser, f'[data-head="{layer}.{head}"] .head-pick')


@pytest.mark.parametrize("model,text,asked", [("induction", TEXTS[0], [(0, 1, 2), (1, 0, 6), (1, 3, 3), (1, 2, 5)]),
                                              ("stories", "Anna had a red ball.", [(0, 1, 4), (1, 3, 9), (2, 2, 12)])])
def test_says_why_a_head_looks_where_it_looks(living, browser, heed, model, text, asked):
    living(text, model=model)
    for layer, head, row in asked:
        choose(browser, layer, head, row)
        weights = browser.run("""return [...document.querySelectorAll('table.keys [data-key]')].map(
            (line) => [Number(line.dataset.key), line.querySelector('.weight').textContent])""")
        key = max(weights, key=lambda one: (number(one[1]), -one[0]))[0]
        told = json.loads(heed("why", f"#{row}", f"#{key}", "--head", f"{layer}.{head}", "--model", model, "--top", 4,
                               "--json", text).stdout)
        words = browser.run("return document.querySelector('.why-part p').innerText")
        score = number(re.search(r"Its score ([+−][\d.]+) is a sum", words)[1])
        assert score == pytest.approx(told["score"], abs=5.1e-3)
        for side, where in (("key_parts", "there"), ("query_parts", "here")):
            most = max(told[side], key=lambda part: part["share"] * math.copysign(1, score))
            name, share = re.search(rf"(?:what (\S+) wrote|the (.*?)) {where}(?: from .*?)? \(([+−][\d.]+)\)",
                                    words.split("are those of ")[1].split(" and ")[0 if where == "there" else 1]).group(1, 3)
            assert number(share) == pytest.approx(most["share"], abs=5.1e-3)
            assert name in (most["part"], None)
        lines = browser.run("""return [...document.querySelectorAll('table.why tbody tr')].map((line) =>
            [...line.children].map((cell) => cell.innerText))""")
        for (share, query, of_key), pair in zip(lines, told["pairs"], strict=True):
            assert number(share) == pytest.approx(pair["share"], abs=5.1e-3)
            assert [query.split(",")[0], of_key.split(",")[0]] == [pair["query"], pair["key"]]


@pytest.mark.parametrize("width", [390, 1360])
def test_long_words_do_not_squeeze_the_scores_of_why(heed, tmp_path, width):
    with Browser(width, 900) as browser:
        browser.resize(width, 900)
        heed("explain", "--model", "induction", "--html", tmp_path / "life.html", *2 * (400 * "x", 400 * "y", "z"))
        browser.open((tmp_path / "life.html").as_uri())
        lines = browser.run("""return [...document.querySelectorAll('table.why tr > :first-child')].map((cell) => {
            const range = new Range();
            range.selectNodeContents(cell);
            return range.getClientRects().length; })""")
        assert len(lines) > 4 and set(lines) == {1}


def test_lines_between_right_to_left_words_say_their_order(living, browser):
    living("שלום עולם שלום עולם")
    titles = browser.run("return [...document.querySelectorAll('.line title')].map((one) => one.textContent)")
    assert any(title.startswith("\u2068שלום₂\u2069 → \u2068עולם₁\u2069: ") for title in titles)


def test_a_model_of_characters_shows_no_stray_words(living, browser):
    living(model="stories")
    shown = browser.run("return document.body.innerText")
    assert not re.search(r"\b(false|undefined|NaN|null)\b", shown)


def test_has_no_reason_where_there_is_one_key(living, browser):
    living(TEXTS[0])
    for row, tables in ((0, 0), (1, 1)):
        choose(browser, 1, 0, row)
        assert browser.run("return document.querySelectorAll('table.why').length") == tables


def wait_for(browser, script):
    browser.wait(f"for (let turn = 0; turn < 400 && !({script}); turn++) await new Promise((done) => setTimeout(done, 20))")


@pytest.mark.parametrize("model", ["induction", "stories"])
def test_opens_with_a_change_that_does_what_the_hint_says(living, browser, model):
    living(model=model)
    wait_for(browser, "!document.getElementById('hint').hidden")
    hint = browser.text("#hint-text")
    there, before = re.fullmatch(r"Try: write \w+ in place of .*\w+\. The model will then expect (\w+) instead of (\w+)\.", hint).groups()
    assert browser.text("#expected li:first-child .bar-name") == before != there
    switch(browser, "#hint-do")
    assert browser.text("#expected li:first-child .bar-name") == there
    wait_for(browser, f"document.getElementById('hint-text').textContent.endsWith('expect {before} instead of {there}.')")
    switch(browser, "#hint-do")
    assert browser.text("#expected li:first-child .bar-name") == before


@pytest.mark.parametrize("model,tokens", [("induction", 5), ("stories", 24)])
def test_it_writes_on_as_the_command_does(living, browser, heed, model, tokens):
    living(model=model)
    text = browser.run("return document.getElementById('typed').value")
    told = heed("generate", model, "--prompt", text, "--tokens", tokens, "--temperature", 0).stdout
    wanted = told[len(text):].strip() if model == "stories" else " ".join(told.split()[-5:])
    wait_for(browser, f"document.getElementById('writing').textContent.length >= {len(wanted)}")
    assert browser.text("#writing").removesuffix("…").strip() == wanted


def test_all_heads_off_leaves_a_guess_and_says_why(living, browser, oracle):
    every = [(layer, head) for layer in range(2) for head in range(4)]
    living(WORDS)
    wait_for(browser, "document.querySelector('[data-without=all]')")
    assert abs(float(browser.text("[data-without=all]").rstrip(" %")) - share_of(oracle, every, "not")) <= 0.051
    switch(browser, "[data-key=all-heads]")
    weights, logits, numbers = oracle.run(WORDS.split(), off=every)
    assert_shows(browser, weights, oracle.following(logits, numbers), words=WORDS.split())
    said = browser.text("#expected .alone")
    assert "All 8 heads are off. The model sees only or₂ and its place" in said and "right in 1.6 %" in said
    assert browser.text("[data-key=all-heads]") == "Switch all heads on"
    switch(browser, "[data-key=all-heads]")
    assert browser.text("#expected li:first-child .bar-name") == "not"


def test_heads_have_one_name(living, browser):
    """In full "layer 1, head 2", in short "1.2", as on the page of a report."""
    living(fragment="#thought=9")
    shown = browser.run("return document.body.innerText") + browser.run(
        "return [...document.querySelectorAll('[aria-label]')].map((one) => one.ariaLabel).join(' ')")
    assert not re.search(r"[Hh]ead \d+\.\d", shown)
    assert all(re.search(r"[Ll]ayer \d, $", shown[:found.start()]) for found in re.finditer(r"head \d", shown))


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_or_touches(living, browser, width):
    living()
    browser.resize(width, 900)
    settle(browser)
    cut = browser.run("""return [...document.querySelectorAll('#about, .flow-head, .flow-heading, table.weights td, .vector-name')]
        .filter((one) => one.clientWidth && (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 2) || one.textContent.endsWith('…'))
        .map((one) => one.textContent)""")
    boxes = browser.run("""return [...document.querySelectorAll('.flow-head, #flow .flow-heading')].map((one) => {
        const {left, right, top, bottom} = one.getBoundingClientRect(); return [left, right, top, bottom]; })""")
    host = place(browser, "#flow")
    rows = len({place(browser, css)[3] // 20 for css in ("#controls .slider", "#controls .choice")})
    browser.resize(1360, 900)
    assert rows == 1 or width < 1280
    assert cut == []
    assert all(host[0] - 1 <= left and right <= host[2] + 1 for left, right, *_ in boxes)
    assert not [(a, b) for n, a in enumerate(boxes) for b in boxes[:n]
                if a[0] < b[1] and b[0] < a[1] and a[2] + 3 < b[3] and b[2] + 3 < a[3]]


@pytest.mark.parametrize("width", [1280, 390])
def test_very_long_words_widen_nothing_and_touch_nothing(living, browser, width):
    word = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
    living(f"{word} the {word}")
    browser.resize(width, 900)
    settle(browser)
    wide, columns = browser.run("""return [document.documentElement.scrollWidth,
        [...document.querySelectorAll('#flow svg, .flow-word')].map((one) => {
          const {left, right, top} = one.getBoundingClientRect(); return [Math.round(top), left, right]; })]""")
    browser.resize(1360, 900)
    assert wide <= width
    (_, begin, end), *words = columns
    for one, other in zip(sorted(words), sorted(words)[1:]):
        assert one[0] != other[0] or one[2] < other[1]
    assert len(words) == 9 and all(begin - 1 <= left and right <= end + 1 for _, left, right in words)


def test_letters_stand_as_in_the_text(living, browser):
    living("Anna had a hat.", model="stories")
    assert browser.text("#words").replace("\n", "") == "Anna␣had␣a␣hat."
    assert browser.run("return [...document.querySelectorAll('#words > span')].map((one) => one.textContent)") == [
        "Anna␣", "had␣", "a␣", "hat."]
    assert browser.run("return [...document.querySelectorAll('.flow-word')].some((one) => /[₀-₉\"]/.test(one.textContent))") is False
    assert min(browser.run("return [...document.querySelectorAll('#words .word')].map((one) => one.offsetWidth)")) >= 24
    assert browser.text("#expected h2") == "After …had a hat. the model expects"
    browser.run("document.querySelectorAll('#words .word')[8].click()")
    settle(browser)
    assert browser.text("#expected h2") == "After Anna had␣ the model expects"


def test_lines_of_a_head_that_is_off_are_dashed(living, browser):
    def dashed():
        return browser.run("""return [...document.querySelectorAll('#flow .line')].map((line) =>
            [line.dataset.line[0], getComputedStyle(line).strokeDasharray !== 'none'])""")

    living(WORDS)
    assert {off for _, off in dashed()} == {False}
    switch(browser, '[data-head="1.2"] input')
    assert {layer for layer, _ in dashed()} == {"0", "1"} and all(off == (layer == "1") for layer, off in dashed())


def test_an_earlier_hint_hides_while_the_next_is_looked_for(living, browser):
    living()
    wait_for(browser, "!document.getElementById('hint').hidden")
    seen = browser.wait("""
        const seen = [], hint = document.getElementById('hint'), field = document.getElementById('typed');
        new MutationObserver(() => seen.push([hint.hidden, document.getElementById('hint-text').textContent]))
          .observe(hint, {attributes: true});
        const before = document.getElementById('hint-text').textContent;
        field.value = 'one two three one two';
        field.dispatchEvent(new Event('input'));
        for (let n = 0; n < 60 && !seen.some(([hidden, text]) => !hidden && text !== before); n++)
          await new Promise((done) => setTimeout(done, 50));
        return [before, seen];""")
    before, changes = seen
    assert changes[0][0] is True
    assert changes[-1][0] is False and changes[-1][1] != before
    assert not [text for hidden, text in changes if not hidden and text == before]


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="the package poppler-utils is not installed")
def test_prints_no_map_in_two_pieces_and_no_controls(living, browser, tmp_path):
    living()
    browser.print(tmp_path / "life.pdf")
    text = subprocess.run(["pdftotext", "-layout", tmp_path / "life.pdf", "-"], check=True, capture_output=True, text=True).stdout
    beginning, = [paper for paper in text.split("\f") if "Empty cells are below" in paper]
    assert "looks at fox most" in re.sub(r"\s+", " ", beginning)  # it stands below the map
    assert not re.search("Temperature|switch all|All at once|Do it", text)
