"""Panels and the kernels that multiply them, alone against NumPy. `test_targets` runs this file for other machines."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from tests.cpu.matrices import FLOAT_SCHEMES, INTEGER_SCHEMES, SCHEMES, activations, panels, panels_of
from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.matmul_dispatch import product_tile, product_tiles
from volumetric.devices.cpu.kernels.panel_microkernels import (
    brain_tile,
    byte_block_bytes,
    float_tile,
    float_tile_shape,
    integer_tile_shape,
)
from volumetric.devices.cpu.kernels.panels import FORMATS
from volumetric.devices.cpu.kernels.prepare import prepare_activations
from volumetric.devices.cpu.kernels.unpack import FORMAT_CODES, read_row, unpack_bytes, unpack_floats

SHAPES = [(1, 1), (15, 31), (17, 33), (31, 64), (16, 65), (48, 200)]


@cache
def tiles_kernel(kind, rows, wide):
    """Products of `rows` rows with any number of panels."""

    @kernel
    def run(weights, panel_bytes, count, x, x_stride, units, out):
        product_tiles(kind, rows, wide, weights, panel_bytes, count, x, x_stride, units, out)

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
    kind = f"bytes:{zero}:32"

    @kernel
    def run(weights, panel_stride, x, x_stride, units, out, out_stride):
        product_tile(kind, rows, wide, weights, panel_stride, x, x_stride, units, out, out_stride)

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


KINDS = [*FLOAT_SCHEMES, "bfloat16:rounded", *INTEGER_SCHEMES, *(f"{s}:exact" for s in INTEGER_SCHEMES)]


def kind_of(text):
    """Scheme, kind as kernels know it, and what activations are rounded to, of one of `KINDS`."""
    scheme = text.removesuffix(":exact").removesuffix(":rounded")
    form, how = FORMATS[scheme], text.removeprefix(scheme)
    rounding = "bfloat16" if how == ":rounded" else "int8" if form.is_integer and not how else "float32"
    return scheme, form.name + how, rounding


@pytest.mark.thorough
@pytest.mark.parametrize("text", KINDS)
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_packed_panels_times_few_rows(text, rows, k, rng):
    scheme, kind, rounding = kind_of(text)
    made = panels(scheme, rows, k, rng)
    x = activations(rng.standard_normal((3, k)).astype(np.float32), rounding)
    found = []
    for count, wide in ((1, 1), (3, 2)):
        out = np.zeros((3, made.panels * 16), np.float32)
        run = tiles_kernel(kind, count, wide)
        for row in range(0, 3, count):
            here = address_of(out) + row * out.strides[0]
            run(
                made.address,
                made.panel_bytes,
                made.panels,
                x.address + row * x.row_bytes,
                x.row_bytes,
                made.units,
                here,
            )
        assert_sums_close(out[:, :rows], x.values, made.values)
        assert not out[:, rows:].any()  # rows of padding have scale or weight 0
        found.append(out)
    np.testing.assert_array_equal(*found)


@pytest.mark.thorough
@pytest.mark.parametrize("text", [text for text in KINDS if text.startswith(INTEGER_SCHEMES)])
@pytest.mark.parametrize(("rows", "k"), SHAPES)
def test_opened_panels_give_the_bits_of_packed_ones(text, rows, k, rng):
    scheme, kind, rounding = kind_of(text)
    made = panels(scheme, rows, k, rng)
    x = activations(rng.standard_normal((3, k)).astype(np.float32), rounding)
    packed, opened = (np.zeros((rows, made.panels * 16), np.float32) for rows in (3, 2))
    tiles_kernel(kind, 3, 2)(  # as for few rows; opened panels have the kernels of `test_block_panels`
        made.address, made.panel_bytes, made.panels, x.address, x.row_bytes, made.units, address_of(packed)
    )
    to_bytes = rounding == "int8"
    size = made.units * (2 * byte_block_bytes(made.form.zero, 32) if to_bytes else 64 * 64)
    memory = aligned_zeros(size * made.panels)
    for panel in range(made.panels):
        source = made.address + panel * made.panel_bytes
        unpack_kernel(made.form.name, to_bytes)(source, address_of(memory) + panel * size, made.units)
    form, units = (f"bytes:{made.form.zero}:32", made.units) if to_bytes else ("float32", 8 * made.units)
    tiles_kernel(form, 2, 2)(address_of(memory), size, made.panels, x.address, x.row_bytes, units, address_of(opened))
    np.testing.assert_array_equal(packed[:2], opened)


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


@pytest.mark.parametrize("storage", ["float16", "float32"])
@pytest.mark.parametrize("k", [1, 2, 31, 64])
def test_floats_in_the_order_of_pairs_give_the_bits_of_brain_tiles(storage, k, rng):
    """Of numbers that bfloat16 can hold; nothing beyond an odd count is looked at."""
    values = np.full((k + 1, 16), np.nan, storage)
    values[:k] = rng.standard_normal((k, 16)).astype(ml_dtypes.bfloat16)
    pairs = np.zeros((-(-k // 2), 16, 2), ml_dtypes.bfloat16)
    for i in range(k):
        pairs[i // 2, :, i % 2] = values[i].astype(np.float32)
    x = rng.standard_normal((2, 64)).astype(ml_dtypes.bfloat16)
    x[:, k:] = 0
    floats = x.astype(np.float32)
    plain, paired = (np.zeros((2, 16), np.float32) for _ in range(2))
    run = float_tile_kernel(storage + ":pairs", 2, 1)
    run(address_of(values), values.strides[0], 0, address_of(floats), floats.strides[0], k, address_of(plain), 64)
    brain_tile_kernel(2, 1)(address_of(pairs), 0, address_of(x), x.strides[0], k, address_of(paired), 64)
    np.testing.assert_array_equal(plain, paired)
    assert_sums_close(plain, floats[:, :k], values[:k].T.astype(np.float32))


def test_rounding_to_bfloat16():
    """Ties go to even, large numbers to infinity, nan stays nan, subnormals keep their bits."""
    bits = np.random.default_rng(1).integers(0, 2**32, 4096, dtype=np.uint32)
    special = [0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x7F800001, 0xFF800000, 0x7FFFFFFF, 0x00018000, 0x80008000]
    bits[: len(special)] = special
    x = bits.view(np.float32)
    out = np.zeros(4096 + 64, np.uint16)
    room = np.zeros(4096, np.float32)
    prepare_activations(address_of(x), address_of(out), address_of(room), 4096, 2, 0, np.float32(0), 0, 0)
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
    opened_bytes = 2 * made.units * byte_block_bytes(made.form.zero, 32)
    opened = aligned_zeros(wide * opened_bytes)
    for panel in range(wide):
        source = made.address + panel * made.panel_bytes
        unpack_kernel(made.form.name, True)(source, address_of(opened) + panel * opened_bytes, made.units)
    x = activations(rng.standard_normal((tile, k)).astype(np.float32), "int8")
    out = np.zeros((tile, wide * 16), np.float32)
    run = integer_tile_kernel(made.form.zero, tile, wide)
    run(address_of(opened), opened_bytes, x.address, x.row_bytes, made.units, address_of(out), out.strides[0])
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
        run = tiles_kernel(form.name, 1, 1)
        run(made.address, made.panel_bytes, 1, x.address, x.row_bytes, made.units, address_of(out))
        assert_sums_close(out, x.values, made.values)


@pytest.mark.parametrize("k", [64, 200, 512, 576, 1536])
def test_extreme_rows_become_bytes_as_numpy_makes_them(k, rng):
    """Codes, steps and sums of blocks of 32: also of zeros, tiny and huge numbers, and of such as are none."""
    x = (rng.standard_normal((8, k)) * np.exp(4 * rng.standard_normal((8, 1)))).astype(np.float32)
    x[1, :40], x[2], x[3], x[4, 33], x[5, -1] = 0, 1e-32, 1e34, np.nan, np.inf
    padded = -(-k // 64) * 64
    blocks, step = padded // 32, np.float32(1 / 127)
    numbers = np.zeros((8, padded), np.float32)
    numbers[:, :k] = x
    room = np.zeros(padded, np.float32)
    for row, want in zip(x, numbers.reshape(8, blocks, 32), strict=True):
        source, out = np.append(row, np.zeros(16, np.float32)), np.full(padded + 16 * blocks + 64, 99, np.uint8)
        prepare_activations(address_of(source), address_of(out), address_of(room), k, 1, 0, np.float32(0), 0, 0)
        tops = np.abs(want).max(axis=1)
        d = np.where(tops < np.inf, tops * step, np.float32(np.nan))
        with np.errstate(all="ignore"):
            inverse = np.where(tops > 1e-30, np.float32(127) / tops, np.float32(0))
            q = np.rint(want * inverse[:, None])
        got = out[padded : padded + 16 * blocks].view(np.float32).reshape(4, blocks)
        whole, first = q.sum(axis=1), q[:, :16].sum(axis=1)
        known = np.isfinite(tops)
        np.testing.assert_array_equal(got[0], d)
        np.testing.assert_array_equal(out[:padded].view(np.int8).reshape(blocks, 32)[known], q[known])
        np.testing.assert_array_equal(got[1].view(np.int32)[known], -8 * whole[known])
        np.testing.assert_array_equal(got[2], np.where(known, d * whole.astype(np.float32), np.float32(np.nan)))
        np.testing.assert_array_equal(got[3].view(np.int32)[known], -8 * first[known])
        assert (out[padded + 16 * blocks :] == 99).all()
