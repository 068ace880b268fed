"""Attention whose sequence is split over the ranks of an MPI communicator of mpi4py (docs/distributed.md).

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

need("mpi4py", "heed.distributed")
try:
    from ._heed_mpi import AttentionGradients, AttentionResult, Sharding
except ModuleNotFoundError:
    raise ImportError("heed was built without MPI; install MPI (Debian: libopenmpi-dev) and build heed again with pip "
                      "install . in its source folder") from None
from . import _heed_mpi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from ._heed import Array, GradientName
    from ._heed_mpi import CallOptions, Scheme

__all__ = ["AttentionGradients", "AttentionResult", "Layout", "Sharding", "attention", "attention_backward"]


class Layout(NamedTuple):
    """The distribution of a call over ranks.

    Batch entries and heads may be split, too. Each communicator of a grid then has some of them: `batch` and `heads`
    are the sizes of the whole call, and this communicator's part starts at …_begin."""

    query: Sharding  #: of the rows, over Lq
    key: Sharding  #: of keys and values, over Lk
    batch: int = 0  #: batch entries of the whole call; 0: as in q
    heads: int = 0
    batch_begin: int = 0
    head_begin: int = 0


@cache
def _check_library() -> None:
    """Checks that mpi4py uses the same MPI library: handles are not portable between libraries."""
    from mpi4py import MPI

    theirs = MPI.Get_library_version()
    ours, is_initialized = _heed_mpi.library()
    if ours != theirs or MPI.Is_initialized() != is_initialized:
        raise ImportError(f"mpi4py runs on {theirs.split(',')[0]!r} and heed on {ours.split(',')[0]!r}, or on another "
                          f"copy of it; the same library is expected: pip install --no-binary mpi4py mpi4py builds "
                          f"mpi4py for the library that mpicc finds")


def _handle(comm: Any) -> int:
    from mpi4py import MPI

    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm is of type {type(comm).__name__}; a communicator of mpi4py is expected")
    if isinstance(comm, MPI.Intercomm):
        raise TypeError("comm is an intercommunicator, of two groups of ranks; a communicator of one group is expected")
    _check_library()
    _heed_mpi.use_target(_heed.target())
    handle: int = comm.py2f()
    return handle


def attention(comm: Any, q: Array, k: Any, v: Any, layout: Sharding | Layout, *, scheme: Scheme = "automatic",
              deterministic: bool = False, **options: Unpack[CallOptions]) -> AttentionResult[Array]:
    """heed.attention over the ranks of comm, with the same bits as in one process.

    q is [B, H, rows of this rank, D]; k and v are [B, Hkv, keys of this rank, D and Dv]. layout is a Sharding for both
    rows and keys, or a Layout. Row results are on the ranks of the rows, `received` is on the ranks of the keys, and
    the map is on every rank. weights and scores are [B, H, rows of this rank, Lk].

    The options are those of heed.attention and must be equal on all ranks. mask and bias have this rank's rows and all
    keys; other options describe the whole call. dropout requires a seed.

    scheme: 'automatic', 'ring', 'gather', 'ulysses' or 'decode'. deterministic=True refuses results whose bits may
    differ from one process.

    Returns an AttentionResult with scheme and bytes_sent. Raises ValueError and TypeError with a sentence that names
    the argument. On the other ranks it raises ValueError, which also names the rank."""
    return _heed_mpi.attention(_handle(comm), q, k, v, layout, scheme, deterministic, options)


def attention_backward(comm: Any, q: Array, k: Any, v: Any, output: Any, lse: Any, grad_output: Any,
                       layout: Sharding | Layout, *, grad_lse: Any = None, grad_weights: Any = None,
                       gradients: GradientName | Sequence[GradientName] | None = None, scheme: Scheme = "automatic",
                       deterministic: bool = False, **options: Unpack[CallOptions]) -> AttentionGradients[Array]:
    """heed.attention_backward over the ranks of comm.

    All arrays and gradients have this rank's rows or keys. dsinks and ddecay, and the part of dbias that ranks share,
    are summed over all ranks and returned on each.

    Returns an AttentionGradients with scheme and bytes_sent. Raises errors as attention() does."""
    return _heed_mpi.attention_backward(_handle(comm), q, k, v, output, lse, grad_output, layout, grad_lse, grad_weights,
                                        gradients, scheme, deterministic, options)
