#!/usr/bin/env python
"""Run the notebooks of examples/notebooks in a kernel, and write what their cells return.

    python scripts/run_notebooks.py [NAME …]

Each runs in a directory of its own, which is removed. Ids of cells count, and lines of work that depends on caches are
left out, so that two runs differ in their times alone.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
HOME = ROOT / "examples" / "notebooks"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

WORK = re.compile(r"(?:reading weights|compil(?:ed|ing)) ?")
"""Lines of work that a machine does once, or that another does too fast to show."""


def run(path: Path, directory: str) -> Any:
    """Run a notebook in a directory, and return it with its outputs."""
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book,
        timeout=280,
        kernel_name="python3",
        resources={"metadata": {"path": directory}},
        coalesce_streams=True,
        record_timing=False,
    )
    client.execute()
    return book


def tidy(book: Any) -> Any:
    """Leave out what differs from run to run, and from machine to machine."""
    book.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number}"
        cell.metadata = nbformat.from_dict({})
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not WORK.match(_text_of(output))]
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            if "transient" in output:
                del output["transient"]
    return book


def _text_of(output: Any) -> str:
    return str(output.get("data", {}).get("text/plain", ""))


def main(names: list[str]) -> None:
    """Run the notebooks with these names, or all."""
    for path in sorted(HOME.glob("*.ipynb")):
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as directory:
            book = tidy(run(path, directory))
        nbformat.write(book, path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
