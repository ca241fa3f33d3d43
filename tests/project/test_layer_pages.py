"""Every layer kind has a page, made from its docstring and fields, and every docstring has a formula."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from volumetric.layers import LAYERS

ROOT = Path(__file__).parents[2]
HOME = ROOT / "docs" / "layers"


@pytest.mark.thorough
def test_pages_are_current() -> None:
    command = [sys.executable, "scripts/layer_pages.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_every_kind_has_a_page_with_a_formula_and_the_index_names_it(kind: str) -> None:
    text = (HOME / f"{kind}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {LAYERS[kind].__name__}\n")
    assert "=" in "".join(re.findall(r"```\n(.*?)```", text, re.DOTALL))
    assert f"({kind}.md)" in (HOME / "README.md").read_text(encoding="utf-8")


def test_links_between_pages_lead_somewhere() -> None:
    for path in HOME.glob("*.md"):
        for target in re.findall(r"\]\((?!https?:)([\w./-]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
