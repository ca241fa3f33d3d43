"""Contents of buffers from the tensors of a GGUF file, as the fills of a template say. See docs/web_format.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.loaders.gguf import GGUFSource
from volumetric.web.moved_bits import MovedBits
from volumetric.web.row_loops import rows_of_loops

WORDS: Final = "words"
"""Part of an F32 tensor: a row is one element."""
_AT_ONCE: Final = 2 << 20
"""Bytes of a tensor whose bits are moved at a time."""


def raw_rows(file: GGUFSource, name: str, start: int = 0, stop: int | None = None) -> NDArray[np.uint8]:
    """Return rows of a tensor, uint8 ``[rows, bytes of a row]``."""
    entry = file.entries[name]
    rows = prod(entry.shape[:-1])
    row_bytes = entry.nbytes // rows if rows else 0
    stop = rows if stop is None else stop
    return file.raw_part(name, start * row_bytes, stop * row_bytes).reshape(stop - start, row_bytes)


def filled(
    fill: Sequence[Sequence[Any]], nbytes: int, file: GGUFSource, types: Mapping[str, MovedBits]
) -> NDArray[np.uint8]:
    """Return the contents of a buffer.

    Parameters
    ----------
    fill : entries [tensor, part, rows], and for words perhaps what is added to each, in float32
    nbytes : bytes of the contents
    types : GGUF type → layout of its blocks
    """
    contents = np.zeros(nbytes, np.uint8)
    for name, part, loops, *add in fill:
        sources, targets = rows_of_loops(loops)
        if part == WORDS:
            elements = file.raw(name).view(np.float32)[sources]
            with np.errstate(invalid="ignore"):  # a NaN of a damaged file is detected in later computation
                contents.view(np.float32)[targets] = elements + np.float32(add[0]) if add else elements
        else:
            _fill_rows(contents, types[file.entries[name].type], part, file, name, sources, targets)
        file.release(name)
    return contents


def _fill_rows(
    contents: NDArray[np.uint8],
    bits: MovedBits,
    part: str,
    file: GGUFSource,
    name: str,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> None:
    rows = raw_rows(file, name)
    size = bits.row_bytes(part, rows.shape[1] // bits.block_bytes)
    whole = contents[: len(contents) // size * size].reshape(-1, size)
    step = max(1, _AT_ONCE // max(rows.shape[1], 1))
    for at in range(0, len(sources), step):
        whole[targets[at : at + step]] = bits.lay_out(part, rows[sources[at : at + step]])
