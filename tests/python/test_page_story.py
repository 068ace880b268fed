"""The steps of `heed explain --html` as a story in a real browser: thoughts, matrices, lines, the glossary."""

import json
import math
import re
import shlex
import statistics

import numpy
import pytest
import safetensors.numpy

from browser import Browser, available
from page_support import assert_shown

FOX = "the quick brown fox jumps over the lazy dog"
pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser, heed, tmp_path):
    """page(ARGUMENT, …, fragment=""): opens the page. Returns the steps' values by name. The console must stay
    clean."""

    def run(*arguments, fragment=""):
        path = tmp_path / "page.html"
        told = json.loads(heed("explain", *arguments, "--html", path, "--save", tmp_path / "saved.safetensors", "--json").stdout)
        browser.open(path.as_uri() + fragment)
        return {step["name"]: step["values"] for step in told["steps"]}

    yield run
    assert browser.errors() == []


def press(browser, name):
    browser.run("document.querySelector(`.story [data-value=${arguments[0]}]`).click()", name)


def cards(browser):
    return browser.run("return [...document.querySelectorAll('.card')].map((card) => card.dataset.step)")


def thoughts(browser):
    """The cards of each thought, stepping through them until all are shown at once."""
    found = []
    while not found or not browser.run("return document.querySelector('.story [data-value=next]').disabled"):
        if found:
            press(browser, "next")
        found.append((browser.text(".stage h2"), cards(browser)))
    press(browser, "all")
    return found


@pytest.mark.parametrize("arguments", [["--causal", "--heads", "2"], [], ["--against", "le chat"]])
def test_one_thought_at_a_time_shows_every_step_once(page, browser, arguments):
    steps = page(FOX, *arguments, fragment="#view=story&")
    told = thoughts(browser)
    assert [title.split(" ")[0] for title, _ in told] == [f"{n + 1}." for n in range(len(told))]
    assert len(told) == (8 if "--causal" in arguments else 7)
    everything = [name for _, names in told for name in names]
    left_out = {"ids", "context_ids"} | ({"merged"} if len(steps["weights"]) == 1 else set())
    assert sorted(everything) == sorted({"flows", "root", *steps} - left_out)
    assert cards(browser) == everything
    press(browser, "next")
    assert cards(browser) == told[0][1]


def test_back_keys_and_the_address(page, browser):
    page(FOX, "--causal")
    browser.press(".", ".", ".")  # from the steps to the first thought, and further
    assert cards(browser) == ["scores"]
    press(browser, "back")
    assert cards(browser) == ["query", "key", "value"]
    link = browser.run("return location.href")
    assert "thought=2" in link
    browser.open(link)
    assert cards(browser) == ["query", "key", "value"]
    browser.press(",")
    assert "embeddings" in cards(browser)
    press(browser, "all")
    assert "weights" in cards(browser) and "output" in cards(browser)
    browser.open(link.replace("thought=2", "thought=999"))
    assert cards(browser) == ["output"]


def test_the_root_is_explained_with_the_numbers_of_the_sentence(page, browser):
    steps = page(FOX, "--causal", fragment="#view=story&thought=4&row=5")
    told = browser.text(".story-text").replace("−", "-")
    for name in ("scores", "scaled"):
        assert f"{statistics.pstdev(value for row in steps[name][0] for value in row):.4f}" in told
        row = steps[name][0][5][:6]
        assert f"{max(map(math.exp, row)) / sum(map(math.exp, row)):.4f}" in told
    assert "√24 = 4.8990" in told


def shares(steps, row, head=0):
    """The largest share in a row's softmax without division by the root, and with it."""
    found = []
    for name in ("scores", "scaled"):
        allowed = [score for key, score in enumerate(steps[name][head][row]) if "masked" not in steps or key <= row]
        found.append(1 / sum(math.exp(score - max(allowed)) for score in allowed))
    return found


@pytest.mark.parametrize("arguments", [[], ["--heads", "4", "--causal"], ["--heads", "4", "--causal", "--key-dim", "1"]])
def test_what_is_said_of_the_root_follows_from_the_numbers(page, browser, arguments):
    """If the chosen row's softmax is nearly one-hot even with the division, the story uses another row."""
    sentence = "Life is short, eat dessert first"
    words = sentence.replace(",", "").split()
    steps = page(sentence, *arguments, fragment="#view=story&thought=4&head=0")
    found = [shares(steps, row) for row in range(6)]
    most = max(range(6), key=lambda row: found[row][0] - found[row][1])
    for row, (raw, scaled) in enumerate(found):
        browser.run("location.hash = `view=story&thought=4&head=0&row=${arguments[0]}`", row)
        browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        told = browser.text(".story-text")
        little = f"For {words[row]} it changes little: one word gets {raw:.4f} without the division, {scaled:.4f} with it"
        assert (little in told) == (raw - scaled < 0.1)
        shown = row if raw - scaled >= 0.1 else most
        raw, scaled = found[shown]
        without = f"the softmax of {words[shown]} would give {raw:.4f} to one word; with it, {scaled:.4f}"
        assert (without in told) == (raw - scaled >= 0.1)
        assert ("the division changes no share by more than" in told) == (raw - scaled < 0.1)
        slopes = re.search(r"The slope w \(1 − w\) is (\S+) without the division, (\S+) with it", told)
        assert (slopes is not None) == (raw - scaled >= 0.1 and raw * (1 - raw) < scaled * (1 - scaled))
        for slope, share in zip(slopes.groups() if slopes else [], (raw, scaled)):
            assert_shown(slope.replace("−", "-"), share * (1 - share))
    assert (found[most][0] - found[most][1] >= 0.1) == ("--key-dim" not in arguments)  # for d = 1 the root is 1


LIFE = "Life is short, eat dessert first"


@pytest.mark.parametrize("arguments", [[], ["--heads", "4"], ["--causal", "--init", "torch"]])
def test_a_quotient_has_the_digits_of_its_result(page, browser, arguments):
    steps = page(LIFE, *arguments)
    largest = 0
    places = [(row, key) for row in range(6) for key in range(row + 1 if "--causal" in arguments else 6)]
    told = browser.wait("""const found = [];
        for (const [row, key] of arguments[0]) {
          location.hash = `view=story&thought=${arguments[1]}&head=0&row=${row}&key=${key}`;
          await new Promise((done) => addEventListener('hashchange', done, {once: true}));
          found.push(document.querySelector('[data-part=weights] .sum').innerText);
        }
        return found;""", places, 6 if "--causal" in arguments else 5)
    for (row, key), text in zip(places, told, strict=True):
        over, under, weight = re.search(r"= ([\d.e+-]+) / ([\d.e+-]+)\s*= ([\d.e-]+)", text.replace("−", "-")).groups()
        largest = max(largest, float(over))
        assert_shown(weight, steps["weights"][0][row][key])
        assert abs(float(over) / float(under) - float(weight)) <= (0.51e-4 if "e" not in weight else 0.0051 * float(weight))
    assert (largest > 1e6) == (not arguments)


def test_the_lesson_of_the_root_holds_for_vectors_drawn_at_random(page, browser):
    """The table's means are those of many more vectors, drawn by NumPy."""
    page(LIFE, fragment="#view=story&thought=4")
    rows = browser.run("""return [...document.querySelectorAll('.root-table tbody tr')].map(
        (row) => [...row.children].map((cell) => Number(cell.textContent)))""")
    draw = numpy.random.default_rng(5).standard_normal
    assert [row[0] for row in rows] == [1, 4, 16, 64, 256]
    for d, spread, *found in rows:
        scores = numpy.einsum("nd,nkd->nk", draw((4000, int(d))), draw((4000, 6, int(d))))
        wanted = []
        for by in (1, math.sqrt(d)):
            powers = numpy.exp((scores - scores.max(1, keepdims=True)) / by)
            share = powers.max(1) / powers.sum(1)
            wanted += [share.mean(), (share * (1 - share)).mean()]
        assert spread == pytest.approx(math.sqrt(d), rel=0.15)
        assert found == pytest.approx(wanted, abs=0.04)
    assert rows[-1][2] > 0.9 > 0.5 > rows[-1][4] and rows[-1][3] < 0.06 < 0.2 < rows[-1][5]


def test_the_story_says_how_these_vectors_differ_from_random_ones(page, browser):
    for arguments in ([], ["--heads", "4", "--causal"]):
        steps = page(LIFE, *arguments, fragment="#view=story&thought=4&head=0")
        told = browser.text(".story-text")
        spread = statistics.pstdev(value for row in steps["scaled"][0] for value in row)
        assert ("That is still far above 1, for these untrained" in told) == (spread > 2) == (not arguments)
        squares = [statistics.fmean(value ** 2 for row in steps[name][0] for value in row) for name in ("query", "key")]
        assert ("mean squares of {:.3g} and {:.3g}, and the vectors lie along few".format(*squares) in told) == (not arguments)
        assert arguments or spread > 2 * math.sqrt(squares[0] * squares[1])


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_collides_or_stands_empty(page, browser, width):
    browser.resize(width, 900)
    page(LIFE, fragment="#view=story&thought=1")
    for thought in range(1, 8):
        browser.run("location.hash = `view=story&thought=${arguments[0]}`", thought)
        browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert browser.run("return [...document.querySelectorAll('.panel section')].some((part) => !part.hidden)")
    browser.run("location.hash = 'view=story&thought=1'")
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    panel = browser.run("return document.querySelector('.panel').textContent")  # folded on a phone
    assert "dessert1" in panel and "is row 1 of the table: −0.0770, −1.0205, −0.1690" in panel
    assert browser.run("return Number(getComputedStyle(document.querySelector('.story [data-value=back]')).opacity)") < 0.6
    browser.press(",")
    assert browser.text(".stage h2").startswith("1. ")
    browser.run("location.hash = 'view=story&thought=6&row=4'")
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    boxes = browser.run("""return [...document.querySelectorAll('.flows text')].map((one) => {
        const {left, right, top, bottom} = one.getBoundingClientRect(); return [left, right, top, bottom]; })""")
    assert len(boxes) == 13
    assert not [1 for n, a in enumerate(boxes) for b in boxes[:n] if a[0] < b[1] and b[0] < a[1] and a[2] + 2 < b[3] and b[2] + 2 < a[3]]
    browser.run("location.hash = 'view=story&thought=7'")
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    browser.press(".")
    assert browser.text(".stage h2").startswith("7. ")  # the last thought; "All at once" is a button
    browser.run("document.querySelector('.notebooks').open = true")
    assert browser.run("return document.documentElement.scrollWidth") == width
    browser.resize(1360, 900)


def test_each_step_of_the_notebooks_is_found(page, browser, heed, tmp_path):
    """The command under a notebook writes a page on which a link leads to each of its steps. The example prints the names."""
    page(LIFE, fragment="#view=story")
    commands = browser.run("""return [...document.querySelectorAll('.notebook-command')].map((one) => one.textContent)""")
    assert len(commands) == 5
    elsewhere = {2: ["--heads 3", "--against OTHER_SENTENCE"], 3: ["examples/3_causal_head.cpp"]}
    cards_of = {"W_": "query", "omega": "scores", "omega_x /": "scaled", "attention_weights": "weights", "masked_fill": "masked",
                "scaled + mask": "masked", "linear_layer": "output", "embedded_sentence": "embeddings"}
    for number, command in enumerate(commands, 1):
        heed(*shlex.split(command)[1:])
        browser.open((tmp_path / f"{number}.html").as_uri() + "#view=story")
        lines = browser.run("""return [...document.querySelectorAll(`[data-notebook="${arguments[0]}"] li`)].map((line) =>
            [line.querySelector('code').textContent, line.querySelector('a')?.getAttribute('href'), line.textContent])""", number)
        assert [line for _, href, line in lines if not href and not any(line.endswith(where) for where in elsewhere.get(number, []))] == []
        assert len([href for _, href, _ in lines if not href]) == len(elsewhere.get(number, []))
        for names, href, _ in lines:
            if not href:
                continue
            browser.run("location.hash = arguments[0]", href[1:])
            browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            wanted = [card for name, card in cards_of.items() if name in names]
            assert not wanted or set(wanted) & set(cards(browser)), (number, names)
    steps = page("the quick brown fox jumps over a lazy dog", "--init", "normal", "--seed", "0")
    assert steps["scores"][0][1][6] == pytest.approx(171.9292)  # omega_x of the second notebook


def test_untrained_matrices_are_said_to_mean_nothing_yet(page, browser, tmp_path):
    page(FOX, fragment="#view=story&thought=2")
    assert "means nothing yet" in browser.text(".story-text")
    parts = safetensors.numpy.load_file(tmp_path / "saved.safetensors")
    safetensors.numpy.save_file({name: part for name, part in parts.items() if name.endswith((".weight", ".bias"))},
                                tmp_path / "read.safetensors")
    page(FOX, "--params", tmp_path / "read.safetensors", fragment="#view=story&thought=2")
    assert "means nothing yet" not in browser.text(".story-text")


def test_the_mask_says_what_it_hides(page, browser):
    page(FOX, "--causal", fragment="#view=story&thought=5&row=6")
    assert "lazy" not in browser.text(".story-text")
    assert browser.text(".story-text").startswith("the₂ may not see the 2 words after it")


def test_matrices_stand_beside_what_they_make(page, browser, tmp_path):
    page(FOX, "--heads", "2", fragment="#view=story&thought=2&head=1")
    weights = safetensors.numpy.load_file(tmp_path / "saved.safetensors")
    for name, letter in (("query", "q"), ("key", "k"), ("value", "v")):
        rows, columns = weights[name + ".weight"].shape[1:]
        x, y = browser.run("""const canvas = document.querySelector(`.marks[aria-label^='${arguments[0]}']`);
            canvas.scrollIntoView({block: 'center'});
            const [left, top, width, height] = canvas.dataset.cells.split(' ').map(Number);
            const box = canvas.getBoundingClientRect();
            return [box.x + left + 4.5 * width, box.y + top + 7.5 * height];""", f"W {letter}, {rows} by {columns};")
        browser.pointer(x, y)
        assert browser.text(".tip") == f"W {letter} [7, 4]: {weights[name + '.weight'][1, 7, 4]:.4f}".replace(": -", ": −")
    # The parts of a card stand one below the other.
    parts = browser.run("""return [...document.querySelectorAll('.cards > .card')].map((card) => [...card.children]
        .map((one) => one.getBoundingClientRect()).filter(({ height }) => height > 0).map(({ top, bottom }) => [top, bottom]))""")
    assert max(map(len, parts)) == 5
    assert all(below[0] >= above[1] - 0.5 for card in parts for above, below in zip(card, card[1:]))


def test_lines_show_what_flows_to_the_chosen_word(page, browser):
    steps = page(FOX, "--causal", "--heads", "2", fragment="#view=story&thought=7&row=4&key=2&head=0")
    lines = browser.run("""return [...document.querySelectorAll('.flow-line')].map(
        (line) => [Number(line.dataset.key), Number(line.getAttribute('stroke-width'))])""")
    weights = steps["weights"][0][4]
    assert [key for key, _ in lines] == list(range(5))
    assert sorted(lines, key=lambda line: line[1]) == sorted(lines, key=lambda line: weights[line[0]])
    said = browser.run("return document.querySelector('.flows svg').getAttribute('aria-label')")
    assert f"fox {weights[3]:.4f}" in said and "dog masked" in said


def test_the_glossary_opens_by_keyboard_and_closes(page, browser):
    page(FOX, "--causal", fragment="#view=story&thought=6")
    browser.run("[...document.querySelectorAll('.story-text .defined')].find((word) => word.textContent === 'softmax').focus()")
    browser.press("enter")
    assert browser.text(".story-text .definition").startswith("The softmax turns a row of scores into shares")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    browser.press("\ue00c")  # Escape
    assert browser.run("return document.querySelector('.story-text .definition').hidden")


def test_heads_are_counted_from_0(page, browser, heed):
    page(FOX, "--heads", "3", fragment="#view=story&thought=0")
    assert "head 0, head 1, …" in browser.text("[data-step=merged]")
    printed = heed("explain", FOX, "--heads", "3").stdout
    assert set(re.findall(r"head (\d)", printed)) == {"0", "1", "2"} and "head 0 of 3" in printed


def test_all_thoughts_are_printed(page, browser):
    page(FOX, "--causal", fragment="#view=story&thought=2")
    headings = "return [...document.querySelectorAll('#view h2')].map((one) => one.textContent)"
    one = browser.run(headings)
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    every = browser.run(headings)
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run(headings) == one
    numbers = [int(text.split(".")[0]) for text in every if text[0].isdecimal()]
    assert numbers == list(range(1, 9)) and len(one) < len(every)


def test_nothing_is_wider_than_a_phone(heed, tmp_path):
    heed("explain", FOX, "--causal", "--html", "page.html")
    with Browser(500, 844) as phone:
        phone.post("/chromium/send_command", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}})
        for thought in range(9):
            phone.open((tmp_path / "page.html").as_uri() + f"#view=story&thought={thought}")
            assert phone.run("return document.documentElement.scrollWidth") == 390
