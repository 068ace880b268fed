"""docs/heads-of-minilm.md is the output of its script on the real model with this heed."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from conftest import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import minilm  # noqa: E402

DOCS = ROOT / "docs"
MOST_PICTURES = 650_000  # bytes
NUMBER = re.compile(r"\d+\.\d+(?= ?%|\W|$)")


def words_and_numbers(text):
    """Splits rows with figures into the words around the numbers, and the numbers: heads (1.8) as well as scores."""
    return NUMBER.sub("#", text), [float(number) for number in NUMBER.findall(text)]


def test_the_page_says_what_the_script_finds(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts" / "heads-of-minilm", "--heed", COMMAND, "--model", minilm.folder(),
                    "--docs", tmp_path], check=True)
    words, numbers = words_and_numbers((tmp_path / "heads-of-minilm.md").read_text())
    expected_words, expected = words_and_numbers((DOCS / "heads-of-minilm.md").read_text())
    assert words == expected_words
    # Instruction sets sum in different orders, so a last digit may be rounded differently (percentages have one
    # decimal).
    assert numbers == pytest.approx(expected, abs=0.1 + 1e-9, rel=0) and len(numbers) > 300
    close = sum(abs(a - b) <= 0.01 + 1e-9 for a, b in zip(numbers, expected))
    assert close >= len(numbers) - 5
    for name in ("atlas", "heads"):
        assert (tmp_path / "pictures" / f"minilm-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_its_pictures_are_there_and_small():
    named = re.findall(r"!\[[^]]*\]\((.*?)\)", (DOCS / "heads-of-minilm.md").read_text())
    assert sorted(named) == ["pictures/minilm-atlas.png", "pictures/minilm-heads.png"]
    assert sum((DOCS / name).stat().st_size for name in named) < MOST_PICTURES


def test_models_md_shows_what_the_command_prints(tmp_path):
    block = re.search(r"^```text\n(heed look --model MiniLM .*?)^```", (DOCS / "models.md").read_text(), re.M | re.S)[1]
    (tmp_path / "MiniLM").symlink_to(minilm.folder())
    printed, shown = iter(()), 0
    for line in block.splitlines():
        if line.startswith("heed "):
            done = subprocess.run(shlex.split(line.replace("heed", COMMAND, 1)), cwd=tmp_path, capture_output=True, text=True,
                                  check=True, timeout=60)
            printed = iter(done.stdout.splitlines())
        elif line != "…":
            assert line in printed, line  # after those found before it
            shown += 1
    assert shown >= 8
