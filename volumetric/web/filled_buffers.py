"""Contents of buffers from the tensors of a GGUF file, as the fills of a template say. See docs/web_format.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


def row_size(file: GGUFSource, name: str) -> int:
    """Return the bytes of a row of a tensor."""
    entry = file.entries[name]
    return entry.nbytes // max(prod(entry.shape[:-1]), 1)


def row_ranges(file: GGUFSource, name: str) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the rows of a tensor, some at a time: the first one's number, and uint8 ``[rows, bytes of a row]``."""
    rows, size = prod(file.entries[name].shape[:-1]), row_size(file, name)
    step = max(1, _AT_ONCE // max(size, 1))
    for first in range(0, rows, step):
        last = min(first + step, rows)
        yield first, file.raw_part(name, first * size, last * size).reshape(last - first, size)


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
    stored = row_size(file, name)
    size = bits.row_bytes(part, stored // bits.block_bytes)
    whole = contents[: len(contents) // size * size].reshape(-1, size)
    step = max(1, _AT_ONCE // stored)
    for at in range(0, len(sources), step):
        some = sources[at : at + step]
        first, last = int(some.min()), int(some.max()) + 1
        rows = file.raw_part(name, first * stored, last * stored).reshape(-1, stored)
        whole[targets[at : at + step]] = bits.lay_out(part, rows[some - first])
