from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetric.base.errors import SpecError
from volumetric.evolution import EvolutionConfig
from volumetric.evolution.evolution_job import job_from


def test_every_key_has_a_default() -> None:
    assert EvolutionConfig.from_dict({}) == EvolutionConfig()


def test_round_trip_through_plain_values() -> None:
    config = EvolutionConfig.from_dict({"population": 50, "mutation": {"activations": ["tanh"], "weight_power": 1}})
    assert EvolutionConfig.from_dict(config.to_dict()) == config
    assert config.mutation.activations == ("tanh",)


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('population = 40\nfitness_threshold = 3.9\n[genome]\nrecurrent = true\nactivation = "tanh"\n')
    config = EvolutionConfig.load(path)
    assert (config.population, config.fitness_threshold, config.genome.recurrent) == (40, 3.9, True)


@pytest.mark.parametrize("text", ["population = = 3", "\xff\xfe\x00"])
def test_damaged_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError, match="not valid TOML"):
        EvolutionConfig.load(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read"):
        EvolutionConfig.load(tmp_path / "none.toml")


def test_unknown_key_has_a_suggestion() -> None:
    with pytest.raises(SpecError, match="mutation: unknown key 'weight_powr'") as caught:
        EvolutionConfig.from_dict({"mutation": {"weight_powr": 1.0}})
    assert caught.value.hint == "did you mean 'weight_power'?"


@pytest.mark.parametrize(
    "values",
    [
        {"population": 1},
        {"population": True},
        {"population": 1.5},
        {"population": "150"},
        {"population": None},
        {"genome": 3},
        {"genome": {"inputs": 0}},
        {"genome": {"activation": "sigmoidal"}},
        {"genome": {"recurrent": 1}},
        {"fitness_criterion": "best"},
        {"fitness_criterion": ["max"]},
        {"fitness_threshold": float("nan")},
        {"mutation": {"add_node": 1.1}},
        {"mutation": {"add_node": -0.1}},
        {"mutation": {"weight_rate": 0.9, "weight_replace": 0.2}},
        {"mutation": {"weight_min": 1.0, "weight_max": 0.0}},
        {"mutation": {"weight_power": float("inf")}},
        {"mutation": {"activations": []}},
        {"mutation": {"activations": "tanh"}},
        {"mutation": {"aggregations": ["sum", 3]}},
        {"species": {"threshold": 0}},
        {"species": {"elitism": 0}},
        {"reproduction": {"survival": 2}},
        {1: 2},
    ],
)
def test_hostile_values(values: dict[Any, Any]) -> None:
    with pytest.raises(SpecError):
        EvolutionConfig.from_dict(values)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=5,
)


@pytest.mark.thorough
@given(
    st.dictionaries(st.sampled_from(["population", "genome", "mutation", "species", "seed"]), json_values, max_size=3)
)
def test_no_value_escapes_as_another_error(values: dict[str, Any]) -> None:
    try:
        EvolutionConfig.from_dict(values)
    except SpecError:
        return


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"population": 10**9}, "population must be at most 1,000,000", "some hundred"),
        ({"population": 10**20}, "population must be at most 1,000,000", "some hundred"),
        ({"genome": {"inputs": 10**9}}, "genome.inputs must be at most", "memory"),
        (
            {"genome": {"inputs": 10**4, "outputs": 10**3}},
            "10,000,000 connections in every genome",
            "initial_connections",
        ),
    ],
)
def test_sizes_that_fit_no_memory_are_refused(values: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        EvolutionConfig.from_dict(values)
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ({"algorithm": "neat"}, "algorithm: unknown name 'neat'", "one of classic, grid, elites"),
        ({"algorithm": "elite"}, "unknown name 'elite'", "did you mean 'elites'"),
        ({"workers": 10**9}, "workers must be at most", "core"),
    ],
)
def test_settings_of_a_run_list_what_there_is(table: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        job_from(table)
    assert hint in (caught.value.hint or "")
