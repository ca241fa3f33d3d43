"""Make all mistakes of `tests/project/mistakes`, and print what the package answers to each, for reading at once.

python -m benchmarks mistakes
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

import cyclopts

from tests.project.mistakes import all_mistakes
from tests.project.mistakes.attempt import attempt, prepare
from volumetric.cli import console


def main(*words: str, kind: Literal["train", "evolve", "python", "command"] | None = None) -> None:
    """Print mistakes and answers.

    Parameters
    ----------
    words : only mistakes with one of these words in their name
    kind : only mistakes in files for train or evolve, in Python, or on the command line
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    chosen = [
        m for m in all_mistakes() if kind in (None, m.kind) and (not words or any(word in m.name for word in words))
    ]
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for mistake in chosen:
            answer = attempt(mistake, Path(folder))
            lines = [f"{mistake.kind}: {mistake.name}", *(f"    {line}" for line in mistake.text.strip().splitlines())]
            lines.append(f"  {'warning' if mistake.warns else 'error'}: {answer.message}")
            if not mistake.warns:
                lines.append(f"  hint: {answer.hint}")
            console.write("\n".join([*lines, "", ""]))
    console.write(f"{len(chosen)} mistakes\n")


if __name__ == "__main__":
    cyclopts.run(main)
