"""The page of `heed look --html` in a real browser, compared with the weights in f64 with NumPy."""

import json
import shlex

import numpy as np
import pytest

from browser import Browser, available

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
LONG = 2300  # queries and keys: more cells per head than a page holds
WORDS = ["the", "cat", "</script>", "<b>sat</b>", "\u202eon", "mat"]


@pytest.fixture(scope="module")
def browser():
    with Browser() as browser:
        yield browser
        assert browser.errors() == []


def weights_of(query, key, causal):
    scores = query.astype(np.float64) @ key.astype(np.float64).swapaxes(1, 2) / np.sqrt(query.shape[-1])
    if causal:
        scores[:, np.triu_indices(query.shape[1], 1)[0], np.triu_indices(query.shape[1], 1)[1]] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


@pytest.fixture
def look(heed, browser, tmp_path):
    """look(LENGTH, OPTION, …, fragment=""): opens the page of two random causal heads. Returns their weights, [2, L,
    L]."""

    def run(length, *options, fragment="", tokens=True):
        draw = np.random.default_rng(5)
        query, key, value = (draw.standard_normal((2, length, 8), dtype=np.float32) * 2 for _ in range(3))
        for name, tensor in (("q", query), ("k", key), ("v", value)):
            np.save(tmp_path / f"{name}.npy", tensor)
        (tmp_path / "words.txt").write_text("".join(WORDS[i % len(WORDS)] + "\n" for i in range(length)))
        words = ["--tokens", "words.txt"] if tokens else []
        heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal", *words, "--html", "page.html",
             *options)
        browser.open((tmp_path / "page.html").as_uri() + fragment)
        return weights_of(query, key, causal=True)

    return run



def result(browser, name):
    text = browser.run("return document.querySelector(`output[data-result=${arguments[0]}]`)?.textContent", name)
    return text if text in (None, "masked") else float(text.replace("−", "-"))


def move_to(browser, row, key):
    browser.run("""location.hash = location.hash.replace(/&?(row|key)=\\d+/g, '') + `&row=${arguments[0]}&key=${arguments[1]}`""",
                row, key)
    browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def test_tokens_are_shown_as_on_the_terminal(heed, browser, tmp_path):
    tokens = [" ", " the", "to be", "the ", "", "\t", "a\tb", "\u3000", "a\u00a0", "\u200b", "a\u200db", "\x1b[0m", "\u202egnp"]
    draw = np.random.default_rng(5)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((1, len(tokens), 8), dtype=np.float32))
    (tmp_path / "words.txt").write_text("".join(token + "\n" for token in tokens))
    call = ("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--tokens", "words.txt")
    heed(*call, "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=text")
    shown = browser.run("return [...document.querySelectorAll('.text .w')].map((word) => word.textContent)")
    told = heed(*call, "--row", "0", "--top-k", len(tokens)).stdout
    assert shown == ['"␣"', "␣the", "to be", "the␣", '""', '"⇥"', "a⇥b", r'"\u{3000}"', r"a\xA0", r'"\u{200B}"', "a\u200db",
                     r"\x1B[0m", r"\u{202E}gnp"]
    for place, word in enumerate(shown):
        assert f" {word} ({place}) " in told


def test_a_short_call_shows_every_weight(look, browser):
    weights = look(300, fragment="#view=map&head=1")
    for row, key in [(0, 0), (17, 3), (299, 250), (120, 119)]:
        move_to(browser, row, key)
        # Weights have 16 bits here, which gives three digits.
        assert result(browser, "weight") == pytest.approx(weights[1, row, key], rel=1e-2)
        assert result(browser, "max_weight") == pytest.approx(weights[1, row].max(), abs=6e-5)
    move_to(browser, 5, 9)
    assert result(browser, "weight") == "masked"
    assert browser.run("return document.querySelector('.elsewhere')") is None


def test_a_long_call_shows_exact_summaries_and_says_what_it_lacks(look, browser, heed):
    weights = look(LONG, fragment="#view=map&head=1")
    position = np.arange(LONG)
    for row in (3, 1000, LONG - 1):
        move_to(browser, row, 0)
        one = weights[1, row]
        assert result(browser, "weight") is None
        assert result(browser, "max_weight") == pytest.approx(one.max(), abs=6e-5)
        assert result(browser, "distance") == pytest.approx((one * abs(row - position)).sum(), abs=6e-5, rel=1e-5)
        assert result(browser, "entropy") == pytest.approx(-(one[one > 0] * np.log(one[one > 0])).sum(), abs=1e-4)
        top = browser.run("return [...document.querySelectorAll('[data-top]')].map((cell) => Number(cell.dataset.top))")
        largest = list(np.argsort(-one, kind="stable")[:min(5, row + 1)])
        assert top == list(largest)  # also the smallest, because the page has no "others" of this row
    commands = browser.run("return [...document.querySelectorAll('.command code')].map((code) => code.textContent)")
    assert len(commands) == 4 and commands.pop(0).endswith(" --serve")
    # A shell accepts the commands, and they give the answers.
    told = json.loads(heed(*shlex.split(commands[0])[1:], "--json").stdout)["rows"]
    assert [one["row"] for one in told] == [LONG - 1] and told[0]["head"] == 1
    told = json.loads(heed(*shlex.split(commands[1])[1:], "--json").stdout)
    assert np.shape(told["weights"]) == (1, 1, 32, 32)


def test_bins_of_a_long_call_are_the_sums_of_their_weights(look, browser):
    weights = look(LONG, fragment="#view=map&head=0")
    text = browser.wait("""
        window.saved = [];
        URL.createObjectURL = (blob) => { saved.push(blob); return 'blob:none'; };
        HTMLAnchorElement.prototype.click = function () {};
        [...document.querySelectorAll('[data-step=map] .actions button')].find((one) => one.textContent === 'JSON').click();
        return saved[0].text();""")
    shown = json.loads(text)["values"]
    side = len(shown)
    assert side in (256, 512, 1024)
    fine = np.arange(LONG) * 1024 // LONG  # the finest map has 1024 bins per side
    bins = fine // (1024 // side)
    expected = np.zeros((side, side))
    np.add.at(expected, (bins[:, None].repeat(LONG, 1), bins[None].repeat(LONG, 0)), weights[0])
    expected /= np.bincount(bins)[:, None]
    masked = np.array([[value is None for value in row] for row in shown])
    np.testing.assert_array_equal(masked, np.triu(np.ones((side, side), bool), 1))
    values = np.array([[value or 0 for value in row] for row in shown])
    # Bins have 16 bits, evenly spaced in the logarithm: an error of at most 1.8e-4.
    np.testing.assert_allclose(values, np.where(masked, 0, expected), rtol=4e-4, atol=1e-9)


def test_a_window_holds_single_weights(look, browser):
    weights = look(LONG, "--tile-at", "1200,1100", "--tile-at", "0,0", fragment="#view=map&head=0")
    for row, key in [(1200, 1100), (1328 - 1, 1228 - 1), (255, 0)]:
        move_to(browser, row, key)
        assert result(browser, "weight") == pytest.approx(weights[0, row, key], rel=1e-2)
    move_to(browser, 1328, 1100)
    assert result(browser, "weight") is None


def test_a_document_has_the_same_page(look, heed, browser, tmp_path):
    look(40, "--save", "doc.safetensors", fragment="#view=map&row=7")
    panel = browser.text(".panel")
    heed("look", "doc.safetensors", "--html", "again.html")
    browser.open((tmp_path / "again.html").as_uri() + "#view=map&row=7")
    assert browser.text(".panel") == panel


def test_tokens_are_shown_as_text(look, browser):
    look(12, fragment="#view=text")
    shown = browser.run("return [...document.querySelectorAll('.w')].map((word) => word.textContent)")
    words = [WORDS[i % len(WORDS)].replace("\u202e", r"\u{202E}") for i in range(12)]
    assert [word.rstrip("₁₂") for word in shown] == words
    assert browser.run("return document.querySelectorAll('.text b').length") == 0


def test_without_tokens_places_are_numbers(look, browser):
    look(12, tokens=False, fragment="#row=7")
    assert browser.text(".panel h2").split()[0] == "7"
    assert browser.run("return [...document.querySelectorAll('[data-value]')].some((one) => one.dataset.value === 'text')") is False


def legend_ends(browser):
    return browser.run("return [...document.querySelectorAll('[data-step=map] .legend')].map((one) => "
                       "[...one.querySelectorAll(':scope > span')].slice(0, 2).map((end) => end.textContent))")


def test_the_scale_leaves_out_the_first_key_until_all_are_asked_for(look, browser):
    weights = look(12, fragment="#head=1")
    assert legend_ends(browser) == [["0", f"{weights[1, 1:, 1:].max():.3g}"]]
    browser.click('[aria-label="Scaled"] button[data-value="all"]')
    assert legend_ends(browser) == [["0", "1"]]


def test_bins_and_single_weights_have_scales_of_their_own(look, browser):
    weights = look(LONG, "--tile-at", "1200,1100", fragment="#view=map&head=0&scaled=all&log=0")
    bins, cells = legend_ends(browser)
    assert float(cells[1]) == pytest.approx(weights[0, 1072:1328, 972:1228].max(), rel=1e-2)
    assert bins != cells


def test_a_page_opens_on_its_strongest_weight_that_is_no_neighbour_and_not_on_the_first_key(look, browser):
    weights = look(60)
    weights[:, np.arange(60), np.arange(60)] = 0
    weights[:, np.arange(1, 60), np.arange(59)] = 0
    assert weights.max() > 0.3
    weights[:, :, 0] = 0
    head, row, key = np.unravel_index(weights.argmax(), weights.shape)
    assert browser.text(".panel h2").split()[-1] == str(head)
    assert browser.text(".panel h2 .soft").startswith(f"row {row},")
    assert result(browser, "weight") == pytest.approx(weights.max(), abs=6e-5)
    assert browser.run("return document.querySelector('tr.marked [data-top]').dataset.top") == str(key)


def test_the_entropy_of_a_row_with_one_key_is_zero(look, browser):
    look(300, fragment="#view=map&row=0")
    assert browser.run("return document.querySelector('output[data-result=entropy]').textContent") == "0.0000"


def test_many_heads_fit_in_12_megabytes_and_the_page_says_what_it_lacks(heed, browser, tmp_path):
    draw = np.random.default_rng(5)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((144, 512, 8), dtype=np.float32))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--html", "page.html")
    assert (tmp_path / "page.html").stat().st_size <= 12e6
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.run("return document.querySelector('[aria-label=View] [aria-pressed=true]').dataset.value") == "layers"
    browser.open((tmp_path / "page.html").as_uri() + "#view=map")
    assert "single weights (its maps have 128 x 128 bins)" in browser.text(".left-out")


def test_the_text_opens_at_the_chosen_word(look, browser):
    look(1500, fragment="#view=text&row=1400")
    top, bottom, high = browser.run("const box = document.querySelector('.w.chosen').getBoundingClientRect();"
                                    "return [box.top, box.bottom, innerHeight]")
    assert 0 <= top < bottom <= high


def test_words_of_a_broad_head_differ_in_shade(heed, browser, tmp_path):
    draw = np.random.default_rng(3)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", draw.standard_normal((1, 300, 16), dtype=np.float32) * 0.6)
    (tmp_path / "words.txt").write_text("".join(f"w{i}\n" for i in range(300)))
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--tokens", "words.txt", "--html", "page.html")
    for log in "01":
        browser.open((tmp_path / "page.html").as_uri() + f"#view=text&row=7&log={log}")
        shades = browser.run("return [...document.querySelectorAll('.w')].map((word) => word.style.background)")
        counts = [shades.count(shade) for shade in set(shades)]
        assert len(counts) > 60 and max(counts) < 100


def test_small_weights_are_told_together_and_zeros_are_blank(look, browser):
    weights = look(40, fragment="#view=map&head=0&row=30")
    told = browser.run("return [...document.querySelectorAll('.shares tr')].map((row) => [...row.children].map((cell) => cell.innerText))")
    row = weights[0, 30]
    named = [float(cells[2].replace("−", "-")) for cells in told if cells[0] != "others"]
    assert all(weight >= 0.001 for weight in named) and told[-1][0] == "others"
    assert float(told[-1][2]) == pytest.approx(row.sum() - sum(np.sort(row)[::-1][:len(named)]), rel=2e-2, abs=2e-4)


@pytest.mark.parametrize("length", [12, LONG])
def test_a_row_of_nan_says_so_and_a_masked_one_attends_to_nothing(heed, browser, tmp_path, length):
    draw = np.random.default_rng(5)
    query, key, value = (draw.standard_normal((1, length, 8), dtype=np.float32) for _ in range(3))
    query[0, 5, 3] = np.nan
    mask = np.ones((length, length), bool)
    mask[7] = False
    for name, tensor in (("q", query), ("k", key), ("v", value), ("mask", mask)):
        np.save(tmp_path / f"{name}.npy", tensor)
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--mask", "mask.npy", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri() + "#view=map")
    for row, said in ((5, "This row's weights are NaN."), (7, "This row attends to nothing.")):
        move_to(browser, row, 0)
        assert said in browser.text(".panel")
