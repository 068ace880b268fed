"""heed.attention_tile: any tile of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _heed

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._heed import AttentionOptions


def attention_tile(
    q: Any,
    k: Any,
    lse: Any,
    *,
    rows: tuple[int, int],
    keys: tuple[int, int],
    batch: int | None = None,
    head: int | None = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """The weights [B, H, rows, keys] of rows [rows[0], rows[1]) on keys [keys[0], keys[1]).

    lse: from attention(q, k, v, need="lse", **options). The cost depends on the tile's size only. batch and head
    restrict the result to one of each.
    """
    return _heed.attention_tile(q, k, lse, rows, keys, -1 if batch is None else batch, -1 if head is None else head,
                                options)
