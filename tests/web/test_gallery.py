"""The gallery: a page and a card for each view, built by one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import gallery
from scripts.gallery_index import index_page


def test_a_page_is_built_and_has_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(gallery, "GALLERY", tmp_path / "gallery")
    for _ in range(2):  # a second time replaces the first
        gallery.build(["evolve"])
    assert "evolve.html: neat" in capsys.readouterr().out
    index = (tmp_path / "gallery" / "index.html").read_text("utf-8")
    assert index.count("<li>") == 1
    assert '<a href="evolve.html"><h2>Evolve a champion</h2>' in index
    assert "one file, 6" in index
    assert "<title>Evolve a champion</title>" in (tmp_path / "gallery" / "evolve.html").read_text("utf-8")


def test_the_index_has_only_what_is_there_and_names_stay_text(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "index.html").write_bytes(bytes(2048))
    page = index_page(tmp_path, [("net", "<b>x</b>", "a & b"), ("gone.html", "Gone", "")])
    assert '<a href="net/"><h2>&lt;b&gt;x&lt;/b&gt;</h2><p>a &amp; b</p><p class="size">folder, 2.0 KiB' in page
    assert "Gone" not in page
