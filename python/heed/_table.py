"""What a report says in lines: a pandas DataFrame where pandas is installed, else a Table, which prints and sorts too."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

WIDEST = 110  # letters of a printed line
MOST_LINES = 60  # of a printed table
WORD = 18  # letters of a text in it


def cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3f}"
    text = "".join(letter if letter.isprintable() else "�" for letter in str(value))
    return text if len(text) <= WORD else text[:WORD - 1] + "…"


class Table(Sequence[dict[str, Any]]):
    """Lines of the same columns; iterates as dicts."""

    def __init__(self, lines: Sequence[dict[str, Any]]) -> None:
        self.lines = list(lines)
        self.columns: list[str] = list(self.lines[0]) if self.lines else []

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> Table: ...
    @overload
    def __getitem__(self, place: str) -> list[Any]: ...
    def __getitem__(self, place: int | slice | str) -> Any:
        """A line, some of them, or a column by its name."""
        if isinstance(place, str):
            return [line[self._known(place)] for line in self.lines]
        return Table(self.lines[place]) if isinstance(place, slice) else self.lines[place]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.lines)

    def _known(self, column: str) -> str:
        if column not in self.columns:
            raise KeyError(f"column is {column!r}; one of {', '.join(self.columns)} is expected")
        return column

    def sort_values(self, by: str, ascending: bool = True) -> Table:
        """By a column, as pandas does it: NaN last."""
        values = self[by]
        known = [place for place, value in enumerate(values) if value == value]
        order = sorted(known, key=lambda place: values[place], reverse=not ascending)
        return Table([self.lines[place] for place in [*order, *(p for p in range(len(values)) if p not in set(known))]])

    def head(self, n: int = 5) -> Table:
        return self[:n]

    def _fitting(self) -> tuple[list[list[str]], list[int]]:
        """The columns that fit side by side, each a list of texts with its name first; and their widths."""
        texts = [[name, *(cell(line[name]) for line in self.lines[:MOST_LINES])] for name in self.columns]
        widths = [max(map(len, column)) for column in texts]
        count = 0
        while count < len(texts) and sum(widths[:count + 1]) + 2 * count <= WIDEST:
            count += 1
        return texts[:count], widths[:count]

    def __repr__(self) -> str:
        if not self.lines:
            return "(no lines)"
        texts, widths = self._fitting()
        lines = []
        for row in range(len(texts[0])):
            parts = [column[row].ljust(width) if isinstance(self.lines[0][name], str) else column[row].rjust(width)
                     for name, column, width in zip(self.columns, texts, widths)]
            lines.append("  ".join(parts).rstrip())
        if len(self.lines) > MOST_LINES:
            lines.append(f"… and {len(self.lines) - MOST_LINES} lines more")
        if len(texts) < len(self.columns):
            lines.append("further columns: " + ", ".join(self.columns[len(texts):]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(tag: str, texts: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

        body = [row("td", [cell(value) for value in line.values()]) for line in self.lines[:MOST_LINES]]
        more = f"<p>… and {len(self.lines) - MOST_LINES} lines more</p>" if len(self.lines) > MOST_LINES else ""
        return f"<table>{row('th', self.columns)}{''.join(body)}</table>{more}"


def table(lines: Sequence[dict[str, Any]]) -> Any:
    """As pandas' DataFrame, if it can be imported."""
    try:
        import pandas
    except ImportError:
        return Table(lines)
    return pandas.DataFrame(lines)
