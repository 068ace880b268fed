"""One sentence about arguments that nanobind refuses, made of its own message: signatures, and the types that were given."""

from __future__ import annotations

import re
from typing import NamedTuple

BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
NUMBERS = re.compile(r"(int|float|bool|numpy\.(u?int|float|bool)\d*_?)$")
NO_SEQUENCE = ("NoneType", "str", "bytes", "complex", "object", "function", "type")
NEVER_WHOLE = ("NoneType", "str", "bytes", "float", "complex", "list", "tuple", "dict", "set", "object", "function", "type")
EXPECTED = {"int": "a whole number", "float": "a number", "bool": "True or False", "str": "a str", "str | os.PathLike": "a path",
            "collections.abc.Sequence[int]": "a list of whole numbers", "collections.abc.Sequence[str]": "a list of str",
            "collections.abc.Sequence": "a list", "tuple[int, int]": "a pair of whole numbers", "object": "a value other than None"}
FITS, MAY_FIT, DIFFERS = range(3)


class Parameter(NamedTuple):
    """A parameter of a signature; `kind` is empty where nothing is known about its type."""

    name: str
    kind: str
    is_required: bool


class Signature(NamedTuple):
    function: str
    positional: list[Parameter]
    by_name: list[Parameter]  # only by name
    is_open: bool  # takes any further names


def _split(text: str) -> list[str]:
    """The parts between commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += BRACKETS.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _parameter(text: str) -> Parameter:
    named, _, default = text.partition("=")
    name, _, kind = named.partition(":")
    return Parameter(name.strip(), kind.strip(), not default)


def _signature(line: str) -> Signature:
    function, _, rest = line.partition("(")
    inside, _, made = rest.rpartition(" -> ")
    found: tuple[list[Parameter], list[Parameter]] = [], []
    names_only = is_open = False
    for part in _split((inside or made).rstrip().removesuffix(")")):
        is_open |= part.startswith("**")
        names_only |= part == "*"
        if part[0] not in "*/":
            found[names_only].append(_parameter(part))
    if function == "__new__":  # the class is the result, and the first parameter
        return Signature(made.rpartition(".")[2], found[0][1:], found[1], is_open)
    return Signature(function, found[0], found[1], is_open)


def _given(text: str) -> tuple[list[str], dict[str, str]]:
    """The types of positional arguments and of those by name."""
    places, _, names = text.partition("kwargs = {")
    by_name = (part.partition(":") for part in _split(names.strip().removesuffix("}")))
    return _split(places), {name.strip(): kind.strip() for name, _, kind in by_name}


def _fit(kind: str, given: str) -> int:
    """How a given type stands to the type of a parameter."""
    if " | " in kind and "[" not in kind.partition(" | ")[2]:
        return min(_fit(one, given) for one in kind.split(" | "))
    if kind in ("", "object"):
        return DIFFERS if kind and given == "NoneType" else FITS
    if kind == "int":
        whole = NUMBERS.match(given) and "float" not in given
        return FITS if whole else DIFFERS if given in NEVER_WHOLE or "float" in given else MAY_FIT
    if kind == "float":
        return FITS if NUMBERS.match(given) else DIFFERS if given in NEVER_WHOLE else MAY_FIT
    if "[" in kind or kind == "collections.abc.Sequence":
        return DIFFERS if given in NO_SEQUENCE or NUMBERS.match(given) else MAY_FIT
    if kind == "os.PathLike":
        return DIFFERS if given in NEVER_WHOLE or NUMBERS.match(given) else MAY_FIT
    return FITS if given == ("NoneType" if kind == "None" else kind) else DIFFERS


def _expected(kind: str) -> str:
    if kind in EXPECTED:
        return EXPECTED[kind]
    if kind.endswith(" | None"):
        return f"{_expected(kind.removesuffix(' | None'))} or None"
    return f"a {kind.replace('heed._heed.', 'heed.')}" if kind else "an argument"


def _one_of(parameters: list[Parameter]) -> str:
    names = [one.name for one in parameters]
    return names[0] if len(names) == 1 else f"one of {', '.join(names[:-1])} and {names[-1]}"


def _of_type(parameter: Parameter, given: str) -> str:
    what = "None" if given == "NoneType" else f"of type {given.replace('heed._heed.', 'heed.')}"
    return f"{parameter.name} is {what}; {_expected(parameter.kind)} is expected"


def _unfit(parameters: list[Parameter], types: dict[str, str]) -> str:
    """Of arguments whose types may fit."""
    if len(parameters) == 1:
        first = parameters[0]
        return f"{first.name} is of type {types[first.name]} and does not fit; {_expected(first.kind)} is expected"
    expected = " or ".join(dict.fromkeys(_expected(one.kind) for one in parameters))
    return f"{_one_of(parameters)} does not fit; {expected} is expected"


def _out_of_range(numbers: list[Parameter], function: str) -> str:
    if not numbers:
        return f"{function}() does not take these arguments; those of help({function}) are expected"
    return f"{_one_of(numbers)} is out of range; a whole number nearer to 0 is expected"


def sentence(message: str) -> str:
    """What is wrong, from nanobind's message about a function with one signature."""
    function, positional, by_name, is_open = _signature(message.partition("    1. ")[2].partition("\n")[0])
    places, names = _given(message.rpartition("Invoked with types: ")[2])
    if positional and positional[0].name == "self":
        owner, places, positional = "".join(places[:1]).rpartition(".")[2], places[1:], positional[1:]
        function = owner if function == "__init__" else function
    elif message.startswith("__new__"):
        places = places[1:]
    if len(places) > len(positional):
        return (f"{function}() takes {len(positional)} positional argument{'s' * (len(positional) != 1)} but {len(places)} "
                f"{'was' if len(places) == 1 else 'were'} given")
    known = [*positional, *by_name]
    for name in names:
        if not is_open and name not in [one.name for one in known]:
            return f"{function}() got an unexpected keyword argument '{name}'"
        if name in [one.name for one in positional[:len(places)]]:
            return f"{function}() got multiple values for argument '{name}'"
    types = {one.name: kind for one, kind in zip(positional, places)} | names
    for one in known:
        if one.is_required and one.name not in types:
            return f"{one.name} is missing; {_expected(one.kind)} is expected"
    fits = [(_fit(one.kind, types[one.name]), one) for one in known if one.name in types]
    worst = max((fit for fit, _ in fits), default=FITS)
    found = [one for fit, one in fits if fit == worst]
    if worst == DIFFERS:
        return _of_type(found[0], types[found[0].name])
    return _unfit(found, types) if worst == MAY_FIT else _out_of_range([one for one in found if "int" in one.kind], function)
