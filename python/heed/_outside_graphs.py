"""Methods of the extension as functions that torch.compile leaves out of its graphs.

Dynamo would take such a method for a function without self. It breaks the graph at a function with this mark, and calls
it as it is, at every run."""

from __future__ import annotations

import functools
from typing import Any

from ._heed import KvCache, SparseMask


def _marked(owner: type, name: str, method: Any) -> Any:
    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return method(self, *arguments, **options)

    setattr(call, "_torchdynamo_disable", True)
    setattr(call, "_torchdynamo_disable_msg", f"heed.{owner.__name__}.{name} is no part of a graph; torch.compile with "
                                              f"fullgraph=False is expected")
    return call


def mark() -> None:
    """Marks the public methods of the classes that calls of PyTorch use."""
    for owner in (KvCache, SparseMask):
        for name, method in list(vars(owner).items()):
            if type(method).__name__ == "nb_method" and not name.startswith("_"):
                setattr(owner, name, _marked(owner, name, method))
