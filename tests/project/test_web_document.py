"""The lines of docs/web.md run, and leave pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import follow


@pytest.mark.thorough
def test_the_document_leaves_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = follow("docs/web.md", monkeypatch, replace={})
    assert names["page"].view == "numbers"
    assert names["page"].bytes < 100_000
    assert Path("xor.html").stat().st_size <= 60_000
    views = {"champion": "field", "plane": "field", "teach": "learn_numbers", "chat": "chat", "smollm2": "chat"}
    for folder, view in views.items():
        assert Path(folder, "index.html").is_file()
        assert Path(folder, "views", f"{view}.js").is_file()
