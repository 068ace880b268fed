"""The heads that lead from one word to another in a real browser, compared with the weights in f64 with NumPy."""

import numpy as np
import pytest

from browser import Browser, available
from layered import layered_page

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
LAYERS = [["0", 6], ["1", 6], ["2", 3]]


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture
def pair(heed, browser, tmp_path):
    """pair(FRAGMENT, …): opens the view on a page of these layers. Returns their weights."""

    def run(fragment, length=10, on=browser, **more):
        weights = layered_page(heed, tmp_path, LAYERS, length, **more)
        on.open((tmp_path / "page.html").as_uri() + "#view=pair" + fragment)
        return weights

    return run


def frame(browser):
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def ranking(browser, way):
    """The heads of a direction and the values beside them."""
    return browser.run("""return [...document.querySelectorAll(`[data-way=${arguments[0]}] [data-weight]`)].map((cell) =>
        [Number(cell.dataset.weight), cell.textContent])""", way)


def assert_ranked(told, weights):
    heads = [head for head, _ in told]
    assert heads == list(np.argsort(-weights, kind="stable")[:len(heads)])
    np.testing.assert_allclose([float(text.replace("−", "-")) for _, text in told], weights[heads], rtol=6e-3, atol=6e-5)


def lines(browser):
    return {tuple(line) for line in browser.run("""return [...document.querySelectorAll('.line-shown path')].map((line) =>
        [line.dataset.head, line.dataset.row, line.dataset.key].map(Number))""")}


def enter(browser, label, text):
    browser.run("""const field = document.querySelector(`input[aria-label="${arguments[0]}"]`);
        field.focus(); field.value = arguments[1]; field.dispatchEvent(new Event('change'));""", label, text)


def fragment(browser):
    return dict(part.split("=") for part in browser.run("return location.hash.slice(1)").split("&") if part)


def test_heads_are_ranked_in_both_directions_and_the_best_is_drawn(pair, browser):
    weights = pair("&row=7&key=2", causal=False)
    assert_ranked(ranking(browser, "to"), weights[:, 7, 2])
    assert_ranked(ranking(browser, "back"), weights[:, 2, 7])
    best = int(weights[:, 7, 2].argmax())
    assert lines(browser) == {(best, 7, key) for key in range(10) if weights[best, 7, key] >= 0.01}
    layer, head = divmod(best, 6)
    assert browser.text(".pair-answer").startswith(f"it → </script>: most in layer {layer}, head {head}, ")
    browser.run("[...document.querySelectorAll('[data-way=to] .copy')].at(-1).click()")
    told = ranking(browser, "to")
    assert len(told) == 15
    assert_ranked(told, weights[:, 7, 2])


def test_typed_words_are_found_and_others_are_refused_in_a_sentence(pair, browser):
    weights = pair("&row=7&key=2", causal=False)
    enter(browser, "From the word", "MAT")
    enter(browser, "To the word", "4")
    assert_ranked(ranking(browser, "to"), weights[:, 6, 4])
    fields = [browser.run("return document.querySelector(`input[aria-label='${arguments[0]}']`).value", f"{way} the word")
              for way in ("From", "To")]
    assert fields == ["mat", "on"]
    enter(browser, "To the word", "the")  # the next "the"
    assert_ranked(ranking(browser, "to"), weights[:, 6, 5])
    assert browser.run("return document.querySelector('input[aria-label=\"To the word\"]').value") == "the₂"
    enter(browser, "To the word", "the₁")
    assert_ranked(ranking(browser, "to"), weights[:, 6, 0])
    enter(browser, "To the word", "dog")
    assert browser.text(".pair-note") == "“dog” is not one of the words attended to."
    assert fragment(browser)["key"] == "0"


def test_signs_of_tokenizers_need_not_be_typed(pair, browser):
    weights = pair("&row=7&key=2", causal=False, words=["Ġthe", "▁cat", "##s", "Ġsat", "a"])
    for typed, place in (("cat", 1), ("s", 2), ("Sat", 3)):
        enter(browser, "From the word", "4")
        enter(browser, "From the word", typed)
        assert_ranked(ranking(browser, "to"), weights[:, 5 + place, 2])


def test_clicked_words_are_asked_about_and_the_address_restores_it(pair, browser):
    weights = pair("&row=7&key=2", causal=False)
    for side, place in (("row", 4), ("key", 9)):
        browser.click(f".line-word[data-side={side}][data-place='{place}']")
    browser.pointer(2, 2)
    assert_ranked(ranking(browser, "to"), weights[:, 4, 9])
    third = ranking(browser, "back")[2][0]
    browser.run("document.querySelectorAll('[data-way=back] .line-pair')[2].click()")
    assert {head for head, *_ in lines(browser)} == {third} and {row for _, row, _ in lines(browser)} == {9}
    browser.run("location.reload()")
    assert_ranked(ranking(browser, "to"), weights[:, 4, 9])
    assert {head for head, *_ in lines(browser)} == {third} and {row for _, row, _ in lines(browser)} == {9}
    # The key ] shows the lines of the next head.
    browser.press("]")
    frame(browser)
    assert {head for head, *_ in lines(browser)} <= {(third + 1) % 15}
    browser.run("[...document.querySelectorAll('button')].find((one) => one.textContent === 'swap').click()")
    assert_ranked(ranking(browser, "to"), weights[:, 9, 4])


def test_a_direction_that_masks_forbid_says_so(pair, browser):
    weights = pair("&row=2&key=7")
    assert browser.text(".pair-answer") == "</script> → it: masked in every head."
    assert browser.text("[data-way=to] p") == "Masked in every head: </script> cannot attend to it."
    assert_ranked(ranking(browser, "back"), weights[:, 7, 2])
    assert {row for _, row, _ in lines(browser)} == {7}


def test_a_long_text_masks_what_the_page_does_not_hold(pair, browser):
    weights = pair("&row=1499&key=1800", length=2100)
    assert browser.text(".pair-answer").endswith(": masked in every head.")
    assert "at most" not in browser.text("[data-way=to]") and not ranking(browser, "to")
    for head, text in ranking(browser, "back"):
        assert text.startswith("at most ") or abs(float(text) - weights[head, 1800, 1499]) < 1e-3


def test_a_long_text_ranks_what_the_page_holds_and_says_what_it_lacks(pair, browser):
    weights = pair("&row=1500&key=1499", length=2100)
    weight = weights[:, 1500, 1499]
    fifth = np.sort(weights[:, 1500], axis=-1)[:, -5]
    held = [int(head) for head in np.argsort(-weight, kind="stable") if weight[head] >= fifth[head]]
    browser.run("[...document.querySelectorAll('[data-way=to] .copy')].at(-1).click()")
    told = ranking(browser, "to")
    assert [head for head, _ in told[:len(held)]] == held and 0 < len(held) < 15
    assert_ranked(told[:len(held)], weight)
    for head, text in told[len(held):]:
        assert text.startswith("at most ") and float(text.split()[2]) == pytest.approx(fifth[head], rel=6e-3)
        assert weight[head] < fifth[head]


def test_a_weight_that_is_at_most_0_is_0(pair, browser):
    """Scores are so large that even the most attended keys include some with weight 0."""
    weights = pair("&row=1500&key=1499", length=2100, spread=30)
    weight = weights[:, 1500, 1499]
    fifth = np.sort(weights[:, 1500], axis=-1)[:, -5]
    browser.run("[...document.querySelectorAll('[data-way=to] .copy')].at(-1).click()")
    told = dict(ranking(browser, "to"))
    zeros = [head for head in range(15) if max(weight[head], fifth[head]) < 1e-12]
    assert len(zeros) > 3 and all(told[head] == "0" for head in zeros)
    assert list(told)[-len(zeros):] == zeros  # last, in the order of their positions
    assert browser.text(".pair-answer").endswith("0 in every head.") == (weight.max() < 1e-12)


def test_a_phone_shows_pairs_without_scrolling_sideways(pair):
    with Browser(width=390, height=844) as phone:
        phone.post("/chromium/send_command", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}})
        weights = pair("&row=7&key=2", on=phone, causal=False)
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        assert_ranked(ranking(phone, "to"), weights[:, 7, 2])
        assert min(phone.run("return [...document.querySelectorAll('.pair-way .line-pair')].map((one) => one.offsetHeight)")) >= 24
        assert phone.errors() == []


LONG = ["https://www.example.org/a/rather/long/path/to/page.html", "x" * 100, "Donaudampfschifffahrtsgesellschaft"]


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("word", LONG, ids=["address", "letters", "compound"])
def test_long_words_hide_no_weight(pair, browser, word, width):
    browser.resize(width, 900)
    try:
        pair("&row=7&key=2", causal=False, words=["see", word, word, "for"])
        frame(browser)
        page, cut, labels = browser.run("""
            const box = (node) => node.getBoundingClientRect();
            const right = box(document.querySelector('.pair-ways')).right;
            const within = [...document.querySelectorAll('.pair-way h2, .pair-way table, .pair-way .bar')];
            const words = [...document.querySelectorAll('.line-word')].filter((one) => one.children[1].getAttribute('stroke') !== 'none');
            const numbers = [...document.querySelectorAll('.line-number')];
            return [document.documentElement.scrollWidth, within.filter((one) => box(one).right > right - 1).map((one) => one.outerHTML),
              words.map((one) => [box(one.children[1]), box(one.children[2]), numbers.map(box)].flat().map(
                ({left, right, top, bottom}) => [left, right, top, bottom]))];""")
    finally:
        browser.resize(1360, 900)
    assert page <= width and cut == []
    assert len(labels) == 2
    for mark, text, *numbers in labels:
        assert mark[0] <= text[0] and text[1] <= mark[1]
        for left, right, top, bottom in numbers:
            assert right < text[0] or text[1] < left or bottom <= text[2] or text[3] <= top


def test_heads_whose_row_is_nan_are_ranked_last(heed, browser, tmp_path):
    tensors = np.random.default_rng(8).standard_normal((3, 5, 6, 8), dtype=np.float32)
    scores = np.einsum("hid,hjd->hij", *tensors[:2].astype(float)) / np.sqrt(8)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    key = int((weights[2, 3] - weights[0, 3]).argmax())  # the head of NaN stands between a smaller and a larger weight
    assert weights[2, 3, key] > weights[0, 3, key]
    tensors[0][1, 3] = tensors[0][:, 5] = np.nan
    for name, tensor in zip("qkv", tensors):
        np.save(tmp_path / f"{name}.npy", tensor)
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + f"#view=pair&row=3&key={key}")
    told = ranking(browser, "to")
    assert told.pop() == [1, "NaN"]
    kept = [0, 2, 3, 4]
    assert [head for head, _ in told] == [kept[place] for place in np.argsort(-weights[kept, 3, key])]
    assert f"most in head {told[0][0]}, {weights[told[0][0], 3, key]:.4f}" in browser.text(".pair-answer")
    browser.open((tmp_path / "page.html").as_uri() + "#view=pair&row=5&key=0")
    assert browser.text(".pair-answer") == "5 → 0: NaN in every head."
    browser.open((tmp_path / "page.html").as_uri() + "#view=lines&head=1&row=3&pin=row")
    assert "This row's weights are NaN." in browser.text("main")
