"""Bounds of what a page shows of a run of evolution; every cut is told in a sentence."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array

GENERATIONS: Final = 5_000
GENOMES: Final = 100_000
SPECIES: Final = 300
SNAPSHOTS: Final = 256
GENES: Final = 40_000
POINTS: Final = 60_000
OTHERS: Final = -1
"""Id of all species that are not shown one by one."""


def thin_generations(rows: list[dict[str, Any]], notes: list[str]) -> list[dict[str, Any]]:
    """Return at most `GENERATIONS` rows, evenly, with the first and the last."""
    if len(rows) <= GENERATIONS:
        return rows
    notes.append(f"Curves show {GENERATIONS:,} of {len(rows):,} generations.")
    chosen = np.linspace(0, len(rows) - 1, GENERATIONS).round().astype(np.int64)
    return [rows[i] for i in chosen.tolist()]


def thin_species(rows: list[dict[str, Any]], ended: dict[int, float], notes: list[str]) -> dict[str, Any] | None:
    """Return sizes and best fitness of the species of each generation as flat arrays; small ones together.

    ``at`` has the first entry of each generation, and the number of entries at its end.
    """
    parts = [row.get("species") for row in rows]
    if not any(part is not None for part in parts):
        return None
    ids = [np.zeros(0, np.int32) if part is None else part["ids"] for part in parts]
    sizes = [np.zeros(0, np.int32) if part is None else part["sizes"] for part in parts]
    best = [np.zeros(0, np.float32) if part is None else part["best"] for part in parts]
    every = np.concatenate(ids)
    known, inverse = np.unique(every, return_inverse=True)
    if len(known) > SPECIES:
        totals = np.bincount(inverse, weights=np.concatenate(sizes), minlength=len(known))
        largest = known[np.argsort(-totals, kind="stable")[:SPECIES]]
        notes.append(f"The {SPECIES} largest of {len(known):,} species are shown one by one, the others as one.")
        for i, one in enumerate(ids):
            alone = np.isin(one, largest)
            rest = sizes[i][~alone].sum()
            ids[i] = np.append(one[alone], [OTHERS] * bool(rest)).astype(np.int32)
            sizes[i] = np.append(sizes[i][alone], [rest] * bool(rest)).astype(np.int32)
            best[i] = np.append(best[i][alone], [np.nan] * bool(rest)).astype(np.float32)
    over = [number for number in known.tolist() if number in ended]
    return {
        "at": _starts(ids),
        "ids": np.concatenate(ids),
        "sizes": np.concatenate(sizes),
        "best": np.concatenate(best),
        "ended": np.array(over, np.int32),
        "endedBest": np.array([ended[number] for number in over], np.float64),
    }


def thin_births(
    births: list[dict[str, Array]], best: list[int], notes: list[str], *, most: int = GENOMES
) -> dict[str, Any]:
    """Return the genomes of all generations as flat arrays, about `most` of them.

    Beyond that only ancestors of the last generation stay, and of those in each generation the ones with the largest
    shares: a genome passes half of its share to each of its parents.
    """
    joined = {key: np.concatenate([one[key] for one in births]) for key in births[0]}
    counts = np.array([len(one["ids"]) for one in births], np.int32)
    starts = np.concatenate(([0], np.cumsum(counts)))
    total = int(starts[-1])
    kept_counts = counts
    if total > most:
        keep = _main_ancestors(joined, starts, best, most)
        kept_counts = np.add.reduceat(keep, starts[:-1]).astype(np.int32)
        joined = {key: values[keep] for key, values in joined.items()}
        notes.append(
            f"The genealogy shows {int(keep.sum()):,} of {total:,} genomes: ancestors of the last generation that "
            "passed on most, and the best of each generation."
        )
    return {
        "at": np.concatenate(([0], np.cumsum(kept_counts))).astype(np.int32),
        "population": counts,
        **joined,
    }


def _main_ancestors(
    joined: dict[str, Array], starts: NDArray[np.int64], best: list[int], limit: int
) -> NDArray[np.bool_]:
    ids, generations = joined["ids"], len(starts) - 1
    parents = _rows_of(ids, joined["parents"])
    share = np.zeros(len(ids))
    share[starts[-2] :] = 1.0
    for place in range(generations - 1, 0, -1):
        mine, theirs = share[starts[place] : starts[place + 1]], parents[starts[place] : starts[place + 1]]
        number = (theirs >= 0).sum(axis=1)
        for side in (0, 1):
            one = theirs[:, side]
            there = one >= 0
            np.add.at(share, one[there], mine[there] / number[there])
    share[_known_rows(ids, np.array(best, np.int64))] += len(ids)  # the best always stay
    keep = np.zeros(len(ids), np.bool_)
    most = max(1, limit // generations)
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        part = share[start:end]
        chosen = start + np.argsort(-part, kind="stable")[:most]
        keep[chosen[share[chosen] > 0]] = True
    return keep


def _rows_of(ids: Array, wanted: Array) -> NDArray[np.int64]:
    """Return the places of ids among ascending `ids`, -1 for those that are not there."""
    rows = np.searchsorted(ids, wanted).clip(0, len(ids) - 1)
    return np.where((wanted >= 0) & (ids[rows] == wanted), rows, -1)


def _known_rows(ids: Array, wanted: Array) -> NDArray[np.int64]:
    rows = _rows_of(ids, wanted)
    return np.unique(rows[rows >= 0])


def thin_champions(champions: list[Any], notes: list[str]) -> list[Any]:
    """Return at most `SNAPSHOTS` structures with `GENES` genes together, evenly, with the first and the last."""
    most = SNAPSHOTS
    while most > 1:
        places = np.linspace(0, len(champions) - 1, min(most, len(champions))).round().astype(np.int64)
        chosen = [champions[i] for i in np.unique(places).tolist()]
        if len(chosen) <= 2 or sum(len(one["nodes"]) + len(one["edges"]) for one in chosen) <= GENES:
            break
        most //= 2
    else:
        chosen = champions[-1:]
    if len(chosen) < len(champions):
        notes.append(f"{len(chosen)} of {len(champions):,} structures of the best genome are shown.")
    return chosen


def thin_fronts(rows: list[dict[str, Any]], notes: list[str]) -> dict[str, Any] | None:
    """Return the fronts of all generations as flat arrays, with at most `POINTS` points."""
    fronts = [row.get("front") for row in rows]
    there = [front for front in fronts if front is not None]
    if not there:
        return None
    width = there[0]["points"].shape[1]
    points = [
        np.zeros((0, width)) if one is None or one["points"].shape[1] != width else one["points"] for one in fronts
    ]
    genomes = [
        np.zeros(0, np.int32) if one is None or len(part) == 0 else one["genomes"]
        for part, one in zip(points, fronts, strict=True)
    ]
    step = max(1, -(-sum(map(len, points)) // POINTS))
    if step > 1:
        notes.append(f"Every {step}th point of the fronts is shown.")
        points, genomes = [one[::step] for one in points], [one[::step] for one in genomes]
    return {"at": _starts(points), "points": np.concatenate(points), "genomes": np.concatenate(genomes)}


def _starts(parts: list[Any]) -> NDArray[np.int32]:
    return np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int32)
