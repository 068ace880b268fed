"""heed.look: what attended to what, as an object that prints, plots and shows itself."""

from __future__ import annotations

import html
import os
import pathlib
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import numpy.typing as npt

from . import _heed
from ._missing import need
from ._run import Run, is_run, open_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._heed import AttentionOptions

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]

MOST_HEADS = 64  # lines of a printed table
MOST_PLOTS = 16  # heads of a picture
MOST_CELL_BYTES = 4_000_000  # of the page in a notebook's cell, which is saved with the notebook
PAGES = (".html", ".htm")
PICTURES = (".png", ".svg", ".pdf")


class HeadSummary(TypedDict):
    """One head of one batch entry: means over the rows that see a key. `scores`: how well each rule that names heads
    fits, from 0 to 1."""

    batch: int
    head: int
    name: str
    rows: int
    nan_rows: int
    entropy: float
    max_weight: float
    distance: float
    first: float
    self: float
    previous: float
    next: float
    induction: float
    scores: dict[str, float]
    most_received: list[int]
    most_received_weight: list[float]


class CostLine(TypedDict):
    """One thing that was asked for, and what it cost."""

    what: str
    seconds: float
    times: float
    bytes: float
    estimated: bool
    made: bool


class Report:
    """What heed.look found. Arrays are NumPy's, with the axes batch and head always there."""

    output: npt.NDArray[Any] | None  #: [B, H, Lq, Dv], in the inputs' dtype; None in a document
    position: Integers  #: [B, Lq]: where each query stands among the keys
    key_begin: Integers  #: [B, Lq]: keys [key_begin, key_end) are those that lengths, segments, causal and window allow
    key_end: Integers
    lse: Floats  #: [B, H, Lq], as all up to induction
    max_score: Floats
    entropy: Floats
    distance: Floats
    max_weight: Floats
    first: Floats  #: weight on the first key
    self: Floats  #: on the query's own position
    previous: Floats
    next: Floats
    induction: Floats | None  #: on what followed earlier copies of the token; None without tokens
    received: Floats | None  #: [B, H, Lk]; None in a document saved without
    top_k_index: Integers  #: [B, H, Lq, K]
    top_k_weight: Floats  #: [B, H, Lq, K]
    weights: Floats | None  #: [B, H, Lq, Lk], while a head has at most 4 million of them
    map: list[npt.NDArray[np.float64]]  #: sums of weights, [B, H, R, C], the finest level first, each next one halved

    def __init__(self, data: _heed.ReportData) -> None:
        self._data = data
        for name, value in data.arrays.items():
            setattr(self, name, value)
        self.tokens: list[str] = data.query_tokens
        self.key_tokens: list[str] = data.key_tokens
        self.heads: list[HeadSummary] = data.summaries
        self.cost: list[CostLine] = data.cost
        self.kernel: str = data.kernel
        self.isa: str = data.isa

    @property
    def about(self) -> str:
        """The call in one line."""
        data = self._data
        count = f"{data.heads} head" + ("s" if data.heads != 1 else "")
        if data.batch != 1:
            count += f", {data.batch} batch entries"
        size = f"{data.queries} queries, {data.keys} keys, D {data.head_dim}, {data.dtype}, {data.kernel} ({data.isa})"
        options = [name if value == "true" else f"{name} {value}" for name, value in data.options]
        return ", ".join([count, size, *options])

    def __repr__(self) -> str:
        return f"<heed.Report: {self.about}>"

    def __str__(self) -> str:
        lines = [self.about, "", "head      looks like          entropy  distance    sink    self    prev    next"]
        several = self._data.batch > 1
        for head in self.heads[:MOST_HEADS]:
            place = f"{head['batch']}/{head['head']}" if several else str(head["head"])
            line = f"{place:<10}{head['name']:<18}{head['entropy']:>9.3f}{head['distance']:>10.2f}"
            for share in (head["first"], head["self"], head["previous"], head["next"]):
                line += f"{share:>8.3f}"
            lines.append(line)
            most = [f"{self._key(key)} {weight:.3g}" for key, weight in
                    zip(head["most_received"][:4], head["most_received_weight"][:4])]
            if most:
                lines.append("    attended to most: " + " · ".join(most))
        if len(self.heads) > MOST_HEADS:
            lines.append(f"… and {len(self.heads) - MOST_HEADS} heads more")
        return "\n".join(lines)

    def _key(self, index: int) -> str:
        if not self.key_tokens:
            return str(index)
        word = "".join(letter if letter.isprintable() else "�" for letter in self.key_tokens[index])
        return f"{word} ({index})"

    def row(self, query: int, head: int = 0, batch: int = 0) -> list[tuple[int, float]]:
        """The most attended keys of a query with their weights, the largest first."""
        index, weight = self.top_k_index[batch, head, query], self.top_k_weight[batch, head, query]
        return [(int(key), float(share)) for key, share in zip(index, weight) if key >= 0]

    def _picture(self, batch: int, head: int) -> npt.NDArray[Any]:
        """Weights, or where they are too many, the finest level of the map."""
        picture: npt.NDArray[Any] = (self.map[0] if self.weights is None else self.weights)[batch, head]
        return picture

    def plot(self, heads: Sequence[int] | None = None, batch: int = 0) -> Any:
        """A matplotlib figure with a map of each of these heads (the first 16 where none are named)."""
        pyplot = need("matplotlib.pyplot", "heed.Report.plot", "plot")
        chosen = list(range(min(self._data.heads, MOST_PLOTS)) if heads is None else heads)
        if not chosen:
            raise ValueError("heads is empty; at least one head is expected")
        columns = min(4, len(chosen))
        rows = -(-len(chosen) // columns)
        figure, axes = pyplot.subplots(rows, columns, squeeze=False, figsize=(3.2 * columns, 3.2 * rows),
                                       layout="constrained")
        for place, axis in enumerate(axes.flat):
            if place >= len(chosen):
                axis.set_axis_off()
                continue
            head = chosen[place]
            picture = self._picture(batch, head)
            axis.imshow(picture, cmap="magma_r", vmin=0, aspect="auto", interpolation="nearest",
                        extent=(-0.5, self._data.keys - 0.5, self._data.queries - 0.5, -0.5))
            summary = self.heads[batch * self._data.heads + head]
            axis.set_title(f"head {head}: {summary['name']}", fontsize=9)
            self._label(axis.set_xticks, self.key_tokens, self._data.keys, rotation=90)
            self._label(axis.set_yticks, self.tokens, self._data.queries)
        return figure

    @staticmethod
    def _label(set_ticks: Any, tokens: list[str], count: int, **style: Any) -> None:
        if tokens and count <= 40:
            set_ticks(range(count), [token.replace("$", r"\$") for token in tokens], fontsize=7, **style)

    def save(self, path: str | pathlib.Path, title: str | None = None) -> None:
        """Writes the page for a browser (.html, .htm: one file that needs nothing else) or plot() as a picture (.png, .svg,
        .pdf), with this title."""
        path = pathlib.Path(path)
        ending = path.suffix.lower()
        if ending in PAGES:
            self._data.write_html(str(path), "heed" if title is None else title, self.about, 0)
        elif ending in PICTURES:
            self._save_picture(path, ending[1:], title)
        else:
            raise ValueError(f"path is '{path}'; one that ends in .html or .htm (the page), or in .png, .svg or .pdf "
                             "(the maps) is expected")

    def _save_picture(self, path: pathlib.Path, format: str, title: str | None) -> None:
        pyplot = need("matplotlib.pyplot", "heed.Report.save", "plot")
        figure = self.plot()
        begun = path.with_name(path.name + ".part")  # an older picture stays until this one is whole
        try:
            if title is not None:
                figure.suptitle(title.replace("$", r"\$"))
            figure.savefig(begun, format=format)
            begun.replace(path)
        finally:
            pyplot.close(figure)
            begun.unlink(missing_ok=True)

    def html(self, title: str | None = None) -> str:
        """The page as text."""
        return self._page("heed" if title is None else title, 0)[0]

    def _page(self, title: str, most_bytes: int) -> tuple[str, str]:
        """The page as text, of at most so many bytes (0: any), and what it leaves out for that."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "look.html")
            left_out = self._data.write_html(str(path), title, self.about, most_bytes)
            return path.read_text(encoding="utf-8"), left_out

    def _repr_html_(self) -> str:
        whole = '<code>report.save("look.html")</code> writes a page with all of it.'
        try:
            page, left_out = self._page("heed", MOST_CELL_BYTES)
        except ValueError:  # the page takes more without any number
            return (f"<pre>{html.escape(str(self))}</pre><p>A cell holds at most {MOST_CELL_BYTES // 10**6} MB, which the page "
                    f"of so many heads and tokens exceeds: {whole}</p>")
        # In single quotes: the page has few of them, and many double ones.
        source = page.replace("&", "&amp;").replace("'", "&#39;")
        frame = (f"<iframe srcdoc='{source}' sandbox=\"allow-scripts allow-downloads\" title=\"heed\" "
                 'style="width: 100%; height: 720px; border: 0"></iframe>')
        if not left_out:
            return frame
        return f"{frame}<p>A cell holds at most {MOST_CELL_BYTES // 10**6} MB. This one leaves out {left_out}: {whole}</p>"


def look(
    q: Any,
    k: Any,
    v: Any,
    *,
    tokens: Sequence[str] = (),
    key_tokens: Sequence[str] = (),
    top_k: int = 5,
    cost: bool = False,
    **options: Unpack[AttentionOptions],
) -> Report:
    """Runs attention(q, k, v, **options) and gathers what there is to see, at any length.

    tokens: one for each query, or none; key_tokens: one for each key, where they are not the queries'.
    cost: also how long a plain call takes, and what each part of the report added.
    """
    return Report(_heed.make_report(q, k, v, list(tokens), list(key_tokens), top_k, cost, options))


def open(path: str | os.PathLike[str]) -> Report | Run:
    """Reads what heed look --save or heed explain --save wrote, as heed.look would have given it; of a folder that
    heed.transformers.capture(to=path) wrote, its calls, each when it is asked for.

    Of heed look the file holds neither values nor output, and the map as it was saved.
    """
    if is_run(path):
        return open_run(path)
    return Report(_heed.open_report(os.fspath(path)))
