"""Lines of files that grow, are replaced, or never end."""

from __future__ import annotations

from pathlib import Path

import pytest

from volumetric.base import growing_lines
from volumetric.base.growing_lines import GrowingLines


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of a few bytes, so that lines are longer than chunks and chunks have several lines."""
    monkeypatch.setattr(growing_lines, "_CHUNK", 8)
    monkeypatch.setattr(growing_lines, "LONGEST_LINE", 32)


def test_whole_lines_come_once_with_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n" + b"c" * 20 + b"\nhal")
    lines, numbered = GrowingLines(path), []
    while part := lines.read():
        numbered += part
    assert numbered == [(1, b"a"), (2, b"b"), (3, b"c" * 20)]
    with path.open("ab") as file:
        file.write(b"f\n")
    assert not lines.replaced()
    assert lines.read() == [(4, b"half")]
    assert lines.offset == path.stat().st_size


@pytest.mark.parametrize("shorter", [True, False])
def test_a_replaced_file_is_read_from_its_beginning(tmp_path: Path, shorter: bool) -> None:
    path = tmp_path / "log"
    lines = GrowingLines(path)
    assert not lines.replaced(), "there is no file yet"
    path.write_bytes(b"one\n")
    assert not lines.replaced()
    lines.read()
    if shorter:
        path.write_bytes(b"1\n")
    else:
        other = tmp_path / "other"
        other.write_bytes(b"1\nsecond\n")
        other.replace(path)
    assert lines.replaced()
    assert lines.read()[0] == (1, b"1")
    assert not lines.replaced()


def test_lines_without_an_end_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\n" + b"x" * 100)
    lines = GrowingLines(path)
    assert lines.read() == [(1, b"a")]
    with pytest.raises(ValueError, match="line 2 is longer"):
        lines.read()
    with pytest.raises(OSError, match="No such file"):
        GrowingLines(tmp_path / "none").read()
