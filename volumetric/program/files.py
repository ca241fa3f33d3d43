"""Programs in files, ``*.program.json``."""

from __future__ import annotations

import os
from pathlib import Path

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.program.layer.program_declaration import MOST_EDGES, Program, refuse_edges
from volumetric.program.layer.text import MOST_BYTES

SUFFIX = ".program.json"
_WIDTH = 64
"""Width of regions to estimate memory for edges: edges of a file that is too long are counted, not read."""


def read_program(path: str | os.PathLike[str]) -> Program:
    """Return the program of a file.

    Raises
    ------
    CheckpointError : the file cannot be read
    SpecError : the file has no valid program; the message names file and place
    """
    text = read_bytes(path)
    try:
        return Program.from_json(text)
    except SpecError as error:
        raise SpecError(f"{path}: {error}", hint=error.hint) from None


def save_program(path: str | os.PathLike[str], program: Program) -> None:
    """Write a program to a file atomically.

    Raises
    ------
    CheckpointError : the file cannot be written
    """
    write_atomic(path, program.to_json().encode())


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file, if they may be a program.

    Raises
    ------
    CheckpointError : the file cannot be read
    SpecError : the file is too long
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
            if len(data) <= MOST_BYTES:
                return data
            edges, rest = data.count(b'"reads"'), data[-6:]
            while data := file.read(MOST_BYTES):
                edges += (rest + data).count(b'"reads"')
                rest = data[-6:]
    except OSError as error:
        hint = "pass a file of a program, x.program.json"
        if isinstance(error, IsADirectoryError):
            hint = "pass a file, x.program.json; `volumetric inspect` lists the programs of a model's directory"
        raise CheckpointError(f"{path}: {error.strerror or error}", hint=hint) from None
    if edges > MOST_EDGES:
        refuse_edges(edges, _WIDTH)
    raise SpecError(f"{path}: the file is longer than {MOST_BYTES >> 20} MiB, the limit for programs")
