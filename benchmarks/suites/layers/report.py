"""Rows of the layer benchmark as a Markdown table, CSV or JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from volumetric.bench.tables import render_table

_HEAD = "layer | shape | role | ms (least–most) | rate | of limit | torch ms | times torch"
_COMPUTE_BOUND = 10.0  # operations a byte from which on the rate of products says more than that of bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """One layer in one role.

    Attributes
    ----------
    role : ``"forward"``, or ``"train"``: forward and backward together
    seconds, least, most : median and extremes of the repetitions
    flops, moved : operations and bytes of a run, at least
    of_limit : the better of the two rates over what this machine reaches in a probe; above 1 where caches help
    torch : median seconds of PyTorch in the same run, or None without it
    """

    layer: str
    shape: str
    role: str
    device: str
    seconds: float
    least: float
    most: float
    flops: float
    moved: float
    of_limit: float
    torch: float | None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as PyTorch."""
        return None if self.torch is None else self.torch / self.seconds

    @property
    def rate(self) -> str:
        """GFLOP/s of a layer that computes a lot for each byte, else GB/s."""
        if self.flops > _COMPUTE_BOUND * self.moved:
            return f"{self.flops / self.seconds / 1e9:.1f} GFLOP/s"
        return f"{self.moved / self.seconds / 1e9:.1f} GB/s"


def geometric_mean(rows: Sequence[LayerRow]) -> float | None:
    """Return the geometric mean of the ratios to PyTorch, or None without any."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios)) if ratios else None


def render_layers(rows: Sequence[LayerRow], form: str) -> str:
    """Write `rows`; ends with a newline. Raises `SpecError` for an unknown format."""
    cells: list[list[str]] = []
    for row in rows:
        times = f"{1e3 * row.seconds:.3g} ({1e3 * row.least:.3g}–{1e3 * row.most:.3g})"
        peer = "-" if row.torch is None else f"{1e3 * row.torch:.3g}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        cells.append([row.layer, row.shape, row.role, times, row.rate, f"{100 * row.of_limit:.0f} %", peer, ratio])
    text = render_table([{**asdict(row), "ratio": row.ratio} for row in rows], _HEAD, cells, form, left=3)
    mean, ratios = geometric_mean(rows), [row.ratio for row in rows if row.ratio is not None]
    if form == "md" and mean is not None:
        text += f"\nGeometric mean {mean:.2f} times PyTorch over {len(ratios)} rows; the least is {min(ratios):.2f}.\n"
    return text
