"""Comparison of two DNAs: similarity of layers by position, and moved layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.base.text_table import TextTable
from volumetric.evolution.dna import DNA, Signature

SHIFT = 0.8
"""Minimum similarity of a layer that moved to another position."""
_TIE = 1e-5
"""Tolerance of similarities: above the rounding error of float32 sums of `SKETCH` products."""


_BAR = 20
"""Characters of a bar of similarity 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A layer of the first network that is at another position in the second."""

    source: str
    target: str
    overlap: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of `compare`.

    Attributes
    ----------
    overlaps : path → similarity, -1 … 1, of the layers at the same position; 0 if kinds or shapes differ. Layers that
        are neutral in both networks are excluded
    overall : mean over all positions of either network, 0 for positions without a counterpart; 1 for two networks
        without weights
    shifts : moved layers, by path
    only_a, only_b : positions with weights that the other network does not have
    """

    overlaps: Mapping[str, float]
    overall: float
    shifts: tuple[Shift, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]

    def summary(self) -> TextTable:
        """Return the table that ``print`` shows: the similarity of each layer, a bar, and where it moved to."""
        moved = {shift.source: f"→ {shift.target} ({shift.overlap:.3f})" for shift in self.shifts}
        rows = [
            (path, f"{value:.3f}", "█" * round(_BAR * max(value, 0.0)), moved.get(path, ""))
            for path, value in self.overlaps.items()
        ]
        sides = (("first", self.only_a), ("second", self.only_b))
        rows += [(path, "", "", moved.get(path, f"only in the {side}")) for side, paths in sides for path in paths]
        return TextTable(
            title=f"similarity {self.overall:.3f}",
            columns=("layer", "similarity", "", "moved"),
            rows=tuple(rows),
            right=frozenset({"similarity"}),
        )

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()


def compare(a: DNA, b: DNA, *, shift: float = SHIFT) -> Comparison:
    """Compare two networks layer by layer.

    A shift is reported if the most similar layer of `b` is at another position, its similarity exceeds `shift` and that
    of the layer of `b` at the same position, and no layer of `a` is more similar to it. So every layer takes part in at
    most one shift, and repeated equal layers do not count as moved. Neutral layers never shift.

    Raises
    ------
    SpecError
        `shift` is not between 0 and 1.
    """
    if not 0 <= shift <= 1:
        raise SpecError(f"shift must be between 0 and 1, got {shift}")
    overlaps: dict[str, float] = {}
    for path, signature in a.signatures.items():
        other = b.signatures.get(path)
        similarity = None if other is None else signature.similarity(other)
        if similarity is not None:
            overlaps[path] = similarity
    only_a, only_b = _only_in_first(a, b), _only_in_first(b, a)
    places = len(overlaps) + len(only_a) + len(only_b)
    return Comparison(
        overlaps=overlaps,
        overall=sum(overlaps.values()) / places if places else 1.0,
        shifts=tuple(_shifts(a, b, overlaps, shift)),
        only_a=only_a,
        only_b=only_b,
    )


def similarity_matrix(population: Sequence[DNA]) -> NDArray[np.float64]:
    """Return the overall similarity of every pair, ``[n, n]``, symmetric with ones on the diagonal."""
    size = len(population)
    matrix = np.ones((size, size))
    for i in range(size):
        for j in range(i):
            matrix[i, j] = matrix[j, i] = compare(population[i], population[j]).overall
    return matrix


def _only_in_first(a: DNA, b: DNA) -> tuple[str, ...]:
    return tuple(path for path, s in a.signatures.items() if path not in b.signatures and not s.neutral)


def _shifts(a: DNA, b: DNA, overlaps: Mapping[str, float], threshold: float) -> list[Shift]:
    shifts: dict[str, Shift] = {}
    theirs = _classes(b)
    for key, mine in _classes(a).items():
        paths = theirs.get(key)
        if paths is None:
            continue
        scores = _vectors(a, mine) @ _vectors(b, paths).T
        best_of_a, best_of_b = scores.max(axis=1), scores.max(axis=0)
        for i, path in enumerate(mine):
            j = int(scores[i].argmax())
            score = float(min(scores[i, j], 1.0))
            here = max(overlaps.get(path, -1.0), overlaps.get(paths[j], -1.0)) if path != paths[j] else 1.0
            # Neither side may have an equally good match: a tie at the same position means that nothing moved.
            if score > threshold and score > here + _TIE and scores[i, j] >= max(best_of_a[i], best_of_b[j]):
                shifts[path] = Shift(source=path, target=paths[j], overlap=score)
    return [shifts[path] for path in a.signatures if path in shifts]


def _classes(dna: DNA) -> dict[tuple[str, tuple[Shape, ...]], list[str]]:
    """Group the paths of non-neutral layers by kind and shapes."""
    groups: dict[tuple[str, tuple[Shape, ...]], list[str]] = {}
    for path, signature in dna.signatures.items():
        if not signature.neutral:
            groups.setdefault((signature.kind, signature.shapes), []).append(path)
    return groups


def _vectors(dna: DNA, paths: Sequence[str]) -> NDArray[np.float32]:
    signatures: list[Signature] = [dna.signatures[path] for path in paths]
    return np.stack([signature.vector for signature in signatures])
