"""Report: an object that prints, plots and displays what attended to what."""

from __future__ import annotations

import html
import math
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from . import _heed
from ._command import Server, run, show_page
from ._head import Head
from ._missing import need
from ._picture import Patches, open_picture
from ._places import CONTINUES, head_of, path_of, place_of, range_of, require, whole
from ._plot import MOST_PLOTS, plot_heads, plot_layers
from ._table import cell, table

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.int64]

SPECIAL = re.compile(r"\[(CLS|SEP|PAD|BOS|EOS)\]|<.+>")  # tokens that a tokenizer puts around a text
MOST_HEADS = 64  # rows of a printed table
MOST_WITH_KEYS = 32  # heads of a printed table that also lists their most attended keys
LINE = 80  # characters of a printed line
COLUMNS = {"sink": "first", "distance": "distance", "self": "self", "previous": "previous", "next": "next"}  # after entropy
MOST_CELL_BYTES = 4_000_000  # of a page in a notebook cell, which is saved with the notebook
PAGES = (".html", ".htm")
PICTURES = (".png", ".svg", ".pdf")
DOCUMENT = ".safetensors"


class HeadName(TypedDict):
    """A pattern that a head shows. of_rest: the score excludes the weight on the first key."""

    name: str
    score: float
    of_rest: bool


class HeadSummary(TypedDict):
    """One head of one batch entry, as means over the rows that see a key.

    `name` is that of names[0], the best name that the head earned, or "mixed", or "too few rows". `runner_up` is the
    next best pattern. `scores`: the fit of each rule, from 0 to 1. `rest_scores`: the same without the weight on the
    first key. `score_rows`: the number of rows behind each score."""

    batch: int
    head: int
    place: str
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
    choices: int  # rows with at least two allowed keys
    names: list[HeadName]
    runner_up: HeadName | None
    scores: dict[str, float]
    rest_scores: dict[str, float]
    score_rows: dict[str, int]
    most_received: list[int]
    most_received_weight: list[float]


class Retrieval(TypedDict):
    """The weight that a head gives to a needle, words of the text.

    last: by the last row. mean: over the rows outside the needle that may see its first position (NaN without any)."""

    last: float
    mean: float
    rows: int


class CostLine(TypedDict):
    """A requested result and its cost."""

    what: str
    seconds: float
    times: float
    bytes: float
    estimated: bool
    made: bool


class Report:
    """The result of heed.look, for one call or for all layers of a model.

    The heads of all layers follow one another on axis H. Arrays are NumPy arrays and always have the axes batch and
    head. Layers, heads, rows and keys count from 0.

    A row or key is named by its number or its word. A head is named by its number on axis H, or as "3.1" or (3, 1):
    layer 3, head 1. For a call, later questions read q and k again, so these must not change.
    """

    output: npt.NDArray[Any] | None  #: [B, H, Lq, Dv], in the inputs' dtype; None if read from a file
    position: Integers  #: [B, Lq]: the position of each query among the keys
    key_begin: Integers  #: [B, Lq]: lengths, segments, causal and window allow keys [key_begin, key_end)
    key_end: Integers
    lse: Floats  #: [B, H, Lq], as all arrays up to induction
    max_score: Floats
    entropy: Floats
    distance: Floats
    max_weight: Floats
    first: Floats  #: weight on the first key
    self: Floats  #: weight on the query's own position
    previous: Floats
    next: Floats
    induction: Floats | None  #: weight on the tokens after earlier copies of the token; None without tokens or ids
    received: Floats | None  #: [B, H, Lk]; None if read from a file without it
    top_k_index: Integers  #: [B, H, Lq, K]
    top_k_weight: Floats  #: [B, H, Lq, K]
    weights: Floats | None  #: [B, H, Lq, Lk]; None if a head has more than 4 million of them
    map: list[npt.NDArray[np.float64]]  #: sums of weights, [B, H, R, C]; finest level first, each next one halved

    def __init__(self, data: _heed.ReportData, title: str = "", kinds: dict[str, Report] | None = None) -> None:
        require("data", data, _heed.ReportData, "the data of a report, which heed.look makes,")
        require("title", title, str, "a str")
        require("kinds", {} if kinds is None else kinds, dict, "a dict of reports or None")
        self._data = data
        for name, value in data.arrays.items():
            setattr(self, name, value)
        self.tokens: list[str] = data.query_tokens
        self.key_tokens: list[str] = data.key_tokens
        self.token_ids: list[int] = data.query_token_ids  #: token ids; empty if unknown
        self.key_token_ids: list[int] = data.key_token_ids
        self.layers: list[tuple[str, int]] = data.layers  #: (name, heads) of each layer; empty for one call
        self.summaries: list[HeadSummary] = data.summaries  #: one per head
        self.retrieval: list[Retrieval] | None = data.retrieval  #: one per head, if heed.Model.look was given a needle
        self.cost: list[CostLine] = data.cost
        self.kernel: str = data.kernel
        self.isa: str = data.isa
        self.title = title or self._title()
        self._kinds = kinds or {}
        self._patches: Patches | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data, self.title), {"_kinds": self._kinds, "_patches": self._patches}  # as state: kinds refer to each other

    def _title(self) -> str:
        words = [token for token in self.tokens[:40] if not SPECIAL.fullmatch(token)]
        text = " ".join(words).replace(f" {CONTINUES}", "")
        return (text if len(text) <= 80 and len(self.tokens) <= 40 else text[:79] + "…") if text else self.about

    @property
    def kinds(self) -> list[str]:
        """The names that kind() accepts: "encoder", "decoder" and "cross", if the model has them."""
        return list(self._kinds)

    def kind(self, name: str) -> Report:
        """The report of one kind of layers."""
        if not isinstance(name, str) or name not in self._kinds:
            raise ValueError(f"kind is {name!r}; {' or '.join(map(repr, self._kinds)) or 'nothing (there is only one kind)'} "
                             "is expected")
        return self._kinds[name]

    @property
    def about(self) -> str:
        """A summary of the call in one line."""
        data = self._data
        parts = [f"{len(self.layers)} layers"] if len(self.layers) > 1 else []
        parts.append(f"{data.heads} head" + ("s" if data.heads != 1 else ""))
        if data.batch != 1:
            parts.append(f"{data.batch} batch entries")
        parts.append(f"{data.queries} quer{'y' if data.queries == 1 else 'ies'}, {data.keys} key" + ("s" if data.keys != 1 else ""))
        given = data.isa == "none"
        parts.append(f"{data.dtype}, given weights" if given else
                     f"D {data.head_dim}, {data.dtype}, {data.kernel} ({data.isa})")
        usual = {("query-offset", "0"), ("scale", repr(data.head_dim**-0.5))}
        parts += [name if value == "true" else f"{name} {value}" for name, value in data.options if (name, value) not in usual]
        return ", ".join(parts)

    def __repr__(self) -> str:
        others = f"; also .kind({') .kind('.join(map(repr, self._kinds))})" if self._kinds else ""
        text = self.title if len(self.title) <= 60 else self.title[:59] + "…"
        title = "" if self.title == self.about else f"{text!r}: "
        return f"<heed.Report: {title}{self.about}{others}>"

    def label(self, head: Any) -> str:
        """The short name of a head: "3.1", or "5" without layers."""
        number = head_of(head, self.layers, self._data.heads)
        for name, count in self.layers:
            if number < count:
                return f"{name}.{number}"
            number -= count
        return str(number)

    def __getitem__(self, head: int | str | tuple[int, int]) -> Head:
        """A head: report[0], or report["1.3"] and report[1, 3] for layer 1, head 3."""
        if isinstance(head, int) and not -len(self) <= head < len(self):
            raise IndexError(f"head is {head}; 0 to {len(self) - 1} is expected")
        return Head(self, head_of(head % len(self) if isinstance(head, int) else head, self.layers, self._data.heads))

    def __len__(self) -> int:
        """The number of heads."""
        return self._data.heads

    def __str__(self) -> str:
        lines = [self.about, "", self.table_of(self.summaries[:MOST_HEADS])]
        if len(self.summaries) > MOST_HEADS:
            lines.append(f"… and {len(self.summaries) - MOST_HEADS} more heads: heads() has all")
        return "\n".join(lines)

    def table_of(self, summaries: Sequence[HeadSummary]) -> str:
        """The table of heads that `heed look` prints."""
        require("summaries", summaries, Sequence, "a list of the report's summaries")
        for number, summary in enumerate(summaries):
            require(f"summaries[{number}]", summary, dict, "one of the report's summaries")
        places = [(f"{head['batch']}/" if self._data.batch > 1 else "") + self.label(head["head"]) for head in summaries]
        width = max(6, *(len(place) + 2 for place in places)) if places else 6
        lines = [f"{'head':<{width}}looks like         score  entropy   sink  distance   self  previous   next"]
        for place, head in zip(places, summaries):
            name = f"{head['name']} ({head['choices']})" if head["name"] == "too few rows" else head["name"]
            score = _score_text(head["names"][0]) if head["names"] else ""
            lines.append(f"{place:<{width}}{name:<17}{score:>7}{four_digits(head['entropy']):>9}{head['first']:>7.3f}"
                         f"{four_digits(head['distance']):>10}{head['self']:>7.3f}{head['previous']:>10.3f}{head['next']:>7.3f}")
            if head["nan_rows"]:
                lines.append(f"    {head['nan_rows']} row{'s' * (head['nan_rows'] != 1)} of NaN left out")
            if len(summaries) > MOST_WITH_KEYS:
                continue
            if next_to_it := head["runner_up"]:
                lines.append(f"    {'then' if head['names'] else 'nearest'} {next_to_it['name']} {_score_text(next_to_it)}")
            if head["most_received"]:
                lines.append(self._most_received(head))
        if any("*" in line for line in lines):
            lines.append("* share of the weight that is not on the first key")
        return "\n".join(lines)

    def _most_received(self, head: HeadSummary) -> str:
        line = "    attended to most:"
        for at, (key, weight) in enumerate(zip(head["most_received"], head["most_received_weight"])):
            more = f"{' · ' if at else ' '}{self._key(key)} {four_digits(weight)}"
            if len(line + more) > LINE:
                break
            line += more
        return line

    def _key(self, index: int) -> str:
        return f"{cell(self.key_tokens[index])} ({index})" if self.key_tokens else str(index)

    def _place(self, head: int, batch: int) -> dict[str, Any]:
        """The first columns of a table row about a head."""
        layer, _, number = self.label(head).rpartition(".")
        place: dict[str, Any] = {"batch": batch} if self._data.batch > 1 else {}
        if self.layers:
            place["layer"] = int(layer) if layer.isdecimal() else layer
        return place | {"head": int(number), "looks like": self.summaries[batch * self._data.heads + head]["name"]}

    def _batch(self, batch: Any) -> int:
        number = whole("batch", batch)
        if not 0 <= number < self._data.batch:
            raise ValueError(f"batch is {number}; 0 to {self._data.batch - 1} is expected")
        return number

    def heads(self) -> Any:
        """A table with one row per head.

        It is a pandas DataFrame if pandas is installed. Otherwise it is a table that prints, iterates as dicts, and has
        sort_values()."""
        lines = []
        for summary in self.summaries:
            names = summary["names"]
            figures: dict[str, Any] = {"score": names[0]["score"] if names else float("nan"), "entropy": summary["entropy"]}
            figures |= {column: summary[name] for column, name in COLUMNS.items()}  # type: ignore[literal-required]
            figures |= {name: value for name, value in summary.items()
                        if name not in ("first", *figures) and (isinstance(value, float) or name in ("rows", "nan_rows"))}
            next_to_it = summary["runner_up"]
            figures |= {"runner-up": next_to_it["name"] if next_to_it else "",
                        "runner-up score": next_to_it["score"] if next_to_it else float("nan")}
            scores = {f"{name} score": score for name, score in summary["scores"].items()}
            scores |= {f"{name} score without the first key": score for name, score in summary["rest_scores"].items()}
            most = {"most attended": self._key(summary["most_received"][0])} if summary["most_received"] else {}
            lines.append(self._place(summary["head"], summary["batch"]) | figures | most | scores)
        return table(lines)

    def row(self, row: int | str, head: Any = None, batch: int = 0, top: int = 5) -> Any:
        """The keys that a row attends to, as a table like heads().

        For one head, it lists the `top` heaviest keys. For all heads (head None), it lists each head's heaviest key, in
        descending order of weight."""
        data = self._data
        batch = self._batch(batch)
        place = place_of("row", row, self.tokens, data.queries)
        if head is None and data.heads > 1:
            found = [self._place(n, batch) | self._heaviest(batch, n, place, 1)[0] for n in range(data.heads)
                     if self._heaviest(batch, n, place, 1)]
            return table(sorted(found, key=lambda line: -line["weight"]))
        return table(self._heaviest(batch, head_of(0 if head is None else head, self.layers, data.heads), place, top))

    def _heaviest(self, batch: int, head: int, row: int, count: int) -> list[dict[str, Any]]:
        count = whole("top", count)
        if count < 1:
            raise ValueError(f"top is {count}; 1 or more is expected")
        if min(count, self._data.keys) <= self.top_k_index.shape[-1]:
            keys, weights = self.top_k_index[batch, head, row, :count], self.top_k_weight[batch, head, row, :count]
        else:
            whole_row = self.tile((row, row + 1), None, head, batch)[0, 0, 0]
            seen = np.flatnonzero(self._allowed(row)[batch, head] & ~np.isnan(whole_row))
            keys = seen[np.argsort(-whole_row[seen], kind="stable")][:count]
            weights = whole_row[keys]
        return [{"key": int(key), "word": self.key_tokens[key] if self.key_tokens else str(key), "weight": float(weight)}
                for key, weight in zip(keys, weights) if key >= 0]

    def _allowed(self, row: int) -> npt.NDArray[np.bool_]:
        """Which keys the row may see, [B, H, keys]."""
        tiles = self._data.tiles((row, row + 1), (0, self._data.keys))
        return np.concatenate([allowed[:, :, 0] for _, allowed in tiles], 1)

    def pair(self, row: int | str, key: int | str, batch: int = 0) -> Any:
        """The weight that this row gives this key in each head, in descending order, as a table like heads().

        `rank` counts from 1, as `heed who` does: 1 is the row's heaviest key. It is 0 if the row may not see the key, or
        is NaN."""
        batch = self._batch(batch)
        i = place_of("row", row, self.tokens, self._data.queries)
        j = place_of("key", key, self.key_tokens, self._data.keys)
        weights = self.tile((i, i + 1), None, batch=batch)[0, :, 0]
        ranked = self._allowed(i)[batch, :, j] & ~np.isnan(weights[:, j])
        found = [self._place(n, batch) | {"weight": float(all_keys[j]),
                                          "rank": 1 + int((all_keys > all_keys[j]).sum()) if ranked[n] else 0}
                 for n, all_keys in enumerate(weights)]
        return table(sorted(found, key=lambda line: (math.isnan(line["weight"]), -line["weight"], line["rank"] == 0)))

    def tile(self, rows: Any = None, keys: Any = None, head: Any = None, batch: int | None = None) -> Floats:
        """Any tile of the weights, [B, H, rows, keys], computed if the report does not store it.

        rows, keys: (first, last + 1), a slice, one number or word, or None for all. head and batch restrict the result
        to one head or batch entry."""
        self._require_calls("tile, row or pair")
        data = self._data
        row_range = range_of("rows", rows, self.tokens, data.queries)
        key_range = range_of("keys", keys, self.key_tokens, data.keys)
        n = None if head is None else head_of(head, self.layers, data.heads)
        if self.weights is not None:
            piece: Floats = self.weights[:, :, slice(*row_range), slice(*key_range)]
        else:
            piece = np.concatenate([weights for weights, _ in data.tiles(row_range, key_range)], 1)
        piece = piece if n is None else piece[:, n:n + 1]
        return piece if batch is None else piece[self._batch(batch)][None]

    def _require_calls(self, what: str) -> None:
        if self._data.calls == 0:
            raise ValueError(f"{what} needs queries and keys, which look(keep=False) did not keep; look with keep=True "
                             f"is expected")

    def _picture(self, batch: int, head: int) -> npt.NDArray[Any]:
        """The weights, or the finest level of the map if there are too many."""
        picture: npt.NDArray[Any] = (self.map[0] if self.weights is None else self.weights)[batch, head]
        return picture

    def plot(self, heads: Sequence[Any] | None = None, batch: int = 0) -> Any:
        """A matplotlib figure with a map of each of these heads.

        By default, a report with layers shows all heads, with a row of small maps per layer; other reports show the
        first 16."""
        self._require_calls("plot")
        pyplot = need("matplotlib.pyplot", "heed.Report.plot")
        batch = self._batch(batch)
        if heads is None and len(self.layers) > 1:
            return plot_layers(pyplot, self, batch)
        chosen = (list(range(min(self._data.heads, MOST_PLOTS))) if heads is None else
                  [head_of(head, self.layers, self._data.heads) for head in heads])
        if not chosen:
            raise ValueError("heads is empty; at least one head is expected")
        return plot_heads(pyplot, self, chosen, batch)

    def set_picture(self, picture: str | os.PathLike[str] | bytes, grid: tuple[int, int], first_patch: int = 0) -> Report:
        """Pages show this PNG or JPEG file under the weights of its patches, and return self.

        The keys from first_patch on are its patches, grid = (rows, columns) of them, row by row."""
        if not isinstance(grid, Sequence) or isinstance(grid, str) or len(grid) != 2:
            raise TypeError(f"grid is {grid!r}; (rows, columns) is expected")
        rows, columns = (whole("grid", size) for size in grid)
        first = whole("first_patch", first_patch)
        if min(rows, columns) < 1 or first < 0 or first + rows * columns > self._data.keys:
            raise ValueError(f"grid is {rows} x {columns} patches from key {first} on, but there are {self._data.keys} keys")
        self._patches = Patches(open_picture(picture), rows, columns, first)
        return self

    def page(self, path: str | pathlib.Path | None = None, title: str | None = None) -> str:
        """The page for a browser, as one self-contained HTML text; also written to `path` if given."""
        self._require_calls("page")
        if path is not None:
            path = path_of("path", path)
            self._data.write_html(str(path), self.title if title is None else title, self.about, 0, self._patches)
            return path.read_text(encoding="utf-8")
        return self._page(self.title if title is None else title, 0)[0]

    def save(self, path: str | pathlib.Path, title: str | None = None) -> None:
        """Saves the report in the format of the file extension.

        .html and .htm: the page for a browser. .png, .svg and .pdf: plot() as a picture. .safetensors: the file that
        heed.open and `heed look` read, which has no title."""
        self._require_calls("save")
        path = path_of("path", path)
        ending = path.suffix.lower()
        if ending in PAGES:
            self._data.write_html(str(path), self.title if title is None else title, self.about, 0, self._patches)
        elif ending in PICTURES:
            self._save_picture(path, ending[1:], title)
        elif ending == DOCUMENT:
            self._save_document(path)
        else:
            raise ValueError(f"path is '{path}'; a path that ends in .html or .htm (the page), in .png, .svg or .pdf "
                             f"(the maps), "
                             "or in .safetensors (a document) is expected")

    def _save_document(self, path: pathlib.Path) -> None:
        if len(self.layers) > 1 and self.weights is None and self._data.calls > 1:
            raise ValueError(f"a document of several calls stores their weights, but {self._data.queries} x "
                             f"{self._data.keys} of {self._data.heads} heads are too many; save the page instead, or look at "
                             "fewer layers")
        self._data.save(str(path))

    def _save_picture(self, path: pathlib.Path, format: str, title: str | None) -> None:
        pyplot = need("matplotlib.pyplot", "heed.Report.save")
        figure = self.plot()
        begun = path.with_name(path.name + ".part")  # keep an existing picture until the new one is complete
        try:
            if title is not None:
                figure.suptitle(title.replace("$", r"\$"))
            figure.savefig(begun, format=format)
            begun.replace(path)
        finally:
            pyplot.close(figure)
            begun.unlink(missing_ok=True)

    def show(self) -> pathlib.Path | None:
        """Shows the page: in a notebook below the cell; elsewhere in the browser, and returns the path of the page."""
        self._require_calls("show")
        return show_page(self.save, self)

    def serve(self, port: int = 0) -> Server:
        """Serves the page to a browser on this machine, as `heed look --serve` does: rows and cells are computed on request.

        It has the address as `url`, and ends by stop(), or with this process. wait() returns when it has ended."""
        self._require_calls("serve")
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder, "report.safetensors")
            self._save_document(document)
            shown = []
            if self._patches is not None:
                picture, rows, columns, first = self._patches
                file = pathlib.Path(folder, "picture")
                file.write_bytes(picture)
                shown = ["--picture", str(file), "--grid", f"{rows}x{columns}", "--first-patch", str(first)]
            return Server(document, port, self.title, shown)

    def atlas(self, path: str | pathlib.Path, title: str | None = None) -> None:
        """Draws all heads as one poster, as `heed atlas` does: .png, .svg or .pdf."""
        self._require_calls("atlas")
        with tempfile.TemporaryDirectory() as folder:
            document = pathlib.Path(folder, "report.safetensors")
            self._save_document(document)
            run("heed.Report.atlas", "atlas", document, "--out", path, "--title", self.title if title is None else title)

    def _page(self, title: str, most_bytes: int) -> tuple[str, str]:
        """The page as text with at most `most_bytes` bytes (0: no limit), and a sentence about the parts left out."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "look.html")
            left_out = self._data.write_html(str(path), title, self.about, most_bytes, self._patches)
            return path.read_text(encoding="utf-8"), left_out

    def _repr_html_(self) -> str:
        if self._data.calls == 0:
            return f"<pre>{html.escape(str(self))}</pre>"
        whole = '<code>report.save("look.html")</code> writes a page with all of it.'
        try:
            page, left_out = self._page(self.title, MOST_CELL_BYTES)
        except ValueError:  # the page is too large even without any weights
            return (f"<pre>{html.escape(str(self))}</pre><p>A cell holds at most {MOST_CELL_BYTES // 10**6} MB, which the page "
                    f"of so many heads and tokens exceeds: {whole}</p>")
        # Single quotes, because the page has few of them but many double quotes.
        source = page.replace("&", "&amp;").replace("'", "&#39;")
        frame = (f"<iframe srcdoc='{source}' sandbox=\"allow-scripts allow-downloads\" title=\"heed\" "
                 'style="width: 100%; height: 720px; border: 0"></iframe>')
        if not left_out:
            return frame
        return f"{frame}<p>A cell holds at most {MOST_CELL_BYTES // 10**6} MB. This one leaves out {left_out}: {whole}</p>"


def four_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.{3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0}f}"


def _score_text(name: HeadName) -> str:
    return f"{name['score']:.2f}{'*' if name['of_rest'] else ''}"


def merge_summaries(reports: Sequence[Report]) -> list[HeadSummary]:
    """Merges the heads of a model over several texts, one report per text.

    Means are weighted by each text's rows. Names and scores are those of all rows together (docs/heads.md)."""
    require("reports", reports, Iterable, "a list of heed.Report")
    reports = list(reports)
    for place, report in enumerate(reports):
        require(f"reports[{place}]", report, Report, "a heed.Report")
    return _heed.merge_summaries([report._data for report in reports])
