"""docs/webgpu.md: its code runs, and what it says of names and numbers is so."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.project.pages import ROOT
from volumetric.devices.gpu import implementation_choice, implementation_speed, list_gpus
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE

PAGE = (ROOT / "docs" / "webgpu.md").read_text(encoding="utf-8")


def test_names_and_numbers_are_those_of_the_code() -> None:
    assert tuple(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == NAMES
    assert f"environment variable `{VARIABLE}`" in PAGE
    assert f"{implementation_choice._KEPT - 1:.0%}".replace("%", " %") + " faster" in PAGE
    assert f"less than {implementation_choice._SLOWEST_TOKENS} of the other's speed" in " ".join(PAGE.split())
    assert f"token of {implementation_speed._TOKEN_PRODUCTS} products" in PAGE
    assert f"prompt of {implementation_speed._PROMPT_ROWS} rows" in " ".join(PAGE.split())
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert "wgpudawn" in extras["dawn"][0]


def test_its_code_shows_every_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/webgpu.md", "exec"), {})
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == [gpu.name for gpu in list_gpus()]
