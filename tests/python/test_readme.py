"""README.md fits on one screen, and its pictures and figures are right. tests/scripts/documents.py checks its links,
tests/scripts/readme.sh runs its commands, tests/install its C++, python/tests/test_documents.py its Python, scripts/bare
all of it on a bare machine."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import minilm  # noqa: E402

README = (ROOT / "README.md").read_text()
MOST_WORDS = 700
MOST_BYTES_OF_A_PICTURE = 300_000
# The code blocks by section and language. One of the tests named above runs each.
BLOCKS = [("Two commands", "sh"), ("The command", "console"), ("The command", "console"), ("From C++", "cpp"), ("From C++", "sh"), ("From C++", "cmake"),
          ("From C++", "cmake"), ("From Python", "sh"), ("From Python", "python"), ("A model", "sh")]


def blocks(text):
    """(section, language, code) of each block."""
    section, found = None, []
    for heading, language, code in re.findall(r"^## ([^\n]*)$|^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        section = heading or section
        if not heading:
            found.append((section, language, code))
    return found


def test_it_is_one_screen():
    assert len(README.split()) <= MOST_WORDS
    bullets = re.search(r"^## Why heed\n(.*?)^(?=!\[|## )", README, re.M | re.S)[1]
    assert len(re.findall(r"^- ", bullets, re.M)) == 5


def test_every_block_of_code_is_one_that_a_test_runs():
    assert [(section, language) for section, language, _ in blocks(README)] == BLOCKS
    for section, language, code in blocks(README):
        if language in ("cpp", "python"):
            assert len(code.splitlines()) == 6, section
        if language == "console":
            assert len(code.splitlines()) <= 6, section


def test_its_pictures_are_small_and_the_chart_is_what_the_figures_make():
    pictures = re.findall(r"!\[[^]]*\]\((.*?)\)", README)
    assert len(pictures) == 2
    assert all((ROOT / picture).stat().st_size < MOST_BYTES_OF_A_PICTURE for picture in pictures)
    moving = (ROOT / pictures[0]).read_bytes()
    assert pictures[0] == "docs/pictures/living.gif" and moving.startswith(b"GIF89a") and b"NETSCAPE2.0" in moving  # it repeats
    assert moving.count(b"\x21\xf9\x04") >= 8  # frames


def test_the_chart_has_the_factors_of_performance_md():
    """Compares each bar's label with the table of the page."""
    chart = (ROOT / "docs" / "pictures" / "speed.svg").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in (ROOT / "docs" / "performance.md").read_text().split("evidence: peers-amx", 1)[1].splitlines()
            if line.startswith("| ")]
    shown = [float(text) for text in re.findall(r">([\d.]+) ×<", chart)]
    wanted = []
    for call in ("16, 2048, 2048, 64 f32", "16, 2048, 2048, 64 f32 causal", "16, 2048, 2048, 64 bf16", "32 (8 kv), 1, 8192, 128 f32"):
        row = next(row for row in rows if row[:2] == [call, "2"])
        heed, openvino, _, vllm, fused, operator, flash = (None if cell == "–" else float(cell) for cell in row[2:9])
        onnx = min((time for time in (fused, operator) if time), default=None)
        wanted += [time / heed for time in (flash, openvino, vllm, onnx) if time]
    assert shown == pytest.approx(wanted, abs=0.0501)
    text = re.search(r"!\[Time of one call .*?: ([\d.]+) to ([\d.]+) times", README)
    assert [float(number) for number in text.groups()] == [min(shown), max(shown)]


def stand_in(path, script):
    path.write_text(f"#!/bin/bash\nset -eu\n{script}\n")
    path.chmod(0o755)


def test_the_model_that_it_downloads_answers(tmp_path):
    """Runs the lines of "A model" as written, with stand-ins for the network. `hf` copies the files that it is asked
    for."""
    code = next(code for section, _, code in blocks(README) if section == "A model")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    stand_in(tmp_path / "env" / "bin" / "pip", '[[ "$*" == "install huggingface_hub" ]]')
    stand_in(tmp_path / "env" / "bin" / "hf", f'''
        [[ "$1 $2" == "download sentence-transformers/all-MiniLM-L6-v2" && "${{@:$#-1:1}}" == --local-dir ]]
        mkdir "${{@:$#}}" && for file in "${{@:3:$#-4}}"; do ln -s "{minilm.folder()}/$file" "${{@:$#}}/"; done''')
    stand_in(tmp_path / "run", f'exec "{COMMAND}" "$@"')
    done = subprocess.run(["bash", "-euc", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert re.search(r"^5\.3 +0\.5\d\d +1 +10 → 5", done.stdout, re.M)


def test_the_command_that_downloads_takes_these_arguments():
    command = pathlib.Path(sys.executable).parent / "hf"
    if not command.exists():
        pytest.skip("huggingface_hub is not installed beside this Python")
    said = subprocess.run([command, "download", "--help"], capture_output=True, text=True, check=True,
                          env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}).stdout
    assert "--local-dir" in said and re.search(r"REPO_ID", said) and re.search(r"FILENAMES", said)
