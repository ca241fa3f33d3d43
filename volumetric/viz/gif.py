"""Writer of animated GIFs (CompuServe 1990, GIF89a), without an image library."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError

_LOOP = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"  # forever
_CODES = 4096


def gif(frames: Array, colours: Sequence[tuple[int, ...]], *, seconds: float) -> bytes:
    """Return an animation that loops forever. A frame stores only the rectangle that differs from the previous frame.

    Parameters
    ----------
    frames : colour indices, uint8 ``[frames, height, width]``, at least one frame
    colours : red, green and blue in 0 … 255 of each index, 2 … 256 colours
    seconds : duration of each frame, in steps of 0.01; at least 0.02, because viewers ignore shorter ones

    Raises
    ------
    ShapeError : the frames have another shape, are too large, or have indices without a colour
    SpecError : there are too few or too many colours
    """
    if not 2 <= len(colours) <= 256:
        raise SpecError(f"a GIF needs 2 … 256 colours, got {len(colours)}")
    if frames.ndim != 3 or 0 in frames.shape or max(frames.shape[1:]) > 65535 or frames.max() >= len(colours):
        raise ShapeError(f"a GIF needs frames [n, height, width] of indices below {len(colours)}, got {frames.shape}")
    bits = max(2, (len(colours) - 1).bit_length())
    table = [*colours, *[(0, 0, 0)] * ((1 << bits) - len(colours))]
    _, height, width = frames.shape
    parts = [b"GIF89a", struct.pack("<HHBBB", width, height, 0x80 | (bits - 1), 0, 0)]
    parts += [bytes(channel for colour in table for channel in colour), _LOOP]
    delay = max(2, min(65535, round(100 * seconds)))
    for i, frame in enumerate(frames):
        top, bottom, left, right = (0, height, 0, width) if i == 0 else _changed_box(frames[i - 1], frame)
        piece = frame[top:bottom, left:right]
        parts.append(b"\x21\xf9\x04" + struct.pack("<BHBB", 0x04, delay, 0, 0))  # the next frame draws over it
        parts.append(b"\x2c" + struct.pack("<HHHHB", left, top, right - left, bottom - top, 0) + bytes([bits]))
        packed = _lzw(piece.tobytes(), bits)
        parts += [bytes([len(packed[at : at + 255])]) + packed[at : at + 255] for at in range(0, len(packed), 255)]
        parts.append(b"\x00")
    return b"".join([*parts, b"\x3b"])


def _changed_box(before: Array, after: Array) -> tuple[int, int, int, int]:
    """Return the rectangle in which two frames differ; one pixel if they are equal."""
    differs = before != after
    rows, columns = np.flatnonzero(differs.any(1)), np.flatnonzero(differs.any(0))
    if not len(rows):
        return 0, 1, 0, 1
    return int(rows[0]), int(rows[-1]) + 1, int(columns[0]), int(columns[-1]) + 1


def _lzw(pixels: bytes, bits: int) -> bytes:
    """Compress with the LZW variant of GIF: codes grow from ``bits + 1`` to 12 bits, least significant bit first."""
    clear, stop = 1 << bits, (1 << bits) + 1
    out, pending, count = bytearray(), 0, 0
    known: dict[tuple[int, int], int] = {}
    size, following = bits + 1, stop + 1

    def write_code(code: int) -> None:
        nonlocal pending, count
        pending |= code << count
        count += size
        while count >= 8:
            out.append(pending & 255)
            pending >>= 8
            count -= 8

    write_code(clear)
    prefix = pixels[0]
    for pixel in pixels[1:]:
        longer = known.get((prefix, pixel))
        if longer is not None:
            prefix = longer
            continue
        write_code(prefix)
        if following < _CODES:
            known[prefix, pixel] = following
            if following == 1 << size:
                size += 1
            following += 1
        else:
            write_code(clear)
            known.clear()
            size, following = bits + 1, stop + 1
        prefix = pixel
    write_code(prefix)
    write_code(stop)
    if count:
        out.append(pending & 255)
    return bytes(out)
