"""Panels of block formats: rows read back to the bit, products against NumPy, both forms of a panel alike."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu.matrices import activations, panels_from
from tests.cpu.test_products import assert_sums_close, tiles_kernel, unpack_kernel
from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.panel_microkernels import byte_block_bytes
from volumetric.devices.cpu.kernels.unpack import FORMAT_CODES, read_row
from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, Packed, Scheme

SHAPES = [(17, 33), (20, 320)]
# fmt: off
FLOATS_AT = {
    "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,), "q5_0": (0,), "q5_1": (0, 2),
    "iq4_nl": (0,), "iq4_xs": (0,), "tq1_0": (52,), "tq2_0": (64,),
}
# fmt: on
"""Bytes of a block where a float16 stands."""
NAMES = (*BLOCK_FORMATS, *OWN_FORMATS)
KINDS = [(name, how) for name in NAMES for how in ("int8", "float32")]
TRIED = [(name, how) for name, how in KINDS if how == "int8" or name in ("q4_k", "iq4_xs")]
"""In float32 the formats differ in nothing that the two do not have."""
IDS = [name + (":exact" if how == "float32" else "") for name, how in TRIED]


def stored(name: str, rows: int, k: int, *, byte: int | None = None) -> Packed:
    """Random blocks (or blocks of that byte) whose floats are of the size of 1."""
    scheme, rng = Scheme.parse(name), np.random.default_rng(3)
    blocks = scheme.blocks
    assert blocks is not None
    count = rows * blocks.blocks(k)
    raw = rng.integers(0, 256, (count, blocks.block_bytes), np.uint8)
    if byte is not None:
        raw[:] = byte
    for at in FLOATS_AT.get(name, ()):
        raw[:, at : at + 2] = rng.standard_normal(count).astype(np.float16).view(np.uint8).reshape(count, 2)
    if name == "mxfp4":
        raw[:, 0] = rng.integers(120, 132, count)
    if name == "q3_nl":
        raw[:, 0] = rng.integers(150, 200, count)
    payload = np.zeros((rows, 4 * scheme.words_per_row(k)), np.uint8)
    payload[:, : blocks.row_bytes(k)] = raw.reshape(rows, -1)
    return Packed(scheme=scheme, shape=(rows, k), payload=payload.view(np.uint32))


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("rows", "k"), [(1, 1), *SHAPES])
def test_panel_rows_read_back_exactly(name: str, rows: int, k: int) -> None:
    made = panels_from(stored(name, rows, k))
    out = np.zeros(k, np.float32)
    for row in range(rows):
        panel = made.address + row // 16 * made.panel_bytes
        read_row(FORMAT_CODES[name], panel, row % 16, k, np.float32(1), address_of(out))
        np.testing.assert_array_equal(out, made.values[row])


@pytest.mark.parametrize("name", ["q4_k", "q5_0", "q6_k"])
def test_threads_retile_alike(name: str) -> None:
    packed = stored(name, 4100, 256)
    one, three = panels_from(packed), panels_from(packed, threads=3)
    np.testing.assert_array_equal(one.memory, three.memory)


def products(made, kind, units, weights, stride, x, rows, wide):
    out = np.zeros((2, made.panels * 16), np.float32)
    for row in range(0, 2, rows):
        here, source = address_of(out) + row * out.strides[0], x.address + row * x.row_bytes
        tiles_kernel(kind, rows, wide)(weights, stride, made.panels, source, x.row_bytes, units, here)
    return out


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "how"), TRIED, ids=IDS)
@pytest.mark.parametrize("byte", [None, 255])
def test_products_of_packed_and_opened_panels(name: str, how, byte: int | None, rng) -> None:
    """Blocks of ones hold the largest codes: where 16-bit sums of byte products would overflow."""
    kind = name + (":exact" if how == "float32" else "")
    for rows, k in SHAPES if byte is None else SHAPES[:1]:
        made = panels_from(stored(name, rows, k, byte=byte))
        values = rng.standard_normal((2, k)) if byte is None else np.full((2, k), 3.0)
        x = activations(values.astype(np.float32), how)
        packed = products(made, kind, made.units, made.address, made.panel_bytes, x, 2, 1)
        assert_sums_close(packed[:, :rows], x.values, made.values)
        assert not packed[:, rows:].any()  # rows of padding have scale and floor 0
        group = made.form.group
        size = made.units * (2 * byte_block_bytes(made.form.zero, group) if how == "int8" else 64 * 64)
        memory = aligned_zeros(size * made.panels)
        for panel in range(made.panels):
            source = made.address + panel * made.panel_bytes
            unpack_kernel(name, how == "int8")(source, address_of(memory) + panel * size, made.units)
        opened = (f"bytes:{made.form.zero}:{group}", made.units) if how == "int8" else ("float32", 8 * made.units)
        np.testing.assert_array_equal(packed, products(made, *opened, address_of(memory), size, x, 2, 2))
        if name == "q6_k":
            alone = products(made, kind, made.units, made.address, made.panel_bytes, x, 1, 2)
            np.testing.assert_array_equal(packed, alone)
