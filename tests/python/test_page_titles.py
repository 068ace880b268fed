"""The titles of the page."""

import numpy as np

from page_support import browser, needs_a_browser, page  # noqa: F401

pytestmark = needs_a_browser


def looked(heed, tmp_path, length, tokens=None):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.ones((1, length, 4), np.float32))
    words = []
    if tokens:
        (tmp_path / "words.txt").write_text("".join(token + "\n" for token in tokens))
        words = ["--tokens", "words.txt"]
    heed("look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", *words, "--save", "doc.safetensors",
         "--html", "page.html")
    return (tmp_path / "page.html").as_uri()


def test_a_long_sentence_is_cut_at_a_word_in_the_tab(page, browser):
    words = [f"word{i}" for i in range(300)]
    page(" ".join(words), fragment="#view=map")
    title = browser.run("return document.title")
    assert title == " ".join(words[:10]) + "… · heed"
    assert browser.text("h1").startswith("word0 word1") and len(browser.text("h1")) <= 241


def test_a_call_with_tokens_is_called_by_its_sentence(heed, browser, tmp_path):
    browser.open(looked(heed, tmp_path, 3, ["the", " cat", "sat"]))
    assert browser.text("h1") == "the cat sat" and browser.run("return document.title") == "the cat sat · heed"
    assert browser.text("#about").startswith("q.npy: ")


def test_the_line_below_says_no_kernel_but_its_tooltip_does(heed, browser, tmp_path):
    browser.open(looked(heed, tmp_path, 3, ["the", " cat", "sat"]))
    assert browser.text("#about") == "q.npy: 1 head, 3 queries, 3 keys"
    assert "f32, fused" in browser.run("return document.getElementById('about').title")


def test_a_phone_shows_a_sentence_whole(heed, browser, tmp_path):
    words = "The doctor told the queen that the physician thought she was ill .".split()
    url = looked(heed, tmp_path, len(words), words)
    browser.resize(390, 844)
    browser.open(url)
    whole = browser.run("const title = document.querySelector('h1'); return title.scrollHeight <= title.clientHeight + 1 && "
                        "title.scrollWidth <= title.clientWidth")
    browser.resize(1360, 900)
    assert whole and browser.text("h1") == " ".join(words)


def test_a_call_without_tokens_is_called_by_its_size_and_a_document_by_its_name(heed, browser, tmp_path):
    browser.open(looked(heed, tmp_path, 1))
    assert browser.text("h1") == "Attention of 1 row over 1 key"
    browser.open(looked(heed, tmp_path, 12))
    assert browser.text("h1") == "Attention of 12 rows over 12 keys"
    assert "thoughts" not in browser.text(".bottom")  # only a page of steps has a story
    heed("look", "doc.safetensors", "--html", "page.html")
    browser.open((tmp_path / "page.html").as_uri())
    assert browser.text("h1") == "doc.safetensors"
