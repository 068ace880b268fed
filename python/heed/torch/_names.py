"""Errors in the words of the function that was called, which calls others whose arguments have other names."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])
INNER = re.compile(r"(attention|scaled_dot_product_attention): ")


def _in_words_of(function: str, names: dict[str, str], text: str) -> str:
    inner = INNER.match(text)
    text = f"{function}: {text[inner.end():]}" if inner else text
    begin = len(function) + 2 if text.startswith(f"{function}: ") else 0
    for name, own in names.items():
        if re.match(rf"{name}\b", text[begin:]):
            text = text[:begin] + own + text[begin + len(name):]
            return re.sub(rf"\b{name}\.(item|detach)\(", rf"{own}.\1(", text)
    return text


def errors_name(function: str, **names: str) -> Callable[[Function], Function]:
    """Errors of the function name it, and its own arguments in place of `names`."""
    def decorate(call: Function) -> Function:
        @functools.wraps(call)
        def called(*arguments: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling():  # a compiled function catches nothing
                return call(*arguments, **options)
            try:
                return call(*arguments, **options)
            except (TypeError, ValueError) as error:
                if len(error.args) == 1 and isinstance(error.args[0], str):
                    error.args = (_in_words_of(function, names, error.args[0]),)
                raise

        return called  # type: ignore[return-value]

    return decorate
