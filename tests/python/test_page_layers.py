"""All heads of all layers at once in a real browser, compared with the weights in f64 with NumPy."""

import re

import numpy as np
import pytest

from browser import Browser, available
from layered import layered_page

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
LAYERS = [["0", 6], ["1", 6], ["2", 3]]


@pytest.fixture(scope="module")
def browser():
    with Browser(width=1280, height=800) as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture
def layers(heed, browser, tmp_path):
    """layers(FRAGMENT, …): opens the view of these layers. Returns their weights."""

    def run(fragment="", on=browser, layers=LAYERS, length=10, **more):
        weights = layered_page(heed, tmp_path, layers, length, **more)
        on.open((tmp_path / "page.html").as_uri() + "#view=layers" + fragment)
        painted(on)
        return weights

    return run


def frame(browser):
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def painted(browser):
    """Waits for the thumbnails within the window."""
    browser.wait("""
        const seen = (place) => { const box = place.getBoundingClientRect(); return box.bottom > 0 && box.top < innerHeight; };
        while ([...document.querySelectorAll('.bins:empty')].some(seen)) await new Promise(requestAnimationFrame);""")


def heads(browser):
    return browser.run("return [...document.querySelectorAll('.head-card')].map((card) => Number(card.dataset.head))")


def summaries(browser):
    return browser.run("return JSON.parse(document.getElementById('page').textContent).report.summaries")


def card(browser, head):
    return browser.run("""const box = document.querySelector(`.head-card[data-head="${arguments[0]}"]`).getBoundingClientRect();
        return [box.x + box.width / 2, box.y + 10];""", head)


def shown(browser):
    return browser.text(".showing h2").split("\n")[0]


def fragment(browser):
    return dict(part.split("=") for part in browser.run("return location.hash.slice(1)").split("&") if part)


def test_rows_are_layers_and_columns_are_heads(layers, browser):
    layers()
    places = browser.run("""return [...document.querySelectorAll('.head-card')].map((card) => {
        const box = card.getBoundingClientRect();
        return [card.getAttribute('aria-label').split(',').slice(0, 2).join(), Math.round(box.top), Math.round(box.left)]; });""")
    assert [name for name, *_ in places] == [f"layer {name}, head {head}" for name, count in LAYERS for head in range(count)]
    tops, lefts = sorted({top for _, top, _ in places}), sorted({left for *_, left in places})
    assert [(tops.index(top), lefts.index(left)) for _, top, left in places] == [
        (layer, head) for layer, (_, count) in enumerate(LAYERS) for head in range(count)]
    named = browser.run("return [...document.querySelectorAll('.layer-axis')].map((one) => one.textContent)")
    assert named == ["layer 0", "layer 1", "layer 2"]


def test_a_thumbnail_is_darker_the_larger_the_weight(layers, browser):
    weights = layers("&theme=light")
    for head in (0, 8):
        pixels = np.array(browser.wait("""
            const image = document.querySelector(`[data-thumb="${arguments[0]}"] img`);
            await image.decode();
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
            const pen = canvas.getContext('2d');
            pen.drawImage(image, 0, 0);
            return [...pen.getImageData(0, 0, canvas.width, canvas.height).data];""", head)).reshape(10, 10, 4)
        masked = np.triu(np.ones((10, 10), bool), 1)
        np.testing.assert_array_equal(pixels[..., 3] == 0, masked)
        light = (pixels[..., :3] @ [0.2126, 0.7152, 0.0722])[~masked]
        assert (np.diff(light[np.argsort(weights[head][~masked])]) <= 1e-9).all() and len(set(light)) > 10


def test_every_figure_ranks_the_heads_and_stands_on_the_cards(layers, browser):
    weights = layers()
    count = (weights > 0).sum(-1)
    entropy = -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1).mean(-1)
    known = {"entropy": entropy, "max_weight": weights.max(-1).mean(-1), "first": weights[..., 0].mean(-1),
             "self": np.diagonal(weights, axis1=1, axis2=2).mean(-1),
             "score uniform": (np.exp(-(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)) / count)[:, 1:].mean(-1)}
    options = browser.run("return [...document.querySelectorAll('.layers-view option')].map((option) => option.value)")
    patterns = ["score " + pattern["name"] for pattern in summaries(browser)[0]["patterns"]]
    assert {"named", "distance", "previous", "next", *known, *patterns} <= set(options)
    assert not {"rows", "nan_rows", "choices"} & set(options)  # counts, which three digits would misstate
    assert not re.search("choices|rows", browser.text(".showing-figures"))
    for name in options:
        for order, sign in (("down", -1), ("up", 1)):
            browser.run("location.hash = `view=layers&figure=${encodeURIComponent(arguments[0])}&order=${arguments[1]}`", name, order)
            frame(browser)
            told = browser.run("return [...document.querySelectorAll('.head-figure')].map((one) => one.textContent)")
            numbers = [float(text.replace("−", "-").rstrip("*")) for text in told if text != "–"]
            assert told[len(numbers):] == ["–"] * (len(told) - len(numbers))  # heads without a value come last
            assert numbers == sorted(numbers, key=lambda number: sign * number)
            assert sorted(heads(browser)) == list(range(15))
            if name in known:
                np.testing.assert_allclose(numbers, known[name][heads(browser)], rtol=6e-3, atol=5.1e-3)  # two decimals


def test_the_score_of_a_name_is_that_of_the_look_that_earned_it(heed, browser, tmp_path):
    """Nearly half of the weight on the first key, and half of the rest on the previous key: the second name is for the
    rest."""
    length = 12
    weights = np.full((length, length), 0.28 / length)
    weights[:, 0] += 0.45
    weights[np.arange(1, length), np.arange(length - 1)] += 0.27
    weights /= weights.sum(-1, keepdims=True)
    for name, tensor in (("q", np.log(weights)), ("k", np.eye(length)), ("v", np.eye(length))):
        np.save(tmp_path / f"{name}.npy", np.stack([tensor] * 2).astype(np.float32))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--scale", "1", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=layers")
    painted(browser)
    head = summaries(browser)[0]
    name = head["names"][0]
    assert name["name"] == "previous-token" and name["rest"]
    told = browser.run("return [...document.querySelectorAll('.head-figure')].map((one) => one.textContent)")
    assert told[0].endswith("*") and float(told[0].rstrip("*")) == pytest.approx(name["score"], rel=6e-3)  # 3 digits
    for view in ("layers", "map"):
        browser.run("location.hash = arguments[0]", "view=" + view)
        frame(browser)
        chips = browser.run("return [...document.querySelectorAll('.pattern.named')].map((one) => one.textContent)")
        assert f"previous-token {name['score']:.2f}*" in chips
    assert "* share of the weight that is not on the first key" in browser.text("body")


def test_chips_filter_by_name_and_heads_keep_their_place(layers, browser):
    layers()
    names = [summary["name"] for summary in summaries(browser)]
    chips = browser.run("return [...document.querySelectorAll('.chip')].map((chip) => chip.innerText)")
    assert set(chips) == {"all 15"} | {f"{name} {names.count(name)}" for name in names}
    before = card(browser, 5)
    browser.click("[data-name='previous-token']")
    wanted = [head for head, name in enumerate(names) if name == "previous-token"]
    assert heads(browser) == wanted and 5 in wanted
    assert card(browser, 5)[0] == before[0]
    browser.run("location.reload()")
    assert heads(browser) == wanted


def test_the_pointer_enlarges_a_head_and_a_click_shows_its_map_without_scrolling(layers, browser):
    layers("&head=0", layers=[[str(layer), 12] for layer in range(12)])
    assert browser.run("return document.documentElement.scrollHeight > innerHeight")
    browser.run("window.scrollTo(0, 1e6)")
    painted(browser)
    scrolled = browser.run("return scrollY")
    browser.pointer(*card(browser, 140))
    frame(browser)
    assert shown(browser) == "layer 11, head 8"
    preview, thumb = browser.run("""return ['.preview', '[data-thumb="140"]'].map((css) => document.querySelector(css).clientWidth)""")
    assert preview > 3 * thumb
    browser.pointer(2, 400)
    frame(browser)
    assert shown(browser) == "layer 0, head 0"
    browser.pointer(*card(browser, 140), click=True)
    browser.pointer(2, 400)
    frame(browser)
    assert shown(browser) == "layer 11, head 8" and fragment(browser)["head"] == "140"
    top, bottom, height, now = browser.run("""const box = document.querySelector('.showing .marks').getBoundingClientRect();
        return [box.top, box.bottom, innerHeight, scrollY];""")
    assert 0 <= top < bottom <= height and now == scrolled
    pressed = browser.run("return [...document.querySelectorAll('.head-card[aria-pressed=true]')].map((one) => one.dataset.head)")
    assert pressed == ["140"]


def test_keys_move_among_heads_and_enter_shows_one(layers, browser):
    layers("&head=0")
    assert browser.run("return document.querySelectorAll('.head-grid [tabindex=\"0\"]').length") == 1
    browser.run("document.querySelector('.head-grid [tabindex=\"0\"]').focus()")
    browser.press("down", "right", "down", "right")
    frame(browser)
    assert shown(browser) == "layer 2, head 2"
    browser.press("up", "enter")
    frame(browser)
    assert shown(browser) == "layer 1, head 2" and fragment(browser)["head"] == "8"
    assert browser.run("return document.activeElement.dataset.head") == "8"


def test_a_phone_shows_all_of_a_layer_and_the_map_of_a_touched_head(layers):
    with Browser(width=390, height=844) as phone:
        phone.post("/chromium/send_command", {"cmd": "Emulation.setDeviceMetricsOverride", "params": {
            "width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}})
        layers("&head=0", on=phone, layers=[[str(layer), 12] for layer in range(6)])
        assert phone.run("return document.documentElement.scrollWidth") <= 390
        assert phone.run("return Math.max(...[...document.querySelectorAll('.head-card')].map((one) => one.getBoundingClientRect().right))") <= 390
        phone.run("document.querySelector('.head-grid').scrollIntoView({block: 'start'})")
        x, y = card(phone, 18)
        phone.post("/actions", {"actions": [{"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": [
            {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}, {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0}]}]})
        frame(phone)
        assert shown(phone) == "layer 1, head 6"
        assert phone.run("const box = document.querySelector('.preview').getBoundingClientRect(); return box.bottom <= innerHeight && box.width > 90")
        assert phone.errors() == []


def test_a_thousand_heads_are_drawn_when_they_come_near_and_all_for_print(layers, browser):
    layers("&order=down&figure=entropy", layers=[[str(layer), 32] for layer in range(32)], length=8)
    assert len(heads(browser)) == 1024
    assert browser.run("return document.querySelectorAll('.bins img').length") < 512
    browser.run("window.scrollTo(0, 1e6)")
    painted(browser)
    assert browser.run("return document.querySelector('.head-card:last-child img') !== null")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return document.querySelectorAll('.head-card img').length") == 1024
    browser.run("dispatchEvent(new Event('afterprint'))")


def test_heads_of_one_call_are_a_plain_grid(layers, browser, heed, tmp_path):
    layers()
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=layers")
    painted(browser)
    assert heads(browser) == list(range(15))
    assert browser.run("return document.querySelectorAll('.layer-axis').length") == 0
    assert browser.run("return document.querySelector('.head-card .head-label').textContent") == "0"


def test_heads_of_a_batch_stand_by_entry(heed, browser, tmp_path):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.ones((2, 3, 5, 4), np.float32))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=layers")
    assert browser.run("return [...document.querySelectorAll('.map-tools button')].map((one) => one.textContent)")[0] == "by entry"
