"""Differences of two heads on the page: of one document, and of two documents side by side."""

import json

import numpy as np
import pytest

from page_support import browser, needs_a_browser  # noqa: F401

pytestmark = needs_a_browser
ONE, OTHER = "to be or not to be or not", "to be or not to go or not"
DIGITS = 5.1e-4  # the page holds weights in 16 bits, exact to three digits


@pytest.fixture
def saved(heed, browser):
    """saved(NAME, TEXT): saves a document. Returns the weights of all heads, [8, L, L]. Afterwards the console must be
    clean."""

    def run(name, text):
        heed("look", "--model", "induction", text, "--save", name)
        told = json.loads(heed("look", name, "--tile", "0:8,0:8", "--json").stdout)
        tiles = told["tile"] if "tile" in told else told
        return np.array([[[np.nan if weight is None else weight for weight in row] for row in head]
                         for head in tiles["weights"][0]], dtype=float)

    yield run
    assert browser.errors() == []


def shown(browser):
    """The cells that the table of the map shows; masked ones are NaN."""
    browser.run("[...document.querySelectorAll('.card footer button')].find((one) => one.textContent === 'Table').click()")
    cells = browser.run("""return [...document.querySelectorAll('[data-step=map] table tbody tr')].map((row) =>
        [...row.querySelectorAll('td')].map((cell) => cell.textContent))""")
    return np.array([[np.nan if cell == "masked" else float(cell.replace("−", "-")) for cell in row] for row in cells])


def chosen(browser):
    return browser.text("[data-step=map] h2"), browser.run("return document.querySelector('select[aria-label=minus]').value")


def near(ours, theirs):
    mask = np.triu(np.ones(ours.shape, bool), 1)
    assert np.isnan(ours[mask]).all() and not np.isnan(ours[~mask]).any()
    return np.abs(ours - theirs)[~mask].max() < 2 * DIGITS


def test_a_head_less_another_of_its_document(saved, heed, browser, tmp_path):
    weights = saved("a.safetensors", ONE)
    heed("look", "a.safetensors", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=map&head=6")
    assert chosen(browser) == ("layer 1, head 2", "none")
    browser.run("""const select = document.querySelector('select[aria-label=minus]');
        select.value = '4';
        select.dispatchEvent(new Event('change'));""")
    assert chosen(browser) == ("layer 1, head 2 − layer 1, head 0", "4")
    assert "minus=4" in browser.run("return location.hash")
    assert near(shown(browser), weights[6] - weights[4])
    legend = browser.text(".map-tools .legend")
    assert "difference of shares" in legend and legend.startswith("−")


def test_documents_beside_each_other_open_where_they_differ_most(saved, heed, browser, tmp_path):
    one, other = saved("a.safetensors", ONE), saved("b.safetensors", OTHER)
    heed("look", "a.safetensors", "--beside", "b.safetensors", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri())
    difference = one - other
    head, row, key = np.unravel_index(np.nanargmax(np.abs(np.tril(difference))), difference.shape)
    layer, within = divmod(int(head), 4)
    assert chosen(browser) == (f"a {layer}, head {within} − b {layer}, head {within}", "same")
    assert near(shown(browser), difference[head])
    assert float(browser.text("output[data-result=weight]")) == pytest.approx(one[head, row, key], abs=DIGITS)
    browser.run("document.querySelector('button[data-head=\"9\"]').click()")  # of b: less the same head of a
    assert chosen(browser)[0] == "b 0, head 1 − a 0, head 1"
    assert near(shown(browser), other[1] - one[1])


def test_tells_all_three_numbers(saved, heed, browser, tmp_path):
    weights = saved("a.safetensors", ONE)
    heed("look", "a.safetensors", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=map&head=5&minus=7&row=3&key=0")
    browser.run("document.querySelector('[data-step=map] .marks').focus()")
    browser.run("""document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}))""")
    told = browser.wait("await new Promise((done) => setTimeout(done, 400)); return document.getElementById('told').textContent")
    first, rest = told.split(": ")[1].split(" − ")
    second, difference = rest.split(" = ")
    values = [float(one.replace("−", "-")) for one in (first, second, difference.split()[0])]
    expected = [weights[5][3][1], weights[7][3][1], weights[5][3][1] - weights[7][3][1]]
    assert values == pytest.approx(expected, abs=2 * DIGITS)


def test_what_is_printed_is_the_first_documents(saved, heed):
    saved("a.safetensors", ONE), saved("b.safetensors", OTHER)
    alone = json.loads(heed("look", "a.safetensors", "--json").stdout)
    beside = json.loads(heed("look", "a.safetensors", "--beside", "b.safetensors", "--html", "page.html", "--json").stdout)
    assert beside["summary"] == alone["summary"]


def test_the_document_beside_is_never_overwritten(saved, heed):
    saved("a.safetensors", ONE), saved("b.safetensors", OTHER)
    told = heed("look", "a.safetensors", "--beside", "b.safetensors", "--save", "b.safetensors", "--html", "page.html", code=2)
    assert "--save 'b.safetensors' is the file that --beside is read from; an input is never overwritten" in told.stderr


def test_other_sizes_are_refused(saved, heed):
    saved("a.safetensors", ONE)
    heed("look", "--model", "induction", "to be or", "--save", "short.safetensors")
    told = heed("look", "a.safetensors", "--beside", "short.safetensors", "--html", "page.html", code=2).stderr
    assert "--beside is 'short.safetensors', which has 3 rows; 8, as the first document has, are expected" in told
