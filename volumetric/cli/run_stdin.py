"""Rows from stdin: JSON lines as they arrive, or a CSV table to its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from volumetric.cli.exits import UsageError
from volumetric.cli.run_files import table_arrays
from volumetric.cli.run_rows import LINE, PIECE, ArrayRows, line_chunks
from volumetric.loaders import LoadedModel
from volumetric.run.streams.stream_chunks import StreamChunk

_MAGIC: Final = {
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"PAR1": ".parquet",
    b"RIFF": ".wav",
    b"\x89PNG": ".png",
    b"\xff\xd8\xff": ".jpg",
}
"""First bytes of files that are read by name → ending of the name."""


def stdin_chunks(
    read: Callable[[int], bytes],
    loaded: LoadedModel,
    batch: int,
    waiting: Callable[[], AbstractContextManager[None]],
    *,
    header: bool | None,
    afresh: bool,
) -> Iterator[StreamChunk]:
    """Yield the rows of JSON lines as they arrive, or of a CSV table when it has ended.

    It is a table if its first line is no JSON and has a comma, a semicolon or a tab.

    Parameters
    ----------
    read, batch, waiting : see `line_chunks`
    header, afresh : see `table_arrays`

    Raises
    ------
    UsageError : stdin is neither, or a line is not a row
    """
    begun = b""
    while b"\n" not in begun.lstrip() and len(begun) < LINE:
        with waiting():
            piece = read(PIECE)
        if not piece:
            break
        begun += piece
    ending = next((ending for magic, ending in _MAGIC.items() if begun.startswith(magic)), None)
    if ending is not None:
        raise UsageError(
            f"stdin is not JSON or CSV, but like a {ending} file", hint=f"save it to a file: --in FILE{ending}"
        )
    if not _begins_table(begun):

        def resumed(size: int) -> bytes:
            nonlocal begun
            piece, begun = begun[:size], begun[size:]
            return piece or read(size)

        yield from line_chunks(resumed, "stdin", loaded.network, batch, waiting)
        return
    if batch != 1:
        raise UsageError(f"stdin is a CSV table, whose rows are of one stream, --batch is {batch}")
    pieces = [begun]
    while pieces[-1]:
        with waiting():
            pieces.append(read(PIECE))
    try:
        text = b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is no CSV table: {error}", hint="write it as UTF-8 text") from None
    path = Path("stdin")
    yield from ArrayRows(table_arrays(path, loaded, header, afresh, text), path, loaded.network).chunks()


def _begins_table(text: bytes) -> bool:
    """Whether a text begins with a line of a table rather than JSON."""
    first = text.lstrip().split(b"\n", 1)[0]
    if first.startswith((b"[", b"{")) or not any(mark in first for mark in (b",", b";", b"\t")):
        return False
    try:
        json.loads(first)
    except ValueError:
        return True
    return False
