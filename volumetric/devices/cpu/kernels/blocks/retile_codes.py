"""Convert codes, a byte each, with separate scales and floors, to panels. Runs once for each weight.

Lanes are gathered four codes at a time. Rows beyond the last and k beyond the end are read from the arrays, where they
must be zeros: a scale and a floor of 0 make any code 0.
"""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.memory_access import load_u8, load_u16, load_u32, store_i8, store_i16, store_i32


@kernel
def _plane(source, out, real, bits, low):
    """One plane of the 64 codes at `source` of one lane."""
    per = 8 // bits
    mask = ((1 << bits) - 1) * 0x01010101
    for vector in range(2 * bits):
        word = 0
        if real:
            for c in range(per):
                quad = load_u32(source + 4 * (vector * per + c))
                word |= ((quad >> low) & mask) << (bits * c)
        store_i32(out + 64 * vector, word)


@kernel
def _row_of(source, out, count, size, real):
    """`count` numbers of `size` bytes of one lane, 16 lanes apart."""
    for i in range(count):
        if size == 1:
            store_i8(out + 16 * i, load_u8(source + i) if real else 0)
        elif size == 4:
            store_i32(out + 64 * i, load_u32(source + 4 * i) if real else 0)
        else:
            store_i16(out + 32 * i, load_u16(source + 2 * i) if real else 0)


@kernel
def retile_codes(
    codes,
    code_bytes,
    scales,
    scale_bytes,
    scale_size,
    floors,
    floor_bytes,
    floor_size,
    heads,
    head_bytes,
    rows,
    units,
    low_bits,
    high_bits,
    groups,
    panel_stride,
    target,
    first,
    last,
):
    """Panels `first` … `last` - 1 of rows of 64 · `units` codes.

    An array is an address, bytes from row to row, and bytes of a number (0: no array). `groups` is the number of scales
    of a unit. `heads` has two float16 for every four units, 0 = no heads; `high_bits` is 0 if there is one plane.
    """
    scales_at = 128 * (low_bits + high_bits)
    floors_at = scales_at + 16 * groups * scale_size
    unit_bytes = (floors_at + 16 * groups * floor_size + 63) // 64 * 64
    head = 64 if heads != 0 else 0
    for panel in range(first, last):
        for lane in range(16):
            row = panel * 16 + lane
            real = row < rows
            for unit in range(units):
                super_ = unit // 4
                here = target + panel * panel_stride + unit * unit_bytes + (super_ + 1) * head
                if head != 0 and unit % 4 == 0:
                    _row_of(heads + row * head_bytes + 4 * super_, here - 64 + 2 * lane, 2, 2, real)
                source = codes + row * code_bytes + 64 * unit
                _plane(source, here + 4 * lane, real, low_bits, 0)
                if high_bits != 0:
                    _plane(source, here + 128 * low_bits + 4 * lane, real, high_bits, low_bits)
                if scale_size != 0:
                    at = scales + row * scale_bytes + unit * groups * scale_size
                    _row_of(at, here + scales_at + scale_size * lane, groups, scale_size, real)
                if floor_size != 0:
                    at = floors + row * floor_bytes + unit * groups * floor_size
                    _row_of(at, here + floors_at + floor_size * lane, groups, floor_size, real)
