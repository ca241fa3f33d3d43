"""Collects single rows into chunks, one for each call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.network import INPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk:
    """Rows of one call.

    Attributes
    ----------
    x : input → ``[batch, count, …]``; empty: rows without any input
    resets : ``[batch, count]``, or None if no stream is reset
    """

    x: Mapping[str, Array]
    count: int
    resets: Array | None = None


def in_chunks(
    rows: Iterable[Array | Mapping[str, Array]], resets: Iterable[Array] | None = None, *, chunk: int = 64
) -> Iterator[StreamChunk]:
    """Yield rows in chunks of `chunk`, and the rest at the end; stores at most one chunk.

    A chunk ends early if the next row has other inputs.

    Parameters
    ----------
    rows : ``[batch, …]``, or a mapping of these by input
    resets : for each row ``[batch]``, 1 for a stream that is reset before it

    Raises
    ------
    ShapeError : a row has another shape than the one before, or the numbers of resets and rows differ
    """
    if chunk < 1:
        raise SpecError(f"chunk must be 1 row or more, got {chunk}")
    pending: list[tuple[dict[str, Array], Array | None]] = []
    pairs = zip(rows, repeat(None) if resets is None else _all_resets(resets), strict=False)
    for number, (row, mark) in enumerate(pairs):
        named = {name: np.asarray(x) for name, x in (row if isinstance(row, Mapping) else {INPUT: row}).items()}
        if pending and named.keys() != pending[-1][0].keys():
            yield _stack_chunk(pending)
            pending = []
        for name, x in named.items():
            if not x.ndim:
                raise ShapeError(f"input {name!r}: row {number} needs an axis", hint="a row is [batch, …]")
            if pending and pending[-1][0][name].shape != x.shape:
                before = list(pending[-1][0][name].shape)
                raise ShapeError(f"input {name!r}: row {number} has shape {list(x.shape)}, the row before {before}")
        pending.append((named, None if mark is None else np.asarray(mark)))
        if len(pending) == chunk:
            yield _stack_chunk(pending)
            pending = []
    if pending:
        yield _stack_chunk(pending)


def _all_resets(resets: Iterable[Array]) -> Iterator[Array]:
    """Yield resets; raise `ShapeError` if there are fewer than rows."""
    yield from resets
    raise ShapeError("there are fewer resets than rows", hint="pass one for each row")


def _stack_chunk(pairs: list[tuple[dict[str, Array], Array | None]]) -> StreamChunk:
    x = {name: np.stack([row[name] for row, _ in pairs], 1) for name in pairs[0][0]}
    marks = [mark for _, mark in pairs if mark is not None]
    resets = np.stack(marks, -1) if marks and any(mark.any() for mark in marks) else None
    return StreamChunk(x=x, count=len(pairs), resets=resets)


__getattr__ = moved_names_getattr(__name__)
