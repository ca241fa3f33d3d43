"""Optimiser steps and sums of squares over several arrays in one launch: the numbers of one launch for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed_graphs
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.train import Adam, Momentum, Optimiser

SHAPES = [(3, 5), (7,), (40, 30), (1,), (9, 9), (2, 2), (300,), (4,), (11,), (6, 50)]
SCALARS = np.array([0.1, 0.5, 0.7, 1.2, 1.0], np.float32)


def stepped(optimiser: Optimiser, shapes: list[tuple[int, ...]]) -> Graph:
    """The sum of squares of all gradients, the largest sum of squares of a new array, and the steps."""
    work = GraphBuilder(flush=True)
    scalars = work.input("scalars", (5,))
    gradients = [work.stored_tensor(f"g{i}", shape) for i, shape in enumerate(shapes)]

    def step(i: int, *, in_place: bool) -> int:
        stored = [work.stored_tensor(f"{slot}{i}", shapes[i]) for slot in ("w", *optimiser.slots)]
        return work.update(
            param=stored[0],
            grad=gradients[i],
            slots=stored[1:],
            scalars=scalars,
            in_place=in_place,
            **optimiser.attributes,
        )[0]

    squares = work.sumsq(gradients)
    trials = [work.sumsq([step(i, in_place=False)]) for i in range(len(shapes))]
    largest = work.reduce(work.concat(trials, 0), "max", (0,))
    outputs = [squares, work.binary("greater", work.scalar(1e30), largest)]
    for i in range(len(shapes)):
        step(i, in_place=True)
    return work.finish(outputs)


def opened(graphs: Any, optimiser: Optimiser, shapes: list[tuple[int, ...]]) -> tuple[Any, Any]:
    draw, store = np.random.default_rng(0), graphs.store()
    for i, shape in enumerate(shapes):
        for name in ("w", "g", *optimiser.slots):
            store.write(f"{name}{i}", draw.uniform(0.1, 1, shape).astype(np.float32))
    return graphs.compile(stepped(optimiser, shapes), store), store


@pytest.mark.parametrize("buffers", [None, 8])
@pytest.mark.parametrize("optimiser", [Momentum(weight_decay=0.1), Adam()], ids=lambda of: of.kind)
def test_numbers_are_those_of_the_reference(optimiser: Optimiser, buffers: int | None) -> None:
    graphs = narrowed_graphs("native")
    if buffers is not None:
        graphs = GpuGraphs(GpuDevice(narrow={"max_storage_buffers": buffers}).context)
    (found, store), (want, other) = opened(graphs, optimiser, SHAPES), opened(NumpyGraphs(), optimiser, SHAPES)
    for got, reference in zip(found.run([SCALARS]), want.run([SCALARS]), strict=True):
        np.testing.assert_allclose(got, reference, rtol=1e-5)
    for key in list(other.keys()):
        np.testing.assert_allclose(store.get(key), other.get(key), rtol=1e-5, atol=1e-6, err_msg=key)
    before = {key: store.get(key) for key in list(store.keys())}
    found.run([SCALARS * [1, 1, 1, 1, 0]])  # the last scalar leaves everything as it is
    for key, value in before.items():
        np.testing.assert_array_equal(store.get(key), value)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_a_number_that_is_not_finite_shows_up(odd: float) -> None:
    program, store = opened(narrowed_graphs("native"), Adam(), SHAPES)
    for i in (0, 6, len(SHAPES) - 1):
        gradient = store.get(f"g{i}")
        store.write(f"g{i}", np.where(np.arange(gradient.size).reshape(gradient.shape) == 0, odd, gradient))
        squares, finite = program.run([SCALARS * [1, 1, 1, 1, 1]])
        assert not np.isfinite(squares[0])
        assert finite[0] == (0 if np.isnan(odd) else finite[0])
        store.write(f"g{i}", gradient)


def test_arrays_are_joined() -> None:
    graphs = narrowed_graphs("native")
    program, _ = opened(graphs, Adam(), SHAPES)
    ops = [node.op for node in program.graph.nodes]
    assert ops.count("update_many") == ops.count("update_squares") == 1
    assert "update" not in ops
    assert len(program.calls) < 2 * len(SHAPES)  # Dawn binds few buffers at once; one by one they are over 30


def test_scalars_in_two_parts_are_those_of_one() -> None:
    graphs = narrowed_graphs("native")
    shapes, rule = SHAPES[:3], Adam()
    results: list[dict[str, Any]] = []
    for divided in (False, True):
        store, draw, work = graphs.store(), np.random.default_rng(0), GraphBuilder(flush=True)
        scalars = work.input("scalars", (5,))
        if divided:
            scalars = work.concat([work.input("four", (4,)), work.input("one", (1,))], 0)
        for i, shape in enumerate(shapes):
            for name in ("w", "g", *rule.slots):
                store.write(f"{name}{i}", draw.uniform(0.1, 1, shape).astype(np.float32))
            stored = [work.stored_tensor(f"{name}{i}", shape) for name in ("w", *rule.slots)]
            work.update(
                param=stored[0],
                grad=work.stored_tensor(f"g{i}", shape),
                slots=stored[1:],
                scalars=scalars,
                in_place=True,
                **rule.attributes,
            )
        program = graphs.compile(work.finish([]), store)
        assert [node.op for node in program.graph.nodes] == ["update_many"]
        for last in (0, 1):
            one = np.array([*SCALARS[:4], last], np.float32)
            program.run([one, one[:4], one[4:]] if divided else [one])
        results.append({key: store.get(key) for key in store.keys()})  # noqa: SIM118 - no mapping
    for key, value in results[0].items():
        np.testing.assert_array_equal(results[1][key], value)
