"""The small kernels against NumPy: norms, softmax, joins, maps, tables, arg max."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.gpu.harness import Kernel, aligned, assert_close, zero_aligned
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.kernels import elementwise, gemm_tiles, matmul
from volumetric.devices.gpu.kernels.dispatch import ONE_ROW, CallRows, WorkgroupGrid
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweringRequest
from volumetric.devices.gpu.kernels.graph.kernel_table import lower
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.weight_formats import FORMATS
from volumetric.graph.numeric.activations import ACTIVATIONS, activate


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("width", "groups"), [(1, 1), (131, 1), (24, 5), (7, 3)])
def test_norm(kernel: Kernel, rng: np.random.Generator, kind: str, width: int, groups: int) -> None:
    x = (2 * rng.standard_normal((3, groups * width)) + 1).astype(np.float32)
    gain, shift = rng.standard_normal((2, groups * width)).astype(np.float32)
    dispatch = elementwise.norm(
        width=width, groups=groups, kind=kind, eps=1e-3, unit_offset=True, weight=True, bias=kind == "layer"
    )
    params = kernel.array(np.concatenate([zero_aligned(gain), zero_aligned(shift)]))
    y = kernel.empty(3, -(-groups * width // 4) * 4)
    kernel.run((dispatch, {"x": kernel.array(aligned(x)), "norm_params": params, "y": y}), rows=3)
    z = x.reshape(3, groups, width).astype(np.float64)
    z = z - z.mean(-1, keepdims=True) if kind == "layer" else z
    z = (z / np.sqrt(np.square(z).mean(-1, keepdims=True) + 1e-3)).reshape(3, -1) * (gain + 1)
    z = z + shift if kind == "layer" else z
    assert_close(kernel.read(y, 3, groups * width), z)


@pytest.mark.parametrize("width", [1, 5, 300])
def test_softmax(kernel: Kernel, rng: np.random.Generator, width: int) -> None:
    x = (40 * rng.standard_normal((4, width))).astype(np.float32)
    x[1, width // 2 :] = -np.inf
    x[2] = -np.inf
    x[3] = 3e4
    y = kernel.empty(4, -(-width // 4) * 4)
    dispatch = elementwise.softmax(width=width)
    kernel.run((dispatch, {"x": kernel.array(aligned(x)), "y": y}), rows=4)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.exp(x - x.max(-1, keepdims=True), dtype=np.float64)
        expected = np.where(np.isfinite(x), z / np.nansum(z, -1, keepdims=True), 0)
    assert_close(kernel.read(y, 4, width), expected)


@pytest.mark.parametrize("name", ["add", "mul", "max"])
def test_pairs(kernel: Kernel, rng: np.random.Generator, name: str) -> None:
    a, b = rng.standard_normal((2, 3, 131)).astype(np.float32)
    y = kernel.empty(3, 132)
    dispatch = elementwise.binary(width=131, name=name)
    buffers = {"a": kernel.array(aligned(a)), "b": kernel.array(aligned(b)), "y": y, "ctl": kernel.control(rows=3)}
    kernel.run((dispatch, buffers), rows=3)
    assert_close(kernel.read(y, 3, 131), {"add": a + b, "mul": a * b, "max": np.maximum(a, b)}[name])


def test_affine(kernel: Kernel, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 131)).astype(np.float32)
    y = kernel.empty(3, 132)
    dispatch = elementwise.unary(width=131, name="affine", alpha=0.5, beta=3.0)
    kernel.run((dispatch, {"x": kernel.array(aligned(x)), "y": y, "ctl": kernel.control(rows=3)}), rows=3)
    assert_close(kernel.read(y, 3, 131), 0.5 * x + 3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(native_kernel: Kernel, name: str) -> None:
    x = np.concatenate([np.linspace(-12, 12, 997), [0.0, -0.0, 1e-6, -1e-6, 88.0, -88.0, 1e4, -1e4]])[None]
    y = native_kernel.empty(1, 1008)
    dispatch = elementwise.unary(width=x.shape[1], name=name)
    native_kernel.run((dispatch, {"x": native_kernel.array(aligned(x)), "y": y, "ctl": native_kernel.control()}))
    with np.errstate(over="ignore"):
        expected = activate(name, x.astype(np.float32).astype(np.float64))
    error = np.abs(native_kernel.read(y, 1, x.shape[1]) - expected)
    assert np.all(error <= 3e-6 * np.maximum(np.abs(expected), 1)), f"{name}: {error.max()}"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_hand_nan_on(native_kernel: Kernel, name: str) -> None:
    """Alone, behind products of one row and of many, and in tensor graphs: everywhere what NumPy says."""
    kernel, caps = native_kernel, native_kernel.caps
    x = np.array([[np.nan, -np.nan, np.inf, -np.inf, 3e38, -3e38, -1.0]], np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = activate(name, x)
    found = {}
    y = kernel.empty(1, 8)
    apply = elementwise.unary(width=7, name=name)
    kernel.run((apply, {"x": kernel.array(aligned(x)), "y": y, "ctl": kernel.control()}))
    found["alone"] = kernel.read(y, 1, 7)
    y = kernel.empty(1, 7)
    request = LoweringRequest(
        op="unary", inputs=(x.shape,), outputs=(x.shape,), attrs={"name": name, "alpha": 1, "beta": 0}
    )
    one = lower(replace(request, caps=caps)).launches[0]
    dims = kernel.array(np.array([7, 1065353216, 0], np.uint32), uniform=True)
    kernel.run((one.dispatch, {"x": kernel.array(x), "y": y, "dims": dims}))
    found["graph"] = kernel.context.read(y, 28).view(np.float32)[None]
    shape = MatmulShape(k=1, n=7, format=FORMATS["float32"], activation=name, bias=True)
    buffers, _ = kernel.weights(np.zeros((7, 1), np.float32), "float32")
    buffers |= {"x": kernel.array(np.zeros((2, 4), np.float32)), "bias": kernel.array(aligned(x))}
    products = {
        "matvec": (matmul.matvec(shape, caps, first=0, units=7), {}),
        "gemm": (gemm_tiles.gemm(shape, caps, gemm_tiles.TILES[2], first=0, units=7), {"ctl": kernel.control(rows=2)}),
    }
    for label, (dispatch, more) in products.items():
        y = kernel.empty(2, 8)
        kernel.run((dispatch, {**buffers, **more, "y": y}), rows=1 if label == "matvec" else 2)
        found[label] = kernel.read(y, 1, 7)
    for label, got in found.items():
        assert np.array_equal(np.isnan(got), np.isnan(expected)), f"{label}: {got} instead of {expected}"
        assert np.array_equal(got, found["alone"], equal_nan=True), label


def test_concat(kernel: Kernel, rng: np.random.Generator) -> None:
    parts = [rng.standard_normal((3, width)).astype(np.float32) for width in (3, 130, 6)]
    y = kernel.empty(3, 140)
    control, at = kernel.control(rows=3), 0
    for part in parts:
        dispatch = elementwise.concat(width=part.shape[1], at=at, out_width=139)
        kernel.run((dispatch, {"x": kernel.array(aligned(part)), "y": y, "ctl": control}), rows=3)
        at += part.shape[1]
    assert np.array_equal(kernel.read(y, 3, 139), np.concatenate(parts, axis=1))


@pytest.mark.parametrize("scheme", [name for name, layout in FORMATS.items() if layout.blocks is None])
def test_embeddings(kernel: Kernel, rng: np.random.Generator, scheme: str) -> None:
    width = 67
    buffers, table = kernel.weights(rng.standard_normal((11, width)).astype(np.float32), scheme)
    ids = np.array([10, 0, 3, 3], np.uint32)
    y = kernel.empty(4, 68)
    found = {**buffers, "ids": kernel.array(ids), "y": y, "ctl": kernel.control(5, 4)}
    dispatch = elementwise.embedding(width=width, layout=FORMATS[scheme], scale=2.0, first=0, units=11)
    kernel.run((dispatch, found), rows=4)
    x = 2 * table[ids]
    assert_close(kernel.read(y, 4, width), x)
    out = kernel.empty(4, 68)
    dispatch = elementwise.position_embedding(width=width, layout=FORMATS[scheme], offset=2, limit=11)
    kernel.run((dispatch, {**buffers, "x": y, "y": out, "ctl": kernel.control(5, 4)}), rows=4)
    expected = x.copy()
    expected += table[7:11]
    assert_close(kernel.read(out, 4, width), expected)


def pick(kernel: Kernel, x: np.ndarray) -> int:
    """Arg max of `x` by the two launches; the control block advances with it."""
    winners, token = kernel.empty(elementwise.ARGMAX_GROUPS, 2), kernel.array(np.zeros(1, np.uint32))
    control = kernel.control(position=41, rows=1)
    kernel.run(
        (elementwise.argmax(width=x.size, final=False), {"x": kernel.array(x), "winners": winners}),
        (elementwise.argmax(width=x.size, final=True), {"winners": winners, "token": token, "control": control}),
    )
    assert kernel.context.read(control, 16).view(np.uint32).tolist() == [1, 1, 0, 1]
    assert kernel.context.read(control, 256).view(np.uint32)[60] == 42
    return int(kernel.context.read(token, 4).view(np.uint32)[0])


@pytest.mark.parametrize("width", [1, 63, 20011])
def test_argmax_takes_the_first_of_equals_and_advances(kernel: Kernel, rng: np.random.Generator, width: int) -> None:
    x = rng.standard_normal(width).astype(np.float32)
    best = width // 3
    x[[best, width - 1]] = 9.0
    assert pick(kernel, x) == min(best, width - 1)
    x[:] = -np.abs(x) - 1
    x[[best, width - 1]] = -1e-40, 0.0  # one that drivers flush to zero
    assert pick(kernel, x) == width - 1
    x[best] = -0.0
    assert pick(kernel, x) == best
    x[:] = -np.inf
    x[best] = -3.4e38
    assert pick(kernel, x) == best


@pytest.mark.parametrize("width", [1, 63, 20011])
@pytest.mark.parametrize("sign", [1, -1])
def test_argmax_tells_logits_that_allow_no_choice(kernel: Kernel, width: int, sign: int) -> None:
    x = np.full(width, -np.inf, np.float32)
    assert pick(kernel, x) == 0xFFFFFFFD
    x[width // 2] = np.inf
    assert pick(kernel, x) == 0xFFFFFFFE
    x[width // 3] = np.copysign(np.float32(np.nan), sign)
    assert pick(kernel, x) == 0xFFFFFFFF


def test_argmax_of_several_rows(native_kernel: Kernel, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 131)).astype(np.float32)
    x[1, 7] = np.inf
    winners = native_kernel.empty(3 * elementwise.ARGMAX_GROUPS, 2)
    tokens = native_kernel.array(np.zeros(3, np.uint32))
    control, rows = native_kernel.call([SequenceSpan(0, position, 1) for position in (4, 0, 60)])
    native_kernel.run(
        (elementwise.argmax(width=131, final=False), {"x": native_kernel.array(aligned(x)), "winners": winners}),
        (elementwise.argmax(width=131, final=True), {"winners": winners, "token": tokens, "control": control}),
        rows=rows,
    )
    found = native_kernel.context.read(tokens, 12).view(np.uint32).tolist()
    assert found == [int(x[0].argmax()), 0xFFFFFFFE, int(x[2].argmax())]
    places = native_kernel.context.read(control, 288).view(np.uint32)[60:]
    assert places[::4].tolist() == [5, 1, 61]


def test_grids_beyond_the_limit_are_folded() -> None:
    assert WorkgroupGrid(x=100).size(ONE_ROW, 65535) == (100, 1, 1)
    x, y, z = WorkgroupGrid(x=200_000).size(ONE_ROW, 65535)
    assert x <= 65535
    assert x * y >= 200_000 > x * (y - 1)
    assert z == 1
    assert WorkgroupGrid(x=3, rows_each=16).size(CallRows(17), 65535) == (3, 2, 1)
    assert WorkgroupGrid(x=3, y=4, z=2).size(CallRows(17), 65535) == (3, 4, 2)
    mixed = CallRows(17, 5, 3)
    assert WorkgroupGrid(x=3, rows_each=1, over="singles").size(mixed, 65535) == (3, 5, 1)
    assert WorkgroupGrid(x=3, rows_each=1, over="multi_rows").size(mixed, 65535) == (3, 12, 1)
    assert WorkgroupGrid(x=3, rows_each=1, over="blocks").size(mixed, 65535) == (3, 3, 1)


def test_a_folded_grid_computes_every_output(native_kernel: Kernel, rng: np.random.Generator) -> None:
    from dataclasses import replace

    from volumetric.devices.gpu.kernels import matmul
    from volumetric.devices.gpu.kernels.matmul import MatmulShape

    context = native_kernel.context
    buffers, held = native_kernel.weights(rng.standard_normal((333, 8)).astype(np.float32), "float32")
    x = rng.standard_normal(8).astype(np.float32)
    y = native_kernel.empty(336)
    shape = MatmulShape(k=8, n=333, format=FORMATS["float32"])
    call = context.bind(
        matmul.matvec(shape, context.caps, first=0, units=333), {**buffers, "x": native_kernel.array(x), "y": y}
    )
    whole = context.caps
    try:
        context.caps = replace(whole, max_groups=2)
        context.run([call])
    finally:
        context.caps = whole
    assert_close(native_kernel.read(y, 1, 333), (held @ x)[None])
