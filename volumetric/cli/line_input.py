'''Typed input: lines, and messages of several lines.

A message of several lines is enclosed in ``"""``, or each of its lines but the last ends with a backslash, as in ollama
and llama.cpp.
'''

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from volumetric.cli.interrupts import interruptible_input

PROMPT, MORE = "> ", "... "
QUOTES = '"""'


def at_terminal() -> bool:
    """Whether stdin is a terminal, not a file or another program."""
    return sys.stdin.isatty()


def read_message(read_line: Callable[[str], str] | None = None) -> str:
    """Read one message or command.

    Parameters
    ----------
    read_line : returns a line for a prompt sign, and raises EOFError at the end; default: from stdin

    Returns
    -------
    The message. At the end of the input an incomplete message counts as complete.

    Raises
    ------
    EOFError : the input has ended
    """
    read = read_typed if read_line is None else read_line
    line = read(PROMPT).strip()
    if line.startswith(QUOTES):
        return _read_quoted(line.removeprefix(QUOTES), read)
    lines = []
    while line.endswith("\\"):
        lines.append(line.removesuffix("\\"))
        try:
            line = read(MORE).rstrip()
        except EOFError:
            return "\n".join(lines)
    return "\n".join([*lines, line])


def _read_quoted(line: str, read: Callable[[str], str]) -> str:
    lines = []
    while not line.rstrip().endswith(QUOTES):
        lines.append(line)
        try:
            line = read(MORE)
        except EOFError:
            break
    else:
        lines.append(line.rstrip().removesuffix(QUOTES))
    return "\n".join(lines).strip("\n")


def read_typed(sign: str) -> str:
    """Read one line without its line break; the prompt sign is never written to a stdout that is not a terminal."""
    if at_terminal() and sys.stdout.isatty():
        # Importing readline adds line editing and history to `input`; Windows lacks it.
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401
        with interruptible_input():
            return input(sign)
    if at_terminal():
        print(sign, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")
