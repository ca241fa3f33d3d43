"""Fabrics among what evolves: DNA by node, mutation, crossover, splicing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.evolution.grids.test_grids import WILD, first
from tests.fabric.dynamic_cases import CASES, PLAIN
from tests.fabric.test_layer import alone
from volumetric import fabric
from volumetric.base.errors import VolumetricError
from volumetric.cli import main
from volumetric.evolution import compare, extract_dna
from volumetric.evolution.grids.grid_crossover import crossover
from volumetric.evolution.grids.grid_genome import GridInnovations
from volumetric.evolution.grids.grid_mutation import mutate
from volumetric.evolution.splice import SpliceConfig, splice
from volumetric.fabric.layer import cell_populations
from volumetric.fabric.layer.cell_populations import GRU, LSTM, RNN, Axon, Cell, CellPopulation
from volumetric.layers import SLSTM, Dense
from volumetric.loaders.native_checkpoint import save_native
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.network.weight_store import Params, WeightStore


def likeness(one: tuple[Network, Params], other: tuple[Network, Params]) -> float:
    return compare(extract_dna(*one), extract_dna(*other)).overall


CELLS = {"slstm": cell_populations.SLSTM(16, 2), "axon": Axon(16), "lstm": LSTM(16), "gru": GRU(16), "rnn": RNN(16)}


@pytest.mark.thorough
@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_fabrics_that_know_nothing_of_each_other_are_not_alike(cell: Cell) -> None:
    for share in ("none", "all"):
        spec = replace(PLAIN, populations=(CellPopulation("core", cell, None, share),), public=16, message=16)
        network = alone(spec)
        one = initialise(network)
        assert abs(likeness((network, one), (network, initialise(network, 1)))) < 0.1
        moved = Params({k: WeightStore.from_array(s.values() + np.float32(0.003)) for k, s in one.items()})
        assert likeness((network, one), (network, moved)) > 0.97
        network.morph(moved, "int8")
        assert likeness((network, one), (network, moved)) > 0.97


def test_fresh_forget_gates_say_nothing() -> None:
    layer = SLSTM(embed_dim=8, num_heads=2, kernel_size=0)
    network = Network(grid=Grid(1), layers={Coord(0): layer}, input_shape=(8,), input_dtype="float32")
    assert abs(likeness((network, initialise(network)), (network, initialise(network, 1)))) < 0.2


@pytest.mark.parametrize("name", ["plain", "mixed", "shared"])
def test_a_masked_node_is_as_one_that_is_not_there(name: str) -> None:
    spec, gone = CASES[name]
    network = alone(spec)
    params = initialise(network)
    masked = (network, fabric.mask(network, params, gone))
    removed = fabric.remove(network, params, gone)
    assert 0.6 < likeness((network, params), masked) < 0.97
    assert likeness((network, params), removed) == likeness((network, params), masked)
    assert likeness(masked, removed) == pytest.approx(1, abs=1e-6)
    assert likeness((network, params), (network, params)) == pytest.approx(1, abs=1e-6)


def test_the_command_compares_fabrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, gone = CASES["plain"]
    network = alone(spec)
    params = initialise(network)
    save_native(tmp_path / "a", network, params)
    save_native(tmp_path / "b", *fabric.remove(network, params, gone))
    assert main(["dna", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0.6 < result["overall"] < 0.97
    odd = Params({k: s for k, s in params.items() if k != "0.0.0.0/living"})
    with pytest.raises(VolumetricError, match=r"living of fabric at 0\.0\.0\.0 has no weight"):
        extract_dna(network, odd)


@pytest.mark.thorough
def test_networks_with_a_fabric_evolve() -> None:
    layers = {
        Coord(0): Dense(in_features=2, out_features=3),
        Coord(1): replace(PLAIN, dynamic=True),
        Coord(2): Dense(in_features=2, out_features=2),
    }
    network = Network(grid=Grid(3, 2, 2), layers=layers, input_shape=(2,), input_dtype="float32")
    x = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
    innovations, survivors = GridInnovations(next=100), 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        one, other = first(network), first(network, 1)
        for _ in range(4):
            one, other = mutate(one, WILD, innovations, rng), mutate(other, WILD, innovations, rng)
            child = crossover(one, other, rng)
            for genome in (one, child):
                assert np.isfinite(genome.predict(x)).all()
                living = [store for key, store in genome.params.items() if key.endswith("living")]
                assert all(store.values().all() for store in living)
                survivors += len(living)
            splice((one.network, one.params), (other.network, other.params))
    assert survivors > 8


def test_splicing_keeps_the_nodes_of_the_first() -> None:
    spec, gone = CASES["plain"]
    network = alone(spec)
    one, other = fabric.mask(network, initialise(network), gone), initialise(network, 1)
    for mode in ("blend", "point", "uniform"):
        child = splice((network, one), (network, other), SpliceConfig(mode=mode))
        assert fabric.living(network, child.params).tolist() == fabric.living(network, one).tolist()
        assert (child.params["0.0.0.0/slot"].values() != one["0.0.0.0/slot"].values()).any()
    less, some = fabric.remove(network, other, (4,))
    more, rest = fabric.remove(network, other, (5,))
    [report] = splice((less, some), (more, rest)).report
    assert report.reason == "parent B lacks other nodes"
