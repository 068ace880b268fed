"""Optional dependencies, with a one-sentence error if one is missing."""

import importlib
from typing import Any

NOT_BUILT = "heed.{} is missing from this build of heed: build it again with HEED_NN=ON and HEED_MODEL=ON"


def need(module: str, what: str) -> Any:
    """Imports the module, or raises ImportError that says what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        raise ImportError(f"{what} needs {root}, which is not installed: pip install {root}") from None


def need_names(names: dict[str, tuple[str, ...]], what: str, works_with: str) -> None:
    """Raises ImportError if a module that `what` builds on lacks one of these names, in its installed version."""
    for module, wanted in names.items():
        root = importlib.import_module(module.partition(".")[0])
        found: Any
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            found = None
        for name in wanted:
            if not hasattr(found, name):
                raise ImportError(f"{what} needs {module}.{name}, which {root.__name__} {root.__version__} does not have: "
                                  f"expected {works_with}")
