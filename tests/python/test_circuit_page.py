"""The page of heed circuit --html, in a browser: nothing overlaps or is cut, and a head shows its lines alone."""

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
    page = browser.run("return [document.documentElement.scrollWidth, window.innerWidth]")
    assert page[0] <= page[1]  # wide drawings scroll in their box


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
