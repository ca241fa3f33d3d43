"""Products of programs: tiles, splits of long sums, and reading parts where they lie."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.devices import narrowed_graphs
from tests.graph.agreement import agree
from tests.graph.op_cases.case import OpCase, case_graph, case_outputs, normal
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.gpu.graph.gpu_program import GpuProgram
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph.gemm import TILES, choose_tile, lower_product, splits_of
from volumetric.devices.gpu.kernels.graph.grouped_gemm import product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweredNode, LoweringRequest
from volumetric.graph import GraphBuilder, NumpyGraphs

LARGE = "large"


@pytest.mark.thorough
@pytest.mark.parametrize("tile", range(len(TILES)))
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (False, False), (True, False), (True, True)])
def test_every_tile_and_split_gives_the_product(tile: int, splits: int, trans_a: bool, trans_b: bool) -> None:
    m, n, k = 37, 71, 100
    a, b = normal(2, k, m) if trans_a else normal(2, m, k), normal(1, n, k) if trans_b else normal(1, k, n)
    expected = (a.swapaxes(1, 2) if trans_a else a).astype(np.float64) @ (b.swapaxes(1, 2) if trans_b else b)
    graphs = narrowed_graphs("native")
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": 2, "activation": "linear"}
    request = LoweringRequest(
        op="gemm", inputs=(a.shape, b.shape), outputs=((2, m, n),), attrs=attrs, caps=graphs.context.caps
    )
    lowered = lower_product(product_of(request), TILES[tile], splits, request)
    agree(run_lowered(graphs, lowered, [a, b], (2, m, n)), expected.astype(np.float32), "product")


def run_lowered(
    graphs: GpuGraphs, lowered: LoweredNode, inputs: list[np.ndarray], shape: tuple[int, ...]
) -> np.ndarray:
    context = graphs.context
    places = {
        "input": [context.upload(x, "input") for x in inputs],
        "output": [context.buffer(4 * int(np.prod(shape)), "output")],
        "scratch": [context.buffer(nbytes, "scratch") for nbytes in lowered.scratch],
    }
    calls = [
        context.bind(one.dispatch, {name: places[ref.place][ref.number] for name, ref in one.buffers.items()}, one.dims)
        for one in lowered.launches
    ]
    context.run(calls)
    return context.read(places["output"][0], 4 * int(np.prod(shape))).view(np.float32).reshape(shape)


def test_large_products_take_large_tiles_and_long_sums_are_split() -> None:
    caps = Caps(max_workgroup=1024, max_shared=49152)

    def choice(m: int, n: int, k: int) -> tuple[int, int, int]:
        attrs = {"trans_a": False, "trans_b": True, "groups": 1}
        request = LoweringRequest(
            op="gemm", inputs=((1, m, k), (1, n, k)), outputs=((1, m, n),), attrs=attrs, caps=caps
        )
        product = product_of(request)
        tile = choose_tile(product, caps)
        return tile.m, tile.n, splits_of(product, tile, caps)

    assert choice(4096, 4096, 4096) == (128, 128, 1)
    assert choice(512, 512, 65536)[2] > 1
    assert choice(1, 4096, 4096)[0] == 16
    assert choice(32, 64, 32)[2] == 1
    assert choice(8192, 8192, 65536)[2] == 1


CALLS = {1: ("place", "gemm"), 2: ("gemm", "fold")}
LONG = {
    "everything": OpCase(op="reduce", inputs=(normal(300, 517),), attrs={"name": "sum", "axes": (0, 1)}),
    "columns": OpCase(op="reduce", inputs=(normal(5000, 33),), attrs={"name": "mean", "axes": (0,)}),
    "greatest": OpCase(op="reduce", inputs=(normal(3, 50001),), attrs={"name": "max", "axes": (1,)}),
    "squares": OpCase(op="sumsq", inputs=(normal(70001), normal(5, 3))),
    "norm": OpCase(op="norm_param_grad", inputs=(normal(5000, 33), normal(5000, 33), normal(5000, 3))),
}


@pytest.mark.parametrize("name", LONG)
def test_long_sums_take_two_launches(name: str) -> None:
    case = replace(LONG[name], attrs={**LONG[name].attrs, **({"bias": True} if name == "norm" else {})})
    graphs = narrowed_graphs(LARGE)
    program = graphs.compile(case_graph(case), graphs.store())
    assert len(program.calls) >= 2
    for got, want in zip(program.run(case.inputs), case_outputs(case, np.float64), strict=True):
        agree(got, want.astype(np.float32), name)


def test_products_read_the_windows_of_images_where_they_lie() -> None:
    x, weight = normal(2, 6, 5, 7), normal(2, 4, 3 * 6)
    attrs = {"kernel": (3, 2), "stride": (2, 3), "before": (1, 2), "dilation": (1, 2), "counts": (2, 3)}
    work = GraphBuilder()
    at, w, g = work.input("x", x.shape), work.input("w", weight.shape), work.input("g", (4, 4, 6))
    columns = work.reshape(work.emit("unfold", (at,), **attrs)[0], (4, 18, 6))
    forward, backward = work.gemm(w, columns), work.gemm(g, columns, trans_b=True, groups=2)
    inputs = [x, weight, normal(4, 4, 6)]
    graphs, reference = narrowed_graphs("native"), NumpyGraphs(np.float64)
    for outputs, launches in (([forward, backward], 2), ([forward, columns], 2)):
        graph = work.finish(outputs)
        program = graphs.compile(graph, graphs.store())
        assert len(program.calls) == launches
        expected = reference.compile(graph, reference.store()).run(inputs)
        for got, want in zip(program.run(inputs), expected, strict=True):
            agree(got, want.astype(np.float32), "product")


@pytest.mark.thorough
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(("rows", "groups", "bias"), [(1, (5, 5), (5, 68)), (3, (1, 5), (68,)), (8, (5, 1), ())])
def test_products_of_few_rows(
    rows: int, groups: tuple[int, int], bias: tuple[int, ...], *, trans_b: bool, folded: GpuGraphs
) -> None:
    work = GraphBuilder()
    a, b = work.input("a", (groups[0], rows, 20)), work.input("b", (groups[1], *((68, 20) if trans_b else (20, 68))))
    inputs = (a, b, work.input("bias", bias)) if bias else (a, b)
    attrs = {"trans_a": False, "trans_b": trans_b, "groups": 5, "activation": "tanh"}
    graph = work.finish(list(work.emit("gemm", inputs, **attrs)))
    values = [normal(*graph.tensors[i].shape) for i in graph.inputs]
    [right] = NumpyGraphs(np.float64).compile(graph, NumpyGraphs(np.float64).store()).run(values)
    for graphs in (narrowed_graphs("native"), folded):
        program = graphs.compile(graph, graphs.store())
        assert {entry.dispatch.kernel for entry in program.recording.entries} == {"graph/few_rows"}
        agree(program.run(values)[0], right.astype(np.float32), "few rows")


@pytest.mark.parametrize(
    ("parts", "state", "kernels"),
    [
        ("x1:3 y0:4 z2:3", False, {"few_rows"}),
        ("x1:3 x3:4 y0:4", False, {"few_rows"}),
        ("x0:2 y0:2 z0:2 w2:3", False, {"few_rows", "concat"}),  # too many tensors
        ("x0:1 x2:3 x1:2 x0:1 x2:3 x1:2 x0:1 x2:3 y0:1", False, {"few_rows", "concat"}),  # too many parts
        ("x1:3 y0:4 z2:3", True, {"few_rows", "concat"}),  # y may have been written to when the product is made
    ],
)
def test_products_of_few_rows_read_parts_where_they_lie(parts: str, kernels: set[str], *, state: bool) -> None:
    work = GraphBuilder()
    named = {name: work.input(name, (4, 2, 8)) for name in "xzw"}
    named["y"] = work.stored_tensor("y", (4, 2, 8)) if state else work.input("y", (4, 2, 8))
    bounds = [(named[part[0]], *map(int, part[1:].split(":"))) for part in parts.split()]
    joined = work.concat([work.part(x, 0, start, stop) for x, start, stop in bounds], 0)
    groups = work.shape(joined)[0]
    weight, bias = work.input("weight", (groups, 8, 12)), work.input("bias", (groups, 12))
    graph = work.finish([work.gemm(joined, weight, bias)])
    values = [normal(*graph.tensors[i].shape) for i in graph.inputs]
    found, kept = [], normal(4, 2, 8)
    for graphs in (narrowed_graphs("native"), NumpyGraphs(np.float64)):
        store: Any = graphs.store()
        if state:
            store.write("y", kept)
        program = graphs.compile(graph, store)
        found.append(program.run(values)[0].astype(np.float32))
        if isinstance(program, GpuProgram):
            launched = {entry.dispatch.kernel.removeprefix("graph/") for entry in program.recording.entries}
            assert launched - {"place"} == kernels
    agree(found[0], found[1], "parts of few rows")


def test_joined_parts_are_read_where_they_lie() -> None:
    work = GraphBuilder()
    x, y = work.input("x", (5, 2, 3)), work.input("y", (1, 4, 3))
    kept = work.stored_tensor("kept", (2, 2, 3))
    parts = [
        work.part(x, 0, 1, 4),
        work.reshape(work.part(y, 1, 2, 4), (1, 2, 3)),
        work.reshape(work.part(work.reshape(x, (1, 10, 3)), 1, 9, 10), (1, 1, 3)),
        work.part(x, 1, 1, 2),  # not contiguous
        work.part(kept, 0, 1, 2),  # is written before it is joined once more
        work.part(x, 0, 4, 5),
        work.part(x, 0, 0, 2),
        y,
    ]
    rows = work.concat([work.reshape(part, (prod(work.shape(part)) // 3, 3)) for part in parts], 0)
    apart = work.concat([work.part(x, 0, 0, 2), work.part(x, 0, 3, 5)], 1)  # rows of several parts
    work.assign("kept", work.part(x, 0, 0, 2))
    late = work.concat(parts[4:6], 0)
    graph = work.finish([rows, apart, late])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(graph.tensors[i].shape).astype(np.float32) for i in graph.inputs]
    graphs, oracle = narrowed_graphs("native"), NumpyGraphs(np.float32)
    store, expected = graphs.store(), oracle.store()
    for one in (store, expected):
        one.write("kept", np.ones((2, 2, 3), np.float32))
    program = graphs.compile(graph, store)
    slices = [node for node in program.graph.nodes if node.op == "slice"]
    assert len(slices) == 5  # that across, that of `kept` for the third result, two of the second, and what is assigned
    for _ in range(2):
        for got, right in zip(program.run(inputs), oracle.compile(graph, expected).run(inputs), strict=True):
            np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("stride", [1, 2])
def test_folded_products_become_convolutions_where_no_tap_is_skipped(stride: int) -> None:
    attrs = {"kernel": (3, 2), "stride": (stride, 1), "before": (3, 1), "dilation": (1, 2), "counts": (6, 5)}
    work = GraphBuilder()
    w, g = work.input("w", (2, 4, 3 * 6)), work.input("g", (4, 4, 30))
    columns = work.reshape(work.gemm(w, g, trans_a=True), (2, 6 * 6, 30))
    graph = work.finish([work.emit("fold", (columns,), **attrs, sizes=(5 if stride == 1 else 8, 7))[0]])
    inputs = [normal(2, 4, 18), normal(4, 4, 30)]
    graphs, reference = narrowed_graphs("native"), NumpyGraphs(np.float64)
    program = graphs.compile(graph, graphs.store())
    assert [call.name for call in program.calls] == [f"graph/{name}" for name in CALLS[stride]]
    [expected] = reference.compile(graph, reference.store()).run(inputs)
    agree(program.run(inputs)[0], expected.astype(np.float32), "image")
