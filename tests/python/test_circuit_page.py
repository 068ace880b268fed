"""The page of heed circuit --html, in a browser and on paper: nothing overlaps or is cut, and a head shows its lines alone."""

import shutil
import subprocess

import pytest

from browser import Browser
from page_support import needs_a_browser
from test_page_access import faults

pytestmark = needs_a_browser
TEXTS = {"short": "to be or not to be or", "long": "the cat sat on the mat with a dog and a fox and the cat sat on the mat with a"}


@pytest.fixture(params=[(1280, False), (390, False), (1280, True)], ids=["wide", "narrow", "dark"])
def shown(request, heed, tmp_path):
    width, dark = request.param
    with Browser(width, 900, dark=dark) as browser:
        browser.resize(width, 900)
        browser.width = width

        def show(text):
            heed("circuit", "--model", "induction", text, "--html", tmp_path / "page.html")
            browser.open((tmp_path / "page.html").as_uri())
            return browser

        yield show


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_node_overlaps_another_or_cuts_its_text(shown, text):
    browser = shown(text)
    nodes = browser.run("""
        return [...document.querySelectorAll('[data-node]')].map((node) => {
          const box = (part) => { const { left, right, top, bottom } = part.getBoundingClientRect(); return [left, right, top, bottom]; };
          return [node.dataset.node, box(node.querySelector('rect')), box(node.querySelector('text'))]; });""")
    assert len(nodes) > 8
    for name, (left, right, top, bottom), text_box in nodes:
        assert left + 2 <= text_box[0] and text_box[1] <= right - 2, name
        for other, (left2, right2, top2, bottom2), _ in nodes:
            assert other == name or right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top, (name, other)
    assert browser.run("return document.documentElement.scrollWidth") <= browser.width  # wide drawings scroll in their box


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_it_opens_with_the_logit_in_sight(shown, text):
    left, right, begin, end = shown(text).run("""
        const { left, right } = document.querySelector('[data-node^=logit]').getBoundingClientRect();
        const box = document.querySelector('.scroll').getBoundingClientRect();
        return [left, right, box.left, box.right];""")
    assert begin <= left and right <= end


def test_axe_finds_no_fault(shown):
    assert not (found := faults(shown(TEXTS["short"]))), "\n".join(found)


def test_a_head_shows_its_lines_alone(shown):
    browser = shown(TEXTS["short"])
    lines = """document.querySelector('[data-node="0.3@3"]').dispatchEvent(new PointerEvent('pointerenter'));
        return [...document.querySelectorAll('path')].map((line) =>
          [line.dataset.from, line.dataset.to, line.classList.contains('on')])"""
    found = browser.run(lines)
    assert any(on for _, _, on in found) and not all(on for _, _, on in found)
    for start, end, on in found:
        assert on == ("0.3@3" in (start, end))
    assert browser.run("return document.querySelector('svg').classList.contains('chosen')")


def chosen(browser):
    """The node whose lines are shown, as its lines tell."""
    return browser.run("""const node = document.activeElement.dataset?.node;
        const on = [...document.querySelectorAll('path.on')];
        return document.querySelector('svg').classList.contains('chosen') && on.length &&
          on.every((line) => line.dataset.from === node || line.dataset.to === node) ? node : null""")


def test_the_keyboard_reaches_every_head(shown):
    browser = shown(TEXTS["short"])
    nodes = browser.run("return [...document.querySelectorAll('[data-node]')].map((node) => node.dataset.node)")
    reached = set()
    for _ in range(len(nodes) + 2):
        browser.press("tab")
        reached.add(chosen(browser))
    assert "0.3@3" in reached and reached >= {node for node in nodes if node[0] in "01"}
    browser.run("document.activeElement.blur()")
    assert browser.run("return document.querySelector('svg').classList.contains('chosen')") is False


ADDRESS = "https://www.example.org/a/rather/long/path/to/page.html"


@pytest.mark.parametrize("text", [f"see {ADDRESS} for more see {ADDRESS}", 3 * ("x" * 120 + " y ")], ids=["address", "letters"])
def test_long_words_widen_nothing(shown, text):
    browser = shown(text)
    assert browser.run("return document.documentElement.scrollWidth") <= browser.width


def test_a_read_takes_few_lines(shown):
    heights = shown(TEXTS["short"]).run("return [...document.querySelectorAll('td:last-child')].map((cell) => cell.offsetHeight)")
    assert max(heights) < 60  # two lines


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="poppler-utils is not installed")
def test_all_of_it_is_printed(shown, tmp_path):
    browser = shown(TEXTS["long"])
    labels = browser.run("return [...document.querySelectorAll('svg text')].map((text) => text.textContent)")
    browser.print(tmp_path / "page.pdf")
    boxes = subprocess.run(["pdftotext", "-bbox", tmp_path / "page.pdf", "-"], capture_output=True, text=True, check=True).stdout
    words = [word for label in labels for word in label.split()]
    printed = [line.split(">")[1].split("<")[0] for line in boxes.splitlines() if "<word" in line]
    assert not [word for word in set(words) if printed.count(word) < words.count(word)]
    right = [float(line.split('xMax="')[1].split('"')[0]) for line in boxes.splitlines() if "<word" in line]
    assert max(right) < 595  # A4 in points
