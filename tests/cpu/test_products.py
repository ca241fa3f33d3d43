"""Panels and the kernels that multiply them, alone against NumPy. `test_targets` runs this file for other machines."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from tests.cpu.matrices import FLOAT_SCHEMES, INTEGER_SCHEMES, SCHEMES, activations, panels, panels_of
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.matvec import panel_dot
from volumetric.kernels.cpu.panels import FORMATS
from volumetric.kernels.cpu.prepare import prepare_row
from volumetric.kernels.cpu.simd import store
from volumetric.kernels.cpu.tiles import (
    brain_tile,
    byte_block_bytes,
    float_tile,
    float_tile_shape,
    integer_tile,
    integer_tile_shape,
)
from volumetric.kernels.cpu.unpack import FORMAT_CODES, read_row, unpack_bytes, unpack_floats
from volumetric.runtime.cpu.arena import address_of, aligned_zeros

SHAPES = [(1, 1), (15, 31), (17, 33), (31, 64), (16, 65), (48, 200)]


@cache
def dot_kernel(kind):
    @kernel
    def run(weights, panel_bytes, count, x, units, out):
        for panel in range(count):
            store(out + 64 * panel, panel_dot(kind, weights + panel * panel_bytes, x, units))

    return run


@cache
def float_tile_kernel(storage, rows, wide):
    @kernel
    def run(weights, k_stride, panel_stride, x, x_stride, count, out, out_stride):
        float_tile(storage, rows, wide, weights, k_stride, panel_stride, x, x_stride, count, out, out_stride)

    return run


@cache
def brain_tile_kernel(rows, wide):
    @kernel
    def run(weights, panel_stride, x, x_stride, count, out, out_stride):
        brain_tile(rows, wide, weights, panel_stride, x, x_stride, count, out, out_stride)

    return run


@cache
def integer_tile_kernel(zero, rows, wide):
    @kernel
    def run(weights, panel_stride, x, x_stride, padded, out, out_stride):
        integer_tile(zero, rows, wide, weights, panel_stride, x, x_stride, padded, out, out_stride)

    return run


@cache
def unpack_kernel(name, to_bytes):
    if to_bytes:

        @kernel
        def run(panel, out, units):
            unpack_bytes(name, panel, out, units)
    else:

        @kernel
        def run(panel, out, units):
            unpack_floats(name, panel, out, units)

    return run


def assert_sums_close(got, x, w):
    """Sums agree to float32 rounding: relative to the sum of magnitudes, which is what rounding errors scale with."""
    want = x.astype(np.float64) @ w.T.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(w.T).astype(np.float64) + 1e-30
    worst = np.abs(got - want) / size
    assert worst.max() < 1e-6, f"worst {worst.max():.1e} at {np.unravel_index(worst.argmax(), worst.shape)}"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_panel_rows_read_back_exactly(scheme, rows, k, rng):
    made = panels(scheme, rows, k, rng)
    out = np.zeros(k, np.float32)
    for row in range(rows):
        panel = made.address + row // 16 * made.panel_bytes
        read_row(FORMAT_CODES[made.form.name], panel, row % 16, k, np.float32(1), address_of(out))
        np.testing.assert_array_equal(out, made.values[row])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_threads_retile_alike(scheme, rng):
    values = rng.standard_normal((1030, 517)).astype(np.float32)
    one, three = panels_of(scheme, values, threads=1), panels_of(scheme, values, threads=3)
    np.testing.assert_array_equal(one.memory, three.memory)


@pytest.mark.parametrize("kind", [*FLOAT_SCHEMES, *INTEGER_SCHEMES, *(f"{s}:exact" for s in INTEGER_SCHEMES)])
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_panel_dot(kind, rows, k, rng):
    exact = kind.endswith(":exact")
    scheme = kind.removesuffix(":exact")
    made = panels(scheme, rows, k, rng)
    x = activations(
        rng.standard_normal((1, k)).astype(np.float32), "int8" if made.form.is_integer and not exact else "float32"
    )
    out = np.zeros((1, made.panels * 16), np.float32)
    run = dot_kernel(made.form.name + (":exact" if exact else ""))
    run(made.address, made.panel_bytes, made.panels, x.address, made.units, address_of(out))
    assert_sums_close(out[:, :rows], x.values, made.values)
    assert not out[:, rows:].any()  # rows of padding have scale or weight 0


@pytest.mark.parametrize("scheme", FLOAT_SCHEMES)
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_float_tile(scheme, rows, k, rng):
    made = panels(scheme, rows, k, rng)
    tile, wide = float_tile_shape()
    wide = min(wide, made.panels)
    x = activations(rng.standard_normal((tile, k)).astype(np.float32), "float32")
    out = np.zeros((tile, wide * 16), np.float32)
    run = float_tile_kernel(made.form.name, tile, wide)
    k_stride = 32 if scheme == "float16" else 64
    run(made.address, k_stride, made.panel_bytes, x.address, x.row_bytes, k, address_of(out), out.strides[0])
    seen = min(rows, wide * 16)
    assert_sums_close(out[:, :seen], x.values, made.values[:seen])


@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_brain_tile(rows, k, rng):
    made = panels("bfloat16", rows, k, rng)
    tile, wide = float_tile_shape()
    wide = min(wide, made.panels)
    x = activations(rng.standard_normal((tile, k)).astype(np.float32), "bfloat16")
    out = np.zeros((tile, wide * 16), np.float32)
    run = brain_tile_kernel(tile, wide)
    run(made.address, made.panel_bytes, x.address, x.row_bytes, k, address_of(out), out.strides[0])
    seen = min(rows, wide * 16)
    assert_sums_close(out[:, :seen], x.values, made.values[:seen])


def test_rounding_to_bfloat16():
    """Ties go to even, large numbers to infinity, nan stays nan, subnormals keep their bits."""
    bits = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    special = [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, 0xFF800000, 0x7FFFFFFF, 0x00018000, 0x80008000]
    bits[: len(special)] = special
    x = bits.view(np.float32)
    out = np.zeros(4096 + 64, np.uint16)
    room = np.zeros(4096, np.float32)
    prepare_row(address_of(x), address_of(out), address_of(room), 4096, 2, 0, np.float32(0), 0, 0)
    with np.errstate(invalid="ignore", over="ignore"):
        want = x.astype(ml_dtypes.bfloat16)
    got = out[:4096].view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), np.isnan(x))
    number = ~np.isnan(x)
    np.testing.assert_array_equal(got[number].view(np.uint16), want[number].view(np.uint16))


@pytest.mark.parametrize("scheme", INTEGER_SCHEMES)
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_integer_tile(scheme, rows, k, rng):
    made = panels(scheme, rows, k, rng)
    tile, wide = integer_tile_shape()
    wide = min(wide, made.panels)
    opened_bytes = 2 * made.units * byte_block_bytes(made.form.zero)
    opened = aligned_zeros(wide * opened_bytes)
    for panel in range(wide):
        source = made.address + panel * made.panel_bytes
        unpack_kernel(made.form.name, True)(source, address_of(opened) + panel * opened_bytes, made.units)
    x = activations(rng.standard_normal((tile, k)).astype(np.float32), "int8")
    out = np.zeros((tile, wide * 16), np.float32)
    run = integer_tile_kernel(made.form.zero, tile, wide)
    run(address_of(opened), opened_bytes, x.address, x.row_bytes, 64 * made.units, address_of(out), out.strides[0])
    seen = min(rows, wide * 16)
    assert_sums_close(out[:, :seen], x.values, made.values[:seen])


@pytest.mark.parametrize("scheme", INTEGER_SCHEMES)
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_unpack_floats(scheme, rows, k, rng):
    made = panels(scheme, rows, k, rng)
    opened = aligned_zeros(made.units * 64 * 64).view(np.float32).reshape(-1, 16)
    unpack_kernel(made.form.name, False)(made.address, address_of(opened), made.units)
    seen = min(rows, 16)
    np.testing.assert_allclose(opened[:k, :seen].T, made.values[:seen], rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("scheme", INTEGER_SCHEMES)
def test_extreme_codes_do_not_saturate(scheme):
    """Largest weights times largest activations: where 16-bit sums of byte products would overflow."""
    form = FORMATS[scheme]
    for sign in (1.0, -1.0):
        made = panels_of(scheme, np.full((16, 64), sign, np.float32))
        x = activations(np.full((1, 64), 3.0, np.float32), "int8")
        out = np.zeros((1, 16), np.float32)
        dot_kernel(form.name)(made.address, made.panel_bytes, 1, x.address, made.units, address_of(out))
        assert_sums_close(out, x.values, made.values)
