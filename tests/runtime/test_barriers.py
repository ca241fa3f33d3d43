"""Where threads must meet: told by blocks of memory, as by comparing each step with all that went before it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from volumetric.devices.cpu.placement import barriers, predicate_barriers
from volumetric.devices.cpu.step_builder import OperationStep

SIZE = 1 << 17


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] == b[0] and a[1] < b[1] + SIZE and b[1] < a[1] + SIZE


def test_threads_meet_where_a_step_writes_what_another_touches() -> None:
    """Tensors that overlap in one of two spaces, over many blocks and across their edges."""
    draw = np.random.default_rng(0)
    places = [(int(space), int(start)) for space, start in draw.integers(0, (2, 1 << 23), (60, 2))]
    steps = [
        OperationStep(name="x", constants=(), arguments=(), reads=tuple(ends[:2]), writes=tuple(ends[2:]))
        for ends in (draw.permutation(60)[:3].tolist() for _ in range(300))
    ]
    placement: Any = SimpleNamespace(leaves=steps, place=places.__getitem__)
    want, since = [False] * len(steps), 0
    for at, step in enumerate(steps):
        clash = any(
            overlap(places[i], places[j])
            for other in steps[since:at]
            for i in (*step.reads, *step.writes)
            for j in (*other.reads, *other.writes)
            if i in step.writes or j in other.writes
        )
        if clash:
            want[at - 1], since = True, at
    assert 10 < sum(want) < 290
    assert barriers(steps, placement, [SIZE] * 60) == want


def test_threads_meet_before_what_a_guard_looked_at_is_written_over() -> None:
    """Also where its body is skipped, and then behind the last guard alone that no other meeting follows."""

    def step(reads: tuple[int, ...], writes: tuple[int, ...]) -> OperationStep:
        return OperationStep(name="x", constants=(), arguments=(), reads=reads, writes=writes)

    def guard(weights: int, *body: OperationStep) -> OperationStep:
        return OperationStep(name="guard", reads=(weights,), body=body)

    # Tensors 0 and 1 are weights; 2 lies where 0 does, 3 where 1 does; the others have places of their own.
    places = [(0, 0), (0, SIZE), (0, 0), (0, SIZE), *((1, n * SIZE) for n in range(6))]
    cases = [
        ([step((), (0,)), guard(0, step((4,), (5,))), step((5,), (2,))], [False, True, False]),
        ([step((), (0,)), guard(0, step((4,), (5,))), step((5,), (6,))], [False, False, False]),
        ([guard(0, step((4,), (5,))), guard(1, step((4,), (6,))), step((), (2,))], [False, True, False]),
        ([guard(0, step((4,), (5,))), guard(1, step((4,), (2,)))], [True, False]),
        ([guard(0, step((4,), (5,))), step((), (6,)), step((6,), (7,)), step((), (2,))], [False] * 4),
    ]
    for steps, want in cases:
        leaves = [leaf for one in steps for leaf in one.leaves]
        placement: Any = SimpleNamespace(leaves=leaves, place=places.__getitem__)
        sizes = [SIZE] * len(places)
        assert predicate_barriers(steps, placement, sizes, barriers(steps, placement, sizes)) == want
        others = [replace(of, name="unless") if of.name == "guard" else of for of in steps]
        assert predicate_barriers(others, placement, sizes, barriers(others, placement, sizes)) == want
