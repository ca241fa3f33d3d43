"""The examples of docs/activity.md run, and the file is what it says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.project.pages import follow

TEXT = (Path(__file__).parents[2] / "docs" / "activity.md").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/activity.md", monkeypatch, replace={})
    assert all(Path(f"machine.{ending}").exists() for ending in ("scope", "html", "gif"))
    with zipfile.ZipFile("run.scope") as file:
        for name in ("meta.json", "scene.json"):
            for key in json.loads(file.read(name)):
                assert f"`{key}`" in TEXT, key
        with np.load(file.open("blocks/000000.npz")) as arrays:
            for key in arrays.files:
                assert f"`{key.split('.')[0]}" in TEXT, key
