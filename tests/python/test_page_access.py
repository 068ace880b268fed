"""Accessibility of the page: axe-core's rules (WCAG 2 A and AA), in both themes."""

import importlib.resources

import pytest

from layered import layered_page
from page_support import FOX, browser, needs_a_browser, page  # noqa: F401

pytestmark = needs_a_browser
AXE = (importlib.resources.files("axe_core_python") / "axe.min.js").read_text()


def faults(browser):
    browser.run(AXE + "; window.axe = axe")
    # Transitions are finished first, so that no colour between two themes is read.
    browser.run("document.getAnimations().filter((a) => a instanceof CSSTransition).forEach((a) => a.finish())")
    return browser.wait("""const found = await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'best-practice']});
        return found.violations.flatMap((rule) => rule.nodes.map((node) =>
          `${rule.id}: ${node.target.join(' ')}: ${(node.any[0] || node.all[0] || node.none[0])?.message}`));""")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", ["steps", "story", "text", "map", "lines", "layers", "pair"])
def test_axe_finds_no_fault(page, browser, view, theme):
    page(FOX, "--heads", "3", "--causal", fragment=f"#view={view}&theme={theme}")
    assert not (found := faults(browser)), "\n".join(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_fault_on_the_living_page(heed, browser, tmp_path, theme):
    heed("explain", "--model", "induction", "--html", tmp_path / "life.html")
    browser.open((tmp_path / "life.html").as_uri())
    browser.run(f"document.querySelector('[aria-label=Theme] [data-value={theme}]').click()")
    assert not (found := faults(browser)), "\n".join(found)


def test_axe_finds_no_fault_with_many_heads(heed, browser, tmp_path):
    layered_page(heed, tmp_path, [[str(layer), 12] for layer in range(4)], 20)
    browser.open((tmp_path / "page.html").as_uri() + "#view=map")
    assert not (found := faults(browser)), "\n".join(found)


def test_axe_finds_no_fault_on_a_phone(page, browser):
    browser.resize(390, 844)
    try:
        page(FOX, fragment="#view=map")
        browser.click(".handle")
        assert not (found := faults(browser)), "\n".join(found)
    finally:
        browser.resize(1360, 900)


def test_every_word_can_be_read_on_its_colour(page, browser):
    """WCAG 2's contrast of words on their shades and of numbers on cells, for each palette."""
    page(FOX)
    worst = browser.run("""
        const light = (rgb) => {
          const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const parts = (text) => text.match(/\\d+/g).slice(0, 3).map(Number);
        const ratios = [];
        for (const colours of ['blue', 'viridis', 'cividis'])
          for (const theme of ['light', 'dark'])
            for (const scaled of ['others', 'all', 'row']) {
              for (const [group, value] of [['Colours', colours], ['Theme', theme]])
                document.querySelector(`[aria-label="${group}"] [data-value="${value}"]`).click();
              document.querySelector(`[aria-label="Scaled"] [data-value="${scaled}"]`).click();
              for (const word of document.querySelectorAll('.word[data-kind=key]')) {
                word.style.transition = 'none';
                const style = getComputedStyle(word);
                const [a, b] = [light(parts(style.color)), light(parts(style.backgroundColor))].sort((x, y) => y - x);
                ratios.push((a + 0.05) / (b + 0.05));
              }
            }
        return Math.min(...ratios);""")
    assert worst >= 4.5


# contrast(TEXT, [COLOUR, …]): of a text's colour on these colours, painted over each other.
CONTRAST = """
    const light = (rgb) => {
      const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const parts = (colour) => {
      const [r, g, b, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
      return [[r, g, b].map((c) => (colour.startsWith('color') ? 255 * c : c)), alpha]; };
    const painted = (colours) => colours.map(parts).reduce((under, [rgb, alpha]) =>
      rgb.map((c, i) => alpha * c + (1 - alpha) * under[i]), [0, 0, 0]);
    const style = (node, name) => getComputedStyle(node)[name];
    const contrast = (text, ground) => {
      const [a, b] = [light(parts(text)[0]), light(painted(ground))].sort((x, y) => y - x);
      return (a + 0.05) / (b + 0.05); };
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_shares_can_be_read_on_their_bars(heed, browser, tmp_path, theme):
    heed("explain", "--model", "induction", "--html", tmp_path / "life.html")
    browser.open((tmp_path / "life.html").as_uri())
    browser.run(f"document.querySelector('[aria-label=Theme] [data-value={theme}]').click()")
    browser.wait("await new Promise((done) => setTimeout(done, 300))")
    worst = browser.run(CONTRAST + """
        const surface = style(document.querySelector('.flow-card'), 'backgroundColor');
        const rows = [surface, style(document.querySelector('.flow-row.chosen'), 'fill')];
        return Math.min(...[...document.querySelectorAll('.flow-end:not(.new)')].flatMap((end) => {
          const bar = style(end.querySelector('rect'), 'fill');
          return [...end.querySelectorAll('text')].flatMap((text) => [[surface, bar], [...rows, bar]].map((ground) =>
            contrast(style(text, 'fill'), ground))); }));""")
    assert worst >= 4.5


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_of_the_marked_row_can_be_read(heed, browser, tmp_path, theme):
    heed("look", "--model", "induction", "to be or not to be or", "--html", tmp_path / "page.html")
    browser.open((tmp_path / "page.html").as_uri() + f"#view=map&theme={theme}")
    worst = browser.run(CONTRAST + """
        const panel = style(document.querySelector('.panel'), 'backgroundColor');
        return Math.min(...[...document.querySelectorAll('.panel tr.marked')].flatMap((row) => [...row.children].map((cell) =>
          contrast(style(cell, 'color'), [panel, style(row, 'backgroundColor')]))));""")
    assert 4.5 <= worst < 22
