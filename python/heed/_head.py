"""A head of a report: report[0], report["1.3"]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._places import require

if TYPE_CHECKING:
    from ._look import Floats, HeadSummary, Report


class Head:
    """One head of a report."""

    def __init__(self, report: Report, number: int) -> None:
        from ._look import Report

        require("report", report, Report, "a heed.Report")
        self.report = report
        self.number = number  #: on the axis of all heads
        self.label: str = report.label(number)
        self.summary: HeadSummary = report.summaries[number]  #: of batch entry 0

    @property
    def name(self) -> str:
        """The name of its pattern: "induction", "2 back", …"""
        return self.summary["name"]

    @property
    def weights(self) -> Floats:
        """[Lq, Lk] of batch entry 0."""
        whole: Floats = self.report.tile(head=self.number, batch=0)[0, 0]
        return whole

    def row(self, row: int | str, top: int = 5) -> Any:
        """The keys that a row attends to most, as a table."""
        return self.report.row(row, self.number, top=top)

    def plot(self) -> Any:
        """A matplotlib figure with its map."""
        return self.report.plot([self.number])

    def __repr__(self) -> str:
        names = self.summary["names"]
        score = f" {names[0]['score']:.2f}{'*' if names[0]['of_rest'] else ''}" if names else ""
        return f"<heed.Head {self.label}: {self.name}{score}>"

    def __str__(self) -> str:
        return self.report.table_of([self.summary])
