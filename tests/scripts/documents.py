#!/usr/bin/env python3
"""documents.py ROOT: checks the Markdown documents, with Python's standard library alone.

- Every link to a file or a heading of this project leads somewhere, and docs/README.md leads to every document.
- Every file and folder that docs/architecture.md and docs/kernel.md name exists.
- Every test that docs/reliability.md names stands in the file to which its link leads.
- Every block of code is run. RUN names the test that runs all blocks of a language in a document. A block of C++ may
  also stand word for word in a source of examples/ or tests/, which is compiled and run. A block that shows output is
  ```text. NOT_RUN names all other blocks, with the reason.
"""
import re
import sys
from pathlib import Path

# The test that runs the blocks of a document and language. It must name the document.
RUN = {
    ("README.md", "cmake"): "tests/install/check.sh",
    ("README.md", "console"): "tests/CMakeLists.txt",  # by tests/scripts/readme.sh
    ("README.md", "cpp"): "tests/install/check.sh",
    ("README.md", "python"): "python/tests/test_documents.py",
    ("README.md", "sh"): "tests/python/test_readme.py",  # and scripts/bare, on a bare machine
    ("docs/README.md", "console"): "tests/CMakeLists.txt",
    ("docs/circuits-of-smollm2.md", "console"): "tests/python/test_circuits_of_smollm2.py",
    ("docs/command.md", "sh"): "tests/attend_test.cpp",
    ("docs/cpp.md", "c"): "tests/install/check.sh",
    ("docs/eviction.md", "sh"): "tests/python/test_documents.py",
    ("docs/forms.md", "python"): "python/tests/test_documents.py",
    ("docs/heads-of-minilm.md", "console"): "tests/python/test_heads_of_minilm.py",
    ("docs/forms.md", "python"): "python/tests/test_documents.py",
    ("docs/models.md", "python"): "python/tests/test_documents.py",
    ("docs/models.md", "sh"): "tests/python/test_documents.py",
    ("docs/python.md", "python"): "python/tests/test_documents.py",
    ("docs/tutorial.md", "console"): "tests/python/test_documents.py",
    ("docs/tutorial.md", "sh"): "tests/python/test_documents.py",
}
# Documents and the first line of a block, or for an indented block of its first command.
NOT_RUN = {
    "docs/command.md": {
        "mpirun -n 4 heed attend": "needs four ranks; tests/distributed/attend_over_ranks_test.cpp makes such calls",
        "mpirun -n 4 heed look": "needs four ranks; tests/distributed/look_over_ranks_test.cpp makes such calls",
        "heed --man look | man": "opens a pager; tests/scripts/manual.py and completion.py read what it would show",
        "heed look doc.safetensors --serve": "does not end; tests/python/test_serve.py",
    },
    "docs/hacking.md": {"./run look --model induction --protocol induction --layer 1": "beside a benchmark that needs .venv"},
    "docs/heads-of-minilm.md": {
        "heed ": "scripts/heads-of-minilm ran it; tests/python/test_heads_of_minilm.py compares",
    },
    "docs/heads.md": {"$ heed look --model induction 'the cat'": "tests/head_scores_test.cpp computes its numbers"},
    "docs/forms.md": {"heed bench": "measures; tests/bench_test.cpp"},
    "docs/kv_cache.md": {"heed bench": "measures for minutes; tests/bench_test.cpp"},
    "docs/page.md": {"./run explain --model induction --html": "stands in docs/README.md, too, and runs there"},
    "docs/performance.md": {"heed bench": "measures for a minute; tests/bench_test.cpp"},
    "docs/python.md": {
        "pip install .": "installs packages; python/tests/test_wheel.py builds the wheel",
        "report = heed.transformers.look": "needs a model from the network; python/tests/test_transformers_look.py",
        "from mpi4py import MPI": "needs ranks; python/tests/test_distributed.py",
    },
    "models/induction/README.md": {"heed train --task induction": "trains for minutes; tests/train_test.cpp trains a smaller one"},
    "models/stories/README.md": {
        "$ heed generate stories": "draws by chance; tests/python/test_stories.py reads such a text",
        "python3 models/stories/write_stories.py": "trains for minutes; tests/python/test_stories.py trains the first ten steps",
    },
}
# An indented block is code if a line begins with one of these. Other indented blocks are formulas and trees.
COMMANDS = re.compile(r"\$ |heed |\./run |\./test |pip |sudo |import |from |print\(|[a-z_]+ = heed\.|comm = ")
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)


def documents(root):
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md")), *sorted(root.glob("models/*/*.md")), root / "examples" / "README.md"]


def prose(text):
    """The text without its blocks of code."""
    return BLOCK.sub("", text)


def anchors(text):
    """The fragments of the headings, as GitHub makes them."""
    found, plains = set(), []
    for title in re.findall(r"^#+ (.*)$", prose(text), re.M):
        plain = re.sub(r"[^\w\- ]", "", re.sub(r"\]\(.*?\)", "", title)).strip().lower().replace(" ", "-")
        found.add(plain + (f"-{plains.count(plain)}" if plain in plains else ""))
        plains.append(plain)
    return found


def dead_links(root, path):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(path.read_text()))):
        if re.match(r"https?://", target):
            continue
        name, _, fragment = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or root not in found.parents:
            yield f"links to {target}, which does not exist"
        elif fragment and (found.suffix != ".md" or fragment not in anchors(found.read_text())):
            yield f"links to {target}, but {found.name} has no such heading"


def missing_paths(root, path):
    """Files that the document names without a link. Those of docs/kernel.md may begin in src/attention."""
    named, folders = set(), [root]
    if path.name == "architecture.md":
        named = set(re.findall(r"^ {4}([a-z_]+/[a-z_/]*)|`([a-z_]+/[a-z0-9_./]*)`", path.read_text(), re.M))
        assert len(named) > 30, "the tree of docs/architecture.md is not found"
    elif path.name == "kernel.md":
        named, folders = set(re.findall(r"(`)([a-z_]+/[a-z0-9_/]*\.[ch]pp)`", path.read_text())), [root, root / "src" / "attention"]
    for tree, code in sorted(named):
        name = code or tree
        if not any((folder / name).exists() for folder in folders):
            yield f"names {name}, which does not exist"


def missing_tests(path):
    """Tests in a table of promises whose name does not stand in their file."""
    if path.name != "reliability.md":
        return
    named = re.findall(r"\[(\w+)\]\((\.\./tests/[^)]+)\)", path.read_text())
    assert len(named) > 20, "the tests of docs/reliability.md are not found"
    for name, target in named:
        file = path.parent / target
        if file.exists() and not re.search(rf"\b{name}\b", file.read_text()):
            yield f"names the test {name}, which is not in {target}"


def blocks(text):
    """(language, code) of each block; the language of an indented block with a command is None."""
    yield from BLOCK.findall(text)
    for code in re.findall(r"(?:(?<=\n\n)|\A)(?: {4}[^\n]*\n|\n(?= {4}))+", prose(text)):
        lines = [line[4:] for line in code.splitlines()]
        commands = [line for line in lines if COMMANDS.match(line)]
        if commands:
            yield None, "\n".join(commands)


def bare(code):
    """The lines of C++ without indentation, empty lines and includes."""
    lines = (line.strip() for line in code.splitlines())
    return "\n" + "\n".join(line for line in lines if line and not line.startswith("#include")) + "\n"


def unrun_blocks(root, path, sources, listed):
    name = str(path.relative_to(root))
    for language, code in blocks(path.read_text()):
        first = code.splitlines()[0] if code else ""
        reasons = [start for start in NOT_RUN.get(name, {}) if first.startswith(start)]
        if reasons:
            listed.update((name, start) for start in reasons)
            continue
        if language == "text" or language == "cpp" and any(bare(code) in source for source in sources):
            continue
        test = RUN.get((name, language))
        if test is None:
            kind = "an indented block" if language is None else f"a block of {language or 'no language'}"
            yield f"has {kind} that no test runs: {first}"
            continue
        listed.add((name, language))
        # A folder's README.md must be named with its folder, for there are others.
        if (name if path.name == "README.md" else path.name) not in (root / test).read_text():
            yield f"has a block of {language}, but {test} does not name the document"


def main(root):
    sources = [bare(path.read_text()) for folder in ("examples", "tests") for path in sorted((root / folder).rglob("*.cpp"))]
    faults, listed, count = [], set(), 0
    for path in documents(root):
        count += len(BLOCK.findall(path.read_text()))
        for fault in [*dead_links(root, path), *missing_paths(root, path), *missing_tests(path), *unrun_blocks(root, path, sources, listed)]:
            faults.append(f"{path.relative_to(root)} {fault}")
    start = (root / "docs" / "README.md").read_text()
    faults += [f"docs/README.md does not lead to {path.name}" for path in sorted((root / "docs").glob("*.md"))
               if path.name != "README.md" and f"]({path.name}" not in start]
    faults += [f"RUN names a block of {language} in {name}; there is none" for name, language in RUN
               if (name, language) not in listed]
    faults += [f"NOT_RUN names a block of {name} that begins with {line!r}; there is none" for name, lines in NOT_RUN.items()
               for line in lines if (name, line) not in listed]
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(documents(root))} documents with {count} blocks of code: all links lead somewhere, all blocks are run or listed")


main(Path(sys.argv[1]).resolve())
