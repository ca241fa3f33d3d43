"""Arguments of benchmarks, and parts of documents that they write."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path


def argument_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a module's docstring, as it stands."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def positive_int(text: str) -> int:
    """Return a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, got {text!r}")
    return int(text)


def positive_ints(text: str) -> list[int]:
    """Return whole numbers of 1 or more that commas separate; none of an empty text."""
    return [positive_int(part) for part in text.split(",") if part]


def numbers(text: str) -> list[int]:
    """Return whole numbers that commas separate; none of an empty text."""
    return [int(part) for part in text.split(",") if part]


def write_between(document: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Put lines in the place of what stands between two marks of a document."""
    before, rest = document.read_text(encoding="utf-8").split(begin)
    document.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1], encoding="utf-8")
