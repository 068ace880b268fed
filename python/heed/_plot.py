"""Pictures of a report's maps, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._look import Report

MOST_PLOTS = 16  # most heads in a picture with words
MOST_WORDS = 40
LONGEST_LABEL = 16  # characters of a word, as wide as on the page


def draw_head(axis: Any, report: Report, head: int, batch: int) -> None:
    axis.imshow(report._picture(batch, head), cmap="Blues", vmin=0, aspect="auto", interpolation="nearest",
                extent=(-0.5, report._data.keys - 0.5, report._data.queries - 0.5, -0.5))


def label(set_ticks: Any, tokens: list[str], count: int, **style: Any) -> None:
    if tokens and count <= MOST_WORDS:
        short = [token if len(token) <= LONGEST_LABEL else token[:LONGEST_LABEL - 1] + "…" for token in tokens]
        set_ticks(range(count), [token.replace("$", r"\$") for token in short], fontsize=7, **style)


def figure_class(pyplot: Any) -> Any:
    """The class of a figure. Notebooks with the inline backend draw a cell's value, and at the end of the cell all open figures.
    A figure of this class closes when it is drawn, so it is drawn once."""
    from matplotlib.figure import Figure

    class Maps(Figure):
        def _ipython_display_(self) -> None:
            from IPython.core.pylabtools import print_figure
            from IPython.display import Image, display

            display(Image(print_figure(self)))
            pyplot.close(self)

    return Maps if "inline" in pyplot.get_backend() else Figure


def plot_heads(pyplot: Any, report: Report, heads: Sequence[int], batch: int) -> Any:
    """The maps of several heads side by side, with their words."""
    columns = min(4, len(heads))
    rows = -(-len(heads) // columns)
    figure, axes = pyplot.subplots(rows, columns, squeeze=False, FigureClass=figure_class(pyplot),
                                 figsize=(3.2 * columns, 3.2 * rows), layout="constrained")
    for place, axis in enumerate(axes.flat):
        if place >= len(heads):
            axis.set_axis_off()
            continue
        head = heads[place]
        draw_head(axis, report, head, batch)
        summary = report.summaries[batch * report._data.heads + head]
        name = f"{report.label(head)}" if report.layers else f"head {head}"
        axis.set_title(f"{name}: {summary['name']}", fontsize=9)
        label(axis.set_xticks, report.key_tokens, report._data.keys, rotation=90)
        label(axis.set_yticks, report.tokens, report._data.queries)
    return figure


def plot_layers(pyplot: Any, report: Report, batch: int) -> Any:
    """All heads: layers from top to bottom, heads from left to right."""
    columns = max(heads for _, heads in report.layers)
    figure, axes = pyplot.subplots(len(report.layers), columns, squeeze=False, layout="constrained", FigureClass=figure_class(pyplot),
                                   figsize=(0.9 * columns + 0.6, 0.9 * len(report.layers) + 0.4))
    head = 0
    for row, (name, heads) in enumerate(report.layers):
        for column, axis in enumerate(axes[row]):
            axis.set_xticks([])
            axis.set_yticks([])
            if row == 0:
                axis.set_title(str(column), fontsize=8)
            if column >= heads:
                axis.set_axis_off()
                continue
            draw_head(axis, report, head + column, batch)
        axes[row][0].set_ylabel(name, fontsize=8)
        head += heads
    figure.supxlabel("heads; layers from top to bottom", fontsize=8)
    return figure
