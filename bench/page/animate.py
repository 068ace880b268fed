"""Retakes the moving picture docs/pictures/living.gif of README.md, in Chromium: words are typed into the living page.

    .venv/bin/python bench/page/animate.py

Needs the packages chromium and chromium-driver, and Pillow (./test --full installs it into .venv/). Only what changes is
stored, and all frames share their colours.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from browser import Browser, available  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "living.gif"
MOST_BYTES = 300_000
COLOURS = 96
SIZE = (1000, 512)
# The picture shows the parts of the page that change.
STYLE = """.top, .typing > :not(textarea), #controls, .flow-row, #heads { display: none !important; }
    .life main { padding-top: 14px; } .desk { min-height: 171px; } .typing textarea { height: 100%; }"""
START = "the red fox met the blue fish and then the"
LETTER, WORD = 170, 2600  # milliseconds that a frame stays


def texts():
    """(text, milliseconds) of each frame: the last word is typed, rubbed out, and another one is typed."""
    yield START, 1300
    for word in (" red", " blue"):
        for end in range(2, len(word)):
            yield START + word[:end], LETTER
        yield START + word, WORD
        yield START, LETTER * 3


def frames(heed, folder):
    subprocess.run([heed, "explain", "--model", "induction", "--html", "life.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with Browser(*SIZE) as browser:
        browser.resize(*SIZE)
        browser.open((folder / "life.html").as_uri() + "#theme=dark&thought=2")
        browser.run("document.head.append(Object.assign(document.createElement('style'), {textContent: arguments[0]}))", STYLE)
        for number, (text, stay) in enumerate(texts()):
            browser.wait("""const typed = document.getElementById('typed');
                typed.value = arguments[0];
                typed.focus();
                typed.dispatchEvent(new Event('input'));
                await new Promise((done) => setTimeout(done, arguments[1]));""", text, 1200)  # until the work that waits is done
            path = folder / f"{number}.png"
            browser.screenshot(path)
            yield Image.open(path).convert("RGB"), stay


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heed", type=pathlib.Path, default=ROOT / "build" / "release" / "cli" / "heed", help="the command")
    arguments = parser.parse_args()
    if not available():
        parser.error("it needs the packages chromium and chromium-driver")
    with tempfile.TemporaryDirectory() as folder:
        shots, stays = zip(*frames(arguments.heed.resolve(), pathlib.Path(folder)))
    every = Image.new("RGB", (SIZE[0], SIZE[1] * 3))
    for place, shot in enumerate((shots[0], shots[len(shots) // 2], shots[-2])):
        every.paste(shot, (0, SIZE[1] * place))
    colours = every.quantize(colors=COLOURS, method=Image.Quantize.MEDIANCUT)
    first, *rest = [shot.quantize(palette=colours, dither=Image.Dither.NONE) for shot in shots]
    first.save(PICTURE, save_all=True, append_images=rest, duration=stays, loop=0, optimize=True)
    size = PICTURE.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{PICTURE} has {size} bytes; {MOST_BYTES} at most are expected")
    print(PICTURE.relative_to(ROOT), len(shots), "frames,", size, "bytes")


if __name__ == "__main__":
    main()
