"""The command heed from a wheel: `heed …` and `python -m heed …`."""

from __future__ import annotations

import os
import sys

from ._command import COMMAND


def main() -> int:
    """Replaces this process by the command, with the same arguments. Returns only if the command cannot be run."""
    try:
        os.execv(COMMAND, ["heed", *sys.argv[1:]])
    except OSError as error:
        print(f"heed: {COMMAND} cannot be run ({error.strerror}); a package installed by pip contains it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
