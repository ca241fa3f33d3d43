"""Who descends from whom: parents are the genomes that a child has its genes from, and files tell the same."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evolution.recorded_runs import SMALL, recorded_front, recorded_grids
from volumetric.base.errors import CheckpointError
from volumetric.evolution import (
    History,
    JsonLines,
    Population,
    evolve,
)
from volumetric.evolution.genealogy import KINDS, BestGenome, Births
from volumetric.evolution.history_file import HistoryLines, read_history
from volumetric.evolution.problems import xor

FIRST, CLONE, MUTATION, CROSSOVER = range(len(KINDS))


def births_of(history: History) -> list[Births]:
    return [event for event in history.events if isinstance(event, Births)]


def genes(genome: Any) -> set[int]:
    return set(genome.connections["innovation"].tolist())


def test_children_have_the_genes_of_their_parents() -> None:
    population, history, genomes = Population(SMALL, seed=2), History(genealogy=True), dict[int, Any]()

    def collect(event: Any) -> None:
        if event.event == "Evaluated":
            genomes.update(enumerate(population.genomes, event.generation * SMALL.population))

    population.evolve(xor(), generations=12, reporters=[history, collect])
    seen = set[int]()
    for births in births_of(history):
        assert births.species.tolist()
        assert births.fitness.max() <= 4
        newer = set[int]()
        for row, (first, second) in enumerate(births.parents.tolist()):
            child, kind = genomes[births.first + row], births.kinds[row]
            assert births.sizes[row].tolist() == [child.hidden, child.connections["enabled"].sum()]
            assert (first < 0) == (births.generation == 0) == (kind == FIRST)
            if kind == CLONE:
                assert child == genomes[first]
                assert second < 0
            elif kind == CROSSOVER:
                assert second >= 0
                assert first // SMALL.population == second // SMALL.population == births.generation - 1
            parents = [genomes[one] for one in (first, second) if one >= 0]
            inherited = set[int]().union(*map(genes, parents))
            newer |= genes(child) - inherited if parents else genes(child)
        assert not newer & seen, "a gene that is of neither parent is new in this generation"
        seen |= newer
    kinds = np.concatenate([births.kinds for births in births_of(history)])
    assert set(kinds.tolist()) == {FIRST, CLONE, MUTATION, CROSSOVER}


def test_only_reporters_that_ask_get_genomes() -> None:
    plain, asking, lines = History(), History(genealogy=True), list[str]()
    Population(SMALL, seed=1).evolve(xor(), 3, reporters=[plain, asking, lambda event: lines.append(event.event)])
    assert not {"Births", "BestGenome"} & {event.event for event in plain.events}
    assert not {"Births", "BestGenome"} & set(lines)
    assert [event for event in asking.events if event.event == "Evaluated"] == plain.generations
    assert len(births_of(asking)) == 3
    assert str(births_of(asking)[0]) == "generation 0: 30 genomes, 30 by first"


def test_the_best_genome_is_told_when_it_changes_and_again_to_other_reporters() -> None:
    population, first, again = Population(SMALL, seed=1), History(genealogy=True), History(genealogy=True)
    population.evolve(xor(), 8, reporters=[first])
    population.evolve(xor(), 2, reporters=[again])
    best = [event for event in first.events if isinstance(event, BestGenome)]
    assert all(a.nodes != b.nodes or a.edges != b.edges for a, b in itertools.pairwise(best))
    assert any(isinstance(event, BestGenome) for event in again.events)
    result = evolve("xor", population=40, generations=4, seed=1, genealogy=True)
    last = [event for event in result.events if isinstance(event, BestGenome)][-1]
    roles = [node[1] for node in last.nodes]
    assert (roles.count("input"), roles.count("output")) == (2, 1)
    assert [edge[2] for edge in last.edges] == result.champion.connections["weight"].tolist()


def test_objectives_and_grids_have_a_genealogy_too() -> None:
    births = births_of(recorded_front(6)[1])
    assert [one.first for one in births] == list(range(0, 72, 12))
    assert all((one.parents < one.first).all() and (one.species == -1).all() for one in births)
    alive = {int(parent) for one in births for parent in one.parents.ravel() if parent >= 0}
    assert any(parent // 12 < births[-1].generation - 1 for parent in births[-1].parents[:, 0]), "survivors breed later"
    assert alive <= set(range(72))

    for algorithm in ("neat", "elites"):
        grids, history = recorded_grids(algorithm)
        last = births_of(history)[-1]
        assert (last.parents[:, 0] // 8 == 1).all()
        assert last.sizes.tolist() == [list(grids.size_of(genome)) for genome in grids.genomes]
        best = next(event for event in history.events if isinstance(event, BestGenome))
        assert [node[1] for node in best.nodes].count("input") == 1
        assert {edge[0] for edge in best.edges} <= {node[0] for node in best.nodes}


def test_a_file_tells_what_memory_tells(tmp_path: Path) -> None:
    path, history = tmp_path / "history.jsonl", History(genealogy=True)
    population = Population(SMALL, seed=1)
    population.evolve(xor(), 4, reporters=[history, JsonLines(path, genealogy=True)])
    population.evolve(xor(), 2, reporters=[history, JsonLines(path, genealogy=True)])  # a run that goes on
    events = read_history(path)
    assert [event.event for event in events] == [event.event for event in history.events]
    for mine, theirs in zip(events, history.events, strict=True):
        if isinstance(mine, Births) and isinstance(theirs, Births):
            for name in Births.__slots__:
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        else:
            assert mine == theirs


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    Population(SMALL, seed=1).evolve(xor(), 3, reporters=[JsonLines(path, genealogy=True)])
    text = path.read_bytes()
    half = text.index(b"\n", len(text) // 2) - 5
    path.write_bytes(text[:half])
    lines = HistoryLines(path)
    before = lines.read()
    assert lines.read() == []
    with path.open("ab") as file:
        file.write(text[half:])
    after = lines.read()
    assert len(before) + len(after) == text.count(b"\n")
    assert not lines.replaced()
    path.write_bytes(text[: text.index(b"\n") + 1])
    assert lines.replaced()
    assert [event.event for event in lines.read()] == [before[0].event]


EVALUATED = {
    "event": "Evaluated", "generation": 0, "best": 1.0, "mean": 0.5, "stdev": 0.1, "worst": 0.0, "best_genome": 0,
    "best_hidden": 0, "best_connections": 2, "species": {"0": 4}, "threshold": 3.0, "failures": 0,
}  # fmt: skip
BORN = {
    "event": "Births", "generation": 1, "first": 2, "parents": [[0, 1], [1, -1]], "kinds": [3, 2], "species": [0, 0],
    "fitness": [1.0, "nan"], "sizes": [[0, 2], [0, 2]],
}  # fmt: skip
FRONT = {"event": "FrontEvaluated", "generation": 0, "front": [[1, 2], [3, 0]], "genomes": [0, 1], "failures": 0}
BEST = {
    "event": "BestGenome",
    "generation": 0,
    "genome": 0,
    "fitness": 1.0,
    "nodes": [[0, "input", "in", None]],
    "edges": [],
}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2, is not an event"),
        ("[1]", "line 2"),
        ("[" * 5000, "line 2"),
        (json.dumps({**EVALUATED, "best": "much"}), "is not a number"),
        (json.dumps({**EVALUATED, "generation": -1}), "generation"),
        (json.dumps({**EVALUATED, "species": {"-3": 1}}), "species"),
        (json.dumps({**EVALUATED, "best_genome": 1 << 40}), "best_genome"),
        (json.dumps({**BORN, "parents": [[0, 2], [1, -1]]}), "not older than its child"),
        (json.dumps({**BORN, "kinds": [3]}), "not of the same genomes"),
        (json.dumps({**BORN, "kinds": [3, 9]}), "kinds"),
        (json.dumps({**BORN, "first": (1 << 31) - 1}), "not older"),
        (json.dumps({**BEST, "nodes": [[0, "king", "", None]]}), "role"),
        (json.dumps({**BEST, "edges": [[0, 7, 1.0, True]]}), "not a node"),
        (json.dumps({**BEST, "nodes": [[0, "input", "x" * 2000, None]]}), "length"),
        (json.dumps({**FRONT, "front": [[1, 2], [3]]}), "front"),
    ],
)  # fmt: skip
def test_damaged_lines_are_refused_with_their_number(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps(EVALUATED) + "\n" + line + "\n")
    with pytest.raises(CheckpointError, match=sentence):
        read_history(path)


def test_unknown_kinds_and_an_unfinished_line_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f'{json.dumps(EVALUATED)}\n{{"event": "Later"}}\n{json.dumps(BORN)}\n{{"event": "Eval')
    events = read_history(path)
    assert [event.event for event in events] == ["Evaluated", "Births"]
    assert isinstance(events[1], Births)
    assert np.isnan(events[1].fitness[1])
    with pytest.raises(CheckpointError, match="cannot read"):
        read_history(tmp_path / "none.jsonl")
