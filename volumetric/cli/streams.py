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
    """Put something where the process was started with a closed stream: Python has None there.

    A closed stdin is empty and a closed stderr takes all. A closed stdout fails at the first write, as it does for
    other programs. Their numbers are taken too, so that no file of a model is opened as number 1 and written to.
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


def replace_what_cannot_be_shown() -> None:
    """Let a terminal without a character show a question mark: models write any character."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


class OutputError(VolumetricError):
    """What was made cannot be written to stdout."""


def drop_unwritable() -> bool:
    """Drop what stdout holds and cannot write, over which Python would complain when it exits; tell if there is any."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


@contextmanager
def writing() -> Iterator[None]:
    """Write to stdout, and to the end.

    Raises
    ------
    BrokenPipeError : the reader has gone, as in ``volumetric … | head``
    OutputError : it cannot be written for another reason
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        drop_unwritable()
        if isinstance(error, BrokenPipeError):
            raise
        reason = error.strerror or error
        raise OutputError(f"stdout cannot be written: {reason}", hint="check where it is redirected to") from error


def write(text: str) -> None:
    """Write a piece of the product at once, as it is. Raises what `writing` does."""
    with writing():
        sys.stdout.write(text)
