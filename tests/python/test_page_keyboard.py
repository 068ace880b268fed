"""The page by keyboard: tab stops, roving focus, and the field that jumps to a position."""

import pytest

from page_support import FOX, browser, fragment, needs_a_browser, page  # noqa: F401

pytestmark = needs_a_browser
FOCUSED = "const one = document.activeElement; return one.getAttribute('aria-label') || one.textContent"


def tab_to(browser, wanted, most):
    for count in range(1, most + 1):
        browser.press("tab")
        if browser.run("return document.activeElement.matches(arguments[0])", wanted):
            return count
    raise AssertionError(f"{wanted} is not reached in {most} tab stops")


def go_to(browser, text):
    browser.run("const field = document.querySelector('.goto'); field.value = arguments[0]; field.focus()", text)
    browser.press("enter")
    return browser.text(".goto-said")


@pytest.mark.parametrize("arguments", [(" ".join(f"w{i}" for i in range(300)),), (FOX, "--heads", "40")])
@pytest.mark.parametrize("view", ["steps", "map"])
def test_the_first_picture_is_ten_tab_stops_away_at_most(page, browser, arguments, view):
    page(*arguments, fragment="#view=" + view)
    tab_to(browser, ".marks", 10)


def test_n_and_p_go_to_the_next_picture_and_the_one_before(page, browser):
    page(FOX)
    seen = []
    for _ in range(9):
        browser.press("n")
        seen.append(browser.run("return document.activeElement.closest('[data-step]').dataset.step"))
    assert seen == browser.run("return [...document.querySelectorAll('.card')].map((card) => card.dataset.step)")
    browser.press("p")
    assert browser.run("return document.activeElement.closest('[data-step]').dataset.step") == seen[-2]


def test_arrow_keys_move_within_a_group_and_the_focus_stays_when_it_is_used(page, browser):
    page(FOX, "--heads", "2", fragment="#head=0")
    browser.run("document.querySelector('[aria-label=Head] button').focus()")
    browser.press("right", "enter")
    assert fragment(browser).get("head", "1") == "1" and browser.run(FOCUSED) == "1"
    browser.press("tab", "tab")
    assert browser.run("return document.activeElement.closest('[aria-label=Head]')") is None
    # Returning to a group focuses its pressed button.
    browser.run("document.querySelector('.word[data-kind=row]').focus()")
    browser.press("right", "right", "enter")
    assert fragment(browser)["row"] == "2"
    assert browser.run("return document.querySelectorAll('.strip .word[tabindex=\"0\"]').length") == 2


@pytest.mark.parametrize("text,row,key", [("fox", 3, None), ("Fox", 3, None), ("fox, dog", 3, 8), ("17", None, None),
                                          ("4", 4, None),
                                          ("4:2", 4, 2), ("4, 2", 4, 2), ("fox → 2", 3, 2),
                                          ('"fox"', 3, None), ("the₂", 6, None)])
def test_go_to_takes_words_and_positions(page, browser, text, row, key):
    page(FOX, fragment="#row=1&key=1")
    said = go_to(browser, text)
    now = fragment(browser)
    if row is None:
        assert said == "There is no row 17: the last is 8." and now == {"row": "1", "key": "1"}
        assert browser.run("return document.querySelector('.goto').getAttribute('aria-invalid')") == "true"
    else:
        assert said == "" and (now.get("row"), now.get("key")) == (str(row), str(1 if key is None else key))


def test_go_to_says_what_it_does_not_find(page, browser):
    page(FOX, fragment="#row=1&key=1")
    assert go_to(browser, "zebra") == "“zebra” is not one of the words that ask."
    assert go_to(browser, "fox, <b>") == "“<b>” is not one of the words attended to."
    assert go_to(browser, "fox: 99") == "There is no key 99: the last is 8."
    assert fragment(browser) == {"row": "1", "key": "1"}


def test_go_to_takes_the_next_of_equal_words(page, browser):
    page(FOX, fragment="#row=0&key=1")
    rows = []
    for _ in range(3):
        go_to(browser, "the")
        rows.append(fragment(browser)["row"])
    assert rows == ["6", "0", "6"]


def test_g_goes_to_the_field_that_goes_to_a_place(page, browser):
    page(FOX)
    browser.press("g", *"dog", "enter")
    assert fragment(browser)["row"] == "8"
