"""Pictures that transformers models read: their patches among the tokens, and the picture that a page shows."""

from __future__ import annotations

import inspect
import io
import math
import pathlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._missing import need
from ._picture import Patches, open_picture

LARGEST = 1024  # pixels per side of a picture that is shown in place of what the model sees
MOST_PREFIX = 16  # class, distillation and register tokens before the patches


class Grid(NamedTuple):
    """The patches of the picture as a model cuts it, and as its language model reads them."""

    rows: int
    columns: int
    tokens: int  #: of the picture in the language model; 0 without one
    first: int  #: the first of these tokens
    ordered: bool  #: whether the encoder's tokens are the patches row by row


def open_image(picture: Any) -> Any:
    """The picture as a PIL image: a path, bytes, an array or an image."""
    image = need("PIL.Image", "heed.transformers.look(picture=…)")
    if isinstance(picture, image.Image):
        return picture.convert("RGB")
    if hasattr(picture, "__array__"):
        return image.fromarray(picture).convert("RGB")
    return image.open(io.BytesIO(open_picture(picture))).convert("RGB")


def grid_of(model: Any, given: Any) -> Grid:
    """Reads the grid from what the processor made and from the model's configuration."""
    config, vision = model.config, getattr(model.config, "vision_config", model.config)
    ids = given["input_ids"][0].tolist() if "input_ids" in given else []
    token = getattr(config, "image_token_id", None)
    token = getattr(config, "image_token_index", None) if token is None else token
    count = ids.count(token)
    first = ids.index(token) if count else 0
    if count and ids[first:first + count] != [token] * count:
        raise ValueError("the picture's tokens do not follow one another; one picture cut into one grid is expected")
    if "image_grid_thw" in given:
        frames, rows, columns = given["image_grid_thw"][0].tolist()
        if len(given["image_grid_thw"]) != 1 or frames != 1:
            raise ValueError(f"the processor made {len(given['image_grid_thw'])} pictures of {frames} frames; one of one "
                             f"frame is expected")
        return Grid(rows, columns, count, first, ordered=getattr(vision, "spatial_merge_size", 1) == 1)
    pixels, size = given["pixel_values"], getattr(vision, "patch_size", None)
    if size is None or pixels.dim() < 4 or pixels[0].numel() != pixels[0, 0].numel() * pixels.shape[1] or pixels.dim() > 5:
        raise ValueError(f"{type(model).__name__} does not say how it cuts pictures into patches; a model with patch_size is "
                         f"expected")
    if pixels.dim() == 5 and pixels.shape[1] != 1:
        raise ValueError(f"the processor cut the picture into {pixels.shape[1]} pictures; one is expected")
    high, wide = (size, size) if isinstance(size, int) else size
    return Grid(pixels.shape[-2] // high, pixels.shape[-1] // wide, count, first, ordered=True)


def patches_of(grid: Grid, keys: int, is_text: bool) -> tuple[int, int, int] | None:
    """(rows, columns, first key) of the patches among a layer's keys; None if its keys are no patches of the picture."""
    whole = grid.rows * grid.columns
    if is_text:
        merge = math.isqrt(whole // grid.tokens) if grid.tokens else 0
        if not merge or merge * merge * grid.tokens != whole or grid.rows % merge or grid.columns % merge:
            return None
        return grid.rows // merge, grid.columns // merge, grid.first
    if not grid.ordered or not 0 <= keys - whole <= MOST_PREFIX:
        return None
    return grid.rows, grid.columns, keys - whole


def names_of(patches: tuple[int, int, int], keys: int) -> list[str]:
    """Names of an encoder's tokens: the patches by row and column, and those before them."""
    rows, columns, first = patches
    before = ["[CLS]"] if first == 1 else [f"[{n}]" for n in range(first)]
    return before + [f"{row},{column}" for row in range(rows) for column in range(columns)][:keys - first]


def name_of(picture: Any) -> str:
    """The title of a page about this picture alone."""
    return pathlib.Path(picture).name if isinstance(picture, (str, pathlib.Path)) else "picture"


def read_picture(model: Any, processor: Any, text: str | None, picture: Any) -> tuple[dict[str, Any], Pictured]:
    """The model's inputs for a text and a picture, and where the picture's patches are among its tokens."""
    image = open_image(picture)
    made = processor(images=image, return_tensors="pt") if text is None else processor(
        text=[text], images=[image], return_tensors="pt")
    known = inspect.signature(model.forward).parameters
    given = {name: x.to(model.device) for name, x in made.items() if name in known or name != "token_type_ids"}
    if "pixel_values" not in given:
        raise ValueError(f"tokenizer is of type {type(processor).__name__}, which makes no pixel_values; the model's processor "
                         f"is expected with a picture")
    tokens = given["input_ids"].shape[1] if "input_ids" in given else 0
    return given, Pictured(grid_of(model, given), shown(processor, given, image), tokens)


def shown(processor: Any, given: Any, image: Any) -> bytes:
    """The picture as the model sees it, where the processor keeps it whole: cropped and scaled. Else the picture itself."""
    maker = getattr(processor, "image_processor", processor)
    pixels = given["pixel_values"]
    mean, spread = getattr(maker, "image_mean", None), getattr(maker, "image_std", None)
    if pixels.dim() in (4, 5) and pixels.shape[-3] == 3 and mean is not None and spread is not None:
        seen = pixels.reshape(-1, *pixels.shape[-3:])[0].float().permute(1, 2, 0).cpu().numpy()
        if getattr(maker, "do_normalize", True):
            seen = seen * spread + mean
        image = need("PIL.Image", "heed.transformers.look(picture=…)").fromarray((seen.clip(0, 1) * 255).round().astype("uint8"))
    else:
        image = image.copy()
        image.thumbnail((LARGEST, LARGEST))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


class Pictured(NamedTuple):
    """The picture that a model read."""

    grid: Grid
    picture: bytes
    tokens: int  #: of the language model; 0 without one

    def patches(self, kind: str, keys: int) -> tuple[int, int, int] | None:
        return patches_of(self.grid, keys, self.tokens == keys and not kind.startswith("encoder"))

    def names(self, seen: Iterable[Any]) -> dict[int, list[str]]:
        """Names of the encoders' tokens, by their number."""
        found = {one.shape[3]: self.patches("encoder", one.shape[3]) for one in seen if one.kind == "encoder"}
        return {keys: names_of(patches, keys) for keys, patches in found.items() if patches}

    def under(self, report: Any) -> None:
        """Puts the picture under the heads of each kind of layers that reads its patches."""
        for kind, one in (report._kinds or {"encoder" if not self.tokens else "decoder": report}).items():
            if found := self.patches(kind, one._data.keys):
                one._patches = Patches(self.picture, *found)
