"""`heed generate` writes 2,000 tokens a minute allowed: memory does not grow with the text's length."""

import time

from measure import Watch
from programs import COMMAND, start

A_MINUTE = 2_000


def run(minutes, folder):
    tokens = max(300, int(A_MINUTE * minutes))
    begun = time.time()
    process = start([COMMAND, "generate", "stories", "--tokens", tokens, "--temperature", "1", "--threads", 1], folder)
    with Watch(process.pid, max(0.05, min(5, 60 * minutes / 40))) as watch:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert len(output.rstrip("\n")) >= tokens, f"{len(output)} characters of {tokens} were written"  # a token is a character
    return {"tokens": tokens, "seconds": round(time.time() - begun), **watch.check_flat()}
