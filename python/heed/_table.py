"""Tables of reports: a pandas DataFrame if pandas is installed, otherwise a Table, which also prints and sorts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from typing import Any, overload

WIDEST = 110  # columns of a printed line
MOST_LINES = 60  # of a printed table
WORD = 16  # most characters of a text in a cell, as in the command


def cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3f}"
    text = "".join(letter if letter.isprintable() else "�" for letter in str(value))
    return text if len(text) <= WORD else text[:WORD - 1] + "…"


class Table(Sequence[dict[str, Any]]):
    """Rows with the same columns; iterates as dicts."""

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
        """A row, several rows, or a column by its name."""
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
        """Sorts by a column as pandas does, with NaN last."""
        values = self[by]
        known = [place for place, value in enumerate(values) if value == value]
        order = sorted(known, key=lambda place: values[place], reverse=not ascending)
        return Table([self.lines[place] for place in [*order, *(p for p in range(len(values)) if p not in set(known))]])

    def head(self, n: int = 5) -> Table:
        return self[:n]

    def _fitting(self) -> tuple[list[list[str]], list[int]]:
        """The columns that fit side by side, each a list of texts that starts with its name; and their widths."""
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
            lines.append(f"… and {len(self.lines) - MOST_LINES} more lines")
        if len(texts) < len(self.columns):
            lines.append("further columns: " + ", ".join(self.columns[len(texts):]))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(tag: str, texts: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

        body = [row("td", [cell(value) for value in line.values()]) for line in self.lines[:MOST_LINES]]
        more = f"<p>… and {len(self.lines) - MOST_LINES} more lines</p>" if len(self.lines) > MOST_LINES else ""
        return f"<table>{row('th', self.columns)}{''.join(body)}</table>{more}"


def table(lines: Sequence[dict[str, Any]]) -> Any:
    """The rows as a pandas DataFrame if pandas can be imported, else as a Table."""
    try:
        import pandas
    except ImportError:
        return Table(lines)
    return pandas.DataFrame(lines)
