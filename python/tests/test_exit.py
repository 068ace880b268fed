"""The end of a process: nothing is printed about objects that the user's code keeps alive, and heed itself leaks
nothing."""

import os
import subprocess
import sys

import pytest

USE = """
import numpy as np
import heed
from heed import _heed, nn

def use():
    x = np.ones((2, 3, 5, 4), np.float32)
    report = heed.look(x, x, x, cost=True)
    str(report), report.page()
    result = heed.attention(x, x, x, need=("weights", "lse", "received"), top_k=2)
    heed.attention_tile(x, x, result.lse, rows=(0, 2), keys=(0, 2))
    layer = nn.MultiHeadAttention(8, 2, generator=nn.Generator(1))
    attended = layer(np.ones((5, 8), np.float32), need="weights")
    for wrong in (dict(causal="yes"), dict(window=(-5, 0)), dict(no_such_option=1)):
        try:
            heed.attention(x, x, x, **wrong)
        except (TypeError, ValueError):
            pass
    return report, result, layer, layer.parameters(), attended
"""
KEPT_BY_A_THREAD = USE + """
import threading
import time
threading.Thread(target=lambda kept=use(): time.sleep(1000), daemon=True).start()
"""
KEPT_BY_A_REGISTRY = USE + """
from transformers import AttentionInterface
AttentionInterface.register("mine", lambda q, k, v, kept=use(): None)
"""


def said_at_exit(program):
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                         env=os.environ | {"HF_HUB_OFFLINE": "1"})
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def test_what_a_thread_keeps_alive_is_not_spoken_of():
    assert said_at_exit(KEPT_BY_A_THREAD) == ""


def test_what_a_registry_of_functions_keeps_alive_is_not_spoken_of():
    pytest.importorskip("transformers")
    assert said_at_exit(KEPT_BY_A_REGISTRY) == ""


def test_heed_keeps_nothing_alive_itself():
    watched = "\n_heed.set_leak_warnings(True)\n"
    assert said_at_exit(USE + watched + "use()") == ""
    assert said_at_exit(KEPT_BY_A_THREAD + watched).startswith("nanobind: leaked ")  # so a leak would be seen
