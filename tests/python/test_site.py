"""scripts/site.py makes the site of the documents: strictly, without a dead link, and it works from disk and from a server."""

import functools
import html.parser
import http.server
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

import pytest
from browser import Browser, available
from conftest import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import minilm  # noqa: E402

LOADING = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    missing = [name for name in ("mkdocs", "material", "mkdocstrings_handlers") if not importlib.util.find_spec(name)]
    if missing or not shutil.which("doxygen"):
        pytest.skip(f"the site needs {', '.join(missing or ['doxygen'])}")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, ROOT / "scripts" / "site.py", COMMAND, minilm.folder(), out], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return out / "site"


class Page(html.parser.HTMLParser):
    """The links of a page, what it loads, and the names that links may lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.names = [], [], {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (tag, name) == ("a", "name"):
                self.names.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)
                if (tag, name) in LOADING:
                    self.loaded.append(value)


def test_the_reference_of_cpp_opens_on_names_to_begin_with(site):
    links = set(Page(site / "cpp" / "index.html").links)
    assert {"../cpp.html", "../reference/cpp.html", "classheed_1_1KvCache.html", "namespaceheed_1_1nn.html"} <= links


def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if "live" not in path.relative_to(site).parts}
    assert len(pages) > 100
    faults = []
    for path, page in pages.items():
        if path.name == "404.html":  # a server shows it at any address, so its links begin at the root
            continue
        faults += [f"{path.relative_to(site)} loads {link}" for link in page.loaded if urllib.parse.urlsplit(link).netloc]
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            fragment = urllib.parse.unquote(parts.fragment)
            if not target.exists() or target in pages and fragment not in pages[target].names:
                faults.append(f"{path.relative_to(site)} links to {link}")
    assert faults == [], "\n".join(faults)


def test_the_references_have_every_public_name(site):
    names = {"heed." + name for name in re.search(r"__all__ = \[(.*?)\]", (ROOT / "python/heed/__init__.py").read_text(), re.S)[1]
             .replace('"', "").replace("\n", " ").replace(" ", "").split(",")} - {"heed.__version__"}
    assert len(names) > 15 and names <= Page(site / "reference" / "python.html").names
    commands = subprocess.run([COMMAND, "--help"], capture_output=True, text=True, check=True).stdout
    commands = {"heed-" + name for name in re.findall(r"^  ([a-z]+)  ", commands, re.M)}
    assert len(commands) > 10 and commands <= Page(site / "reference" / "command.html").names
    headers = {path.name for path in (ROOT / "include" / "heed").rglob("*.h*")}
    assert all(f">{name}<" in (site / "reference" / "cpp.html").read_text() for name in headers)


@pytest.fixture(scope="module")
def served(site):
    """The address of a server of the site."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(not available(), reason="chromium or chromedriver is not installed")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("source", ["disk", "server"])
def test_the_start_page_holds_a_model_to_type_into_and_finds_words(site, served, source, width):
    with Browser(width=width, served=True) as browser:
        browser.resize(width, 900)
        browser.open(f"{served}/index.html" if source == "server" else (site / "index.html").as_uri())
        assert browser.run("return document.documentElement.scrollWidth") <= width
        if width > 1000:
            found = browser.wait("""
                const box = document.querySelector('input[name=query]');
                box.focus();
                box.value = 'previous-token';
                box.dispatchEvent(new Event('keyup', {bubbles: true}));
                for (let i = 0; i < 100; ++i) {
                  await new Promise((done) => setTimeout(done, 50));
                  const links = [...document.querySelectorAll('.md-search-result__link')];
                  if (links.length) return links.map((link) => link.getAttribute('href'));
                }
                return [];""")
            assert any("heads" in link for link in found)
        browser.run("document.querySelector('iframe').scrollIntoView()")
        browser.enter("iframe")
        said = browser.wait("""
            for (let i = 0; i < 100 && !document.querySelector('textarea'); ++i) await new Promise((done) => setTimeout(done, 50));
            const text = document.querySelector('textarea');
            text.value = 'A B C A B';
            text.dispatchEvent(new Event('input', {bubbles: true}));
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            return document.querySelector('#expected').innerText;""")
        assert re.match(r"After B.*\s+C\s", said), said


@pytest.mark.skipif(not available(), reason="chromium or chromedriver is not installed")
def test_no_page_is_wider_than_a_phone(site):
    with Browser(width=390) as browser:
        browser.resize(390, 844)
        for page in ("tutorial", "live", "cpp", "reference/command", "command"):
            browser.open((site / f"{page}.html").as_uri())
            assert browser.run("return document.documentElement.scrollWidth") <= 390, page


@pytest.mark.skipif(not available(), reason="chromium or chromedriver is not installed")
@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_fault(site, dark):
    axe = pytest.importorskip("axe_core_python")
    rules = next(pathlib.Path(axe.__file__).parent.rglob("axe.min.js")).read_text()
    with Browser(width=1280, dark=dark) as browser:
        for page in ("index", "cpp"):
            browser.open((site / f"{page}.html").as_uri())
            browser.run(rules + "; window.axe = axe")
            found = browser.wait("""const found = await axe.run(document, {iframes: false, runOnly: ['wcag2a', 'wcag2aa']});
                return found.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html}`));""")
            assert not found, page + "\n" + "\n".join(found)
