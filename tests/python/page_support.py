"""Shared by the tests of the page of `heed explain --html`."""

import json
import math

import pytest

from browser import Browser, available

FOX = "the quick brown fox jumps over the lazy dog"
WAIT_A_FRAME = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
needs_a_browser = pytest.mark.skipif(not available(),
                                     reason="the packages chromium and chromium-driver are not installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser, heed, tmp_path):
    """page(ARGUMENT, …, fragment=""): opens the page of these arguments. Returns the steps that --json prints, by name.
    Afterwards the console must be clean."""

    def run(*arguments, fragment=""):
        path = tmp_path / "page.html"
        told = json.loads(heed("explain", *arguments, "--html", path, "--json").stdout)
        browser.open(path.as_uri() + fragment)
        return {step["name"]: step for step in told["steps"]} | {"tokens": told["tokens"]}

    yield run
    assert browser.errors() == []


def canvas(step, head=0):
    return f'[data-step="{step}"] .marks[aria-label*="head {head},"]'


def cell(browser, step, row, column, head=0):
    """The centre of a cell in pixels of the window, after scrolling it into view."""
    return browser.run("""
        const [css, row, column] = arguments;
        const canvas = document.querySelector(css);
        canvas.scrollIntoView({block: 'center'});
        const [left, top, width, height] = canvas.dataset.cells.split(' ').map(Number);
        const box = canvas.getBoundingClientRect();
        return [box.x + left + (column + 0.5) * width, box.y + top + (row + 0.5) * height];""",
                       canvas(step, head), row, column)


def colour(browser, step, row, column, head=0):
    """The colour near a cell's corner, where no number is drawn: [red, green, blue, alpha]."""
    return browser.run("""
        const [css, row, column] = arguments;
        const marks = document.querySelector(css);
        const [left, top, width, height] = marks.dataset.cells.split(' ').map(Number);
        const dots = marks.width / marks.clientWidth;
        const at = [left + column * width + 3, top + row * height + 3].map((x) => Math.round(x * dots));
        return [...marks.previousElementSibling.getContext('2d').getImageData(...at, 1, 1).data];""",
                       canvas(step, head), row, column)


def results(browser):
    """The result of each step in the arithmetic panel."""
    return browser.run("""return Object.fromEntries([...document.querySelectorAll('output')].map(
        (output) => [output.dataset.result, output.textContent.replace('−', '-')]))""")


def fragment(browser):
    return dict(part.split("=") for part in browser.run("return location.hash.slice(1)").split("&") if part)


def assert_shown(shown, value):
    assert math.isclose(float(shown), value, abs_tol=6e-5, rel_tol=6e-3 if "e" in shown else 0), (shown, value)


def css_colour(browser, name):
    """A colour of the page's theme, as [red, green, blue, alpha]."""
    text = browser.run("return getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]).trim()", name)
    return [*bytes.fromhex(text[1:]), 255]
