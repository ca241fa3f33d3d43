"""docs/models.md says what the code does, and computes what is published."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

PUBLISHED = {
    "SmolLM2-135M": 134_515_008,
    "Llama-3.2-1B": 1_235_814_400,
    "SmolLM2-1.7B": 1_711_376_384,
    "Gemma-2-2B": 2_614_341_888,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Qwen2.5-7B": 7_615_616_512,
    "Llama-3.1-8B": 8_030_261_248,
}
"""Parameters as the safetensors files of these models on the hub count them."""


@pytest.fixture(scope="module")
def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("models_page", ROOT / "scripts" / "models_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


def test_the_page_is_current(page: ModuleType) -> None:
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == page.document(), "run: make docs"


def test_sizes_come_from_the_networks_that_are_published(page: ModuleType) -> None:
    assert {name: page.parameters(page.network_of(values)) for name, values in page.SHAPES.items()} == PUBLISHED
