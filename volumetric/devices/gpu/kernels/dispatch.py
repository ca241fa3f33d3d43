"""Dispatch: a shader, its constants, and its grid. Plain data; `devices.gpu.context` binds and runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

Constant = int | float | bool
MATRIX_LANES = 32
"""Invocations of a subgroup that multiply fragments together; emulated fragments have as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Device capabilities, as reported by the device or narrowed by a test.

    Attributes
    ----------
    subgroup_size : lanes certain to run together; 0 if there are no subgroups: reductions then use memory
    immediates : small arguments are passed in the commands instead of in uniform buffers
    max_workgroup : invocations in a workgroup
    max_shared : bytes of workgroup memory
    max_storage_buffers : storage buffers that one kernel may bind
    max_binding : bytes of one storage binding; larger matrices are split by rows
    max_groups : workgroups along one grid axis
    invocations : invocations that keep the device busy; determines how finely work is split
    max_rounds : maximum loop rounds of an invocation over its life; llvmpipe ends loops beyond them without an error.
        0: no limit was found
    matrix_units : subgroups multiply fragments of 16 x 16 halves
    unroll : steps of a matrix product to unroll; software adapters take seconds to compile long straight-line code.
        1: kernels are as short as possible
    """

    subgroup_size: int = 0
    immediates: bool = False
    max_workgroup: int = 256
    max_shared: int = 16384
    max_storage_buffers: int = 8
    max_binding: int = 128 << 20
    max_groups: int = 65535
    invocations: int = 131072
    unroll: int = 32
    max_rounds: int = 0
    matrix_units: bool = False

    def launches_needed(self, rounds: int, count: int = 1) -> int:
        """Number of parts to split `count` steps of `rounds` rounds each into; a sixteenth is kept for other loops."""
        return ceil_div(count * rounds, max(self.max_rounds * 15 // 16, 1)) if self.max_rounds and count else 1


class CallRows(NamedTuple):
    """Rows of a call.

    Attributes
    ----------
    total : number of rows
    singles : number of rows, at the beginning, that are the only row of their sequence
    blocks : number of blocks of the other sequences' rows
    pieces : number of sequences
    lengths : rows of each sequence, if the recording depends on them; else empty
    """

    total: int
    singles: int = 0
    blocks: int = 0
    pieces: int = 0
    lengths: tuple[int, ...] = ()

    @property
    def multi_rows(self) -> int:
        """Rows of sequences with several rows."""
        return self.total - self.singles


ONE_ROW = CallRows(1)
"""Rows for launches whose grids do not depend on rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkgroupGrid:
    """Workgroups of a dispatch; with `rows_each`, the y axis counts blocks of so many of the rows selected by `over`.

    Each row counts `times`, and there are `extra` further blocks.
    """

    x: int
    y: int = 1
    z: int = 1
    rows_each: int | None = None
    over: Literal["total", "singles", "multi_rows", "blocks", "pieces"] = "total"
    times: int = 1
    extra: int = 0

    def size(self, rows: CallRows, limit: int) -> tuple[int, int, int]:
        """Group counts for `rows`; a one-dimensional grid beyond `limit` is folded (`flat_group` in WGSL undoes it)."""
        if self.rows_each is not None:
            return self.x, ceil_div(getattr(rows, self.over) * self.times, self.rows_each) + self.extra, self.z
        if self.y * self.z > 1:
            return self.x, self.y, self.z
        folds = ceil_div(self.x, limit)
        return ceil_div(self.x, folds), folds, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One kernel launch. Buffers are bound by the names declared in the shader."""

    kernel: str
    grid: WorkgroupGrid
    constants: Mapping[str, Constant] = field(default_factory=lambda: MappingProxyType({}))
    preludes: tuple[str, ...] = ()
    args: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Kernel and sizes, for profiles: ``"matvec 960x576 float16"``."""
        sizes = [
            str(self.constants[name]) for name in ("N", "K", "WIDTH", "HEADS", "HEAD_DIM") if name in self.constants
        ]
        formats = [name.partition("/")[2] for name in self.preludes if name.startswith(("dtype/", "kv/"))]
        return " ".join([self.kernel, "x".join(sizes), *formats])

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for dispatches that share a pipeline. Constants count with their type: WGSL has no 1 == true."""
        constants = tuple(sorted((name, type(value).__name__, value) for name, value in self.constants.items()))
        return (self.kernel, self.preludes, constants)


def ceil_div(a: int, b: int) -> int:
    """Quotient rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """Smallest power of two that is at least `n`."""
    return 1 << max(n - 1, 0).bit_length()
