"""The page of a long text in a real browser: the data from its server, the guided zoom, and the badge of --proof."""

import json
import re
import struct

import numpy as np
import pytest

from browser import Browser, available
from serving import Served

pytestmark = pytest.mark.skipif(not available(), reason="the packages chromium and chromium-driver are not installed")
LENGTH = 2600  # more cells than a page holds
COPY, SOURCE, RUN = 1700, 400, 500  # rows from COPY on repeat those from SOURCE on


@pytest.fixture(scope="module")
def browser():
    with Browser(served=True, still=True) as browser:
        yield browser
        assert browser.errors() == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    draw = np.random.default_rng(8)
    base = draw.standard_normal((2, LENGTH, 64), dtype=np.float32)
    base[:, COPY:COPY + RUN] = base[:, SOURCE:SOURCE + RUN]
    for name, tensor in (("q", base), ("k", base * 1.5), ("v", base)):
        np.save(folder / f"{name}.npy", tensor)
    return folder


CALL = ("--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal")


@pytest.fixture(scope="module")
def weights(folder):
    query, key = (np.load(folder / name).astype(np.float64) for name in ("q.npy", "k.npy"))
    scores = query @ key.swapaxes(1, 2) / 8
    scores[:, ~np.tri(LENGTH, dtype=bool)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def served(folder):
    with Served(folder, *CALL, "--proof") as served:
        yield served


@pytest.fixture
def page(heed, folder, browser, tmp_path):
    """page(OPTION, …): writes the page to a file and opens it. Returns the command's messages and its exit code."""

    def run(*options, fragment=""):
        heed("look", *(str(folder / one) if one.endswith(".npy") else one for one in CALL), "--html", "page.html", *options)
        browser.open((tmp_path / "page.html").as_uri() + fragment)

    return run


def until(browser, condition):
    """Waits until a script's expression is true."""
    held = browser.wait("""for (let i = 0; i < 400; i++) {
        const held = (() => { try { return Boolean(CONDITION); } catch { return false; } })();
        if (held) return true;
        await new Promise((done) => setTimeout(done, 25));
    }""".replace("CONDITION", condition))
    assert held, condition + "\n" + browser.text("body")[:2000]


def number(text):
    return float(text.replace("−", "-"))


def at_rest(browser):
    until(browser, "document.querySelector('.server-note').textContent === ''")


def go(browser, url):
    browser.open(url)
    until(browser, "document.querySelector('[data-step=map] .marks')")


def test_every_row_is_had_from_the_server(served, browser, weights):
    go(browser, served.address + "#view=map&head=1&row=0&key=0")
    for row, key in [(2500, 3), (1234, 1000), (LENGTH - 1, 17)]:
        browser.run("location.hash = `view=map&head=1&row=${arguments[0]}&key=${arguments[1]}`", row, key)
        until(browser, "document.querySelector('output[data-result=weight]')")
        until(browser, "document.querySelector('tr.rest')")  # the whole row has arrived
        shown = number(browser.text("output[data-result=weight]"))
        assert shown == pytest.approx(weights[1, row, key], rel=6e-3, abs=6e-5)
        top = browser.run("return [...document.querySelectorAll('[data-top]')].map((cell) => Number(cell.dataset.top))")
        largest = list(np.argsort(-weights[1, row], kind="stable")[:10])
        assert top == [key for n, key in enumerate(largest) if n == 0 or weights[1, row, key] >= 0.001]
    assert browser.run("return document.querySelector('.elsewhere')") is None


def table(browser):
    """The picture's numbers, from its JSON button: rows, columns (the first position of each), values."""
    text = browser.wait("""
        window.saved = [];
        URL.createObjectURL = (blob) => { saved.push(blob); return 'blob:none'; };
        HTMLAnchorElement.prototype.click = function () {};
        [...document.querySelectorAll('[data-step=map] .actions button')].find((one) => one.textContent === 'JSON').click();
        return saved[0].text();""")
    read = json.loads(text)
    places = [np.array([int(label.replace(",", "")) for label in read[axis]]) for axis in ("rows", "columns")]
    return *places, np.array([[-np.inf if value is None else value for value in row] for row in read["values"]])


@pytest.mark.parametrize("zoom, step", [("1800_1830_500_530", 1), ("1000_1300_800_1100", 1), ("900_1600_400_1100", 2)])
def test_what_is_in_sight_is_drawn_from_its_weights(served, browser, weights, zoom, step):
    go(browser, f"{served.address}#view=map&head=0&zoom={zoom}")
    until(browser, f"document.querySelector('[data-step=map] .legend').textContent.includes('{step} rows') || " +
          f"({step} === 1 && !document.querySelector('[data-step=map] .legend').textContent.includes('bin'))")
    rows, keys, values = table(browser)
    assert np.all(np.diff(rows) == step) and np.all(np.diff(keys) == step)
    seen = [int(edge) for edge in zoom.split("_")]
    assert rows[0] <= seen[0] and keys[0] <= seen[2] and rows[-1] + step >= seen[1] and keys[-1] + step >= seen[3]
    for r in range(0, len(rows), 37):
        some = weights[0, rows[r]:rows[r] + step]
        for c in range(0, len(keys), 41):
            inside = np.tri(LENGTH, dtype=bool)[rows[r]:rows[r] + step, keys[c]:keys[c] + step]
            if not inside.any():
                assert values[r, c] == -np.inf
            else:
                assert values[r, c] == pytest.approx(some[:, keys[c]:keys[c] + step].sum() / len(some), rel=1e-4, abs=1e-9)


def test_what_is_passed_by_is_not_asked_for(served, browser):
    go(browser, served.address + "#view=map&row=2000")
    at_rest(browser)
    browser.run("performance.clearResourceTimings()")
    browser.run("document.querySelector('[data-step=map] .marks').focus({ preventScroll: true })")
    browser.press(*["up"] * 30)
    until(browser, "document.querySelector('tr.rest')")
    asked = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert any("rows=1970:1971&" in one for one in asked) and len(asked) < 15
    # Data that the page already has is not requested again.
    count = len(asked)
    browser.press("up", "down")
    browser.wait("await new Promise((done) => setTimeout(done, 400))")
    assert browser.run("return performance.getEntriesByType('resource').length") <= count + 1


def test_a_server_that_ended_is_told(folder, browser):
    with Served(folder, *CALL, "--no-received") as served:
        go(browser, served.address + "#view=map&row=100")
        at_rest(browser)
        served.end()
        browser.run("location.hash = 'view=map&row=2222'")
        until(browser, "document.querySelector('.server-note').textContent.includes('heed look --serve has ended')")
    browser.open("about:blank")
    errors = browser.errors()
    assert errors and all("ERR_CONNECTION_REFUSED" in one for one in errors)


def test_without_a_server_the_page_says_so_and_how_to_have_one(page, browser):
    page(fragment="#view=map&row=2222")
    until(browser, "document.querySelector('.elsewhere')")
    assert "Not on this page" in browser.text(".elsewhere")
    assert browser.text(".elsewhere code").endswith("--serve")
    assert browser.run("return document.querySelector('meta[http-equiv]').content").find("connect-src") == -1
    assert browser.run("return performance.getEntriesByType('resource').length") == 0


def stop(browser):
    return browser.text(".tour p")


def view(browser):
    """The range that the map shows: [first row, last row, first key, last key]. The whole map is not in the address."""
    zoom = browser.run("return new URLSearchParams(location.hash.slice(1)).get('zoom')")
    return [float(edge) for edge in zoom.split("_")] if zoom else [0, LENGTH, 0, LENGTH]


@pytest.mark.parametrize("by_server", [True, False])
def test_the_guided_zoom_finds_what_stands_out(served, page, browser, weights, by_server):
    if by_server:
        go(browser, served.address + "#view=map&head=0")
    else:
        page("--top-k", "5", fragment="#view=map&head=0")
    until(browser, "document.querySelector('.tour button')")
    # By keyboard: the button, then Next with Enter, until the last.
    browser.run("document.querySelector('.tour button').focus()")
    browser.press("enter")
    until(browser, "document.querySelector('.tour p')")
    assert "2,600 rows by 2,600 keys, 6.8 million weights" in stop(browser) and view(browser) == [0, LENGTH, 0, LENGTH]
    count = int(re.search(r"1 of (\d+)", browser.text(".tour"))[1])
    assert 4 <= count <= 8
    cells = 0
    for n in range(2, count):
        browser.run("[...document.querySelectorAll('.tour button')].find((one) => one.textContent === 'Next').focus()")
        browser.press("enter")
        until(browser, f"document.querySelector('.tour').textContent.includes('{n} of {count}')")
        until(browser, f"document.getElementById('told').textContent === {json.dumps(stop(browser))}")
        r0, r1, k0, k1 = view(browser)
        # On the copied run, keys are COPY - SOURCE rows back.
        assert abs((r0 + r1 - k0 - k1) / 2 - (COPY - SOURCE)) < 30 and COPY - 40 <= (r0 + r1) / 2 <= COPY + RUN + 40
        found = re.match(r"Row ([\d,]+) gives ([\d.e−]+) to key ([\d,]+)", stop(browser))
        if found:
            row, key = (int(found[one].replace(",", "")) for one in (1, 3))
            assert number(found[2]) == pytest.approx(weights[0, row, key], rel=1e-2)
            cells += 1
    assert cells >= 1
    browser.press("enter")
    until(browser, f"document.querySelector('.tour').textContent.includes('{count} of {count}')")
    assert view(browser) == [0, LENGTH, 0, LENGTH]
    browser.press("enter")
    until(browser, "!document.querySelector('.tour p') && document.activeElement === document.querySelector('.tour button')")


def test_escape_leaves_the_guided_zoom(served, browser):
    go(browser, served.address + "#view=map&head=1")
    browser.click(".tour button")
    until(browser, "document.querySelector('.tour p')")
    browser.run("document.querySelector('.tour button:last-of-type').focus()")
    browser.press("\ue00c")
    until(browser, "!document.querySelector('.tour p')")


def test_a_short_text_has_no_guided_zoom(heed, browser, tmp_path, folder):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.load(folder / f"{name}.npy")[:, :200])
    heed("look", *CALL, "--html", "short.html")
    browser.open((tmp_path / "short.html").as_uri() + "#view=map")
    assert browser.run("return document.querySelector('.tour').hidden")


def test_those_who_want_motion_see_it_glide(served):
    with Browser(served=True) as browser:
        go(browser, served.address + "#view=map&head=0")
        browser.click(".tour button")
        until(browser, "document.querySelector('.tour p')")
        shown = browser.wait("""
            const marks = document.querySelector('[data-step=map] .marks');
            const seen = new Set();
            [...document.querySelectorAll('.tour button')].find((one) => one.textContent === 'Next').click();
            for (let i = 0; i < 60; i++) {
                await new Promise((done) => setTimeout(done, 30));
                seen.add(marks.dataset.cells);
            }
            return seen.size;""")
        assert shown > 4
        assert browser.errors() == []


def test_the_badge_says_what_the_check_found(served, page, browser, heed, folder):
    page("--proof", fragment="#view=map")
    told = json.loads(heed("look", *(str(folder / one) if one.endswith(".npy") else one for one in CALL), "--save", "doc.safetensors",
                           "--check", "--json").stdout)
    largest = max(line["deviation"] for line in told["checks"])
    badge = browser.text(".proof summary")
    found = re.fullmatch(r"✓ exact: largest deviation (\S+) of 54.1 MB never stored", badge)
    assert found and number(found[1]) == pytest.approx(largest, rel=0.06)
    assert not browser.run("return document.querySelector('.proof').open")
    browser.click(".proof summary")
    rows = browser.run("return [...document.querySelectorAll('.proof tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))")
    assert [row[0] for row in rows] == [line["what"] for line in told["checks"]]
    assert all(row[3] == "holds" for row in rows)
    for row, line in zip(rows, told["checks"]):
        assert number(row[1]) == pytest.approx(line["deviation"], rel=0.06)
        assert number(row[2]) == pytest.approx(line["allowed"], rel=0.06)
    assert "32 rows, 32 keys, 32 bins of the map" in browser.text(".proof-details")
    browser.open(served.address)
    assert browser.text(".proof summary") == badge


def test_a_page_with_every_weight_does_not_say_that_none_is_stored(heed, browser, tmp_path, folder):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.load(folder / f"{name}.npy")[:, :200])
    heed("look", *CALL, "--html", "short.html", "--proof", "--check", "3")
    browser.open((tmp_path / "short.html").as_uri())
    assert re.fullmatch(r"✓ exact: largest deviation \S+", browser.text(".proof summary"))
    assert "6 rows" in browser.run("return document.querySelector('.proof-details').textContent")


def spoil(path, name):
    """Shifts every number of a tensor in the document."""
    data = bytearray(path.read_bytes())
    size, = struct.unpack("<Q", data[:8])
    begin, end = json.loads(data[8:8 + size])[name]["data_offsets"]
    begin, end = begin + 8 + size, end + 8 + size
    numbers = np.frombuffer(data[begin:end], "<f4") + 0.25
    data[begin:end] = numbers.astype("<f4").tobytes()
    path.write_bytes(data)


def test_a_mismatch_is_shown_and_fails(heed, browser, tmp_path, folder):
    heed("look", *(str(folder / one) if one.endswith(".npy") else one for one in CALL), "--save", "doc.safetensors")
    spoil(tmp_path / "doc.safetensors", "entropy")
    done = heed("look", "doc.safetensors", "--html", "page.html", "--proof", code=1)
    assert done.stderr == "heed: --proof found a mismatch: what is shown is not what was computed\n"
    browser.open((tmp_path / "page.html").as_uri())
    badge = browser.text(".proof summary")
    assert re.fullmatch(r"✗ mismatch: entropy is off by \S+, at most \S+ is allowed", badge)
    browser.click(".proof summary")
    assert browser.run("return document.querySelector('.proof tr.off').cells[3].textContent") == "mismatch"
    with Served(tmp_path, "doc.safetensors", "--proof") as served:
        browser.open(served.address)
        assert browser.text(".proof summary") == badge
        browser.open("about:blank")
        complaint, code = served.end()
        assert code == 1 and "found a mismatch" in complaint
