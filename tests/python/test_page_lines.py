"""Weights as lines between words in a real browser, compared with the weights in f64 with NumPy."""

import base64
import itertools
import re
import xml.etree.ElementTree
import zlib

import numpy as np
import pytest

from browser import Browser, available
from layered import WORDS, layered_page

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
LEAST = 0.01  # smaller weights are not drawn
LAYERS = [["0", 4], ["1", 4]]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture
def lines(heed, browser, tmp_path):
    """lines(LENGTH, FRAGMENT, …): opens the line view of a page of 2 x 4 heads. Returns their weights."""

    def run(length, fragment="", on=browser, **more):
        weights = layered_page(heed, tmp_path, LAYERS, length, **more)
        on.open((tmp_path / "page.html").as_uri() + "#view=lines" + fragment)
        return weights

    return run


def frame(browser):
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def drawn(browser, group="all"):
    """The lines of a group as {(head, row, key): width}; empty if it is hidden."""
    found = browser.run("""
        const group = document.querySelector('.line-' + arguments[0]);
        return group.getAttribute('display') === 'none' ? [] : [...group.querySelectorAll('path')].map((line) =>
          [line.dataset.head, line.dataset.row, line.dataset.key, line.getAttribute('stroke-width')].map(Number));""", group)
    return {(head, row, key): width for head, row, key, width in found}


def expected(weights, heads, rows, keys, first=True):
    return {(head, row, key): weights[head, row, key] for head in heads for row in rows for key in keys
            if weights[head, row, key] >= LEAST and (first or key > 0)}


def assert_lines(shown, wanted):
    assert shown.keys() == wanted.keys()
    order = sorted(shown, key=wanted.get)
    assert [shown[line] for line in order] == sorted(shown.values())  # heavier lines are wider,
    for lighter, heavier in zip(order, order[1:]):  # by 8 pixels for a weight of 1, rounded to 0.01
        assert abs(shown[heavier] - shown[lighter] - 8 * (wanted[heavier] - wanted[lighter])) <= 0.011


def box(browser, side, place):
    return browser.run("""
        const box = document.querySelector(`.line-word[data-side=${arguments[0]}][data-place="${arguments[1]}"] text`)
            .getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];""", side, place)


def numbers(browser):
    return [float(text) for text in browser.run(
        "return [...document.querySelectorAll('.line-number')].map((number) => number.textContent)")]


def fragment(browser):
    return dict(part.split("=") for part in browser.run("return location.hash.slice(1)").split("&") if part)


def test_every_weight_from_0_01_on_is_a_line(lines, browser):
    weights = lines(10, "&head=6", causal=False)
    assert_lines(drawn(browser), expected(weights, [6], range(10), range(10)))
    assert browser.text(".line-heads") .startswith("layer 1, head 2")
    words = browser.run("return [...document.querySelectorAll('.line-word[data-side=key] text')].map((one) => one.textContent)")
    assert words == ["the₁", *WORDS[1:5], "the₂", *WORDS[6:]]
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'left out').click()")
    assert_lines(drawn(browser), expected(weights, [6], range(10), range(10), first=False))
    assert fragment(browser)["sink"] == "0"


@pytest.mark.parametrize("first", [True, False])
def test_the_strongest_lines_are_those_drawn_widest(lines, browser, first):
    weights = lines(10, f"&head=4&sink={int(first)}", causal=False)
    wanted = expected(weights, [4], range(10), range(10), first)
    label = {place: word for place, word in enumerate(["the₁", *WORDS[1:5], "the₂", *WORDS[6:]])}
    heaviest = sorted(wanted, key=wanted.get, reverse=True)[:8]
    assert any(row == key for _, row, key in heaviest)
    assert not first or any(key == 0 for _, _, key in heaviest)
    assert browser.run("return [...document.querySelectorAll('.panel .line-pair')].map((one) => one.textContent)") == [
        f"{label[row]} → {label[key]}" for _, row, key in heaviest]
    shown = browser.run("return [...document.querySelectorAll('.panel td:nth-child(2)')].map((one) => Number(one.textContent))")
    np.testing.assert_allclose(shown, [wanted[line] for line in heaviest], atol=6e-5)
    assert max(drawn(browser), key=drawn(browser).get) == heaviest[0]


def test_lines_to_the_first_key_are_left_out_where_heads_rest_on_it(heed, browser, tmp_path):
    query, key = np.ones((2, 12, 4), np.float32), np.zeros((2, 12, 4), np.float32)
    key[:, 0], key[0, 6] = 2, 1.5
    for name, tensor in (("q", query), ("k", key), ("v", key)):
        np.save(tmp_path / f"{name}.npy", tensor)
    (tmp_path / "words.txt").write_text("".join(f"w{n}\n" for n in range(12)))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--tokens", "words.txt", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=lines&head=0")
    keys = {key for _, _, key in drawn(browser)}
    assert 0 not in keys and 6 in keys
    browser.open((tmp_path / "page.html").as_uri() + "#view=lines&head=0&sink=1")
    assert {key for _, _, key in drawn(browser)} >= keys | {0}


@pytest.mark.parametrize("side", ["row", "key"])
def test_a_word_under_the_pointer_shows_only_its_lines_and_their_weights(lines, browser, side):
    weights = lines(10, "&head=3")
    browser.pointer(*box(browser, side, 6))
    frame(browser)
    rows, keys = ([6], range(10)) if side == "row" else (range(10), [6])
    assert drawn(browser) == {}
    assert_lines(drawn(browser, "shown"), expected(weights, [3], rows, keys))
    told = weights[3, 6] if side == "row" else weights[3, :, 6]
    np.testing.assert_allclose(numbers(browser), told[told >= 0.0005], atol=6e-4)
    listed = browser.run("return [...document.querySelectorAll('.panel [data-weight]')].map((cell) => Number(cell.dataset.weight))")
    assert listed == [int(place) for place in np.argsort(-told, kind="stable") if told[place] > 0]
    browser.pointer(2, 2)
    frame(browser)
    assert_lines(drawn(browser), expected(weights, [3], range(10), range(10)))


def test_a_click_keeps_a_word_and_a_second_click_lets_it_go(lines, browser):
    weights = lines(10, "&head=3")
    browser.pointer(*box(browser, "row", 6), click=True)
    browser.pointer(2, 2)
    frame(browser)
    assert_lines(drawn(browser, "shown"), expected(weights, [3], [6], range(10)))
    assert fragment(browser).items() >= {"view": "lines", "row": "6", "pin": "row"}.items()
    browser.run("location.reload()")
    assert_lines(drawn(browser, "shown"), expected(weights, [3], [6], range(10)))
    browser.pointer(*box(browser, "row", 6), click=True)
    browser.pointer(2, 2)
    frame(browser)
    assert len(drawn(browser)) == len(expected(weights, [3], range(10), range(10)))


def test_several_heads_have_colours_and_names(lines, browser):
    weights = lines(10, "&head=3")
    for head in (6, 1):
        browser.run("""const select = document.querySelector('select[aria-label="Add a head"]');
            select.value = arguments[0]; select.dispatchEvent(new Event('change'));""", head)
    assert_lines(drawn(browser), expected(weights, [3, 6, 1], range(10), range(10)))
    assert fragment(browser)["with"] == "6%2C1"
    named = browser.run("return [...document.querySelectorAll('.line-heads li')].map((one) => one.innerText.split('\\n')[0])")
    assert named == ["layer 0, head 3", "layer 1, head 2", "layer 0, head 1"]
    colours = browser.run("""return ['.line-heads i', '.line-all path'].map((css) => [...new Set([...document.querySelectorAll(css)]
        .map((one) => getComputedStyle(one)[css.endsWith('i') ? 'backgroundColor' : 'stroke']))])""")
    assert colours[0] == colours[1] and len(colours[0]) == 3
    browser.pointer(*box(browser, "row", 6))
    frame(browser)
    assert_lines(drawn(browser, "shown"), expected(weights, [3, 6, 1], [6], range(10)))
    browser.click("[aria-label='Remove layer 0, head 3']")
    assert fragment(browser)["head"] == "6" and fragment(browser)["with"] == "1"


# Machado, Oliveira & Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009):
# linear RGB as seen by people who lack one kind of cones.
VISIONS = [np.eye(3),
           [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
           [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
           [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]]


def lab(colour):
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(colour, 0, 1)
    x, y, z = np.cbrt(np.maximum(xyz / [0.9505, 1, 1.089], 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everybody_can_tell_the_colours_of_heads(lines, browser, theme):
    lines(10, "&theme=" + theme)
    told = browser.run("""return ['surface', 'head-0', 'head-1', 'head-2', 'head-3', 'head-4'].map((name) =>
        getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim())""")
    linear = []
    for colour in told:
        share = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
        linear.append(np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4))
    light = [0.05 + colour @ [0.2126, 0.7152, 0.0722] for colour in linear]
    assert all(max(one, light[0]) / min(one, light[0]) >= 4.5 for one in light[1:])
    for vision in VISIONS:
        seen = [lab(np.array(vision) @ colour) for colour in linear[1:]]
        assert all(np.linalg.norm(a - b) > 20 for a, b in itertools.combinations(seen, 2))  # 2.3 is just noticeable


def test_a_long_text_is_shown_around_the_chosen_word(lines, browser):
    weights = lines(200, "&head=2&row=100&pin=row", words=[f"w{i}" for i in range(200)])
    places = [int(place) for place in browser.run(
        "return [...document.querySelectorAll('.line-word[data-side=row]')].map((word) => word.dataset.place)")]
    assert len(places) == 60 and places[0] + 10 < 100 < places[-1] - 10
    assert_lines(drawn(browser, "shown"), expected(weights, [2], [100], places))
    assert f"Words {places[0]} to {places[-1]} of 200" in browser.text(".line-where")
    browser.click("[aria-label='Words: later']")
    assert browser.run("return Number(document.querySelector('.line-word').dataset.place)") > places[0]


def test_a_text_whose_weights_are_not_on_the_page_says_so(lines, browser):
    weights = lines(2100, "&head=2&row=1500&pin=row")
    assert "The page holds the 5 keys that each word attends to most" in browser.text(".card")
    top = np.argsort(-weights[2, 1500], kind="stable")[:5]
    shown = browser.run("return [...document.querySelectorAll('.panel [data-weight]')].map((cell) => Number(cell.dataset.weight))")
    assert shown == list(top)
    assert_lines(drawn(browser, "shown"), expected(weights, [2], [1500], [key for key in top if 1470 <= key < 1530]))


def test_keys_move_among_words_and_keep_one(lines, browser):
    weights = lines(10, "&head=3")
    stops = browser.run("return document.querySelectorAll('.line-word[tabindex=\"0\"]').length")
    assert stops == 1
    browser.run("document.querySelector('.line-word[tabindex=\"0\"]').focus()")
    browser.press("down", "down", "right", "down")
    frame(browser)
    assert browser.run("return document.activeElement.getAttribute('aria-label')") == "key 3: <b>sat</b>"
    assert_lines(drawn(browser, "shown"), expected(weights, [3], range(10), [3]))
    browser.press("enter")
    assert fragment(browser)["pin"] == "key" and fragment(browser)["key"] == "3"
    assert browser.run("return document.activeElement.getAttribute('aria-pressed')") == "true"
    browser.wait("await new Promise((done) => setTimeout(done, 250))")
    assert browser.text("#told").startswith(("the", "on", "<b>", "mat", "it", "=1", "liked"))


def test_a_phone_shows_them_whole_and_a_touch_keeps_a_word(lines, heed, tmp_path):
    with Browser(width=390, height=844) as phone:
        phone.post("/chromium/send_command", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}})
        weights = lines(10, "&head=3&with=6", on=phone)
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        phone.run("document.querySelector('.line-picture').scrollIntoView({block: 'start'})")
        left, right, tall = phone.run("""const box = document.querySelector('.line-picture').getBoundingClientRect();
            const word = document.querySelector('.line-word rect').getBoundingClientRect();
            return [box.left, box.right, word.height];""")
        assert left >= 0 and right <= 390 and tall >= 24
        x, y = box(phone, "row", 2)
        phone.post("/actions", {"actions": [{"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": [
            {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}, {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0}]}]})
        frame(phone)
        assert_lines(drawn(phone, "shown"), expected(weights, [3, 6], [2], range(10)))
        assert phone.errors() == []


def saved(browser, button):
    """The file that a click on the button saves: [its name, its bytes]."""
    name, text = browser.wait("""
        let blob;
        const named = new Promise((done) => { HTMLAnchorElement.prototype.click = function () { done(this.download); }; });
        URL.createObjectURL = ((make) => (given) => { blob = given; return make.call(URL, given); })(URL.createObjectURL);
        [...document.querySelectorAll('.actions button')].find((one) => one.textContent === arguments[0]).click();
        const name = await named;
        const bytes = new Uint8Array(await blob.arrayBuffer());
        return [name, btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))];""", button)
    return name, base64.b64decode(text)


def test_the_picture_is_saved_as_svg_and_png(lines, browser):
    weights = lines(10, "&head=3&row=6&pin=row")
    name, content = saved(browser, "SVG")
    assert name == "lines of 0.3.svg"
    picture = xml.etree.ElementTree.fromstring(content)
    paths = {(int(line.get("data-row")), int(line.get("data-key"))) for line in picture.iter(SVG + "path")}
    assert paths == {(row, key) for _, row, key in expected(weights, [3], [6], range(10))}
    assert "<b>sat</b>" in [text.text for text in picture.iter(SVG + "text")]
    assert b"var(" not in content and b"tabindex" not in content
    name, content = saved(browser, "PNG")
    assert name == "lines of 0.3.png" and content.startswith(b"\x89PNG")
    name, content = saved(browser, "CSV")
    rows = content.decode().strip().split("\r\n")
    told = [float(cell or 0) for cell in rows[7].split(",")[1:]]
    np.testing.assert_allclose(told, weights[3, 6], atol=1e-5)


def test_lines_are_printed_as_lines(lines, browser):
    weights = lines(10, "&head=3")
    pdf = base64.b64decode(browser.post("/print", {}))
    curves = 0
    for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
        try:
            content = zlib.decompressobj().decompress(stream)
        except zlib.error:
            continue
        curves += len(re.findall(rb"^(?:[-\d.]+ ){6}c$\s+S$", content, re.MULTILINE))
    assert curves == len(expected(weights, [3], range(10), range(10)))


def test_only_controls_that_act_are_shown(lines, browser):
    lines(8)
    hidden = lambda: browser.run("return ['Colours', 'Scaled', 'Scale'].map((name) => document.querySelector(`[aria-label=${name}]`).hidden)")
    assert hidden() == [True, True, True]
    browser.click('[aria-label="View"] button[data-value="map"]')
    assert hidden() == [False, False, False]


def test_the_table_says_masked_and_leaves_out_what_the_page_lacks(lines, browser):
    weights = lines(2100, "&head=2&row=1500&pin=row")
    places = [int(place) for place in browser.run(
        "return [...document.querySelectorAll('.line-word[data-side=row]')].map((word) => word.dataset.place)")]
    browser.run("[...document.querySelectorAll('.actions button')].find((one) => one.textContent === 'Table').click()")
    cells = browser.run("""return [...document.querySelectorAll('.numbers tbody tr')].map((line) =>
        [...line.querySelectorAll('td')].map((cell) => cell.textContent))""")
    assert len(cells) == len(places) and {len(line) for line in cells} == {len(places)}
    held = 0
    for row, line in zip(places, cells):
        top = set(np.argsort(-weights[2, row], kind="stable")[:5])
        for key, text in zip(places, line):
            if key > row or key not in top:
                assert text == ("masked" if key > row else ""), (row, key)
            else:
                assert float(text) == pytest.approx(weights[2, row, key], abs=6e-5)
                held += 1
    assert held
    assert b"NaN" not in saved(browser, "CSV")[1]


HEBREW = ["שלום", "עולם", "טוב", "יום", "לילה", "ספר"]


def sides(browser, css):
    """The left edges of what stands before and after the arrow in an element's text, and that of the arrow."""
    return browser.run("""
        const host = document.querySelector(arguments[0]);
        const nodes = [];
        for (const walk = document.createTreeWalker(host, NodeFilter.SHOW_TEXT); walk.nextNode();)
          nodes.push(...[...walk.currentNode.data].map((letter, at) => [walk.currentNode, at, letter]));
        const left = ([node, at]) => {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + 1);
          return range.getBoundingClientRect().left;
        };
        const arrow = nodes.findIndex(([, , letter]) => letter === '→');
        const letter = (some) => some.find(([, , one]) => /\\p{L}/u.test(one));
        return [left(letter(nodes.slice(0, arrow))), left(nodes[arrow]), left(letter(nodes.slice(arrow)))];""", css)


@pytest.mark.parametrize("view, css", [("lines", ".panel .line-pair"), ("pair", ".pair-way h2")])
def test_right_to_left_words_do_not_turn_the_arrow(lines, browser, view, css):
    lines(6, "&head=2&row=4&key=1&view=" + view, words=HEBREW)
    before, arrow, after = sides(browser, css)
    assert before < arrow < after


def test_a_tooltip_of_right_to_left_words_keeps_their_order(lines, browser):
    for words, told in ((HEBREW, "\u2068לילה\u2069 → \u2068עולם\u2069: "), (WORDS, "on → cat: ")):
        lines(6, "&head=2&view=map", words=words)
        browser.pointer(*browser.run("""
            const canvas = document.querySelector('[data-step=map] .marks');
            const [left, top, width, height] = canvas.dataset.cells.split(' ').map(Number);
            const box = canvas.getBoundingClientRect();
            return [box.x + left + 1.5 * width, box.y + top + 4.5 * height];"""))
        frame(browser)
        assert browser.text(".tip").startswith(told)


def test_a_table_cuts_long_words_in_its_heads(lines, browser):
    long = "https://example.org/" + 300 * "x"
    lines(6, "&head=2", words=["the", long, "cat", "sat", "on", "mat"])
    browser.run("[...document.querySelectorAll('.actions button')].find((one) => one.textContent === 'Table').click()")
    widths = browser.run("return [...document.querySelectorAll('.numbers th')].map((head) => head.getBoundingClientRect().width)")
    assert max(widths) < 260
    assert browser.run("return [...document.querySelectorAll('.numbers thead th')].map((head) => head.title)")[2] == long
