"""Adds to the reference of Python (scripts/site) what _heed.pyi lacks: functions that have only overloads there, and the
words of the extension module, which stand in python/src."""
import re
from pathlib import Path

import griffe

SOURCES = Path(__file__).resolve().parent.parent / "python" / "src"
# Name in _heed: file and constant that hold its words.
WORDS = {
    "attention": ("attention.cpp", "kMeaning"),
    "attention_backward": ("backward.cpp", "kBackwardMeaning"),
    "KvCache": ("kv_cache.cpp", "kCacheMeaning"),
}


class Words(griffe.Extension):
    def on_package(self, *, pkg, **_):
        if pkg.name != "heed":
            return
        module = pkg["_heed"]
        for name, overloads in module.overloads.items():
            if overloads and name not in module.members:
                function = griffe.Function(name, parameters=overloads[0].parameters, returns=overloads[0].returns)
                function.overloads = overloads[1:]  # the first one is the function's own signature
                module.set_member(name, function)
        for name, (file, constant) in WORDS.items():
            words = re.search(rf'{constant} =\s*R"\((.*?)\)"', (SOURCES / file).read_text(), re.S)[1]
            module[name].docstring = griffe.Docstring(words, parent=module[name])
