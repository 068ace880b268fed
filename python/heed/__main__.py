"""The command heed, which a wheel brings: `heed …` and `python -m heed …`."""

from __future__ import annotations

import os
import pathlib
import sys

COMMAND = pathlib.Path(__file__).with_name("command") / "bin" / "heed"


def main() -> int:
    """Becomes the command, with this process's arguments. Returns only where there is none."""
    try:
        os.execv(COMMAND, ["heed", *sys.argv[1:]])
    except OSError as error:
        print(f"heed: {COMMAND} cannot be run ({error.strerror}): a package installed by pip has it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
