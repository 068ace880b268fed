"""The page on a phone of 390 x 844 pixels."""

import pytest

from page_support import Browser, FOX, WAIT_A_FRAME, needs_a_browser, page  # noqa: F401

pytestmark = needs_a_browser
LONG = "The animal did not cross the street because it was too tired"


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        browser.resize(390, 844)
        yield browser


def box(browser, css):
    return browser.run("""const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return [box.left, box.top, box.right, box.bottom]""", css)


@pytest.mark.parametrize("arguments", [[FOX], [LONG, "--heads", "4", "--causal"], [LONG, "--heads", "40"]])
def test_attention_is_on_the_first_screen_and_nothing_is_wider_than_it(page, browser, arguments):
    page(*arguments)
    left, top, right, bottom = box(browser, "[data-step=map] .figures .marks")
    sheet = box(browser, ".sheet")
    assert 0 <= left and right <= 390 and top < 560
    assert min(bottom, sheet[1]) - top >= 160  # height of the picture above the sheet
    assert browser.run("return document.documentElement.scrollWidth") == 390
    assert browser.run("return document.documentElement.scrollHeight") < 2.5 * 844


def test_the_sheet_opens_and_closes_by_tap_key_and_drag(page, browser):
    page(FOX)
    expanded = "return document.querySelector('.handle').getAttribute('aria-expanded')"
    height = lambda: (lambda b: b[3] - b[1])(box(browser, ".sheet"))  # noqa: E731
    low = height()
    assert browser.run(expanded) == "false" and low < 130
    browser.click(".handle")
    assert browser.run(expanded) == "true" and height() > 2 * low
    # A choice does not change it.
    browser.run("document.querySelector('[aria-label=\"Zoom in\"]').click(); location.hash += '&row=4'")
    browser.wait(WAIT_A_FRAME)
    assert browser.run(expanded) == "true"
    browser.run("document.querySelector('.handle').focus()")
    browser.press("escape")
    assert browser.run(expanded) == "false" and height() == low
    browser.press("enter")
    assert browser.run(expanded) == "true"

    def drag(by):
        left, top, right, bottom = box(browser, ".handle")
        x, y = round((left + right) / 2), round((top + bottom) / 2)
        browser.post("/actions", {"actions": [{"type": "pointer", "id": "finger",
                                              "parameters": {"pointerType": "touch"}, "actions": [
            {"type": "pointerMove", "duration": 0, "x": x, "y": y}, {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "duration": 50, "x": x, "y": y + by}, {"type": "pointerUp", "button": 0}]}]})

    drag(80)
    assert browser.run(expanded) == "false"
    drag(-80)
    assert browser.run(expanded) == "true"


def test_settings_fold_away(page, browser):
    page(FOX)
    shown = "return document.querySelector('[aria-label=Colours]').offsetHeight > 0"
    assert browser.run(shown) is False
    browser.click(".fold")
    assert browser.run(shown) is True
    browser.click('[aria-label=Colours] [data-value="viridis"]')
    browser.click(".fold")
    assert browser.run(shown) is False
