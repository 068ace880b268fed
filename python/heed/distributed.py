"""Attention whose sequence is cut over the ranks of an MPI communicator of mpi4py (docs/distributed.md).

    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    rows = heed.distributed.Sharding.zigzag(length, comm.size)
    q, k, v = (rows.shard(x, -2, comm.rank) for x in (q, k, v))     # or read only these rows
    result = heed.distributed.attention(comm, q, k, v, rows, causal=True, need="lse")
    result.output, result.scheme, result.bytes_sent

Every rank makes the same call. A call that is wrong on one rank raises on all of them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _heed
from ._missing import need

need("mpi4py", "heed.distributed", "mpi")
try:
    from ._heed_mpi import AttentionGradients, AttentionResult, Sharding
except ModuleNotFoundError:
    raise ImportError("heed was built without MPI; install one (Debian: libopenmpi-dev) and build heed again, by "
                      "pip install . in its source") from None
from . import _heed_mpi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from ._heed import Array, GradientName
    from ._heed_mpi import CallOptions, Scheme

__all__ = ["AttentionGradients", "AttentionResult", "Layout", "Sharding", "attention", "attention_backward"]


class Layout(NamedTuple):
    """Which rank has which part of a call. Where batch entries and heads are cut besides, each communicator of a grid
    has some of them: the whole call has batch entries and (query) heads, and these are from …_begin on."""

    query: Sharding  #: the rows, of Lq
    key: Sharding  #: keys and values, of Lk
    batch: int = 0  #: 0: those of q
    heads: int = 0
    batch_begin: int = 0
    head_begin: int = 0


@cache
def _check_library() -> None:
    """A handle of one MPI library means nothing to another."""
    from mpi4py import MPI

    theirs = MPI.Get_library_version()
    ours, is_initialized = _heed_mpi.library()
    if ours != theirs or MPI.Is_initialized() != is_initialized:
        raise ImportError(f"mpi4py runs on {theirs.split(',')[0]!r} and heed on {ours.split(',')[0]!r}, or on another copy "
                          "of it; the same library is expected: pip install --no-binary mpi4py mpi4py builds it on the "
                          "one that mpicc finds")


def _handle(comm: Any) -> int:
    from mpi4py import MPI

    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm is of type {type(comm).__name__}; a communicator of mpi4py is expected")
    _check_library()
    _heed_mpi.use_target(_heed.target())
    handle: int = comm.py2f()
    return handle


def attention(comm: Any, q: Array, k: Any, v: Any, layout: Sharding | Layout, *, scheme: Scheme = "automatic",
              deterministic: bool = False, **options: Unpack[CallOptions]) -> AttentionResult[Array]:
    """heed.attention over the ranks of comm, with the bits of one process.

    q [B, H, rows of this rank, D], k and v [B, Hkv, keys of this rank, D and Dv], as layout says: a Sharding of rows and
    keys alike, or a Layout. Results of rows are where the rows are, received where the keys are, the map on every rank;
    weights and scores are [B, H, rows of this rank, Lk]. The options are those of heed.attention, the same on all
    ranks; mask and bias have this rank's rows and all keys, and what else they describe is the whole call. With dropout,
    seed is expected. scheme: 'automatic', 'ring', 'gather', 'ulysses' or 'decode'; deterministic=True refuses what need
    not have the bits of one process.

    Gives an AttentionResult with scheme and bytes_sent. Raises ValueError and TypeError with one sentence that names
    the argument, and on the other ranks a ValueError that names the rank as well."""
    return _heed_mpi.attention(_handle(comm), q, k, v, layout, scheme, deterministic, options)


def attention_backward(comm: Any, q: Array, k: Any, v: Any, output: Any, lse: Any, grad_output: Any,
                       layout: Sharding | Layout, *, grad_lse: Any = None, grad_weights: Any = None,
                       gradients: GradientName | Sequence[GradientName] | None = None, scheme: Scheme = "automatic",
                       deterministic: bool = False, **options: Unpack[CallOptions]) -> AttentionGradients[Array]:
    """heed.attention_backward over the ranks of comm: every array has this rank's rows or keys, and so have the
    gradients. What ranks share of dbias, and dsinks, is the sum over all of them, on every rank.

    Gives an AttentionGradients with scheme and bytes_sent. Raises as attention()."""
    return _heed_mpi.attention_backward(_handle(comm), q, k, v, output, lse, grad_output, layout, grad_lse, grad_weights,
                                        gradients, scheme, deterministic, options)
