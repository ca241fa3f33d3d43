"""The examples of docs/scope.md run, and leave the pages that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import ROOT, follow


@pytest.mark.thorough
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/scope.md", monkeypatch, replace={})
    pages = {path.name for path in tmp_path.glob("*.html")}
    assert pages >= {"network.html", "machine.html", "clocked.html", "compared.html", "training.html", "evolution.html"}


def test_its_pictures_are_there() -> None:
    text = (ROOT / "docs" / "scope.md").read_text(encoding="utf-8")
    named = {part.partition(")")[0] for part in text.split("](scope/")[1:]}
    assert named == {path.name for path in (ROOT / "docs" / "scope").iterdir()}
