"""Products by matrix registers: the bits of products of packed panels, for any format, shape and number of rows."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.cpu.matrices import activations, panels, panels_from
from tests.cpu.test_block_panels import stored
from tests.cpu.test_products import tiles_kernel
from volumetric.devices.cpu.arena import address_of, aligned_zeros
from volumetric.devices.cpu.kernels.amx import amx_support
from volumetric.devices.cpu.kernels.amx.amx_scratch import (
    MATRIX_ROWS,
    UNITS_TOGETHER,
    about_bytes,
    sums_bytes,
    unpacked_unit_bytes,
)
from volumetric.devices.cpu.kernels.amx.amx_tiles import begin_tiles, end_tiles, open_codes
from volumetric.devices.cpu.kernels.amx.matrix_product import gather_about, multiply_unpacked
from volumetric.devices.cpu.kernels.cpu_target import describe, resolve_features
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.panels import BY_NAME, FORMATS
from volumetric.dtypes import BLOCK_FORMATS

# Groups of 32 and 16, with floors and without, codes of 8 bits signed and unsigned, a table, heads, two planes of bits.
SCHEMES = ("int8:g32", "uint8:g32", "uint4:g32", "q2_k", "q6_k", "q4_k", "iq4_xs", "q5_0")

needs_registers = pytest.mark.skipif(
    not amx_support.has_matrix_registers(), reason="this machine has no matrix registers that a process may use"
)


@cache
def matrix_kernel(name):
    """Products of up to 16 rows with any number of panels, by matrix registers."""
    form = BY_NAME[name]
    unit_bytes, own, sum_room = unpacked_unit_bytes(form), 2 * about_bytes(form), sums_bytes(form)

    @kernel
    def run(weights, panel_bytes, count, x, x_stride, units, rows, room, out, together):
        opened = room + sum_room
        about = opened + together * unit_bytes
        begin_tiles(name)
        gather_about(x, x_stride, units, own // 128 - 1, about)
        for p in range(count):
            panel = weights + p * panel_bytes
            for start in range(0, units, together):
                here = min(together, units - start)
                open_codes(name, panel, start, here, opened)
                known = about + start * own
                place = out + 64 * p
                q = x + 64 * start
                end = panel + panel_bytes
                multiply_unpacked(
                    name, q, x_stride, opened, known, here, rows, room, place, 64 * count, start, panel, end
                )
        end_tiles()

    return run


def made_of(scheme, rows, k, rng):
    return panels_from(stored(scheme, rows, k)) if scheme in BLOCK_FORMATS else panels(scheme, rows, k, rng)


@needs_registers
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_number_of_rows_has_the_bits_of_packed_panels(scheme, rng):
    name = FORMATS[scheme].name
    for columns, k in ((17, 33), (16, 64), (40, 320), (5, 600)):
        made = made_of(scheme, columns, k, rng)
        values = rng.standard_normal((48, k)).astype(np.float32)
        values[3], values[5, 0], values[7, -1] = 0, np.inf, 1e30
        with np.errstate(invalid="ignore"):
            x = activations(values, "int8")
        about = (UNITS_TOGETHER + made.units) * (unpacked_unit_bytes(made.form) + 2 * about_bytes(made.form))
        room = aligned_zeros(sums_bytes(made.form) + about)
        width = 16 * made.panels
        want = np.zeros((34, width), np.float32)
        for row in range(0, 34, 2):
            source, here = x.address + row * x.row_bytes, address_of(want) + row * want.strides[0]
            run = tiles_kernel(name, 2, 1)
            run(made.address, made.panel_bytes, made.panels, source, x.row_bytes, made.units, here)
        for count in range(1, 34):
            got = np.full((48, width), np.float32(7))
            for row in range(0, count, MATRIX_ROWS):
                source, here = x.address + row * x.row_bytes, address_of(got) + row * got.strides[0]
                matrix_kernel(name)(
                    made.address,
                    made.panel_bytes,
                    made.panels,
                    source,
                    x.row_bytes,
                    made.units,
                    min(MATRIX_ROWS, count - row),
                    address_of(room),
                    here,
                    1 + count % UNITS_TOGETHER,
                )
            np.testing.assert_array_equal(got[:count], want[:count])
            assert (got[-(-count // 4) * 4 :] == 7).all()  # rows are scaled by fours; nothing is written beyond


def test_a_process_can_do_without(monkeypatch):
    """By the switch, on another processor, or where the system refuses."""
    look = amx_support.has_matrix_registers.__wrapped__
    monkeypatch.setenv("VOLUMETRIC_AMX", "0")
    assert not look()
    monkeypatch.delenv("VOLUMETRIC_AMX")
    for cpu, features in (("haswell", ""), ("sapphirerapids", ""), ("sapphirerapids", "+amx-tile")):
        machine = describe(resolve_features(cpu, features), "x86_64")
        monkeypatch.setattr(amx_support, "target", lambda machine=machine: machine)
        assert not look()
    able = describe(resolve_features("sapphirerapids", "+amx-tile,+amx-int8"), "x86_64")
    monkeypatch.setattr(amx_support, "target", lambda: able)
    monkeypatch.setattr(amx_support, "_is_permitted", lambda: False)
    assert not look()
