"""The examples of docs/activity.md run, and the file is what it says."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from volumetric import Clocked, initialise
from volumetric.builders import sequential
from volumetric.cli import main
from volumetric.loaders import save_native

TEXT = (Path(__file__).parents[2] / "docs" / "activity.md").read_text(encoding="utf-8")


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(code, "docs/activity.md", "exec"), names)
    with zipfile.ZipFile("run.scope") as file:
        for name in ("meta.json", "scene.json"):
            for key in json.loads(file.read(name)):
                assert f"`{key}`" in TEXT, key
        with np.load(file.open("activity.npz")) as arrays:
            for key in arrays.files:
                assert f"`{key.split('.')[0]}" in TEXT, key
    network = sequential(4, 2, hidden=(3,))
    save_native("machine", network, initialise(network), clocked=Clocked(network=network))
    np.savez("rows.npz", input=np.zeros((1, 3, 4), np.float32))
    for line in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)[0].splitlines():
        command = line.partition("#")[0].split()[1:]
        if "serve" not in command:
            assert main(command) == 0
            assert Path(line.partition("# ")[2].partition(":")[0]).exists()
