"""The page on paper: printed to a PDF by Chromium, and read by pdftotext."""

import re
import shutil
import subprocess

import pytest

from layered import layered_page
from page_support import FOX, WAIT_A_FRAME, browser, needs_a_browser, page  # noqa: F401

pytestmark = [needs_a_browser, pytest.mark.skipif(not shutil.which("pdftotext"),
                                                  reason="the package poppler-utils is not installed")]


def printed(browser, path):
    """The text of each printed page. The view and its address must be the same before and after."""
    before = browser.run("return [location.hash, document.getElementById('view').innerHTML]")
    browser.print(path)
    browser.wait(WAIT_A_FRAME)
    assert browser.run("return [location.hash, document.getElementById('view').innerHTML]") == before
    text = subprocess.run(["pdftotext", "-layout", path, "-"], check=True, capture_output=True, text=True).stdout
    return text.split("\f")[:-1]


def boxes(browser, css):
    return browser.run("""return [...document.querySelectorAll(arguments[0])].map((node) => {
        const box = node.getBoundingClientRect();
        const from = document.body.getBoundingClientRect().left;
        return [box.left - from, box.right - from, node.clientWidth, node.scrollWidth, node.clientHeight, node.scrollHeight];
    })""", css)


def test_all_of_144_heads_are_printed(heed, browser, tmp_path):
    layered_page(heed, tmp_path, [[str(layer), 12] for layer in range(12)], 20)
    browser.open((tmp_path / "page.html").as_uri() + "#view=map&theme=dark")
    pages = printed(browser, tmp_path / "page.pdf")
    # Each has its name below its picture.
    names = re.findall(r"layer (\d+), head (\d+)", re.sub(r"\s+", " ", " ".join(pages)))
    assert sorted({(int(layer), int(head)) for layer, head in names}) == [(n // 12, n % 12) for n in range(144)]
    assert len(pages) < 8


def test_every_step_is_printed_and_none_is_cut(page, browser, tmp_path):
    page(FOX, "--heads", "4", "--causal", fragment="#view=steps")
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    for left, right, wide, content, high, long in boxes(browser, ".card, .figures, .panel, .strip, .grid"):
        assert left >= -4 and right <= 704 and content <= wide + 1 and long <= high + 1
    for left, right, *_ in boxes(browser, ".grid canvas"):
        assert left >= -4 and right <= 704
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    pages = printed(browser, tmp_path / "page.pdf")
    text = " ".join(pages)
    for title in ("embeddings", "queries", "keys", "values", "scores", "scaled", "masked", "weights", "context", "merged",
                  "output", "Softmax"):
        assert title in text
    for head in range(4):
        assert f"head {head}" in text
    # A card is not split between pages.
    for step, last in [("weights", "without the first key"), ("embeddings", "value")]:
        begin = next(i for i, one in enumerate(pages) if step in one)
        assert last in pages[begin], step


def test_curves_are_printed_whole(page, browser, tmp_path):
    page(" ".join(f"w{i}" for i in range(60)), fragment="#view=map")
    text = " ".join(printed(browser, tmp_path / "page.pdf"))
    for curve in ("received", "entropy", "largest weight", "mean distance"):
        assert curve in text
