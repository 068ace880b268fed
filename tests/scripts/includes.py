#!/usr/bin/env python3
"""includes.py ROOT: draws which folders of src include which, lowest first, and fails where they form a circle."""
import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1]) / "src"


def graph_of(root):
    """Folder -> the folders that its files include."""
    graph = {}
    for file in sorted(root.rglob("*.?pp")):
        folder = str(file.parent.relative_to(root))
        included = graph.setdefault(folder, set())
        for path in re.findall(r'^#include "([a-z0-9_/]+)/[a-z0-9_]+\.hpp"', file.read_text(), re.MULTILINE):
            if not path.startswith("heed") and path != folder:
                included.add(path)
    return graph


def circle_in(rest):
    """A way from a folder back to it. Each folder of `rest` includes another one."""
    way = [min(rest)]
    while len(set(way)) == len(way):
        way.append(min(rest[way[-1]] & set(rest)))
    return way[way.index(way[-1]):]


def main():
    graph = graph_of(ROOT)
    rest = dict(graph)
    while rest:
        lowest = sorted(folder for folder, included in rest.items() if not included & set(rest))
        if not lowest:
            sys.exit("folders of src include each other: " + " -> ".join(circle_in(rest)))
        for folder in lowest:
            print(f"{folder:26} {' '.join(sorted(graph[folder]))}")
            del rest[folder]
    unknown = {path for included in graph.values() for path in included} - set(graph)
    if unknown or len(graph) < 20:
        sys.exit(f"src has {len(graph)} folders, and no {unknown}; 20 and more were expected, and all that are included")


main()
