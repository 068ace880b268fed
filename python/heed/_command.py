"""The command heed, for what only it does: the lesson of `heed explain`, posters and the server of a report."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import weakref
import webbrowser
from collections.abc import Callable, Sequence

COMMAND = pathlib.Path(__file__).with_name("command") / "bin" / "heed"  # in a wheel


def command_path(what: str) -> str:
    """The command beside the package, or else on PATH."""
    found = str(COMMAND) if COMMAND.exists() else shutil.which("heed")
    if found is None:
        raise FileNotFoundError(f"{what} needs the command heed, which is neither in the package nor on PATH: install it as README.md says, "
                                "or build it with HEED_BUILD_CLI=ON")
    return found


def run(what: str, *arguments: str | os.PathLike[str], read: str = "") -> str:
    """The output of the command. It reads `read` as its standard input. Its refusals become ValueError, its failures OSError."""
    done = subprocess.run([command_path(what), *(os.fspath(one) for one in arguments)], input=read, capture_output=True,
                          encoding="utf-8")
    if done.returncode:
        raise (ValueError if done.returncode == 2 else OSError)(_sentence(done.stderr))
    return done.stdout


def _sentence(text: str) -> str:
    """The command's sentence, with an argument's name in place of an option's."""
    sentence = re.sub(r"^--out\b", "path", text.strip().removeprefix("heed: "))
    return re.sub(r"^--([a-z]+)", r"\1", sentence)


class Server:
    """A report that a browser on this machine can read at `url`, until stop()."""

    def __init__(self, document: pathlib.Path, port: int, title: str, more: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen([command_path("serve"), "look", str(document), "--serve", "--port", str(port), "--brief",
                                          *(["--title", title] if title else []), *more],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self._end = weakref.finalize(self, _end, self._process)  # also when Python ends
        assert self._process.stdout is not None and self._process.stderr is not None
        self.url = next((line.split()[1] for line in self._process.stdout if line.startswith("Open http")), "")
        if not self.url:
            self._process.wait()
            raise ValueError(_sentence(self._process.stderr.read()))

    def __repr__(self) -> str:
        return f"<heed server: {self.url if self._process.poll() is None else 'stopped'}>"

    def stop(self) -> None:
        """Ends the server."""
        self._end()

    def wait(self) -> None:
        """Returns when the server has ended; Ctrl-C ends it."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            self.stop()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
    process.communicate()


def show_page(write: Callable[[pathlib.Path], None], cell: object) -> pathlib.Path | None:
    """Shows `cell` in a notebook; elsewhere writes a page, opens it in the browser and returns its path."""
    if in_notebook():
        from IPython.display import display

        display(cell)
        return None
    path = pathlib.Path(tempfile.mkdtemp(prefix="heed-"), "look.html")
    write(path)
    webbrowser.open(path.as_uri())
    return path


def in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return hasattr(get_ipython(), "kernel")
