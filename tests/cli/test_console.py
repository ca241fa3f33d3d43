"""What stderr shows at each level, and how numbers are written."""

from __future__ import annotations

import io
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from volumetric.base import progress
from volumetric.cli import console
from volumetric.cli.console import StderrHandler
from volumetric.devices.cpu import compile_operations
from volumetric.devices.cpu.kernels import jit

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
    logging.getLogger(console.WORKERS[0]).info("compiling")
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", lines)


def test_one_is_not_several():
    assert [console.plural(n, "tick") for n in (0, 1, 2, 1000)] == ["0 ticks", "1 tick", "2 ticks", "1,000 ticks"]


def test_notes_go_to_stderr_unless_quiet(capsys):
    for quiet in (False, True):
        console.configure(verbose=False, quiet=quiet, debug=False)
        console.note("here")
    assert capsys.readouterr() == ("", "here\n")


def test_the_workers_are_those_that_are_listened_to():
    assert (jit.__name__, compile_operations.__name__, progress.__name__) == console.WORKERS


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What a person sees at the end, and saw before it was replaced."""
        return self.getvalue().replace("\r", "\n").split("\n")


class Operations:
    """A library of which nothing is compiled yet, or all."""

    home = ""

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready

    def is_ready(self, name: str, *constants: str | int) -> bool:
        return self.ready

    def address(self, name: str, *constants: str | int) -> int:
        return 0


@pytest.fixture
def slow():
    """Make three operations ready that have to be compiled."""
    keys = [("angles", ()), ("product", (1,)), ("angles", ()), ("product", (2,))]
    return lambda: compile_operations.compile_operations(keys, Operations(ready=False))


def test_a_terminal_shows_how_many_kernels_are_compiled(slow, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    console.configure(verbose=False, quiet=False, debug=False)
    slow()
    counts = [line.strip() for line in screen.lines() if line.strip()]
    assert counts[:3] == [f"compiling kernels, once on this machine: {i} of 3" for i in (1, 2, 3)]
    assert counts[3].startswith("compiled 3 kernels in 0.0 s, which are kept for the next start")
    assert screen.getvalue().count("\n") == 1


def test_a_spinner_tells_it_too_and_goes_on_afterwards(slow):
    console.configure(verbose=False, quiet=False, debug=False)
    said = []
    spinner: Any = SimpleNamespace(update=said.append)
    with StderrHandler.waiting_in(spinner, "loading…"):
        slow()
    assert said == [*(f"compiling kernels, once on this machine: {i} of 3…" for i in (1, 2, 3)), "loading…"]


def test_a_file_gets_few_lines_and_quiet_none(slow, capsys):
    for quiet, lines in ((False, 2), (True, 0)):
        console.configure(verbose=False, quiet=quiet, debug=False)
        slow()
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == lines


def test_python_is_warned_once_where_nobody_listens(slow, capsys, caplog):
    with caplog.at_level(logging.WARNING, "volumetric"):
        slow()
    assert [record.getMessage() for record in caplog.records] == [
        "compiling 3 kernels, once on this machine; this can take up to a minute"
    ]


def test_what_comes_from_the_cache_is_not_worth_a_word(capsys):
    console.configure(verbose=False, quiet=False, debug=False)
    compile_operations.compile_operations([("angles", ())], Operations(ready=True))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (96_576_768, "92.1 MiB"), (2**40, "1024.0 GiB")],
)
def test_sizes(nbytes, text):
    assert progress.byte_size(nbytes) == text


def test_tables_keep_their_lines_whole_where_stdout_is_no_terminal(capsys):
    console.table(("a", "b"), [["x" * 150, "y" * 150]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if "x" in line] == [["x" * 150, "y" * 150]]


def test_columns_that_may_be_folded_make_a_table_readable(capsys):
    parts = [f"part{number} 64×64" for number in range(40)]
    when = " || ".join(["err.prediction > 0.25"] * 9)
    console.table(("name", "parts", "when"), [["a", "  ".join(parts), when]], fold=("parts", "when"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= console.READABLE
    text = "\n".join(lines)
    assert all(part in text for part in parts)  # a name stays beside its shape
    assert text.count("err.prediction") == 9
    console.table(("name", "parts"), [["a", "b  c"]], fold=("parts",))
    assert "b  c" in capsys.readouterr().out  # what is short stays as it is


def counted(monkeypatch, screen: io.StringIO) -> io.StringIO:
    """Read three tensors, with every one told."""
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "EVERY", -1.0)
    console.configure(verbose=False, quiet=False, debug=False)
    with progress.WorkMeter("writing a.gguf", 3, nbytes=3 << 20) as meter:
        for _ in range(3):
            meter.step(1 << 20)
    return screen


def test_a_terminal_shows_pieces_bytes_and_the_time_left(monkeypatch):
    screen: Any = counted(monkeypatch, Screen())
    lines = [line.strip() for line in screen.lines() if line.strip()]
    assert lines == [
        "writing a.gguf: tensor 1 of 3, 1.0 MiB of 3.0 MiB, 0:00 left",
        "writing a.gguf: tensor 2 of 3, 2.0 MiB of 3.0 MiB, 0:00 left",
        "writing a.gguf: tensor 3 of 3, 3.0 MiB of 3.0 MiB",
    ]
    assert screen.lines()[-1] == ""  # the line is gone when the work is over


def test_a_file_gets_no_passing_lines(monkeypatch):
    assert counted(monkeypatch, io.StringIO()).getvalue() == ""


def test_a_spinner_says_how_far_it_is_and_goes_on(monkeypatch):
    said = []
    spinner: Any = SimpleNamespace(update=said.append)
    with StderrHandler.waiting_in(spinner, "converting…"):
        counted(monkeypatch, Screen())
    counts = [f"writing a.gguf: tensor {i} of 3" for i in (1, 2, 3)]
    assert [text.partition(",")[0] for text in said] == [*counts, "converting…"]
