"""The picture on a page of `heed look --picture`, in a real browser, with the weights in f64 with NumPy."""

import struct
import zlib

import numpy as np
import pytest

from browser import Browser, available

needs_a_browser = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
ROWS, COLUMNS, FIRST, LENGTH = 4, 6, 2, 27  # two tokens before the picture and one after it


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser
        assert browser.errors() == []


def png(width, height):
    """A PNG file of a grey slope."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    lines = b"".join(b"\0" + bytes((x + y) % 256 for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


@pytest.fixture
def look(heed, tmp_path):
    """look(OPTION, …): writes the page of two random heads over a picture; the weights, [2, L, L], and the command's
    answer."""
    def run(*options, code=0):
        draw = np.random.default_rng(5)
        query, key = (draw.standard_normal((2, LENGTH, 8), dtype=np.float32) * 2 for _ in range(2))
        for name, tensor in (("q", query), ("k", key), ("v", key)):
            np.save(tmp_path / f"{name}.npy", tensor)
        (tmp_path / "words.txt").write_text("".join(f"w{i}\n" for i in range(LENGTH)))
        (tmp_path / "slope.png").write_bytes(png(120, 80))
        answer = heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--tokens", "words.txt", "--html",
                      "page.html", *options, code=code)
        scores = np.exp(query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2) / np.sqrt(8))
        return scores / scores.sum(-1, keepdims=True), answer

    return run


GIVEN = ("--picture", "slope.png", "--grid", f"{ROWS}x{COLUMNS}", "--first-patch", str(FIRST))
SETTLED = "await new Promise((done) => setTimeout(done, 120))"


def open_page(browser, folder, fragment=""):
    browser.open((folder / "page.html").as_uri() + fragment)
    browser.wait(SETTLED)


def patch(browser, row, column):
    """The middle of a patch in the window."""
    x, y, wide, high = browser.run("""const box = document.querySelector('.picture .marks').getBoundingClientRect();
        return [box.left, box.top, box.width, box.height]""")
    return x + (column + 0.5) * wide / COLUMNS, y + (row + 0.5) * high / ROWS


def alphas(browser):
    """The opacity of the heat map over each patch."""
    return browser.run("""const heat = document.querySelectorAll('.picture canvas')[0];
        const pen = heat.getContext('2d');
        const [rows, columns] = arguments;
        return Array.from({length: rows * columns}, (_, n) => pen.getImageData(
          Math.floor((n % columns + 0.5) * heat.width / columns), Math.floor((Math.floor(n / columns) + 0.5) * heat.height / rows),
          1, 1).data[3])""", ROWS, COLUMNS)


@needs_a_browser
def test_a_page_opens_on_its_picture_with_the_weights_of_the_row(look, browser, tmp_path):
    weights, _ = look(*GIVEN)
    open_page(browser, tmp_path, "#head=1&row=0")
    assert browser.run("return document.querySelector('.picture img').naturalWidth") == 120
    patches = weights[1, 0, FIRST:FIRST + ROWS * COLUMNS]
    drawn = np.array(alphas(browser))
    assert (np.argsort(drawn, kind="stable")[-3:] == np.argsort(patches, kind="stable")[-3:]).all()
    assert np.corrcoef(drawn, patches)[0, 1] > 0.999
    browser.pointer(*patch(browser, 2, 3))
    browser.wait(SETTLED)
    name, weight = browser.text(".tip").split(": ")
    assert name == "patch 2, 3" and abs(float(weight) - weights[1, 0, FIRST + 2 * COLUMNS + 3]) < 1e-4


@needs_a_browser
def test_a_click_chooses_the_patch_as_row_and_words_choose_other_rows(look, browser, tmp_path):
    weights, _ = look(*GIVEN)
    open_page(browser, tmp_path, "#head=0&row=0")
    browser.pointer(*patch(browser, 1, 4), click=True)
    browser.wait(SETTLED)
    row = FIRST + COLUMNS + 4
    assert f"row={row}" in browser.run("return location.hash")
    assert np.corrcoef(alphas(browser), weights[0, row, FIRST:FIRST + ROWS * COLUMNS])[0, 1] > 0.999
    browser.click(".text .w[data-index='26']")
    browser.wait(SETTLED)
    assert "row=26" in browser.run("return location.hash")
    assert browser.run("return document.querySelectorAll('.text .w').length") == LENGTH - ROWS * COLUMNS
    browser.click("button[data-value=received]")
    browser.wait(SETTLED)
    assert np.corrcoef(alphas(browser), weights[0].sum(0)[FIRST:FIRST + ROWS * COLUMNS])[0, 1] > 0.999


@needs_a_browser
def test_the_picture_fits_a_phone(look, browser, tmp_path):
    look(*GIVEN)
    browser.resize(390, 844)
    try:
        open_page(browser, tmp_path, "#theme=dark")
        left, right, wide = browser.run("""const box = document.querySelector('.picture').getBoundingClientRect();
            return [box.left, box.right, document.documentElement.scrollWidth]""")
        assert 0 <= left and right <= 390 and wide <= 390 and right - left > 250
    finally:
        browser.resize(1280, 900)


@pytest.mark.parametrize("options, message", [
    (("--picture", "words.txt", "--grid", "4x6"), "the picture is neither PNG nor JPEG; one of the two is expected"),
    (("--picture", "slope.png", "--grid", "4x7"), "the picture has 4 x 7 patches from token 0 on, but there are 27 keys"),
    (("--picture", "slope.png"), "--picture is given without --grid ROWSxCOLUMNS, its patches"),
    (("--grid", "4x6"), "--grid is given without --picture FILE, whose patches it counts")])
def test_what_is_no_picture_is_refused(look, options, message):
    _, answer = look(*options, code=None)
    assert answer.returncode != 0 and message in answer.stderr
