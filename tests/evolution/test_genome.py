from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.evolution.genomes import genome
from volumetric.base.errors import SpecError
from volumetric.evolution import EvolutionConfig, Genome, GenomeConfig, Population
from volumetric.evolution.problems import xor


@pytest.mark.parametrize("recurrent", [False, True])
def test_json_round_trip_is_exact(recurrent: bool, tmp_path: Path) -> None:
    population = Population(EvolutionConfig(population=40, genome=GenomeConfig(recurrent=recurrent)), seed=3)
    population.evolve(xor(), generations=15)
    for number, original in enumerate(population.genomes):
        assert Genome.from_json(original.to_json()) == original
        if number == 0:
            original.save(tmp_path / "genome.json")
            assert Genome.load(tmp_path / "genome.json") == original


def test_genomes_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        genome([(0, 0, 2, 1.0, True)]).nodes["bias"] = 1


def _plain() -> dict[str, Any]:
    connections = [(0, 0, 2, 1.0, True), (1, 1, 2, 1.0, True), (2, 0, 3, 1.0, True), (3, 3, 2, 1.0, True)]
    return json.loads(genome(connections, hidden=[3]).to_json())


def _set(path: str, value: Any) -> dict[str, Any]:
    plain = _plain()
    *parents, last = path.split("/")
    target: Any = plain
    for key in parents:
        target = target[int(key) if key.isdigit() else key]
    target[int(last) if last.isdigit() else last] = value
    return plain


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "other"),
        ("version", 2),
        ("inputs", 0),
        ("inputs", -1),
        ("inputs", True),
        ("inputs", 1 << 40),
        ("surprise", 1),
        ("nodes", {}),
        ("nodes/0", 3),
        ("nodes/0/id", 5),
        ("nodes/1/id", 2),
        ("nodes/0/bias", "1"),
        ("nodes/0/bias", 10**400),
        ("nodes/0/activation", "none"),
        ("connections/0/innovation", 1),
        ("connections/0/innovation", -1),
        ("connections/0/innovation", 1 << 70),
        ("connections/0/source", 9),
        ("connections/0/target", 1),
        ("connections/1/source", 0),
        ("connections/2/source", 2),
        ("connections/0/enabled", 1),
    ],
)
def test_hostile_json(path: str, value: Any) -> None:
    assert Genome.from_json(json.dumps(_plain())).hidden == 1
    with pytest.raises(SpecError):
        Genome.from_json(json.dumps(_set(path, value)))


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 100_000, "\udcff", b"\xff"])
def test_what_is_no_genome(text: str | bytes) -> None:
    with pytest.raises(SpecError):
        Genome.from_json(text)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_weights_must_be_finite(number: str) -> None:
    with pytest.raises(SpecError):
        Genome.from_json(json.dumps(_plain()).replace('"weight": 1.0', f'"weight": {number}', 1))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read"):
        Genome.load(tmp_path / "none.json")


def test_a_cycle_needs_a_recurrent_genome() -> None:
    loop = [(0, 0, 2, 1.0, True), (1, 2, 3, 1.0, True), (2, 3, 2, 1.0, False)]
    text = genome(loop, hidden=[3]).to_json()
    with pytest.raises(SpecError, match="cycle"):
        Genome.from_json(text)
    assert Genome.from_json(genome(loop, hidden=[3], recurrent=True).to_json()).interface.recurrent


def test_equality() -> None:
    one = genome([(0, 0, 2, 1.0, True)])
    assert one == genome([(0, 0, 2, 1.0, True)])
    assert hash(one) == hash(genome([(0, 0, 2, 1.0, True)]))
    assert one != genome([(0, 0, 2, 1.0, False)])
    assert len({one, genome([(0, 0, 2, 1.0, True)]), genome([(0, 0, 2, np.pi, True)])}) == 2
