"""Printed results are compared as they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import printed_results
from tests.project.printed_results import assert_printed, examples


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("[[-0.01]\n [ 1.01]]\n", "[[0. ]\n [1.02]]"),
        ("loss  0.00014\ntime  0.9 s\n", "loss  0.00013\ntime  12.25 s\n"),
        ("3 of 4 ▁▂█", "3 of 4 ▁▅▆▇"),
        ("fitness 3.9233", "fitness 3.9101"),
        ("a  b", "a b"),
    ],
)
def test_what_may_differ(printed: str, shown: str) -> None:
    assert_printed(printed, shown, "here")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("0.10", "0.13"),
        ("25 generations", "26 generations"),
        ("The sea is wide", "The sea is deep"),
        ("one\ntwo", "one"),
        ("one", "one\ntwo"),
        ("", "one"),
        ("1 2", "1 2 3"),
        ("-1.0", "1.0"),
    ],
)
def test_what_may_not(printed: str, shown: str) -> None:
    with pytest.raises(AssertionError, match="here, line"):
        assert_printed(printed, shown, "here")


def test_a_text_belongs_to_the_python_right_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.md").write_text(
        "```python\na\n```\n\n```text\n1\n```\n\n```python\nb\n```\n\nwords\n\n```text\n2\n```\n\n```python\nc\n```\n```text\n3\n```\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(printed_results, "ROOT", tmp_path)
    assert examples("page.md") == [("a\n", "1\n"), ("b\n", ""), ("c\n", "3\n")]
