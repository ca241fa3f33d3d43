"""Nodes of fabrics that are taken out and put in: parameters and states follow those that stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.fabric.dynamic_cases import CASES, PLAIN, cut, given, left, masked
from tests.fabric.test_dynamic_streams import params_of
from tests.fabric.test_layer import alone
from tests.oracles import oracle
from volumetric import fabric
from volumetric.base.errors import SpecError
from volumetric.cli import main
from volumetric.clocked import Clocked
from volumetric.fabric.layer.edge_rules import ExplicitEdges, LocalRadius
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries
from volumetric.layers import Dense, Sequential
from volumetric.loaders.native_checkpoint import save_native
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid


def only(network: Network) -> Fabric:
    [spec] = network.layers.values()
    assert isinstance(spec, Fabric)
    return spec


@pytest.mark.parametrize("name", CASES)
def test_removed_nodes_leave_what_masked_ones_leave(name: str) -> None:
    spec, gone = CASES[name]
    p, _ = given(spec)
    params = params_of(p)
    if name == "free":
        with pytest.raises(SpecError, match="output 'y' could no longer depend on any input"):
            fabric.remove(alone(spec), params, gone)
        return
    network, some = fabric.remove(alone(spec), params, gone)
    assert only(network) == replace(cut(spec, gone), dynamic=True)
    assert fabric.living(network, some).tolist() == [n for n in sorted(spec.facts.order.tolist()) if n not in gone]
    for key, value in left(spec, p, gone).items():
        np.testing.assert_array_equal(some[f"0.0.0.0/{key}"].values(), value.astype(np.float32))
    back, whole = fabric.add(network, some, gone, seed=5)
    assert only(back) == spec
    fresh = initialise(alone(spec), 5)
    for key, of in param_entries(spec).items():
        value, new = whole[f"0.0.0.0/{key}"].values(), fresh[f"0.0.0.0/{key}"].values()
        there = np.broadcast_to(of.mask(of.entries_of(np.array(gone)), value), value.shape)
        np.testing.assert_array_equal(value[there], new[there])
        np.testing.assert_array_equal(value[~there], p[key].astype(np.float32)[~there])


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["reference", "cpu"])
def test_states_follow_the_nodes_that_stay(way: str) -> None:
    spec, gone = CASES["mixed"]
    p, x = given(spec, 9)
    x = x.astype(np.float32)
    network, params = alone(spec), params_of(p)
    stream = device(way).stream(network, params, batch=2)
    stream.run(x[:, :3])
    stream.mask((*gone, 5))
    stream.run(x[:, 3:5])
    less, some = fabric.remove(network, params, gone)
    other = stream.migrate(less, some)
    assert other.living_nodes().tolist() == stream.living_nodes().tolist()
    np.testing.assert_allclose(np.asarray(other.run(x[:, 5:7])), np.asarray(stream.run(x[:, 5:7])), atol=1e-6)
    again = other.migrate(network, params)
    assert again.living_nodes().tolist() == sorted([*stream.living_nodes().tolist(), *gone])
    stream.unmask(gone)
    np.testing.assert_allclose(np.asarray(again.run(x[:, 7:])), np.asarray(stream.run(x[:, 7:])), atol=1e-6)
    fresh = device(way).stream(network, params, batch=2).migrate(less, some)
    assert np.isfinite(np.asarray(fresh.run(x))).all()


def test_machines_go_on_with_other_nodes() -> None:
    spec, gone = CASES["mixed"]
    p, x = given(spec, 9)
    x = x.astype(np.float32)
    network, params = alone(spec), params_of(p)
    stream = device("reference").stream(Clocked(network=network), params, batch=2)
    stream.run(x[:, :3])
    stream.mask((*gone, 5))
    stream.run(x[:, 3:5])
    less, some = fabric.remove(network, params, gone)
    other = stream.migrate(Clocked(network=less), some)
    assert (other.living_nodes().tolist(), other.position) == (stream.living_nodes().tolist(), 5)
    np.testing.assert_allclose(np.asarray(other.run(x[:, 5:7])), np.asarray(stream.run(x[:, 5:7])), atol=1e-6)
    again = other.migrate(Clocked(network=network), params)
    stream.unmask(gone)
    np.testing.assert_allclose(np.asarray(again.run(x[:, 7:])), np.asarray(stream.run(x[:, 7:])), atol=1e-6)
    wide = alone(replace(spec, populations=CASES["dense"][0].populations, outputs=CASES["plain"][0].outputs))
    with pytest.raises(SpecError, match="streams cannot continue in the other network: its state"):
        stream.migrate(Clocked(network=wide), initialise(wide))


def test_what_slow_edges_ask_for_follows() -> None:
    slow = ExplicitEdges(((5, 4),), 1.0, 4)
    spec = replace(PLAIN, connectivity=(slow, ExplicitEdges(((7, 8),), 1.0, 3), LocalRadius(1.0)), dynamic=True)
    assert (spec.remembered, cut(spec, (4,)).remembered, cut(spec, (4, 8)).remembered) == (3, 2, 0)
    p, x = given(spec, 8)
    x = x.astype(np.float32)
    network, params = alone(spec), params_of(p)
    for gone in ((4,), (4, 8)):
        stream = device("reference").stream(network, params, batch=2)
        stream.run(x[:, :4])
        stream.mask(gone)
        stream.run(x[:, 4:5])
        other = stream.migrate(*fabric.remove(network, params, gone))
        np.testing.assert_allclose(np.asarray(other.run(x[:, 5:6])), np.asarray(stream.run(x[:, 5:6])), atol=1e-6)
        back = other.migrate(network, params)
        stream.unmask(gone)
        if gone == (4,):  # of what edges with a delay of 4 would read no more than 3 rows were kept
            np.testing.assert_allclose(np.asarray(back.run(x[:, 6:7])), np.asarray(stream.run(x[:, 6:7])), atol=1e-6)


def test_a_split_node_has_the_parameters_of_the_other() -> None:
    spec, _ = CASES["mixed"]
    p, x = given(spec)
    network = alone(spec)
    params = fabric.mask(network, params_of(p), (5, 10))
    made = fabric.split(network, fabric.split(network, params, 4, 5), 9, 10)
    assert fabric.living(network, made).tolist() == list(range(12))
    values = {key[8:]: store.values() for key, store in made.items()}
    for name in ("cells.p.ih.weight", "cells.p.bias"):
        np.testing.assert_array_equal(*values[name])
    np.testing.assert_array_equal(values["readout.weight"][0], values["readout.weight"][1])
    np.testing.assert_array_equal(values["ports.y.weight"][:, :6], values["ports.y.weight"][:, 6:])
    order = spec.facts.order.tolist()
    np.testing.assert_array_equal(values["slot"][order.index(4)], values["slot"][order.index(5)])
    np.testing.assert_array_equal(values["cells.q.nu"], p["cells.q.nu"].astype(np.float32))
    assert np.isfinite(oracle(spec).forward(values, x.astype(np.float32))[0]).all()
    with pytest.raises(SpecError, match="cannot copy node 4 of population 'p' to node 6 of population 'q'"):
        fabric.split(network, params, 4, 6)


def test_fabrics_are_found_where_they_are() -> None:
    spec = replace(PLAIN, dynamic=True)
    inside = Sequential(layers=(Dense(in_features=3, out_features=3), spec))
    first = Dense(in_features=3, out_features=3)
    layers = {Coord(0): first, Coord(0, 0, 1): inside}
    network = Network(grid=Grid(1, 1, 2), layers=layers, input_shape=(3,), input_dtype="float32")
    params = initialise(network)
    less, some = fabric.remove(network, params, [4], at="0.0.1.0/1")
    assert some["0.0.1.0/1/slot"].shape == (11, 8)
    x = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    stream = device("cpu").stream(network, params, batch=2)
    stream.mask(4)
    want = np.asarray(stream.run(x))
    np.testing.assert_allclose(np.asarray(device("cpu").stream(less, some, batch=2).run(x)), want, atol=1e-6)
    for asked, match in (({}, "has no fabrics"), ({"at": "0.0.0.0"}, "no fabric at '0.0.0.0'")):
        with pytest.raises(SpecError, match=match):
            fabric.living(replace(network, layers={Coord(0): first}), params, **asked)


def test_nodes_that_cannot_go_or_come_are_named() -> None:
    spec, gone = CASES["plain"]
    network, params = alone(spec), params_of(given(spec)[0])
    less, some = fabric.remove(network, params, gone)
    asked: list[tuple[Any, str]] = [
        (lambda: fabric.remove(network, params, 12), "the fabric has no node 12"),
        (lambda: fabric.remove(network, params, (0, 1, 2)), "input 'a' is left without nodes"),
        (lambda: fabric.remove(less, some, (9, 11)), "output 'y' is left without nodes"),
        (lambda: fabric.remove(less, some, 4), "the fabric has no node 4"),
        (lambda: fabric.add(less, some, 5), "node 5 already exists"),
        (lambda: fabric.add(less, some, 99), "node 99 is not in the graph"),
        (lambda: fabric.mask(alone(cut(spec, ())), params, 4), "cannot be masked"),
        (lambda: fabric.split(network, params, 4, 40), "the fabric has no node 40"),
    ]
    for change, match in asked:
        with pytest.raises(SpecError, match=match):
            change()
    stream = device("reference").stream(network, params)
    other = alone(replace(spec, populations=CASES["dense"][0].populations))
    with pytest.raises(SpecError, match="streams cannot continue in the other network: its state"):
        stream.migrate(other, initialise(other))


def test_types_of_weights_stay_and_so_do_masters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, gone = CASES["plain"]
    network, params = alone(spec), params_of(given(spec)[0])
    network.morph(params, "int8")
    less, some = fabric.remove(network, params, gone)
    for key, store in some.items():
        assert store.scheme == params[key].scheme
        assert store.has_master == params[key].has_master
    off = fabric.mask(network, params, gone)
    save_native(tmp_path / "m", network, off)
    assert main(["inspect", str(tmp_path / "m"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fabrics"]["0.0.0.0"]["nodes"]
    assert told == {"inputs": 3, "cells": 6, "outputs": 3, "living": 8, "masked": 4}
    x = given(spec)[1].astype(np.float32)
    made = [np.asarray(device("cpu").stream(n, q, batch=2).run(x)) for n, q in ((network, off), (less, some))]
    np.testing.assert_allclose(made[0], made[1], atol=1e-5)
    p = {key[8:]: store.values() for key, store in off.items()}
    np.testing.assert_array_equal(p["living"], masked(spec, p, gone)["living"])
