"""Colours and numbers of the page's pictures."""

import pytest

from page_support import FOX, browser, canvas, cell, colour, css_colour, needs_a_browser, page  # noqa: F401

pytestmark = needs_a_browser


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_weights_run_from_the_ground_to_ink_and_masked_cells_are_no_zeros(page, browser, theme):
    steps = page(FOX, "--causal", fragment="#theme=" + theme)
    weights = steps["weights"]["values"][0]
    # The first row has one key with weight 1. The scale covers the other rows, without their first keys.
    strongest = max(weights[i][j] for i in range(9) for j in range(1, i + 1))
    legend = browser.text("[data-step=weights] .legend")
    assert "scaled without the first key" in legend and f"{strongest:.3g}" in legend.split("\n")
    i, j = next((i, j) for i in range(9) for j in range(1, i + 1) if weights[i][j] == strongest)
    assert colour(browser, "weights", 0, 0) == colour(browser, "weights", i, j) == css_colour(browser, "blue-ink")
    # An allowed key without weight has the background colour. A masked key has none of the scale's colours.
    i, j = min(((i, j) for i in range(9) for j in range(i + 1)), key=lambda at: weights[at[0]][at[1]])
    assert weights[i][j] < strongest / 256 and colour(browser, "weights", i, j) == css_colour(browser, "surface")
    red, green, blue, _ = colour(browser, "weights", 0, 8)
    assert max(red, green, blue) - min(red, green, blue) < 20


def lightness(rgba):
    """CIE 1976 L*, from 0 to 100."""
    light = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgba[:3]]
    y = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2]
    return 116 * y ** (1 / 3) - 16 if y > 0.00886 else 903.3 * y


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_larger_weights_are_never_nearer_to_the_ground(page, browser, theme):
    weights = page(FOX, fragment="#scaled=all&theme=" + theme)["weights"]["values"][0]
    cells = sorted((weights[i][j], lightness(colour(browser, "weights", i, j))) for i in range(9) for j in range(9))
    sign = -1 if theme == "light" else 1
    assert all(sign * (b[1] - a[1]) > -0.6 for a, b in zip(cells, cells[1:]))
    assert sign * (cells[-1][1] - cells[0][1]) > 50


def test_signed_numbers_show_zero_and_sign(page, browser):
    steps = page(FOX)
    for name in ("embeddings", "query", "scores"):
        values = steps[name]["values"] if name == "embeddings" else steps[name]["values"][0]
        most = max(abs(value) for row in values for value in row)
        for i, row in enumerate(values[:4]):
            for j, value in enumerate(row[:9]):
                red, _, blue, _ = colour(browser, name, i, j)
                if abs(value) > most / 20:
                    assert (blue > red) == (value > 0), (name, i, j, value)
        ends = [float(text.replace("−", "-")) for text in browser.text(f"[data-step={name}] .legend").split("\n")[:2]]
        assert ends[0] == -ends[1] == pytest.approx(-most, rel=5e-3)


def test_a_row_can_have_a_scale_of_its_own(page, browser):
    weights = page(FOX, fragment="#scaled=row")["weights"]["values"][0]
    ink = css_colour(browser, "blue-ink")
    for i, row in enumerate(weights):
        assert colour(browser, "weights", i, max(range(1, 9), key=lambda j: row[j])) == ink
    assert "the row's largest" in browser.text("[data-step=weights] .legend")


def test_cells_with_room_for_them_show_their_numbers(page, browser):
    weights = page(" ".join(f"w{i}" for i in range(13)), "--causal", fragment="#view=map")["weights"]["values"][0]
    width, height, written = browser.run("""const marks = document.querySelector('[data-step=map] .figures .marks');
        const [left, top, width, height] = marks.dataset.cells.split(' ').map(Number);
        const dots = marks.width / marks.clientWidth;
        const pen = marks.previousElementSibling.getContext('2d');
        const written = (row, key) => {
          const box = [left + key * width + 2, top + row * height + 2, width - 4, height - 4]
            .map((x) => Math.floor(x * dots));
          return new Set(new Uint32Array(pen.getImageData(...box).data.buffer)).size > 1;
        };
        const rows = [...Array(13).keys()];
        return [width, height, rows.map((row) => rows.map((key) => written(row, key)))];""")
    assert 26 <= min(width, height) < 40
    for row in range(13):
        for key in range(row + 1):
            if abs(weights[row][key] - 0.005) > 1e-4:
                assert written[row][key] == (weights[row][key] > 0.005), (row, key)  # zeros are blank
