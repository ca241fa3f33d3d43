"""Products in float16 on matrix units, emulated where the GPU has none, beside the interpreter's rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.devices import narrowed, narrowed_graphs
from tests.gpu_graph.test_products import run_lowered
from tests.graph.agreement import agree
from tests.graph.op_cases.case import normal
from tests.pieces import run_all
from volumetric.devices.gpu.gpu_subgraphs import products_of_subgraphs
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph.grouped_gemm import product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest
from volumetric.devices.gpu.kernels.graph.matrix_gemm import (
    EMULATED_TILE,
    choose_tile,
    lower_matrix_product,
    splits_of,
)
from volumetric.devices.gpu.kernels.matrix_tiles import TILES, MatrixTile
from volumetric.devices.gpu.shaders import ShaderTarget, link
from volumetric.devices.gpu.shaders.dialects import Dialect
from volumetric.graph import Graph, GraphBuilder, NumpyGraphs
from volumetric.graph.rounded_products import with_products
from volumetric.layers import Conv2d
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows
from volumetric.run.graph.network_graph import layered_graph

NOT_NEAREST = 2.0**-10
"""Relative error of a rounded side where a driver rounds towards 0, which WGSL allows."""
SIDES = [(False, True), (False, False), (True, False), (True, True)]


def expected(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    reference = NumpyGraphs(np.float64)
    return [y.astype(np.float32) for y in reference.compile(graph, reference.store()).run(inputs)]


def product(trans_a: bool, trans_b: bool, m: int, n: int, k: int, groups: tuple[int, int, int]) -> Graph:
    work = GraphBuilder()
    a = work.input("a", (groups[0], k, m) if trans_a else (groups[0], m, k))
    b = work.input("b", (groups[1], n, k) if trans_b else (groups[1], k, n))
    bias = work.input("bias", (groups[2], n))
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": groups[2], "activation": "tanh"}
    return with_products(work.finish(list(work.emit("gemm", (a, b, bias), **attrs))), "float16")


@pytest.mark.parametrize(("trans_a", "trans_b"), SIDES)
@pytest.mark.parametrize(
    ("sizes", "groups"), [((36, 40, 100), (2, 1, 2)), ((37, 17, 33), (1, 3, 3)), ((33, 34, 70), (4, 2, 2))]
)
def test_products_round_their_sides(
    trans_a: bool, trans_b: bool, sizes: tuple[int, int, int], groups: tuple[int, int, int]
) -> None:
    graph = product(trans_a, trans_b, *sizes, groups)
    rng = np.random.default_rng(0)
    # halves already, so that the roundings of drivers do not differ
    inputs = [rng.normal(size=graph.tensors[i].shape).astype(np.float16).astype(np.float32) for i in graph.inputs]
    graphs = narrowed_graphs("native")
    program = graphs.compile(graph, graphs.store())
    assert [call.name for call in program.calls] == ["graph/matrix_gemm"]
    agree(program.run(inputs)[0], expected(graph, inputs)[0], "product")
    odd = [x * np.float32(1.0001) for x in inputs]
    plain = expected(replace(graph, products="float32"), odd)[0]
    error = np.abs(program.run(odd)[0] - plain).max()
    assert 0 < error < 2 * NOT_NEAREST * sizes[2] ** 0.5 * 8


def test_sums_are_split_and_what_lies_beyond_a_side_counts_nothing() -> None:
    m, n, k = 35, 40, 300
    a, b = (normal(1, *shape).astype(np.float16).astype(np.float32) for shape in ((m, k), (k, n)))
    b[0, k - 1] = np.inf
    a[0, m - 1] = np.nan
    graphs = narrowed_graphs("native")
    attrs = {"trans_a": False, "trans_b": False, "groups": 1, "activation": "linear"}
    request = LoweringRequest(
        op="gemm",
        inputs=(a.shape, b.shape),
        outputs=((1, m, n),),
        attrs=attrs,
        caps=graphs.context.caps,
        products="float16",
    )
    lowered = lower_matrix_product(product_of(request), EMULATED_TILE, 3, request)
    assert len(lowered.launches) == 2
    with np.errstate(invalid="ignore"):
        agree(run_lowered(graphs, lowered, [a, b], (1, m, n)), (a.astype(np.float64) @ b).astype(np.float32), "product")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions_and_their_gradients_read_windows(axes: int) -> None:
    sizes, kernel = {1: ((70,), (5,)), 2: ((9, 10), (3, 2)), 3: ((5, 4, 6), (2, 2, 3))}[axes]
    counts = tuple(size - k + 2 for size, k in zip(sizes, kernel, strict=True))
    attrs = {"kernel": kernel, "stride": (1,) * axes, "before": (1,) * axes, "dilation": (1,) * axes, "counts": counts}
    windows, taps = int(np.prod(counts)), int(np.prod(kernel))
    work = GraphBuilder()
    x, w, g = work.input("x", (2, 4, *sizes)), work.input("w", (1, 18, 4 * taps)), work.input("g", (2, 18, windows))
    columns = work.reshape(work.emit("unfold", (x,), **attrs)[0], (2, 4 * taps, windows))
    forward, of_weight = work.gemm(w, columns), work.gemm(g, columns, trans_b=True, groups=1)
    graph = with_products(work.finish([forward, of_weight]), "float16")
    inputs = [normal(*graph.tensors[i].shape).astype(np.float16).astype(np.float32) for i in graph.inputs]
    graphs = narrowed_graphs("native")
    program = graphs.compile(graph, graphs.store())
    assert {call.name for call in program.calls} - {"graph/gemm_join"} == {"graph/matrix_gemm"}
    for got, want in zip(program.run(inputs), expected(graph, inputs), strict=True):
        agree(got, want, "convolution")


def test_products_beyond_the_range_are_infinite() -> None:
    graph = product(False, False, 16, 16, 16, (1, 1, 1))
    graph = replace(graph, nodes=tuple(replace(n, attrs={**n.attrs, "activation": "linear"}) for n in graph.nodes))
    inputs = [np.full(graph.tensors[i].shape, 1.0, np.float32) for i in graph.inputs]
    inputs[0][0, 3] = 1e5
    graphs = narrowed_graphs("native")
    got = graphs.compile(graph, graphs.store()).run(inputs)[0]
    np.testing.assert_array_equal(got, expected(graph, inputs)[0])
    assert np.isinf(got[0, 3]).all()


def test_small_products_stay_float32() -> None:
    graph = product(False, True, 8, 40, 100, (1, 1, 1))
    graphs = narrowed_graphs("native")
    assert [call.name for call in graphs.compile(graph, graphs.store()).calls] == ["graph/gemm"]


UNITS = Caps(matrix_units=True, max_workgroup=1024, max_shared=49152)


@pytest.mark.parametrize(("trans_a", "trans_b"), SIDES)
def test_tiles_of_matrix_units(trans_a: bool, trans_b: bool) -> None:
    def request(m: int, n: int, k: int) -> LoweringRequest:
        a, b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)
        attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": 1, "activation": "linear"}
        return LoweringRequest(
            op="gemm", inputs=((1, *a), (1, *b)), outputs=((1, m, n),), attrs=attrs, caps=UNITS, products="float16"
        )

    def choice(m: int, n: int, k: int) -> tuple[int, int, int]:
        of = request(m, n, k)
        tile = choose_tile(product_of(of), of)
        return tile.m, tile.n, splits_of(product_of(of), tile, UNITS)

    assert choice(4096, 4096, 512) == (128, 128, 1)
    assert choice(512, 2048, 4096)[2] > 1
    assert choice(16, 4096, 64)[0] == 16
    of = request(100, 60, 130)
    [launch] = lower_matrix_product(product_of(of), choose_tile(product_of(of), of), 1, of).launches
    loads: dict[Dialect, str] = {"tint": "subgroupMatrixLoad", "naga": "coopLoad"}
    for dialect, load in loads.items():
        target = ShaderTarget(subgroup_size=32, dialect=dialect)
        linked = link(
            launch.dispatch.kernel,
            constants=launch.dispatch.constants,
            preludes=launch.dispatch.preludes,
            target=target,
        )
        assert load in linked.text
        assert linked.workgroup_bytes <= UNITS.max_shared


def agrees_with_tile(tile: MatrixTile, trans_a: bool, trans_b: bool, splits: int, **narrow: int) -> None:
    """Multiply with a tile in emulated fragments."""
    m, n, k = tile.m + 19, tile.n + 5, 2 * tile.k + 34
    graphs = narrowed_graphs("native")
    caps = replace(graphs.context.caps, **narrow)
    a, b = ((2, k, m) if trans_a else (2, m, k)), ((1, n, k) if trans_b else (1, k, n))
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": 2, "activation": "linear"}
    of = LoweringRequest(op="gemm", inputs=(a, b), outputs=((2, m, n),), attrs=attrs, caps=caps, products="float16")
    left, right = (normal(*shape).astype(np.float16).astype(np.float32) for shape in (a, b))
    lowered = lower_matrix_product(product_of(of), tile, splits, of)
    want = (left.swapaxes(1, 2) if trans_a else left).astype(np.float64) @ (right.swapaxes(1, 2) if trans_b else right)
    agree(run_lowered(graphs, lowered, [left, right], (2, m, n)), want.astype(np.float32), "product")


@pytest.mark.parametrize(("trans_a", "trans_b"), [(True, False), (False, True)])
def test_subgroups_share_a_tile_and_take_turns(trans_a: bool, trans_b: bool) -> None:
    tile = MatrixTile(m=32, n=64, k=16, rows=16, columns=16)
    agrees_with_tile(tile, trans_a, trans_b, 2, max_shared=8 * 1024)


@pytest.mark.thorough
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(True, False), (False, True)])
def test_subgroups_of_every_tile(tile: MatrixTile, trans_a: bool, trans_b: bool) -> None:
    agrees_with_tile(replace(tile, k=16), trans_a, trans_b, 1)  # software adapters take long to compile longer steps


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_scaled_sides_neither_overflow_nor_vanish(size: float) -> None:
    graph = product(False, True, 33, 40, 70, (1, 1, 1))
    graph = replace(graph, nodes=tuple(replace(n, attrs={**n.attrs, "activation": "linear"}) for n in graph.nodes))
    graph = replace(graph, products="scaled float16")
    inputs = [normal(*graph.tensors[i].shape) for i in graph.inputs]
    inputs[0] *= np.float32(size)
    inputs[2] *= np.float32(size)
    graphs = narrowed_graphs("native")
    program = graphs.compile(graph, graphs.store())
    assert [call.name for call in program.calls][:3] == ["graph/largest", "graph/largest", "graph/matrix_gemm"]
    want = expected(graph, inputs)[0]
    plain = expected(replace(graph, products="float32"), inputs)[0]
    largest = np.abs(plain).max()
    np.testing.assert_allclose(want / largest, plain / largest, rtol=0, atol=NOT_NEAREST)
    np.testing.assert_allclose(program.run(inputs)[0] / largest, plain / largest, rtol=0, atol=NOT_NEAREST)
    inputs[0][0, 3, 5] = np.inf
    got = program.run(inputs)[0]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected(graph, inputs)[0]))


def convolutions() -> tuple[Network, Params, np.ndarray]:
    layers = (
        Conv2d(in_channels=3, out_channels=16, kernel_size=3, padding=1, activation="relu"),
        Conv2d(in_channels=16, out_channels=20, kernel_size=3, activation="relu"),
    )
    network = Network(
        grid=Grid(2),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        input_shape=(3, 8, 8),
        input_dtype="float32",
    )
    return network, initialise(network, seed=2), 1e6 * normal(4, 3, 8, 8)


def test_convolutions_of_networks_take_halves_where_they_may() -> None:
    network, params, x = convolutions()
    device = narrowed("native")
    results = {}
    for compute in ("float32", "float16"):
        executable = device.compile(lower(network), params, RunOptions(context=8, compute=compute))  # pyright: ignore
        results[compute] = run_all(executable, [SequenceRows(executable.new_state(), x, "all")])[0]
    largest = np.abs(results["float32"]).max()
    error = np.abs(results["float16"] - results["float32"]).max() / largest
    assert 1e-7 < error < 2 * NOT_NEAREST


def test_networks_of_narrow_weights_take_halves_unasked() -> None:
    network, params, _ = convolutions()
    graph = layered_graph(lower(network))[0]
    auto, exact = RunOptions(), RunOptions(compute="float32")
    assert products_of_subgraphs(params, auto, UNITS)(graph) == "float32"
    network.morph(params, "float16", keep_masters=False)
    assert products_of_subgraphs(params, auto, UNITS)(graph) == "scaled float16"
    assert products_of_subgraphs(params, auto, replace(UNITS, matrix_units=False))(graph) == "float32"
    assert products_of_subgraphs(params, exact, UNITS)(graph) == "float32"
