"""Folders run.heed from heed.transformers.capture(to=…), with one file per call. Reading them needs no PyTorch.

A folder contains NNNN-layer-LL.safetensors in call order, and index.json. A file gets its name once it is complete. The
index lists all calls when the capture ends. If the capture was killed, the list is rebuilt from the files.
"""

from __future__ import annotations

import json
import os
import pathlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ._places import whole

if TYPE_CHECKING:
    from ._look import Report

FORMAT = "heed-run-1"
TYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
KEPT = ("layer", "module", "heads", "rows", "kind", "kind_layer")  # entries of a call in the metadata of its file
LARGEST_HEADER = 100_000_000  # as in the official reader of safetensors


class CallMap(NamedTuple):
    """The results of one attention layer in one call; results that were not requested are None.

    Arrays are PyTorch tensors during capture, and NumPy arrays if read from a folder."""

    module: Any  #: the layer; if read from a folder, the name of its class
    layer: int  #: number of the layer, from 0 in the order of the layers' first calls
    lse: Any  #: [B, H, Lq], natural logarithm
    entropy: Any = None  #: [B, H, Lq], in nats
    top_k_index: Any = None  #: [B, H, Lq, K], -1 beyond the allowed keys
    top_k_weight: Any = None  #: [B, H, Lq, K]
    received: Any = None  #: [B, H, Lk]: the total weight on each key
    weights: Any = None  #: [B, H, Lq, Lk]
    max_score: Any = None  #: [B, H, Lq]
    distance: Any = None  #: [B, H, Lq]: the mean distance to the keys under the weights
    masked_mass: Any = None  #: [B, H, Lq]: the share that masks removed
    received_last: Any = None  #: [B, H, Lk]: the total weight on each key from the last rows
    map: Any = None  #: [B, H, R, C]: the weights summed into bins
    tiles: Any = None  #: a list of [B, H, rows, keys], clipped to the call
    heads: Any = None  #: numbers of the heads on axis H; None for all
    rows: Any = None  #: numbers of the queries on axis Lq; None for all
    kind: str | None = None  #: "encoder", "decoder" or "cross"
    kind_layer: int | None = None  #: number of the layer within its kind

    def arrays(self) -> dict[str, Any]:
        """The available arrays, by name."""
        found = {name: value for name, value in zip(self._fields, self) if hasattr(value, "shape")}
        return found | {f"tile.{place}": tile for place, tile in enumerate(self.tiles or ())}

    def __repr__(self) -> str:
        name = self.module if isinstance(self.module, str) else type(self.module).__name__
        kind = f" ({self.kind} {self.kind_layer})" if self.kind and self.kind_layer != self.layer else ""
        return f"<layer {self.layer}{kind}, {name}: {', '.join(f'{n} {list(x.shape)}' for n, x in self.arrays().items())}>"


def consecutive(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Groups ascending numbers into runs [first, last)."""
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and runs[-1][1] == row:
            runs[-1] = (runs[-1][0], row + 1)
        else:
            runs.append((row, row + 1))
    return runs


def replace(path: pathlib.Path, data: Sequence[bytes | memoryview]) -> None:
    """Writes a file under a temporary name and renames it when it is complete."""
    begun = path.with_name(f".{path.name}.part")
    try:
        with begun.open("wb") as file:
            for part in data:
                file.write(part)
        begun.replace(path)
    finally:
        begun.unlink(missing_ok=True)


def write_safetensors(path: pathlib.Path, arrays: dict[str, Any], metadata: dict[str, str]) -> None:
    names = {np.dtype(kind): name for name, kind in TYPES.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    end, data = 0, []
    # Largest element size first: every array starts at a multiple of its element size, and the format allows no gaps.
    for name, array in sorted(arrays.items(), key=lambda item: -item[1].dtype.itemsize):
        array = np.ascontiguousarray(array)
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape),
                        "data_offsets": [end, end + array.nbytes]}
        end += array.nbytes
        if array.nbytes:
            data.append(array.data.cast("B"))
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    replace(path, [struct.pack("<Q", len(text)), text, *data])


def read_header(path: pathlib.Path) -> tuple[dict[str, Any], int]:
    """(the header of a safetensors file, the offset of its data)"""
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else LARGEST_HEADER
        if length >= LARGEST_HEADER:
            raise ValueError(f"{path} is not a safetensors file; the file of a captured call is expected")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            header = None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise ValueError(f"{path} has no header of a captured call; a file written by capture(to=…) is expected")
    return header, 8 + length


def read_safetensors(path: pathlib.Path) -> dict[str, Any]:
    header, start = read_header(path)
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        kind, count = np.dtype(TYPES[entry["dtype"]]), int(np.prod(entry["shape"], dtype=np.int64))
        if last - first != count * kind.itemsize or os.path.getsize(path) < start + last:
            raise ValueError(f"{path} holds {name} of {last - first} bytes; {count * kind.itemsize}, all in the file, "
                             "are expected")
        found[name] = np.fromfile(path, kind, count, offset=start + first).reshape(entry["shape"])
    return found


class Run(Sequence[CallMap]):
    """The calls of a folder, in order; each is read on access."""

    def __init__(self, path: str | os.PathLike[str], settings: dict[str, Any], calls: list[dict[str, Any]]) -> None:
        self.path = pathlib.Path(path)
        self.settings = settings  #: the arguments of capture
        self.calls = calls  #: for each call: file, layer, module, shapes, heads, rows [[first, last + 1], …]

    def __len__(self) -> int:
        return len(self.calls)

    @overload
    def __getitem__(self, place: int) -> CallMap: ...
    @overload
    def __getitem__(self, place: slice) -> list[CallMap]: ...
    def __getitem__(self, place: int | slice) -> CallMap | list[CallMap]:
        if isinstance(place, slice):
            return [self._read(call) for call in self.calls[place]]
        return self._read(self.calls[place])

    def _read(self, call: dict[str, Any]) -> CallMap:
        arrays = read_safetensors(self.path / call["file"])
        tiles = [arrays.pop(f"tile.{place}") for place in range(sum(name.startswith("tile.") for name in arrays))]
        known = {name: array for name, array in arrays.items() if name in CallMap._fields}
        rows = None if call["rows"] is None else [row for first, last in call["rows"] for row in range(first, last)]
        return CallMap(module=call["module"], layer=call["layer"], heads=call["heads"], rows=rows, tiles=tiles or None,
                       kind=call.get("kind"), kind_layer=call.get("kind_layer"), **known)

    def report(self, tokens: Sequence[str] = (), target_tokens: Sequence[str] = (), *, token_ids: Sequence[int] = (),
               target_token_ids: Sequence[int] = (), title: str = "", call: int = 0, top_k: int = 5) -> Report:
        """A report like that of capture, for calls with weights=True."""
        from ._kinds import Texts, report_of_maps

        texts = Texts(tokens, target_tokens, title, title, token_ids, target_token_ids)
        return report_of_maps(self, texts, whole("call", call), top_k)

    @property
    def layers(self) -> list[int]:
        return sorted({call["layer"] for call in self.calls})

    def of_layer(self, layer: int) -> list[CallMap]:
        """The calls of one layer, in order."""
        return [self._read(call) for call in self.calls if call["layer"] == layer]

    def __repr__(self) -> str:
        held = ", ".join(["lse", *(f"{name}={value}" if value is not True else name
                                   for name, value in self.settings.items())])
        return f"<Run {self.path}: calls {len(self)}, layers {len(self.layers)}, each with {held}>"

    # Writing.

    @classmethod
    def begin(cls, path: str | os.PathLike[str], settings: dict[str, Any]) -> Run:
        run = cls(path, settings, [])
        try:
            run.path.mkdir()
        except FileExistsError:
            raise FileExistsError(f"to is '{run.path}', which already exists; a new folder is expected") from None
        run._write_index(False)
        return run

    def write(self, call: CallMap) -> None:
        """Adds a call of NumPy arrays. It is in the folder when this returns."""
        name, arrays = f"{len(self.calls):04d}-layer-{call.layer:02d}.safetensors", call.arrays()
        rows = None if call.rows is None else consecutive(call.rows)
        entry = {"file": name, "layer": call.layer, "module": call.module, "heads": call.heads, "rows": rows,
                 "kind": call.kind, "kind_layer": call.kind_layer,
                 "shapes": {key: list(array.shape) for key, array in arrays.items()}}
        metadata = {"format": FORMAT} | {key: json.dumps(entry[key]) for key in KEPT}
        write_safetensors(self.path / name, arrays, metadata)
        self.calls.append(entry)

    def end(self) -> None:
        """Completes the index. A folder without calls is removed."""
        if self.calls:
            self._write_index(True)
        else:
            (self.path / "index.json").unlink()
            self.path.rmdir()

    def _write_index(self, complete: bool) -> None:
        index = {"format": FORMAT, "complete": complete, "settings": self.settings, "calls": self.calls}
        replace(self.path / "index.json", [json.dumps(index).encode()])


def _entry(path: pathlib.Path) -> dict[str, Any]:
    """A call's index entry, derived from its file."""
    header, _ = read_header(path)
    metadata = header.pop("__metadata__")
    return {"file": path.name, "shapes": {name: entry["shape"] for name, entry in header.items()},
            **{key: json.loads(metadata[key]) for key in KEPT if key in metadata}}


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder from capture(to=…)."""
    return (pathlib.Path(path) / "index.json").is_file()


def open_run(path: str | os.PathLike[str]) -> Run:
    """Reads a folder from capture(to=path), even if the capture did not finish."""
    path = pathlib.Path(path)
    if not is_run(path):
        raise FileNotFoundError(f"path is '{path}', which has no index.json; a folder written by capture(to=…) is expected")
    try:
        index = json.loads((path / "index.json").read_text(encoding="utf-8"))
    except ValueError:
        index = None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ValueError(f"path is '{path}', whose index.json is not of the format '{FORMAT}'; a folder written by "
                         f"capture(to=…) is expected")
    files = sorted(path.glob("*-layer-*.safetensors"), key=lambda file: int(file.name.split("-")[0]))
    return Run(path, index["settings"], index["calls"] if index["complete"] else [_entry(file) for file in files])
