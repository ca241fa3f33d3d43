"""Pictures for ``program draw``: a program on its canvas, or the regions and edges that fired during a run."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import check_device
from volumetric.viz.figure import save_figure

if TYPE_CHECKING:
    from volumetric.program.layer.program_declaration import Program

SUFFIXES: Final = (".svg", ".png", ".pdf")
_ROWS: Final = 4096
"""Most rows that are drawn: the first ones."""


def draw(source: str, out: Path | None, *, rows: str | None, row: int, meters: str | None, device: str) -> int:
    """Draw a program file, or with rows the regions and edges that fired in a model, and print the picture's path."""
    from volumetric.program.describe import problems
    from volumetric.viz.program_drawing import draw_program

    path = out or Path(f"{Path(source).name.removesuffix('.json').removesuffix('.program')}.svg")
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out must end in one of {', '.join(SUFFIXES)}, got {path}")
    if rows is not None:
        return _firing(source, path, rows, row, meters, device)
    if row or meters is not None:
        raise UsageError("--row and --meters require a run", hint="add --in FILE with rows of a model")
    program = _program_of(source)
    with console.progress(f"drawing {source}…"):
        save_figure(draw_program(program, Path(source).name), path)
    for problem in problems(program):
        console.note(f"problem: {problem}")
    console.note(f"{len(program.canvas.regions):,} regions and {len(program.edges):,} edges drawn in {path}")
    return exits.OK


def _program_of(source: str) -> Program:
    """Return the program of a file, or the one at the end of a saved model."""
    from volumetric.loaders import open_model
    from volumetric.observe.firing import watchable
    from volumetric.program import read_program

    if not Path(source).is_dir():
        return read_program(source)
    spec = watchable(open_model(source).network)
    if spec is None:
        raise UsageError(f"{source} does not end with a program", hint="pass a program, such as x.program.json")
    return spec.program


def _firing(source: str, path: Path, rows: str, row: int, meters: str | None, device: str) -> int:
    """Run a model on rows, draw which regions and edges fired, save the picture in `path`, return the exit status."""
    from volumetric.cli.interrupts import StopRequest
    from volumetric.cli.run import rows_of, standardise_rows
    from volumetric.loaders import open_model
    from volumetric.observe.firing import fired
    from volumetric.viz.raster import draw_firing

    check_device(device)
    with console.progress(f"reading {source}…"):
        loaded = open_model(source)
    with ExitStack() as opened:
        chunks, batch = rows_of(rows, None, loaded, None, opened, StopRequest())
        if not 0 <= row < batch:
            raise UsageError(f"--row must be 0 to {batch - 1}, got {row}")
        parts, count = [], 0
        for chunk in chunks:
            parts.append(standardise_rows(loaded, chunk))
            count += chunk.count
            if count >= _ROWS:
                break
    if not count:
        raise UsageError(f"{rows} has no rows")
    x = {name: np.concatenate([part.x[name] for part in parts], 1)[row : row + 1, :_ROWS] for name in parts[0].x}
    marks = [np.zeros((batch, p.count), np.int64) if p.resets is None else p.resets for p in parts]
    resets = np.concatenate(marks, 1)[row : row + 1, :_ROWS]
    with console.progress(f"running {loaded.name} on {device}…"):
        firing = fired(loaded.network, x, params=loaded.params, device=device, resets=resets)
    names = None if meters is None else [] if meters == "none" else meters.split(",")
    save_figure(draw_firing(firing, loaded.name, meters=names), path)
    regions, edges = ((of > 0).mean() if of.size else 0.0 for of in (firing.regions, firing.edges))
    summary = f"{console.plural(firing.regions.shape[1], 'row')} drawn in {path}"
    console.note(f"{summary}: regions fired in {regions:.0%} of them, edges in {edges:.0%}")
    return exits.OK
