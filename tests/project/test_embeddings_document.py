"""The examples of docs/embeddings.md run, with tiny models in the place of those of the hub."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from volumetric.cli import main

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


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("one\ntwo\n")
    Path("passages.jsonl").write_text('{"text": "one"}\n')
    blocks = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in "".join(blocks).splitlines():
        words = shlex.split(tiny(line))[1:]
        device = () if words[0] == "convert" else ("--device", "reference")
        assert main([*words, *device]) == 0, capsys.readouterr().err
    made = {"rows.npy", "rows.npz", "minilm.gguf"}
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "passages.jsonl", *made}
