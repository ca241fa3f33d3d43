"""Convert the logical packing (rows of 32-bit words, scales apart) to panels. Runs once for each weight.

One kernel for each layout, over a range of panels, so that threads can share a tensor. Rows beyond the last and k
beyond the end become zeros: code `zero`, scale 0.

Bandwidth bound: a 94 MB model reads and writes 190 MB, 10 ms at 20 GB/s. Lanes are gathered from 16 rows word by word,
about 20 cycles a vector: 10 ms on one core. Loading is bound by reading the file, not by this.
"""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import entry, kernel
from volumetric.devices.cpu.kernels.memory_access import load_u16, load_u32, store_i16, store_i32


@entry
def retile_words(payload, row_bytes, rows, k, padded, target, panel_stride, first, last):
    """Rows of `k` words (float32, or pairs of bfloat16), padded with zeros, to panels `first` … `last` - 1."""
    for panel in range(first, last):
        out = target + panel * panel_stride
        for lane in range(16):
            row = panel * 16 + lane
            source = payload + row * row_bytes
            here = out + 4 * lane
            stop = k if row < rows else 0
            for j in range(stop):
                store_i32(here + 64 * j, load_u32(source + 4 * j))
            for j in range(stop, padded):
                store_i32(here + 64 * j, 0)


@entry
def retile_halves(payload, row_bytes, rows, k, padded, target, panel_stride, first, last):
    """float16 rows of `k` numbers to panels."""
    for panel in range(first, last):
        out = target + panel * panel_stride
        for lane in range(16):
            row = panel * 16 + lane
            source = payload + row * row_bytes
            here = out + 2 * lane
            stop = k if row < rows else 0
            for j in range(stop):
                store_i16(here + 32 * j, load_u16(source + 2 * j))
            for j in range(stop, padded):
                store_i16(here + 32 * j, 0)


@kernel
def _interleave(word):
    """Nibbles 0-7 of a word to bytes whose low nibbles are 0-3 and high nibbles 4-7."""
    low = word & 0xFFFF
    high = word >> 16
    low = (low | (low << 8)) & 0x00FF00FF
    low = (low | (low << 4)) & 0x0F0F0F0F
    high = (high | (high << 8)) & 0x00FF00FF
    high = (high | (high << 4)) & 0x0F0F0F0F
    return low | (high << 4)


@entry
def retile_blocks(
    payload, row_bytes, scales, offsets, scale_bytes, rows, k, target, panel_stride, first, last, vectors, flip
):
    """Groups of 32 codes (8 bits if `vectors` is 16, else 4 bits) with float16 scales, and offsets unless 0.

    `flip` is xored into every word: two's complement becomes code + 128 or code + 8.
    """
    words = row_bytes // 4
    groups = (k + 31) // 32
    units = (k + 63) // 64
    unit_bytes = vectors * 64 + 64 + (64 if offsets != 0 else 0)
    for panel in range(first, last):
        for lane in range(16):
            row = panel * 16 + lane
            out = target + panel * panel_stride + 4 * lane
            source = payload + row * row_bytes
            for unit in range(units):
                here = out + unit * unit_bytes
                for j in range(vectors):
                    index = unit * vectors + j
                    word = 0
                    if row < rows and index < words:
                        word = load_u32(source + 4 * index)
                    if vectors == 8:
                        word = _interleave(word)
                    store_i32(here + 64 * j, word ^ flip)
                after = here + vectors * 64 - 2 * lane
                for block in range(2):
                    group = unit * 2 + block
                    real = row < rows and group < groups
                    scale = load_u16(scales + row * scale_bytes + 2 * group) if real else 0
                    store_i16(after + 32 * block, scale)
                    if offsets != 0:
                        offset = load_u16(offsets + row * scale_bytes + 2 * group) if real else 0
                        store_i16(after + 64 + 32 * block, offset)
