"""Retakes the screenshots docs/pictures/page-*.png of README.md and docs/page.md, in Chromium.

    .venv/bin/python bench/page/screenshots.py

Needs the packages chromium and chromium-driver, and Pillow (./test --full installs it into .venv/). Pictures have at
most 256 colours and at most MOST_BYTES bytes.
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

MOST_BYTES = 150_000
ANIMAL = ["explain", "The animal didn't cross the street because it was too tired", "--heads", "4", "--causal"]
TWICE = ["look", "--model", "induction", "the cat sat on the mat and the cat sat on the rug"]

# Name, arguments of the command, fragment of the URL, window size.
PICTURES = [
    ("steps", ANIMAL, "#theme=light", (1280, 860)),
    ("map", TWICE, "#view=map&theme=light", (1280, 860)),
    ("map-dark", TWICE, "#view=map&theme=dark", (1280, 860)),
    ("phone", TWICE, "#view=map&theme=light", (390, 844)),
    ("living", ["explain", "--model", "induction"], "#theme=dark&thought=2", (1280, 836)),
]


def take(heed, folder, name, arguments, fragment, size):
    subprocess.run([heed, *arguments, "--html", "page.html"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with Browser(*size) as browser:
        browser.resize(*size)
        browser.open((folder / "page.html").as_uri() + fragment)
        browser.wait("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        browser.screenshot(folder / "shot.png")
    path = ROOT / "docs" / "pictures" / f"page-{name}.png"
    shot = Image.open(folder / "shot.png").convert("RGB")
    shot.quantize(colors=256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path} has {path.stat().st_size} bytes; {MOST_BYTES} at most are expected")
    print(path.relative_to(ROOT), path.stat().st_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of PICTURES; all without any")
    parser.add_argument("--heed", type=pathlib.Path, default=ROOT / "build" / "release" / "cli" / "heed", help="the command")
    arguments = parser.parse_args()
    if not available():
        parser.error("it needs the packages chromium and chromium-driver")
    with tempfile.TemporaryDirectory() as folder:
        for picture in PICTURES:
            if not arguments.names or picture[0] in arguments.names:
                take(arguments.heed.resolve(), pathlib.Path(folder), *picture)


if __name__ == "__main__":
    main()
