#!/usr/bin/env python3
"""recipes.py ROOT PROGRAMS: runs the recipes of docs/cpp.md. The document shows each source of examples/recipes word for
word, and after it what the program prints. Numbers with decimals may differ by 0.02, because the BLAS of another
processor sums in another order."""
import re
import subprocess
import sys
from pathlib import Path

TOLERANCE = 0.02
DECIMALS = re.compile(r"\d+\.\d+")


def same(shown, printed):
    pairs = zip(DECIMALS.findall(shown), DECIMALS.findall(printed))
    return DECIMALS.sub("#", shown) == DECIMALS.sub("#", printed) and all(abs(float(a) - float(b)) <= TOLERANCE for a, b in pairs)


def main(root, programs):
    page = (root / "docs" / "cpp.md").read_text()
    shown = dict(re.findall(r"^```cpp\n(.*?)^```\n\nIt prints:\n\n```text\n(.*?)^```$", page, re.M | re.S))
    sources = sorted((root / "examples" / "recipes").glob("*.cpp"))
    if len(shown) != len(sources):
        sys.exit(f"docs/cpp.md shows {len(shown)} programs with their output; examples/recipes has {len(sources)}")
    for source in sources:
        if source.read_text() not in shown:
            sys.exit(f"docs/cpp.md does not show {source.name} as it is")
        printed = subprocess.run([programs / f"recipe_{source.stem}"], capture_output=True, text=True, check=True, timeout=60).stdout
        if not same(shown[source.read_text()], printed):
            sys.exit(f"docs/cpp.md shows other output of {source.name} than this:\n{printed}")
    print(f"{len(sources)} recipes print what docs/cpp.md shows")


main(Path(sys.argv[1]), Path(sys.argv[2]))
