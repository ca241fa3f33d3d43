"""Reads the history of a run, JSON lines of `JsonLines`, as events; also while the run writes it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.base.growing_lines import GrowingLines
from volumetric.base.hints import path_hint
from volumetric.evolution.genealogy import KINDS, BestGenome, Births
from volumetric.evolution.reporters import (
    Evaluated,
    EvaluationFailed,
    Event,
    FrontEvaluated,
    Solved,
    SpeciesEnded,
    SpeciesFounded,
)

MOST_BYTES: Final = 1 << 30
_HINT: Final = "pass history.jsonl of an evolution run, or the directory that has it"
_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Id = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]
_Code = Annotated[int, msgspec.Meta(ge=0, lt=len(KINDS))]
_Number = float | str
_Text = Annotated[str, msgspec.Meta(max_length=1000)]
_Key = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
_ROLES: Final = ("input", "hidden", "output")


class _Named(msgspec.Struct):
    event: str


class _Evaluated(msgspec.Struct):
    generation: _Count
    best: _Number
    mean: _Number
    stdev: _Number
    worst: _Number
    best_genome: _Count
    best_hidden: _Count
    best_connections: _Count
    failures: _Count
    threshold: _Number
    species: dict[_Count, _Count] = {}


class _Failed(msgspec.Struct):
    generation: _Count
    genome: _Count
    reason: str


class _Founded(msgspec.Struct):
    generation: _Count
    species: _Count


class _Ended(msgspec.Struct):
    generation: _Count
    species: _Count
    best: _Number
    age: _Count


class _Solved(msgspec.Struct):
    generation: _Count
    genome: _Count
    fitness: _Number


class _Front(msgspec.Struct):
    generation: _Count
    front: Annotated[
        list[Annotated[list[_Number], msgspec.Meta(min_length=1, max_length=16)]], msgspec.Meta(min_length=1)
    ]
    genomes: list[_Count]
    failures: _Count


class _Births(msgspec.Struct):
    generation: _Count
    first: _Count
    parents: list[tuple[_Id, _Id]]
    kinds: list[_Code]
    species: list[_Id]
    fitness: list[_Number]
    sizes: list[tuple[_Count, _Count]]


class _Best(msgspec.Struct):
    generation: _Count
    genome: _Count
    fitness: _Number
    nodes: Annotated[list[tuple[_Key, _Text, _Text, float | None]], msgspec.Meta(max_length=1 << 16)]
    edges: Annotated[list[tuple[_Key, _Key, float | None, bool]], msgspec.Meta(max_length=1 << 18)]


_KINDS: Final[dict[str, tuple[type[msgspec.Struct], type[Any]]]] = {
    "Evaluated": (_Evaluated, Evaluated),
    "EvaluationFailed": (_Failed, EvaluationFailed),
    "SpeciesFounded": (_Founded, SpeciesFounded),
    "SpeciesEnded": (_Ended, SpeciesEnded),
    "Solved": (_Solved, Solved),
    "FrontEvaluated": (_Front, FrontEvaluated),
    "Births": (_Births, Births),
    "BestGenome": (_Best, BestGenome),
}


class HistoryLines:
    """Reads events of a file that may still grow.

    Parameters
    ----------
    path : the file
    """

    def __init__(self, path: Path) -> None:
        self._lines = GrowingLines(path)

    def replaced(self) -> bool:
        """Whether another file has taken the place of the one that was read, as a resumed run does.

        The next events are then its first ones.
        """
        return self._lines.replaced()

    def read(self) -> list[Event]:
        """Return the events of the complete lines since the last call; an incomplete last line waits for its end.

        Raises
        ------
        CheckpointError : the file cannot be read, is too large, or a line is damaged
        """
        path, events = self._lines.path, list[Event]()
        while lines := self._new_lines():
            for number, line in lines:
                try:
                    event = event_of(line)
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    raise CheckpointError(
                        f"{path}, line {number}, is not an event of an evolution run: {error}", hint=_HINT
                    ) from None
                events += [] if event is None else [event]
        return events

    def _new_lines(self) -> list[tuple[int, bytes]]:
        path = self._lines.path
        try:
            size = path.stat().st_size
            lines = self._lines.read() if size <= MOST_BYTES else []
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint=path_hint(path)) from None
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}", hint=_HINT) from None
        if size > MOST_BYTES:
            raise CheckpointError(
                f"{path} has {size:,} bytes, more than {MOST_BYTES:,}", hint="write it without genealogy"
            )
        return lines


def read_history(path: Path) -> list[Event]:
    """Return all events of a file of `JsonLines`.

    Raises
    ------
    CheckpointError : the file cannot be read, is too large, or a line is damaged
    """
    return HistoryLines(path).read()


def event_of(line: bytes) -> Event | None:
    """Return the event of a line of JSON; None for a kind that evolution does not have.

    Raises
    ------
    msgspec.MsgspecError, ValueError : the line is no event, or a damaged one
    """
    name = msgspec.json.decode(line, type=_Named).event
    if name not in _KINDS:
        return None
    form, kind = _KINDS[name]
    fields: dict[str, Any] = msgspec.structs.asdict(msgspec.json.decode(line, type=form))
    if kind is Births:
        return _births(fields)
    if kind is FrontEvaluated:
        rows = tuple(tuple(map(_number, row)) for row in fields["front"])
        if len({len(row) for row in rows}) != 1 or len(rows) != len(fields["genomes"]):
            raise ValueError("points of the front have different numbers of objectives, or no ids")
        return FrontEvaluated(**{**fields, "front": rows, "genomes": tuple(fields["genomes"])})
    if kind is BestGenome:
        return _best(fields)
    numeric = {field.name for field in dataclasses.fields(kind) if field.type == "float"}
    return kind(**{key: _number(value) if key in numeric else value for key, value in fields.items()})


def _number(value: float | str) -> float:
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise ValueError(f"{value!r:.40} is not a number")
    return float(value)


def _births(fields: dict[str, Any]) -> Births:
    count, first = len(fields["kinds"]), fields["first"]
    if any(len(fields[name]) != count for name in ("parents", "species", "fitness", "sizes")) or count == 0:
        raise ValueError("parents, kinds, species, fitness and sizes are not of the same genomes")
    parents = np.array(fields["parents"], np.int64).reshape(count, 2)
    if first + count >= 1 << 31 or (parents >= first).any():
        raise ValueError("a genome is not older than its child")
    return Births(
        generation=fields["generation"],
        first=first,
        parents=parents,
        kinds=np.array(fields["kinds"], np.uint8),
        species=np.array(fields["species"], np.int64),
        fitness=np.array([_number(value) for value in fields["fitness"]], np.float64),
        sizes=np.array(fields["sizes"], np.int64).reshape(count, 2),
    )


def _best(fields: dict[str, Any]) -> BestGenome:
    ids = {node[0] for node in fields["nodes"]}
    if len(ids) != len(fields["nodes"]) or any(node[1] not in _ROLES for node in fields["nodes"]):
        raise ValueError("nodes have equal ids, or an unknown role")
    if any(edge[0] not in ids or edge[1] not in ids for edge in fields["edges"]):
        raise ValueError("an edge has an end that is not a node")
    if any(value is not None and not math.isfinite(value) for *_, value in fields["nodes"]):
        raise ValueError("a bias is not finite")
    return BestGenome(
        generation=fields["generation"],
        genome=fields["genome"],
        fitness=_number(fields["fitness"]),
        nodes=tuple(fields["nodes"]),
        edges=tuple(fields["edges"]),
    )
