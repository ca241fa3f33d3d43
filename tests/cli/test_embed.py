"""The verb ``embed``, on the reference device."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

MODEL = str(Path(__file__).parents[1] / "fixtures" / "hf_encoders" / "sentences_mean")
KNOWN = json.loads((Path(MODEL) / "embeddings.json").read_text())
ON_REFERENCE = ("--device", "reference")


def test_texts_become_lines_of_json(run):
    code, out, _ = run("embed", MODEL, *KNOWN["texts"][:3], *ON_REFERENCE)
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["text"] for line in lines] == KNOWN["texts"][:3]
    assert np.abs(np.array([line["embedding"] for line in lines]) - KNOWN["document"][:3]).max() < 1e-5


@pytest.mark.parametrize("kind", ["txt", "jsonl", "stdin"])
def test_lines_become_arrays(run, tmp_path, monkeypatch, kind):
    texts = ["the cat", "on the mat", ""]
    source = tmp_path / f"texts.{kind}"
    if kind == "stdin":
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(texts) + "\n"))
    elif kind == "txt":
        source.write_text("\n".join(texts) + "\n")
    else:
        source.write_text('"the cat"\n{"text": "on the mat", "id": 7}\n\n{"text": ""}\n')
    given = () if kind == "stdin" else ("--file", str(source))
    for name in ("rows.npy", "rows.npz"):
        target = tmp_path / name
        code, out, err = run("embed", MODEL, *given, "--out", str(target), "--prompt-name", "query", *ON_REFERENCE)
        assert (code, out) == (0, ""), err
        if kind == "stdin":
            sys.stdin.seek(0)
    rows, both = np.load(tmp_path / "rows.npy"), np.load(tmp_path / "rows.npz")
    assert rows.shape == (3, 16)
    assert rows.dtype == np.float32
    assert np.array_equal(both["embeddings"], rows)
    assert both["texts"].tolist() == texts


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("a", "--file", "x.txt"), 2, "texts and --file exclude each other"),
        (("a", "--out", "x.bin"), 2, "must end in one of .jsonl, .npy, .npz"),
        (("a", "--pooling", "sum"), 1, "unknown pooling 'sum'"),
        (("a", "--prompt-name", "x"), 1, "has no prompt 'x'"),
        (("--file", "not-there.txt"), 1, "not-there.txt"),
    ],
)
def test_mistakes_are_explained(run, arguments, code, message):
    found, out, err = run("embed", MODEL, *arguments, *ON_REFERENCE)
    assert (found, out) == (code, "")
    assert message in err


def test_a_line_that_is_no_text_is_named(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('"a"\n{"txt": 1}\n')
    code, _, err = run("embed", MODEL, "--file", str(tmp_path / "a.jsonl"), *ON_REFERENCE)
    assert code == 2
    assert "a.jsonl, line 2 is neither" in err
