"""docs/coming_from.md tells the truth: what it says to write here runs and prints what it shows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.project.pages import ROOT, follow
from tests.project.printed_results import examples
from volumetric.cli import COMMANDS

DOCUMENT = "docs/coming_from.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


def test_every_example_shows_what_it_prints() -> None:
    assert len(examples(DOCUMENT)) == 4
    assert all(shown for _, shown in examples(DOCUMENT))


def test_code_for_other_packages_is_python() -> None:
    blocks = re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        ast.parse(block)


def test_commands_of_tables_exist() -> None:
    named = set(re.findall(r"`volumetric ([a-z]+) ", TEXT))
    assert {"generate", "serve", "convert", "bench", "perplexity"} <= named <= set(COMMANDS)


@pytest.mark.thorough
def test_the_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = follow("docs/coming_from.md", monkeypatch, replace={})
    assert names["result"].fitness >= 3.9
