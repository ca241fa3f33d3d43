"""What stderr shows at each level, and how numbers are written."""

from __future__ import annotations

import logging

import pytest

from volumetric.cli import console
from volumetric.kernels.cpu import jit

LEVELS = [
    ({}, ["warning: w", "compiling"]),
    ({"verbose": True}, ["i", "warning: w", "compiling"]),
    ({"quiet": True}, []),
    ({"debug": True}, ["d", "i", "warning: w", "compiling"]),
]


@pytest.mark.parametrize(("flags", "lines"), LEVELS)
def test_levels(flags, lines, capsys):
    console.configure(**({"verbose": False, "quiet": False, "debug": False} | flags))
    logger = logging.getLogger("volumetric.some.module")
    logger.debug("d")
    logger.info("i")
    logger.warning("w")
    logging.getLogger(console.COMPILER).info("compiling")
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", lines)


def test_notes_go_to_stderr_unless_quiet(capsys):
    for quiet in (False, True):
        console.configure(verbose=False, quiet=quiet, debug=False)
        console.note("here")
    assert capsys.readouterr() == ("", "here\n")


def test_the_compiler_is_the_one_that_is_listened_to():
    assert jit.__name__ == console.COMPILER


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96_576_768, "92.1 MiB"), (2**40, "1024.0 GiB")],
)
def test_sizes(nbytes, text):
    assert console.size(nbytes) == text


def test_tables_keep_their_lines_whole_where_stdout_is_no_terminal(capsys):
    console.table(("a", "b"), [["x" * 150, "y" * 150]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "x" in line] == [["x" * 150, "y" * 150]]
