"""Plans of calls: how they would run, what they hold, and what they cost."""

import dataclasses
from typing import Any

from . import _heed
from ._counted import counted


def _size(count: float) -> str:
    """As the command prints it."""
    unit = 0
    while count >= 999.95:
        count, unit = count / 1000, unit + 1
    return f"{count:.{unit and 1}f} {('B', 'kB', 'MB', 'GB', 'TB', 'PB', 'EB')[unit]}"


@dataclasses.dataclass(frozen=True)
class PlannedPass:
    """One pass over the keys with one unit: kernels for one instruction set and one format of products."""

    name: str
    unit: str
    path: str
    """the way to the keys: 'decode', 'packed_kv_blocks', …"""
    schedule: str
    """how threads share the work: 'whole_tasks', 'split_kv', …"""
    because: str
    tasks: int
    """pieces of work for threads"""
    rows: int
    """query rows of a task, at most"""
    keys: int
    """keys of a step; in the weights and backward passes, of a task"""
    threads: int
    bytes: int
    """working memory, of all threads together"""

    def __str__(self) -> str:
        return (f"{self.name}: unit {self.unit}, path {self.path}, {counted(self.tasks, 'task')} of up to {counted(self.rows, 'row')} "
                f"by {counted(self.keys, 'key')}, {counted(self.threads, 'thread')} ({self.schedule}), {_size(self.bytes)}. {self.because}")


@dataclasses.dataclass(frozen=True)
class AttentionPlan:
    """How a call would run, and what it would cost. str() says it in words."""

    kernel: str
    isa: str
    because: str
    """why this kernel and this instruction set"""
    passes: tuple[PlannedPass, ...]
    """in the order of execution; none for the reference kernel"""
    multiply_adds: float
    """of the pairs of queries and keys that positions allow"""
    result_bytes: int
    """memory of all results"""
    falls_back: str
    """what is computed again, and when"""

    def __str__(self) -> str:
        return "\n".join([f"kernel    {self.kernel}, {self.isa}. {self.because}",
                          *(f"pass      {one}" for one in self.passes),
                          f"costs     {2 * self.multiply_adds / 1e9:.3g} GFLOP",
                          f"returns   {_size(self.result_bytes)}",
                          f"fallback  {self.falls_back}"])


def _plan(fields: dict[str, Any]) -> AttentionPlan:
    return AttentionPlan(**{**fields, "passes": tuple(PlannedPass(**one) for one in fields["passes"])})


def plan_attention(q: Any = None, k: Any = None, v: Any = None, **options: Any) -> AttentionPlan:
    """The plan of heed.attention with these arguments, of which only lengths and segments are read. Nothing is computed.

    k may be a KvCache, as there. The plan depends on shapes, strides, options and the machine. Raises as heed.attention does."""
    return _plan(_heed.plan_attention(q, k, v, **options))


def plan_attention_backward(q: Any, k: Any, v: Any, output: Any, lse: Any, grad_output: Any, **options: Any) -> AttentionPlan:
    """The plan of heed.attention_backward with these arguments, likewise."""
    return _plan(_heed.plan_attention_backward(q, k, v, output, lse, grad_output, **options))
