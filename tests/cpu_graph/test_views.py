"""Parts of tensors lie where they are read, and only there where nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.graph import Graph, GraphBuilder, interpret


def copies(graph: Graph) -> int:
    return sum(step.name == "copy" for step in build_steps(graph).steps)


def agrees(graph: Graph) -> None:
    """Runs of any number of threads give what the reference does, twice, as scratch is used again."""
    draw = np.random.default_rng(3)
    x = [draw.standard_normal(graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    wanted = interpret(graph, x, {}, np.float32)
    for threads in (1, 3):
        device = graphs(threads)
        program = device.compile(graph, device.store())
        for _ in range(2):
            for got, right in zip(program.run(x), wanted, strict=True):
                np.testing.assert_array_equal(got, right)


def shifted(n: int, ticks: int, rows: int = 3) -> Graph:
    """A plane in which each tick moves all rows by one and puts a new one in front."""
    work = GraphBuilder()
    x = work.input("x", (ticks, rows, 4))
    plane = work.affine(work.input("plane", (n, rows, 4)), 2.0)
    ends = []
    for t in range(ticks):
        read = work.concat([work.part(x, 0, t, t + 1), work.part(plane, 0, 0, n - 1)], 0)
        plane = work.affine(read, 0.5, 1.0)
        ends.append(work.part(plane, 0, n - 1, n))
    return work.finish([work.concat(ends, 0), plane])


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "ticks"), [(5, 1), (5, 4), (2, 3), (33, 7)])
def test_planes_are_written_where_the_next_tick_reads_them(n: int, ticks: int) -> None:
    graph = shifted(n, ticks)
    assert copies(graph) <= 3 * ticks  # the new row; what leaves, once from its plane and once behind the others
    agrees(graph)


def test_parts_that_would_meet_are_copied() -> None:
    work = GraphBuilder()
    a = work.affine(work.input("a", (4, 3)), 2.0)
    b = work.affine(work.input("b", (4, 3)), 3.0)
    twice = work.concat([a, a], 0)  # one of the two is a copy
    swapped = work.concat([work.part(b, 0, 2, 4), work.part(b, 0, 0, 2)], 0)
    both = work.concat([a, b], 0)  # where a is the first of another one
    sums = [work.unary(i, "neg") for i in (twice, swapped, both, a, b)]
    graph = work.finish(sums)
    assert 2 <= copies(graph) <= 5
    agrees(graph)


def test_parts_of_buffers_inputs_and_outputs_keep_their_numbers() -> None:
    work = GraphBuilder()
    kept = work.stored_tensor("kept", (3, 2), role="state")
    old = work.part(kept, 0, 0, 2)
    x = work.input("x", (40_000, 2))  # lies in the caller's array
    some = work.part(x, 0, 7, 39_000)
    y = work.affine(some, 3.0)
    work.assign("kept", work.part(x, 0, 1, 4))
    graph = work.finish(
        [work.affine(old, 1.0, 1.0), y, work.part(y, 0, 5, 9), work.concat([y, work.part(x, 1, 0, 2)], 0)]
    )
    device = graphs(2)
    store = device.store()
    store.write("kept", np.ones((3, 2), np.float32))
    program = device.compile(graph, store)
    for scale in (1, 2):
        given = np.arange(80_000, dtype=np.float32).reshape(40_000, 2) * np.float32(scale)
        old_plus_1, tripled, cut, joined = program.run([given])
        np.testing.assert_array_equal(tripled, given[7:39_000] * np.float32(3))
        np.testing.assert_array_equal(cut, tripled[5:9])
        np.testing.assert_array_equal(joined, np.concatenate([tripled, given]))
        np.testing.assert_array_equal(old_plus_1, np.full((2, 2), 2) if scale == 1 else 1 + _rows(1))
        np.testing.assert_array_equal(store.get("kept"), given[1:4])


def _rows(scale: int) -> np.ndarray:
    return (np.arange(2, 6, dtype=np.float32) * scale).reshape(2, 2)


@pytest.mark.thorough
def test_random_cuts_and_joins() -> None:
    draw = np.random.default_rng(11)
    for _ in range(6):
        work = GraphBuilder()
        pool = [work.affine(work.input("x", (int(n), 2)), 1.5) for n in draw.integers(1, 6, 3)]
        for _ in range(8):
            if draw.random() < 0.5:
                i = pool[draw.integers(len(pool))]
                n = work.shape(i)[0]
                start = int(draw.integers(n))
                made = work.part(i, 0, start, int(draw.integers(start, n)) + 1)
            else:
                parts = [pool[k] for k in draw.integers(len(pool), size=draw.integers(2, 4))]
                made = work.concat(parts, 0)
            pool.append(work.affine(made, 1.25) if draw.random() < 0.5 else made)
        agrees(work.finish([work.unary(i, "neg") for i in pool[-4:]]))
