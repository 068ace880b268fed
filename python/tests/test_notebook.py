"""The report in a notebook: the contents of its cell in a real browser."""

import json
import time

import numpy as np
import pytest

import heed
from browser import Browser, available

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
HEADS, LENGTH = 3, 7


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture(scope="module")
def call():
    draw = np.random.default_rng(3)
    return [draw.standard_normal((HEADS, LENGTH, 8), dtype=np.float32) for _ in range(3)]


@pytest.fixture(scope="module")
def weights(call):
    q, k = (x.astype(np.float64) for x in call[:2])
    scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(8)) * np.tril(np.ones((LENGTH, LENGTH)))
    return scores / scores.sum(-1, keepdims=True)


@pytest.fixture
def cell(browser, call, tmp_path):
    """Opens a document with the report's cell, as a notebook has one, and enters the cell. Returns the browser."""
    report = heed.look(*call, tokens=list("abcdefg"), causal=True)
    page = tmp_path / "notebook.html"
    page.write_text("<!DOCTYPE html><title>notebook</title>" + report._repr_html_(), encoding="utf-8")
    browser.keep_downloads(tmp_path / "downloads")
    browser.open(page.as_uri())
    browser.enter("iframe")
    return browser


def press(browser, text):
    browser.run("""const button = [...document.querySelectorAll('button')].find((one) => one.textContent === arguments[0]);
                   button.id = 'pressed';
                   button.scrollIntoView({block: 'center'});""", text)
    browser.click("#pressed")
    browser.run("document.getElementById('pressed')?.removeAttribute('id')")


def downloaded(folder, ending):
    for _ in range(100):
        found = list(folder.glob("*" + ending))
        if found and not list(folder.glob("*.crdownload")):
            return found[0].read_bytes()
        time.sleep(0.1)
    raise AssertionError(f"nothing was saved that ends in {ending}")


def test_its_numbers_and_pictures_can_be_saved(cell, weights, tmp_path):
    folder = tmp_path / "downloads"
    press(cell, "JSON")
    values = np.array(json.loads(downloaded(folder, ".json"))["values"], np.float64)  # null becomes NaN
    below = np.tril(np.ones((LENGTH, LENGTH), bool))
    assert np.array_equal(np.isnan(values), ~below)
    assert np.allclose(values[below], weights[0][below], atol=2e-6)  # f32
    press(cell, "CSV")
    lines = downloaded(folder, ".csv").decode().split("\r\n")
    assert [line.split(",")[0] for line in lines[1:-1]] == [f'"{letter}"' for letter in "abcdefg"]
    assert np.allclose([float(cell) for cell in lines[LENGTH].split(",")[1:]], weights[0][-1], atol=2e-6)
    press(cell, "PNG")
    assert downloaded(folder, ".png").startswith(b"\x89PNG\r\n")


def test_what_is_chosen_is_shown(cell, weights):
    cell.click('button[data-head="2"]')
    cell.run("document.querySelector('[data-step=map] .marks').focus()")
    cell.press(*["up"] * LENGTH, *["down"] * 5)  # starts at the first row, wherever the page opened
    assert "row 5, head 2" in cell.text(".panel")
    shown = cell.run("return [...document.querySelectorAll('[data-top]')].map((one) => Number(one.dataset.top))")
    assert shown == np.argsort(-weights[2][5, :6], kind="stable").tolist()


def words_and(count):
    draw = np.random.default_rng(4)
    x = draw.standard_normal((2, count, 8), dtype=np.float32)
    return heed.look(x, x, x, tokens=["word"] * count, causal=True)


@pytest.mark.parametrize("room, left_out", [(None, ""), (41_000, "single weights"),
                                            (16_000, "the keys attended to most, the figures of each row")])
def test_whatever_a_cell_leaves_out_its_page_works(browser, tmp_path, monkeypatch, room, left_out):
    # Every page has scripts and styles; the rest is for words and numbers.
    most = 4_000_000 if room is None else len(words_and(1).page()) + room
    monkeypatch.setattr("heed._look.MOST_CELL_BYTES", most)
    shown = words_and(120)._repr_html_()
    # The limit is for the page. The attribute is longer, because quotes and ampersands are escaped, mostly in scripts.
    assert len(shown) <= 1.1 * most
    assert left_out in shown.rpartition("</iframe>")[2]
    page = tmp_path / "notebook.html"
    page.write_text("<!DOCTYPE html><title>notebook</title>" + shown, encoding="utf-8")
    browser.open(page.as_uri())
    browser.enter("iframe")
    browser.click('button[data-head="0"]')
    for view in ("text", "map"):
        browser.click(f'[aria-label="View"] button[data-value="{view}"]')
        assert "head 0" in browser.text(".panel")
    browser.click('button[data-head="1"]')
    assert "head 1" in browser.text(".panel")
    assert browser.run("return document.querySelectorAll('.curve').length") == (0 if room == 16_000 else 4)
