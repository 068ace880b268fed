"""The page of `heed explain --html`, in a real browser."""

import json
import math

import pytest

from page_support import (FOX, WAIT_A_FRAME, assert_shown, browser, canvas, cell, fragment, needs_a_browser,  # noqa: F401
                          page, results)

pytestmark = needs_a_browser


def test_opens_from_a_file_and_shows_every_step(page, browser):
    steps = page(FOX, "--heads", "2", "--causal")
    assert browser.text("h1") == FOX
    cards = browser.run("return [...document.querySelectorAll('.card')].map((card) => card.dataset.step)")
    assert cards == [name for name in steps if name not in ("ids", "tokens")]
    shapes = browser.run("return [...document.querySelectorAll('.card .shape')].map((shape) => shape.textContent)")
    assert shapes == [str(steps[name]["shape"]) for name in cards]


def test_is_one_small_file_that_loads_nothing(heed, tmp_path):
    heed("explain", FOX, "--html", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(text) < 300_000
    assert "default-src 'none'" in text and " src=" not in text and "<link" not in text and "@import" not in text


@pytest.mark.parametrize("arguments", [[], ["--causal", "--heads", "3"], ["--against", "le chat est assis"]])
def test_a_click_is_followed_through_every_step_with_the_numbers_of_json(page, browser, arguments):
    steps = page(FOX, *arguments)
    head = 2 if "3" in arguments else 0
    for row, key in [(0, 0), (4, 2), (6, 1)]:
        browser.pointer(*cell(browser, "weights", row, key, head), click=True)
        shown = results(browser)
        for name in ("scores", "scaled", "weights"):
            assert_shown(shown[name], steps[name]["values"][head][row][key])
        assert_shown(shown["query"], steps["query"]["values"][head][row][0])
        assert_shown(shown["context"], steps["context"]["values"][head][row][0])
        assert_shown(shown["output"], steps["output"]["values"][row][0])
        word = browser.run("return document.querySelector('.word[data-kind=row][aria-pressed=true]').textContent")
        assert word.rstrip("₁₂") == steps["tokens"][row]


def test_a_click_on_a_part_of_a_vector_writes_out_that_part(page, browser):
    steps = page(FOX, "--heads", "2", fragment="#head=0&row=0&key=0")
    for name, result, row, part in [("query", "query", 3, 7), ("key", "key", 5, 11), ("value", "value", 2, 20),
                                    ("value", "context", 0, 27), ("context", "context", 1, 9),
                                    ("output", "output", 8, 15)]:
        browser.pointer(*cell(browser, name, row, part), click=True)
        i = row if name != "value" or result == "value" else int(fragment(browser).get("row", 0))
        values = steps[result]["values"]
        assert_shown(results(browser)[result], (values if result == "output" else values[0])[i][part])


def test_terms_add_up_to_the_result(page, browser):
    page(FOX, fragment="#row=3&key=4&step=scores")
    browser.click("[data-part=scores] summary")
    browser.wait(WAIT_A_FRAME)
    terms = browser.run("""return [...document.querySelectorAll('[data-part=scores] .terms tr')].map(
        (row) => row.lastElementChild.textContent.replace('−', '-'))""")
    assert len(terms) == 24
    # Each term is rounded to four decimals.
    assert math.isclose(sum(map(float, terms)), float(results(browser)["scores"]), abs_tol=25 * 5e-5)


def test_pointing_follows_and_leaving_goes_back_to_what_was_chosen(page, browser):
    steps = page(FOX, fragment="#row=1&key=1")
    chosen = results(browser)["weights"]
    browser.pointer(*cell(browser, "weights", 5, 3))
    browser.wait(WAIT_A_FRAME)
    assert_shown(results(browser)["weights"], steps["weights"]["values"][0][5][3])
    assert fragment(browser) == {"row": "1", "key": "1"}
    browser.pointer(2, 2)
    browser.wait(WAIT_A_FRAME)
    assert results(browser)["weights"] == chosen


def test_arrow_keys_move_and_brackets_turn_heads(page, browser):
    steps = page(FOX, "--heads", "2", fragment="#head=0&row=0&key=0")
    browser.run("document.querySelector(arguments[0]).focus()", canvas("scores"))
    browser.press("down", "down", "right", "down", "left", "right", "right")
    assert_shown(results(browser)["scores"], steps["scores"]["values"][0][3][2])
    browser.press("]")
    assert fragment(browser) | {"head": "1"} == {"row": "3", "key": "2", "step": "scores", "head": "1"}
    assert_shown(results(browser)["scores"], steps["scores"]["values"][1][3][2])


def test_every_control_is_reached_by_tab_and_arrow_keys(page, browser):
    page("to be")
    reached = set()
    for _ in range(60):
        browser.press("tab")
        reached.add(browser.run("""const one = document.activeElement;
            const group = one.closest('[role=group]');
            return one.getAttribute('aria-label') || `${group?.getAttribute('aria-label')}: ${one.textContent}`"""))
    groups = browser.run("""return [...document.querySelectorAll('[role=group]:not([hidden])')].map(
        (group) => group.querySelector('[tabindex="0"]') && group.getAttribute('aria-label'))""")
    assert None not in groups and {name.rsplit(": ", 1)[0] for name in reached} >= {*groups} - {None}
    assert {"Go to row and key", "Colours: blue", "Theme: auto"} <= reached
    assert sum(name.endswith("; arrow keys move") for name in reached) == 9  # the pictures


def test_the_fragment_brings_back_the_same_view(page, browser):
    page(FOX, "--heads", "2", fragment="#head=0")
    browser.pointer(*cell(browser, "weights", 6, 2, 1), click=True)
    for button in ("cividis", "true", "dark"):
        browser.click(f'button[data-value="{button}"]')
    link = browser.run("return location.href")
    picture = "return [...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL()).join()"
    before = [browser.text(".panel"), browser.run(picture)]
    browser.open(link)
    assert [browser.text(".panel"), browser.run(picture)] == before
    assert fragment(browser) | {"head": "1"} == {"head": "1", "row": "6", "key": "2", "step": "weights", "colours": "cividis", "log": "1",
                                 "theme": "dark"}


def test_a_fragment_from_elsewhere_does_no_harm(page, browser):
    page("to be", fragment="#row=99&key=-3&head=7&at=1e9&step=constructor&view=toString&colours=x&log=7&a=%3Cb%3E")
    assert browser.text(".panel h2").split() == ["be", "→", "to"]


@pytest.mark.parametrize("sentence", [
    "<script>alert(1)</script>", "</script><script>document.title='x'</script>", "<!-- <script> -->",
    "<img/src=x/onerror=alert(1)> &amp; \"quotes\" 'single' `${1}` \\u003c @STYLE@ x\u2028y \u202ez",
])
def test_text_from_users_is_shown_as_text(page, browser, sentence):
    page(sentence, "--against", sentence)
    words = sentence.split(" ")
    shown = browser.run("return [...document.querySelectorAll('.word[data-kind=row]')].map((word) => word.textContent)")
    # Characters that reverse the direction of writing, and line ends, are spelled out as on the terminal.
    assert shown == [word.replace("\u2028", r"\u{2028}").replace("\u202e", r"\u{202E}") for word in words]
    assert browser.run("return [document.scripts.length, document.images.length]") == [1 + len_scripts(browser), 0]
    title = f"{' '.join(words)} → {' '.join(words)}"
    assert browser.run("return document.getElementById('title').textContent") == title
    assert browser.run("return document.title").startswith(title[:40])


def len_scripts(browser):
    """The number of scripts that hold data; only one script of the page runs."""
    return browser.run("return [...document.scripts].filter((script) => script.type).length")


def test_the_table_and_the_files_hold_the_numbers(page, browser):
    steps = page(FOX, "--causal")
    browser.run("""window.saved = [];
        URL.createObjectURL = (blob) => { saved.push(blob); return 'blob:none'; };
        HTMLAnchorElement.prototype.click = function () { this.download && saved.push(this.download); };""")
    for name in ("CSV", "JSON", "PNG", "Table"):
        browser.run("""[...document.querySelectorAll('[data-step=scaled] .actions button')]
            .find((button) => button.textContent === arguments[0]).click()""", name)
    browser.wait("while (saved.length < 6) await new Promise((done) => setTimeout(done, 10))")
    csv, csv_name, text, json_name = browser.wait(
        "return [await saved[0].text(), saved[1], await saved[2].text(), saved[3]]")
    assert [csv_name, json_name] == ["scaled.csv", "scaled.json"]
    values = steps["scaled"]["values"][0]
    rows = [[float(value) for value in line.split(",")[1:]] for line in csv.strip().split("\r\n")[1:]]
    assert all(math.isclose(a, b, rel_tol=1e-6) for one, other in zip(rows, values) for a, b in zip(one, other))
    assert all(math.isclose(a, b, rel_tol=1e-6) for one, other in zip(json.loads(text)["values"], values)
               for a, b in zip(one, other))
    assert browser.wait("return [saved[4].type, saved[4].size > 2000]") == ["image/png", True]
    assert_shown(browser.run("return document.querySelector('[data-step=scaled] td').textContent").replace("−", "-"),
                 values[0][0])


def test_a_sentence_that_does_not_fit_a_page_is_refused_before_anything_is_written(heed, tmp_path):
    said = heed("explain", "a " * 1200, "--html", "page.html", code=2).stderr
    assert "at most 4000000 are expected on a page" in said and not (tmp_path / "page.html").exists()


def test_the_map_follows_the_pointer_with_the_numbers_of_json(page, browser):
    steps = page(FOX, "--heads", "3", "--causal", fragment="#view=map&head=1&row=0&key=0")
    for row, key in [(6, 2), (8, 8), (3, 0)]:
        x, y = browser.run("""const canvas = document.querySelector('[data-step=map] .figures .marks');
            canvas.scrollIntoView({block: 'center'});
            const [left, top, width, height] = canvas.dataset.cells.split(' ').map(Number);
            const box = canvas.getBoundingClientRect();
            return [box.x + left + (arguments[1] + 0.5) * width, box.y + top + (arguments[0] + 0.5) * height];""", row, key)
        browser.pointer(x, y, click=True)
        weights = steps["weights"]["values"][1][row]
        assert_shown(results(browser)["weight"], weights[key])
        assert_shown(results(browser)["max_weight"], max(weights))
        assert_shown(results(browser)["entropy"], -sum(w * math.log(w) for w in weights if w > 0))
        shown = browser.run("return [...document.querySelectorAll('[data-top]')].map((cell) => [cell.dataset.top, "
                            "cell.textContent])")
        assert [int(key) for key, _ in shown] == sorted(range(row + 1), key=lambda key: -weights[key])[:10]
        for key, weight in shown:
            assert_shown(weight, weights[int(key)])
    assert fragment(browser) == {"view": "map", "head": "1", "row": "3", "key": "0"}


def test_the_map_is_zoomed_by_keys_and_a_link_keeps_it(page, browser):
    page(" ".join(f"w{i}" for i in range(40)), fragment="#view=map&row=10&key=20")
    browser.run("document.querySelector('[data-step=map] .figures .marks').focus()")
    browser.press("+", "right", "down")
    assert fragment(browser)["zoom"] == "5.25_25.25_10.25_30.25" and fragment(browser)["key"] == "21"
    picture = "return document.querySelector('[data-step=map] .base').toDataURL()"
    before = browser.run(picture)
    browser.open(browser.run("return location.href"))
    assert browser.run(picture) == before
    browser.run("document.querySelector('[data-step=map] .figures .marks').focus()")
    browser.press("0")
    assert "zoom" not in fragment(browser) and browser.run(picture) != before


def test_the_text_is_shaded_by_what_the_chosen_word_attends_to(page, browser):
    steps = page(FOX, "--causal", fragment="#view=text&row=4")
    browser.click('.w[data-index="5"]')
    shades = "return [...document.querySelectorAll('.w')].map((word) => [word.style.background, word.className])"
    shown = browser.run(shades)
    weights = steps["weights"]["values"][0][5]
    brightness = [sum(map(int, (background or "rgb(255, 255, 255)")[4:-1].split(", "))) for background, _ in shown[:6]]
    assert min(range(1, 6), key=lambda key: brightness[key]) == max(range(1, 6), key=lambda key: weights[key])
    assert ["is-masked" in name for _, name in shown] == [key > 5 for key in range(9)]
    browser.run("document.querySelector('.text').focus()")
    browser.press("right")
    assert fragment(browser)["row"] == "6"
    browser.click('button[data-value="received"]')
    assert browser.run(shades) != shown and fragment(browser)["shade"] == "received"


@pytest.mark.parametrize("view", ["steps", "text", "map"])
@pytest.mark.parametrize("arguments", [["one"], ["one two", "--against", "three"], ["a", "--against", "b c d"]])
def test_the_smallest_sentences_have_every_view(page, browser, arguments, view):
    page(*arguments, fragment="#view=" + view)
    assert browser.run("return document.querySelector('#view').children.length") > 0
    assert browser.run("return document.querySelector('button[aria-pressed=true]').dataset.value") == view
