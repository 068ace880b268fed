"""The steps of `heed explain --html` as a story in a real browser: thoughts, matrices, lines, the glossary."""

import json
import math
import re
import statistics

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
    assert sorted(everything) == sorted({"flows", *steps} - left_out)
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
        slopes = re.search(r"the slope of the softmax, w \(1 − w\): (\S+) without the division, (\S+) with it", told)
        assert (slopes is not None) == (raw - scaled >= 0.1 and raw * (1 - raw) < scaled * (1 - scaled))
        for slope, share in zip(slopes.groups() if slopes else [], (raw, scaled)):
            assert_shown(slope.replace("−", "-"), share * (1 - share))
    assert (found[most][0] - found[most][1] >= 0.1) == ("--key-dim" not in arguments)  # for d = 1 the root is 1


def test_a_quotient_of_large_numbers_has_the_digits_of_its_result(page, browser):
    page("Life is short, eat dessert first", fragment="#row=3&key=2")
    shown = re.search(r"= ([\d.e+]+) / ([\d.e+]+)\s*= ([\d.]+)", browser.text("[data-part=weights] .sum"))
    over, under, weight = map(float, shown.groups())
    assert over > 1e6 and abs(over / under - weight) <= 1.5e-4


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


def test_nothing_is_wider_than_a_phone(heed, tmp_path):
    heed("explain", FOX, "--causal", "--html", "page.html")
    with Browser(500, 844) as phone:
        phone.post("/chromium/send_command", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}})
        for thought in range(9):
            phone.open((tmp_path / "page.html").as_uri() + f"#view=story&thought={thought}")
            assert phone.run("return document.documentElement.scrollWidth") == 390
