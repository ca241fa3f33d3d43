"""Standard streams that are closed or cannot be written, as after ``>&-``, ``| head`` or on a full disk."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from volumetric.base.errors import VolumetricError

_STREAMS = (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY))


def open_closed_streams() -> None:
    """Replace standard streams that were closed when the process started, which are None in Python.

    A closed stdin becomes empty, and a closed stderr discards all output. A closed stdout fails at the first write, as
    in other programs. Their file descriptors are occupied, so that no model file is opened as descriptor 1 and
    overwritten.
    """
    for number, (name, mode, flags) in enumerate(_STREAMS):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, flags)
        try:
            os.fstat(number)
        except OSError:
            os.dup2(opened, number)
            os.close(opened)
            opened = number
        setattr(sys, name, open(opened, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def replace_unprintable() -> None:
    """Write a question mark for characters that the terminal's encoding lacks: models generate any character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class OutputError(VolumetricError):
    """The output cannot be written to stdout."""


def drop_unwritable() -> bool:
    """Drop buffered output that stdout cannot write, which Python would report at exit; return whether any was."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@contextmanager
def writing() -> Iterator[None]:
    """Context for writes to stdout, which it flushes at the end.

    Raises
    ------
    BrokenPipeError : the reader has closed the pipe, as in ``volumetric … | head``
    OutputError : stdout cannot be written for another reason
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        drop_unwritable()
        if isinstance(error, BrokenPipeError):
            raise
        reason = error.strerror or error
        raise OutputError(f"cannot write to stdout: {reason}", hint="check the target of the redirection") from error


def write(text: str) -> None:
    """Write a part of the result unchanged, and flush. Raises the errors of `writing`."""
    with writing():
        sys.stdout.write(text)
