"""Measures the page of `heed look --html` in Chromium and prints a Markdown table.

The columns are the page's size, the time to the first paint, the time to the map, and the delay from a pointer move to
its frame.

    .venv/bin/python bench/page/page.py

Needs Debian's packages chromium and chromium-driver, and NumPy (./test installs it into .venv/). Frames are late on a
shared machine.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from browser import Browser, available  # noqa: E402

# Tokens, heads, and further arguments of the command.
PAGES = [(4096, 12, ["--top-k", "8"]), (100_000, 4, ["--top-k", "8"]), (2000, 12, ["--top-k", "8"])]

# The time from a pointer move to the end of the frame that shows it, at points all over the map.
FOLLOW = """
const canvas = document.querySelector('[data-step=map] .figures .marks');
canvas.scrollIntoView({block: 'center'});
const box = canvas.getBoundingClientRect();
const frame = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = done;
  channel.port2.postMessage(0);
}));
const times = [];
for (let i = 0; i < 120; ++i) {
  await frame();
  const place = {clientX: box.x + box.width * (0.1 + 0.8 * (i * 0.618 % 1)),
                 clientY: box.y + box.height * (0.1 + 0.8 * (i * 0.382 % 1)), bubbles: true, pointerType: 'mouse'};
  const begin = performance.now();
  canvas.dispatchEvent(new PointerEvent('pointermove', place));
  await frame();
  times.push(performance.now() - begin);
}
return times;
"""


def make_page(heed, folder, tokens, heads, options):
    draw = numpy.random.default_rng(1)
    for name in "qkv":
        numpy.save(folder / f"{name}.npy", draw.standard_normal((heads, tokens, 64), dtype=numpy.float32))
    (folder / "words.txt").write_text("".join(f"w{i % 1000}\n" for i in range(tokens)))
    subprocess.run([heed, "look", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--causal", "--tokens",
                    "words.txt", "--html", "page.html", *options], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "page.html"


def measure(browser, page):
    browser.open(page.as_uri() + "#view=map")
    drawn = browser.wait("while (!document.querySelector('[data-step=map] .figures .marks')?.dataset.cells)"
                         " await new Promise((done) => setTimeout(done, 20)); return performance.now()")
    paint = browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return paint, drawn, sorted(browser.wait(FOLLOW))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heed", type=pathlib.Path, default=ROOT / "build" / "release" / "cli" / "heed",
                        help="the command")
    arguments = parser.parse_args()
    if not available():
        parser.error("it needs the packages chromium and chromium-driver")
    print("| Page | Size | First paint | The map is there | From pointer to picture, median / 95 % |\n"
          "| --- | --- | --- | --- | --- |")
    for tokens, heads, options in PAGES:
        with tempfile.TemporaryDirectory() as folder, Browser() as browser:
            page = make_page(arguments.heed.resolve(), pathlib.Path(folder), tokens, heads, options)
            paint, drawn, times = measure(browser, page)
            print(f"| {tokens:,} tokens, {heads} heads, causal | {page.stat().st_size / 1e6:.1f} MB | {paint / 1000:.1f} s |"
                  f" {drawn / 1000:.1f} s | {statistics.median(times):.0f} / {times[len(times) * 95 // 100]:.0f} ms |", flush=True)


if __name__ == "__main__":
    main()
