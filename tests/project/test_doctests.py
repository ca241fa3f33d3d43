"""Examples in docstrings give what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "volumetric"
RUN = """
import doctest, sys
from importlib import import_module

flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.exit(sum(doctest.testmod(import_module(name), optionflags=flags).failed for name in sys.argv[1:]))
"""


def test_examples_of_docstrings_run() -> None:
    """In a process of their own: some register a dtype or a loss."""
    modules = [
        ".".join(("volumetric", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    assert len(modules) > 10
    done = subprocess.run([sys.executable, "-c", RUN, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
