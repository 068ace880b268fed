"""scripts/evidence: the tables of the documents are those of docs/figures, and nothing else."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = sorted((ROOT / "docs" / "figures").glob("*.json"))


@pytest.fixture
def copy(tmp_path):
    """A copy of what the script reads and writes."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "evidence", tmp_path / "scripts")
    shutil.copytree(ROOT / "docs" / "figures", tmp_path / "docs" / "figures")
    (tmp_path / "docs" / "pictures").mkdir()
    shutil.copy(ROOT / "docs" / "pictures" / "speed.svg", tmp_path / "docs" / "pictures")
    for name in ("performance.md", "reliability.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    return tmp_path


def evidence(root, *arguments):
    return subprocess.run([root / "scripts" / "evidence", *arguments], capture_output=True, text=True)


def test_the_documents_are_what_the_figures_make():
    done = evidence(ROOT, "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page, old, new", [("performance.md", "| 12, 128, 128, 64 f32 | 78 %", "| 12, 128, 128, 64 f32 | 79 %"),
                                            ("reliability.md", "| caches | ", "| caches | 1"),
                                            ("pictures/speed.svg", ">heed<", ">Heed<")])
def test_a_figure_that_was_typed_by_hand_is_found_and_made_anew(copy, page, old, new):
    path = copy / "docs" / page
    right = path.read_text()
    assert old in right
    path.write_text(right.replace(old, new, 1))
    done = evidence(copy, "--check")
    assert done.returncode == 1 and f"docs/{page} is not what docs/figures makes" in done.stderr
    assert evidence(copy).returncode == 0 and path.read_text() == right


def test_a_table_without_a_place_and_a_place_without_a_table_are_told(copy):
    page = copy / "docs" / "performance.md"
    text = page.read_text()
    page.write_text(text.replace("evidence: bench-zen-5 ", "evidence: bench-zen-6 "))
    assert "no file of docs/figures has a table 'bench-zen-6'" in evidence(copy).stderr
    page.write_text(text.replace("<!-- scripts/evidence: bench-zen-5 -->\n", ""))
    assert "no page has a place for bench-zen-5" in evidence(copy).stderr


def test_a_run_of_the_benchmark_becomes_a_table(copy):
    run = [{"shape": [1, 32, 8, 1, 8192, 128], "dtype": "f32", "cache": None, "causal": False, "need": ["lse"], "isa": "avx2",
            "threads": threads, "seconds": 1.0, "gflops": 12.34 * threads, "ceiling": "reading", "share": 0.856} for threads in (1, 2)]
    (copy / "run.json").write_text(json.dumps(run))
    before = json.loads((copy / "docs" / "figures" / "bench.json").read_text())["tables"]
    assert evidence(copy, "--bench", "bench-zen-5", "On a machine:", copy / "run.json").returncode == 0
    assert len(json.loads((copy / "docs" / "figures" / "bench.json").read_text())["tables"]) == len(before)
    assert evidence(copy).returncode == 0
    page = (copy / "docs" / "performance.md").read_text()
    assert ("On a machine:\n\n| H, Lq, Lk, D | 1 thread | 2 threads |\n| --- | --- | --- |\n"
            "| 32 (8 key heads), 1, 8192, 128 f32, lse | 12.3 GFLOP/s; 86 % of reading | 24.7 GFLOP/s; 86 % of reading |\n") in page


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.stem)
def test_the_figures_name_their_machine_and_fill_their_tables(path):
    figures = json.loads(path.read_text())
    if "tables" not in figures:
        assert figures["date"] and figures["processor"]
        return
    assert figures["made by"]
    for table in figures["tables"]:
        assert table["caption"].endswith(":") and table["rows"]
        assert all(len(row) == len(table["columns"]) for row in table["rows"]), table["name"]


def test_the_parsers_whose_branches_are_counted_exist():
    named = re.findall(r'"((?:src|cli)/[^"]+)"', (ROOT / "scripts" / "branches").read_text())
    assert len(named) > 20 and all((ROOT / name).exists() for name in named)


def test_a_failure_of_a_run_is_explained():
    for name in ("soak", "long"):
        figures = json.loads((ROOT / "docs" / "figures" / f"{name}.json").read_text())
        assert figures["failures"] == [] or figures["note"]
