"""Steps that go through the same elements block by block give what they give one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cpu_graph.harness import graphs
from volumetric.devices.cpu.graph import blocked_steps
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.graph import Graph, GraphBuilder, interpret
from volumetric.graph.cleanup_passes import broadcast_in_binary

SHAPE = (3, 5, 37)


def normed(work: GraphBuilder, x: int) -> list[int]:
    """Three functions of pairs in place, with small steps between them that move to the front."""
    mean = work.input("mean", (1, 5, 1))
    centred = work.binary("sub", x, mean)
    scale = work.affine(mean, 0.5, 1.0)
    scaled = work.binary("mul", centred, scale)
    return [work.binary("add", scaled, work.affine(mean, -1.0))]


def read_again(work: GraphBuilder, x: int) -> list[int]:
    """An operand that a later step of the run needs must stay."""
    twice = work.affine(x, 2.0)
    square = work.unary(twice, "square")
    return [work.binary("sub", work.binary("mul", square, twice), twice), square]


def summed(work: GraphBuilder, x: int) -> list[int]:
    """What needs all elements ends a run."""
    y = work.affine(work.affine(x, 0.5), 1.0, 3.0)
    total = work.reduce(y, "max", (0, 2))
    return [work.binary("mul", work.binary("sub", y, total), total)]


def seen_otherwise(work: GraphBuilder, x: int) -> list[int]:
    """Elements in another order are not those of the thread's own share."""
    y = work.affine(x, 3.0)
    turned = work.reshape(work.permute(y, (2, 1, 0)), SHAPE)
    return [work.binary("add", work.affine(turned, 2.0), y)]


def viewed(work: GraphBuilder, x: int) -> list[int]:
    """A view in the middle of a run."""
    flat = work.reshape(work.affine(x, 3.0), (15, 37))
    return [work.unary(work.binary("mul", flat, work.affine(flat, -1.0)), "neg"), flat]


def kept(work: GraphBuilder, x: int) -> list[int]:
    """A buffer that is written, and read before and after."""
    held = work.stored_tensor("held", SHAPE)
    y = work.binary("add", held, work.affine(x, 2.0))
    work.emit("assign", (y,), key="held")
    return [work.binary("mul", work.affine(y, 3.0), x)]


def other_sizes(work: GraphBuilder, x: int) -> list[int]:
    """Runs over tensors of two sizes that take turns."""
    wide = work.affine(work.pad(x, (0, 0, 0), (0, 0, 1)), 2.0)
    narrow = work.unary(work.affine(x, 5.0), "square")
    return [narrow, work.unary(wide, "neg")]


@pytest.mark.parametrize("make", [normed, read_again, summed, seen_otherwise, viewed, kept, other_sizes])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_change_no_bit(
    make: Callable[[GraphBuilder, int], list[int]], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = GraphBuilder()
    graph = work.finish(make(work, work.input("x", SHAPE)))
    rng = np.random.default_rng(3)
    given = [rng.integers(-8, 9, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    buffers = {"held": rng.integers(-8, 9, SHAPE).astype(np.float32)} if "held" in graph.tensors_by_key else {}
    want_buffers = {key: value.copy() for key, value in buffers.items()}
    want = interpret(graph, given, want_buffers)
    monkeypatch.setattr(blocked_steps, "_SMALLEST", 4 * 555)
    monkeypatch.setattr(blocked_steps, "_BLOCK", 600)
    assert any(step.name == "run_blocked" for step in build_steps(graph).steps)
    store = graphs(threads).store()
    for key, value in buffers.items():
        store.write(key, value)
    found = graphs(threads).compile(graph, store).run(given)
    for got, wanted in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, wanted)
    for key, value in want_buffers.items():
        np.testing.assert_array_equal(store.get(key), value)


def test_small_steps_and_pairs_in_place_make_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_steps, "_SMALLEST", 4 * 555)
    work = GraphBuilder()
    steps = build_steps(work.finish(normed(work, work.input("x", SHAPE)))).steps
    assert [step.label for step in steps] == ["unary", "unary", "run_blocked binary binary binary"]


def test_steps_that_have_no_tensor_in_common_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_steps, "_SMALLEST", 4 * 555)
    work = GraphBuilder()
    first, second = work.input("x", SHAPE), work.input("y", SHAPE)
    results = [work.unary(work.affine(x, 2.0), "square") for x in (first, second)]
    labels = [step.label for step in build_steps(work.finish(results)).steps]
    assert labels == ["run_blocked unary unary", "run_blocked unary unary"]


def spread(work: GraphBuilder, source: int) -> Graph:
    x = work.input("x", SHAPE)
    return work.finish([work.binary("sub", x, work.broadcast(source, SHAPE))])


def test_what_pairs_can_spread_is_not_written_out() -> None:
    work = GraphBuilder()
    graph = spread(work, work.input("row", (1, 5, 1)))
    assert [node.op for node in broadcast_in_binary(graph).nodes] == ["binary"]
    given = [
        np.arange(np.prod(graph.tensors[i].shape), dtype=np.float32).reshape(graph.tensors[i].shape)
        for i in graph.inputs
    ]
    np.testing.assert_array_equal(interpret(broadcast_in_binary(graph), given, {})[0], interpret(graph, given, {})[0])


def test_what_outlives_the_run_and_what_alone_has_the_shape_stay_spread() -> None:
    work = GraphBuilder()
    graph = spread(work, work.stored_tensor("row", (1, 5, 1)))
    assert [node.op for node in broadcast_in_binary(graph).nodes] == ["broadcast", "binary"]
    work = GraphBuilder()
    row = work.input("row", (1, 5, 1))
    both = work.binary("add", work.broadcast(row, SHAPE), work.broadcast(work.affine(row, 2.0), SHAPE))
    ops = [node.op for node in broadcast_in_binary(work.finish([both])).nodes]
    assert ops.count("broadcast") == 1
