"""Kernels inside others: linked where they are called, kept without machine code, and still callable from Python."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from volumetric.devices.cpu.kernels.jit import cache_root, entry, kernel


def _doubled(x: int) -> int:
    return 2 * x


doubled: Any = kernel(_doubled)


@entry
def fourfold(x: int) -> int:
    return doubled(doubled(x))


def test_a_part_runs_inside_kernels_and_alone() -> None:
    assert fourfold(3) == 12
    assert doubled(x=3) == 6
    assert doubled(1.5) == 3.0


def test_a_part_has_no_machine_code() -> None:
    part: Any = kernel(_doubled)
    part.compile((numba.int64,))
    (made,) = part.overloads.values()
    assert not callable(made.entry_point)
    assert not made.library._codegen._engine.is_symbol_defined(made.fndesc.llvm_func_name)


@pytest.mark.skipif(cache_root() is None, reason="kernels are not kept on this machine")
def test_a_part_that_was_kept_is_linked_like_a_new_one() -> None:
    first: Any = kernel(_doubled)
    first.compile((numba.int32,))
    kept: Any = kernel(_doubled)
    caller: Any = numba.njit(lambda x: kept(numba.int32(x)) + 1)
    assert caller(4) == 9
    assert sum(kept.stats.cache_hits.values()) == 1
