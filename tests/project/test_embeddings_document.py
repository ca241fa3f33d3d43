"""The examples of docs/embeddings.md run, with tiny models in the place of those of the hub."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.project.pages import follow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "embeddings.md").read_text(encoding="utf-8")
TINY = ROOT / "tests" / "fixtures" / "hf_encoders"
MODELS = {
    "sentence-transformers/all-MiniLM-L6-v2": "sentences_mean",
    "pkg:all_minilm_l6_v2": "sentences_dense",
    "cross-encoder/ms-marco-MiniLM-L6-v2": "bert_judge",
    "google-bert/bert-base-uncased": "bert_masked",
}


def tiny(text: str) -> str:
    for name, fixture in MODELS.items():
        text = text.replace(name, str(TINY / fixture))
    return text


def test_the_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(tiny(code), "docs/embeddings.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "(3, 16) float32"
    assert len(printed) == 1 + 3 + 2 + 1 + 3


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    used = {name: str(TINY / fixture) for name, fixture in MODELS.items()}
    follow("docs/embeddings.md", monkeypatch, replace=used, python=False)
    assert {path.name for path in tmp_path.iterdir()} >= {"rows.npy", "rows.npz", "minilm.gguf"}
