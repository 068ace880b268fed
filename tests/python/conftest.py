"""Shared by the tests in Python: runs the command."""

import os
import subprocess

import pytest

COMMAND = os.environ["HEED_COMMAND"]


@pytest.fixture
def heed(tmp_path):
    """heed(ARGUMENT, …): runs the command in an empty folder. Fails with its messages unless it exits with `code`
    (None: any code except that of a crash)."""

    def run(*arguments, code=0):
        done = subprocess.run([COMMAND, *map(str, arguments)], cwd=tmp_path, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60)
        right = done.returncode in (0, 1, 2) if code is None else done.returncode == code
        assert right, f"{done.returncode}: heed {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        return done

    return run
