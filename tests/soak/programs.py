"""Runs heed's command and other programs for the doors, with limits, and holds their ends to what is promised."""

import os
import pathlib
import resource
import signal
import subprocess
import time

COMMAND = os.environ.setdefault("HEED_COMMAND", str(pathlib.Path(__file__).resolve().parents[2] / "build/release/cli/heed"))


def quiet_environment(**more):
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **more}


class Ended:
    """How a program ended: code (negative: killed by that signal), output, errors."""

    def __init__(self, code, output, errors, words):
        self.code, self.output, self.errors, self.words = code, output, errors, words

    def __str__(self):
        return f"'{' '.join(self.words)}' ended with {self.code}: {self.errors.strip() or self.output.strip()[-300:]}"

    def is_refusal(self):
        """Whether it ended with one sentence, as every error must."""
        said = [line for line in self.errors.strip().splitlines() if not line.startswith("step ")]  # progress
        return self.code == 1 and len(said) == 1 and said[0].startswith("heed: ")


def start(words, folder, limits=(), **more):
    """Starts a program in a process group of its own; limits: (resource.RLIMIT_…, bytes)."""

    def prepare():
        for which, most in limits:
            resource.setrlimit(which, (most, most))
        if any(which == resource.RLIMIT_FSIZE for which, _ in limits):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    return subprocess.Popen([str(word) for word in words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, preexec_fn=prepare,
                            env=quiet_environment(**more))


def run(words, folder, limits=(), after=None, act=None, **more):
    """Runs to the end. After `after` seconds, act(process) is called."""
    process = start(words, folder, limits, **more)
    if after is not None:
        time.sleep(after)
        act(process)
    output, errors = process.communicate()
    return Ended(process.returncode, output, errors, [str(word) for word in words])


def heed(folder, *words, **more):
    return run([COMMAND, *words], folder, **more)


def right(ended):
    assert ended.code == 0, str(ended)
    return ended
