"""What a reader sees: whether text is cut, numbers touch, room is left empty; at 1280 and 390 pixels, and on paper."""

import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from layered import layered_page
from page_support import Browser, WAIT_A_FRAME, needs_a_browser, page  # noqa: F401
from test_page_access import faults

pytestmark = needs_a_browser
WORDS = ["[CLS]", "a", "cat", ".", "the", "physician", "thought", "of", "a", "cat", "on", "the", "mat", "and", "he", "would",
         "help", "[SEP]"]
TITLE = "A cat thought of a physician on the mat, and he would help: " + "a long title that no line holds " * 4
# Records the texts that are drawn on canvases while `act` runs, as [text, left, right, y, canvas].
DRAWN = """
    const texts = [], kind = CanvasRenderingContext2D.prototype, draw = kind.fillText;
    const canvases = [];
    kind.fillText = function (text, x, y) {
      if (!canvases.includes(this.canvas)) canvases.push(this.canvas);
      const wide = this.measureText(text).width, place = this.getTransform();
      const left = place.e / (place.a || 1) + x - (this.textAlign === 'center' ? wide / 2 : this.textAlign === 'right' ? wide : 0);
      texts.push([text, left, left + wide, place.f / (place.d || 1) + y, canvases.indexOf(this.canvas)]);
      return draw.call(this, text, x, y);
    };
    const redrawn = async (act) => { texts.length = 0; act(); await new Promise((done) => setTimeout(done, 100)); return texts.slice(); };
    const press = (group, value) => document.querySelector(`[aria-label="${group}"] [data-value="${value}"]`).click();"""


@pytest.fixture(scope="module")
def browser():
    with Browser(width=1280, height=900, still=True) as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture
def at(browser, tmp_path):
    """at(WIDTH, FRAGMENT): opens page.html at this width."""

    def open_page(width, fragment):
        browser.resize(width, 900)
        browser.open((tmp_path / "page.html").as_uri() + fragment)
        browser.wait(WAIT_A_FRAME)

    yield open_page
    browser.resize(1280, 900)


@pytest.fixture
def many(heed, tmp_path):
    """A page of 6 layers of 12 heads on 18 tokens. Returns their weights."""
    return layered_page(heed, tmp_path, [[str(layer), 12] for layer in range(6)], 18, "--title", TITLE, causal=False, words=WORDS)


def boxes(browser, css):
    return browser.run("""return [...document.querySelectorAll(arguments[0])].filter((one) => one.offsetHeight).map((one) => {
        const box = one.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom]; })""", css)


def hide(browser):
    browser.run("document.querySelector('[aria-label=\"Special tokens\"] [data-value=\"false\"]').click()")
    browser.wait(WAIT_A_FRAME)


def test_special_tokens_can_be_hidden_in_every_view(many, browser, at):
    text = {"text": ".text", "lines": ".line-picture", "pair": ".line-picture"}
    for view, css in text.items():
        at(1280, f"#view={view}&head=3&row=4&key=5")
        assert "[CLS]" in browser.run("return document.querySelector(arguments[0]).textContent", css)
        hide(browser)
        told = browser.run("return document.querySelector(arguments[0]).textContent", css)
        assert "[CLS]" not in told and "[SEP]" not in told and "physician" in told, view
    at(1280, "#view=map&head=3&row=0&key=5")
    cells = "return document.querySelector('[data-step=map] .marks').dataset.cells.split(' ').map(Number)"
    left, _, wide, _ = browser.run(cells)
    hide(browser)
    hidden_left, _, hidden_wide, _ = browser.run(cells)
    assert round(18 * wide) == round(16 * hidden_wide) and left == hidden_left
    # The chosen row was hidden, so the next one is chosen; its list says what is hidden, and nothing is lost.
    assert browser.text(".panel h2").startswith("a₁")
    rows = browser.run("return [...document.querySelectorAll('.shares tr')].map((row) => [row.children[0].textContent, row.children[2].textContent])")
    shares = {name: float(share.replace("−", "-")) for name, share in rows}
    assert shares["hidden: [CLS] [SEP]"] == pytest.approx(many[3, 1, 0] + many[3, 1, 17], abs=2e-3)
    assert sum(shares.values()) == pytest.approx(1, abs=4e-3)
    # Arrow keys stay among the shown words; the field says why it cannot go to a hidden one.
    browser.run("document.querySelector('[data-step=map] .marks').focus()")
    browser.press("up")
    assert browser.text(".panel h2").startswith("a₁")
    browser.run("const field = document.querySelector('.goto'); field.value = '[SEP]'; field.nextElementSibling.click()")
    assert "hidden" in browser.text(".goto-said")


def test_many_heads_at_1280(many, browser, at):
    at(1280, "#view=map")
    # One line of title, all of it as a tooltip.
    (title,) = boxes(browser, "h1")
    assert title[3] - title[1] < 40 and browser.run("return document.querySelector('h1').title") == TITLE
    (card,), (gallery,), (grid,) = (boxes(browser, css) for css in ("[data-step=map]", ".chooser", ".figures .marks"))
    thumbs = boxes(browser, ".chooser .thumb")
    assert len(thumbs) == 72 and min(right - left for left, _, right, _ in thumbs) >= 24
    assert gallery[3] - gallery[1] <= 250 and card[1] - gallery[3] <= 30
    assert max(thumb[2] for thumb in thumbs) - gallery[0] > 0.85 * (gallery[2] - gallery[0])
    assert grid[2] - grid[0] > 0.85 * (card[2] - card[0])
    cell = browser.run("return Number(document.querySelector('[data-step=map] .marks').dataset.cells.split(' ')[2])")
    numbers = browser.wait(DRAWN + "return (await redrawn(() => press('Colours', 'cividis'))).filter(([text]) => /^−?0?[.][0-9]+$/.test(text))")
    assert cell >= 24 and len(numbers) > 100
    browser.run("document.querySelector('[aria-label=Colours] [data-value=blue]').click()")
    # A chip and a measure lead to their definitions, which stay while the pointer moves.
    for name, said in (("induction", "earlier copy"), ("entropy", "nats")):
        browser.run("""[...document.querySelectorAll('.panel button')].find((one) => one.textContent.startsWith(arguments[0])).click()""", name)
        browser.pointer((grid[0] + grid[2]) / 2, (grid[1] + grid[3]) / 2)
        browser.wait(WAIT_A_FRAME)
        assert said in browser.text(".panel .definition")
    assert not (found := faults(browser)), "\n".join(found)
    for view in ("lines", "pair"):
        at(1280, f"#view={view}")
        browser.click(".card header .defined")
        assert len(browser.text(".card .definition")) > 20, view


def test_the_chosen_of_many_heads_is_in_sight(heed, browser, at, tmp_path):
    layered_page(heed, tmp_path, [[str(layer), 9] for layer in range(20)], 12)
    for width in (1280, 390):
        at(width, "#view=map&head=157")
        ((_, top, _, bottom),), ((_, head_top, _, head_bottom),) = boxes(browser, ".chooser"), boxes(browser, '.head[aria-pressed="true"]')
        assert top <= head_top and head_bottom <= bottom, width


def test_layers_at_1280_and_390(many, browser, at):
    for width in (1280, 390):
        at(width, "#view=layers")
        cut = "return [...document.querySelectorAll(arguments[0])].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
        assert browser.run(cut, ".head-kind, .head-figure, .head-grid, .chips, .showing dl div") == []
        figures = browser.run("return [...document.querySelectorAll('.head-figure, .showing dd')].map((one) => one.textContent)")
        assert all(re.fullmatch(r"–|\d+\.\d\d\*?", figure) for figure in figures), figures
        assert max(right for _, _, right, _ in boxes(browser, ".head-card")) <= (870 if width == 1280 else 390)
        sizes = browser.run("""const size = (css) => parseFloat(getComputedStyle(document.querySelector(css) ?? document.body).fontSize);
            return [size('.showing p.soft'), size('.showing dl')]""")
        assert sizes[0] <= sizes[1] or not boxes(browser, ".showing p.soft")
    # No head is cut, neither at the edge of the phone nor by the end of a scrolled list.
    at(390, "#view=map")
    (gallery,) = boxes(browser, ".chooser")
    for left, top, right, bottom in boxes(browser, ".chooser .head"):
        assert 0 <= left and right <= 390 and (bottom <= gallery[3] + 1 or top >= gallery[3] - 1)
    assert browser.run("return document.documentElement.scrollWidth") == 390


def test_few_heads_on_a_phone_are_not_cut(page, browser):
    browser.resize(390, 844)
    page("the quick brown fox jumps over the lazy dog again", "--heads", "14", fragment="#view=map")
    assert all(0 <= left and right <= 390 for left, _, right, _ in boxes(browser, ".few .head"))
    assert "".join(browser.text(".few").split()) == "012345678910111213"
    assert all(0 <= left and right <= 390 for left, _, right, _ in boxes(browser, "[aria-label=View] button"))
    browser.resize(1280, 900)


def test_steps_stand_in_lines_and_fill_their_cards(page, browser):
    page("The animal didn't cross the street because it was too tired", "--heads", "4", "--causal", fragment="#view=steps")
    assert "_" not in browser.run("return [...document.querySelectorAll('.meaning')].map((one) => one.textContent).join()")
    for cards in range(4):
        inside = f".stage:nth-of-type({cards + 1}) .card "
        for part in ("header h3", ".shape", ".formula", ".meaning", ".legend", ".actions"):
            tops = {round(top) for _, top, _, _ in boxes(browser, inside + part)}
            assert len(tops) <= 1, (cards, part)
    figures = boxes(browser, ".figures.many figure")
    chosen = max(figures, key=lambda box: box[2] - box[0])
    rest = [box for box in figures if box != chosen]
    assert max(box[3] for box in rest) - min(box[1] for box in rest) == pytest.approx(chosen[3] - chosen[1], rel=0.2)
    # Numbers beside each other are apart.
    drawn = browser.wait(DRAWN + "return await redrawn(() => press('Colours', 'cividis'))")
    numbers = sorted((canvas, y, left, right) for text, left, right, y, canvas in drawn if re.fullmatch(r"−?\d*[.]\d+", text))
    assert len(numbers) > 200
    gaps = [b[2] - a[3] for a, b in zip(numbers, numbers[1:], strict=False) if a[:2] == b[:2]]
    assert min(gaps) >= 4, min(gaps)


def test_a_long_text_is_read_and_toured_without_cut_or_needless_numbers(heed, browser, at, tmp_path):
    layered_page(heed, tmp_path, [["0", 1]], 2050, words=["the", "physician", "sat", "on", "it"])
    at(1280, "#view=text")
    assert not re.search("[₀-₉]", browser.text(".text"))
    at(1280, "#view=map")
    stops = browser.wait(DRAWN + """
        const button = (text) => [...document.querySelectorAll('.tour button')].find((one) => one.textContent === text);
        const stops = [];
        for (let next = document.querySelector('.tour button'); next; next = button('Next')) {
          const drawn = await redrawn(() => next.click());
          stops.push([document.querySelector('.tour p').textContent, drawn, document.querySelector('[data-step=map] .marks').dataset.cells]);
        }
        return stops;""")
    assert len(stops) >= 3
    for said, drawn, cells in stops:
        assert not re.search(r"\bRow \S+ give |\bRows [\d,]+ give", said)
        left, top, wide, high = map(float, cells.split())
        assert not [text for text, *_ in drawn if re.search("[a-z]", text)], said  # bins have no words
        for text, begin, _, y, _ in drawn:
            assert y >= 6, (said, text, y)
            assert begin < left or y < top or not re.fullmatch(r"−?0?(\.0*)?", text), said  # zeros are blank


# Head 0 looks 500 back in two parts of the text; head 1 looks 500 and 560 back.
def test_a_tour_says_as_far_back_only_of_distances_that_its_bins_cannot_tell_apart(heed, browser, at, tmp_path):
    draw = np.random.default_rng(3)
    places = draw.standard_normal((2100, 32), dtype=np.float32)
    places *= 9 / np.linalg.norm(places, axis=1, keepdims=True)
    query = np.zeros((2, 2100, 32), np.float32)
    for head, second in enumerate((500, 560)):
        query[head, 700:800] = places[200:300]
        query[head, 1700:1780] = places[1700 - second:1780 - second]
    for name, tensor in (("q", query), ("k", np.stack([places, places])), ("v", query)):
        np.save(tmp_path / f"{name}.npy", tensor)
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal", "--html", "page.html")
    for head, alike in enumerate((True, False)):
        at(1280, f"#view=map&head={head}")
        said = browser.wait("""
            const button = (text) => [...document.querySelectorAll('.tour button')].find((one) => one.textContent === text);
            const said = [];
            for (let next = document.querySelector('.tour button'); next; next = button('Next')) {
              next.click();
              await new Promise((done) => setTimeout(done, 60));
              said.push(document.querySelector('.tour p').textContent);
            }
            return said;""")
        peaks = [text for text in said if "an even share" in text]
        assert len(peaks) >= 2, said
        assert ("about as far back as the first" in peaks[1]) == alike, (head, peaks)


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="the package poppler-utils is not installed")
def test_on_paper_no_map_is_cut_no_heading_alone_and_no_control_printed(many, browser, at, tmp_path):
    def printed(fragment):
        at(1280, fragment)
        browser.print(tmp_path / "page.pdf")
        text = subprocess.run(["pdftotext", "-layout", tmp_path / "page.pdf", "-"], check=True, capture_output=True, text=True).stdout
        return [re.sub(r"\s+", " ", one) for one in text.split("\f")[:-1]]

    pages = printed("#view=map&head=17&row=5")
    # The card's first and last lines are on one page, and so are the panel's.
    for first, last in (("18 × 18", "mean distance of each row"), ("row 5, layer 1, head 5", "This head")):
        (begin,) = [n for n, one in enumerate(pages) if first in one]
        assert last in pages[begin], first
    for fragment in ("#view=map", "#view=pair", "#view=lines", "#view=layers"):
        text = " ".join(printed(fragment))
        for control in ("Special tokens", "Colours", "minus", "swap", "Figure", "Order", "Add a head", "CSV"):
            assert control not in text, (fragment, control)


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="the package poppler-utils is not installed")
def test_pictures_have_a_size_to_look_at_and_legends_of_what_they_show(many, heed, tmp_path):
    heed("look", "doc.safetensors", "--png", "heads.png", "--title", "one title")
    size = struct.unpack(">II", (tmp_path / "heads.png").read_bytes()[16:24])
    assert 1500 < min(size) and max(size) <= 4000, size

    def text(command, *arguments):
        heed(command, *arguments)
        return subprocess.run(["pdftotext", tmp_path / arguments[-1], "-"], check=True, capture_output=True, text=True).stdout

    for command, option in (("look", "--png"), ("atlas", "--out")):
        told = text(command, "doc.safetensors", "--title", "one title", option, "full.pdf")
        assert "one title" in told and "masked" not in told
        assert "masked" in text(command, *(["--model", "induction", "the", "cat", "sat"]), option, "causal.pdf")
