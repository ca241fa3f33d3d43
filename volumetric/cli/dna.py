"""The command ``dna``: the similarity of two models, layer by layer, across numeric types."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.options import OutputOptions
from volumetric.evolution.dna import DNA, extract_dna
from volumetric.evolution.dna_comparison import SHIFT, Comparison, compare
from volumetric.loaders import open_model
from volumetric.viz.heatmap import Heatmap


def dna(
    a: str,
    b: str,
    *,
    heatmap: Path | None = None,
    shift: float = SHIFT,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    offline: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Compare two models layer by layer, whatever their numeric types.

    Parameters
    ----------
    a : str
        The first model, see generate.
    b : str
        The second model.
    heatmap : path
        Also draw the similarities: .html, or .png, .svg, .pdf with matplotlib.
    shift : float
        Least similarity for a layer to count as moved to another place.
    json : bool
        Print one JSON object with everything.
    offline : bool
        Use local files only.
    """
    output.apply()
    signatures = [_read(source, offline=offline) for source in (a, b)]
    comparison = compare(*signatures, shift=shift)
    if heatmap is not None:
        overlap_map(comparison, f"{a} and {b}: {comparison.overall:.4f}").save(heatmap)
    if json:
        described = {
            "overall": comparison.overall,
            "overlaps": dict(comparison.overlaps),
            "shifts": [{"source": s.source, "target": s.target, "overlap": s.overlap} for s in comparison.shifts],
            "only_a": list(comparison.only_a),
            "only_b": list(comparison.only_b),
        }
        console.write_json(described, indent=2)
        return exits.OK
    kinds = {path: s.kind for one in signatures for path, s in one.signatures.items()}
    rows = [[path, kinds[path], f"{value:.4f}"] for path, value in comparison.overlaps.items()]
    rows += [[path, kinds[path], f"only in {side}"] for side, paths in _unmatched(comparison) for path in paths]
    console.table(("where", "layer", "similarity"), rows, right=("similarity",))
    if comparison.shifts:
        moved = [[s.source, s.target, kinds[s.source], f"{s.overlap:.4f}"] for s in comparison.shifts]
        console.table(("moved from", "to", "layer", "similarity"), moved, right=("similarity",))
    layers = console.plural(len(comparison.overlaps), "layer")
    console.write(f"overall {comparison.overall:.4f} over {layers} with weights in both\n")
    if abs(comparison.overall) < _UNRELATED:
        console.note("models that were trained separately have their hidden units in another order, and look unrelated")
    return exits.OK


_UNRELATED = 0.1
_NOTE = (
    "Cosine of the weights of each layer: 1 equal, -1 opposite, 0 unrelated, with an error of about 1/√n for n weights"
    ", at least 0.016. "
    "Hidden units in another order give 0 as well: models that were trained separately look unrelated."
)


def overlap_map(comparison: Comparison, title: str) -> Heatmap:
    """Arrange the similarities: a row for each cell ``z.y.x``, a column for each place inside it."""
    cells = [_split(path) for path in comparison.overlaps]
    rows = list(dict.fromkeys(cell for cell, _ in cells))
    columns = sorted({place for _, place in cells}, key=_numeric)
    values = np.full((len(rows), len(columns)), np.nan)
    for (cell, place), value in zip(cells, comparison.overlaps.values(), strict=True):
        values[rows.index(cell), columns.index(place)] = value
    return Heatmap(values=values, rows=rows, columns=columns, title=title, scale=(-1.0, 1.0), note=_NOTE)


def _numeric(place: str) -> list[tuple[bool, int, str]]:
    """Sort key of ``"2"``, ``"10"``, ``"10/0"``, ``"10/gate"``: numbers by value, before names."""
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in place.split("/")]


def _split(path: str) -> tuple[str, str]:
    cell, _, place = path.partition("/")
    z, y, x, slot = cell.split(".")
    return f"{z}.{y}.{x}", slot + (f"/{place}" if place else "")


def _unmatched(comparison: Comparison) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("A", comparison.only_a), ("B", comparison.only_b))


def _read(source: str, *, offline: bool) -> DNA:
    with console.progress(f"reading {source}…"):
        model = open_model(source, offline=offline)
        return extract_dna(model.network, model.params)
