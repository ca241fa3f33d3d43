"""Programs in files, ``*.program.json``."""

from __future__ import annotations

import os
from pathlib import Path

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.program.layer.declared import MOST_EDGES, Program, refuse_edges
from volumetric.program.layer.text import MOST_BYTES

SUFFIX = ".program.json"
_WIDTH = 64
"""Of regions, for what so many edges would take: those of a file that is too long are counted, not read."""


def read_program(path: str | os.PathLike[str]) -> Program:
    """Return the program of a file.

    Raises
    ------
    CheckpointError : the file cannot be read
    SpecError : it holds no program; the message names file and place
    """
    text = read_bytes(path)
    try:
        return Program.from_json(text)
    except SpecError as error:
        raise SpecError(f"{path}: {error}", hint=error.hint) from None


def save_program(path: str | os.PathLike[str], program: Program) -> None:
    """Write a program to a file, whole or not at all.

    Raises
    ------
    CheckpointError : it cannot be written
    """
    write_atomic(path, program.to_json().encode())


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return what a file holds, if that may be a program.

    Raises
    ------
    CheckpointError : the file cannot be read
    SpecError : it is too long
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
        hint = "name a file that volumetric wrote or a program was written to"
        if isinstance(error, IsADirectoryError):
            hint = "name a file, x.program.json; of a model's directory `volumetric inspect` tells the programs"
        raise CheckpointError(f"{path}: {error.strerror or error}", hint=hint) from None
    if edges > MOST_EDGES:
        refuse_edges(edges, _WIDTH)
    raise SpecError(f"{path}: longer than {MOST_BYTES >> 20} MiB, which no program is")
