"""Panels of codes that the emitter of block formats reads: float8, uint8, two bits, scales in float32."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.cpu.matrices import CODED_SCHEMES, activations, panels_from
from tests.cpu.test_products import assert_sums_close, tiles_kernel, unpack_kernel
from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.bytedot import multiplies_bytes
from volumetric.devices.cpu.kernels.panel_microkernels import byte_block_bytes
from volumetric.devices.cpu.kernels.panels import FORMATS
from volumetric.devices.cpu.kernels.unpack import FORMAT_CODES, read_row
from volumetric.dtypes import Packed, Scheme, decode, encode
from volumetric.dtypes.scaled_rows import narrower_scheme, repeat_scales

FLOATS = tuple(text for text in CODED_SCHEMES if text.startswith("float8"))
TRIED = ("uint8:g32", "int2:g32", "int8:g32:float32")
"""The others have no part that these and block formats do not have."""
KINDS = [(text, "int8") for text in TRIED if multiplies_bytes(FORMATS[text])] + [(text, "float32") for text in FLOATS]


def stored(text: str, rows: int, k: int) -> Packed:
    """Random codes of all values, but for float8 those that are none."""
    rng = np.random.default_rng(5)
    packed = encode(rng.standard_normal((rows, k)).astype(np.float32), Scheme.parse(text))
    if text in FLOATS:
        return packed
    return dataclasses.replace(packed, payload=rng.integers(0, 1 << 32, packed.payload.shape, np.uint32))


@pytest.mark.parametrize("text", CODED_SCHEMES)
@pytest.mark.parametrize(("rows", "k"), [(1, 1), (17, 33), (20, 320)])
def test_panel_rows_read_back_exactly(text: str, rows: int, k: int) -> None:
    made = panels_from(stored(text, rows, k))
    np.testing.assert_array_equal(read_back(made), made.values)


def read_back(made):
    out = np.zeros(made.values.shape, np.float32)
    for row in range(len(out)):
        panel = made.address + row // 16 * made.panel_bytes
        read_row(FORMAT_CODES[made.form.name], panel, row % 16, made.k, np.float32(1), address_of(out[row]))
    return out


def products(made, kind, units, weights, stride, x, wide):
    out = np.zeros((2, made.panels * 16), np.float32)
    run = tiles_kernel(kind, 2, wide)
    run(weights, stride, made.panels, x.address, x.row_bytes, units, address_of(out))
    return out


@pytest.mark.thorough
@pytest.mark.parametrize(("text", "how"), KINDS)
def test_products_of_packed_and_opened_panels(text: str, how, rng) -> None:
    for rows, k in ((17, 33), (20, 320)):
        made = panels_from(stored(text, rows, k))
        x = activations(rng.standard_normal((2, k)).astype(np.float32), how)
        kind, to_bytes = made.form.name + (":exact" if how == "float32" else ""), how == "int8"
        packed = products(made, kind, made.units, made.address, made.panel_bytes, x, 1)
        assert_sums_close(packed[:, :rows], x.values, made.values)
        assert not packed[:, rows:].any()  # rows of padding have scale and floor 0
        size = made.units * (2 * byte_block_bytes(made.form.zero, 32) if to_bytes else 64 * 64)
        memory = aligned_zeros(size * made.panels)
        for panel in range(made.panels):
            source = made.address + panel * made.panel_bytes
            unpack_kernel(made.form.name, to_bytes)(source, address_of(memory) + panel * size, made.units)
        opened = (f"bytes:{made.form.zero}:32", made.units) if to_bytes else ("float32", 8 * made.units)
        np.testing.assert_array_equal(packed, products(made, *opened, address_of(memory), size, x, 2))


@pytest.mark.parametrize("text", FLOATS)
def test_every_code_of_eight_bits_is_its_float(text: str) -> None:
    """Subnormals, both zeros, ∞ and NaN, in a product with a 1 and in a row read back."""
    codes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    payload = np.zeros((16, 64), np.uint8)
    payload[:, :16] = codes
    scales = np.full((16, 2), np.float32(0.7))
    made = panels_from(
        Packed(scheme=Scheme.parse(text), shape=(16, 64), payload=payload.view(np.uint32), scales=scales)
    )
    want = codes.view(Scheme.parse(text).dtype.host).astype(np.float32) * np.float32(0.7)
    np.testing.assert_array_equal(made.values[:, :16], want)
    np.testing.assert_array_equal(read_back(made), made.values)
    np.testing.assert_array_equal(np.signbit(read_back(made)), np.signbit(made.values))
    for column in range(16):
        x = activations(np.eye(64, dtype=np.float32)[[column, column]], "float32")
        found = products(made, made.form.name + ":exact", 1, made.address, made.panel_bytes, x, 1)[0]
        with np.errstate(invalid="ignore"):
            expected = made.values[:, :16] @ x.values[0, :16]  # 0 · ∞ is NaN, and so is a sum with one
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("text", ["uint8:g128", "float8_e4m3fn:row", "float8_e5m2:g96"])
def test_wide_groups_take_the_memory_of_their_codes(text: str) -> None:
    packed = encode(np.random.default_rng(1).standard_normal((32, 192)).astype(np.float32), Scheme.parse(text))
    scheme = narrower_scheme(packed.scheme, FORMATS)
    assert scheme is not None
    made = panels_from(repeat_scales(packed, scheme))
    np.testing.assert_array_equal(made.values, decode(packed, np.float32))
    assert made.memory.nbytes <= 1.15 * packed.nbytes
