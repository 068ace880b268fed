"""docs/circuits-of-smollm2.md is the output of its script on the real models with this heed."""

import pathlib
import re
import subprocess
import sys

from conftest import COMMAND

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import real_models  # noqa: E402

NUMBER = re.compile(r"[+-]?\d+\.\d{2,3}")


def lines_and_numbers(path):
    """Each line without its figures, and the figures."""
    return [(NUMBER.sub("#", line).split(), [float(one) for one in NUMBER.findall(line)])
            for line in path.read_text().splitlines()]


# Instruction sets sum in different orders. A read whose share is near the least one may come or go, and the order of two
# equal shares may change.
def test_the_page_says_what_the_script_finds(tmp_path):
    subprocess.run([sys.executable, ROOT / "scripts" / "circuits-of-smollm2", "--heed", COMMAND, "--model", real_models.smollm2(),
                    "--gemma", real_models.gemma3(),
                    "--docs", tmp_path], check=True)
    made = lines_and_numbers(tmp_path / "circuits-of-smollm2.md")
    expected = lines_and_numbers(ROOT / "docs" / "circuits-of-smollm2.md")
    found = sum(any(words == one and all(abs(a - b) < 0.05 for a, b in zip(numbers, others)) for one, others in made)
                for words, numbers in expected)
    assert found >= 0.9 * len(expected) and len(expected) > 100
