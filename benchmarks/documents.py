"""Parts of documents that benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def write_between(document: Path, begin: str, end: str, lines: Iterable[str]) -> None:
    """Put lines in the place of what stands between two marks of a document."""
    before, rest = document.read_text(encoding="utf-8").split(begin)
    document.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1], encoding="utf-8")
