"""Blueprints as networks: their documents, streams by port, and what they refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.layers.graphed import graphed
from volumetric import fabric
from volumetric.base.errors import ShapeError, SpecError
from volumetric.cli import main
from volumetric.clocked import Clocked
from volumetric.fabric import Blueprint, DotProduct, Input, Output, Population, ReceiverState, graph, lattice2d
from volumetric.fabric.cells import LSTM
from volumetric.loaders import open_model
from volumetric.loaders.native_checkpoint import save_native
from volumetric.network import Network

DOCUMENT = Path(__file__).parents[2] / "docs" / "fabrics.md"
CORE = {"core": Population(cell=LSTM(hidden=4))}


def two_ports(**fields: Any) -> fabric.Model:
    """A fabric with two inputs and two outputs."""
    body = lattice2d.Graph(
        width=4,
        height=3,
        inputs={"a": (0, 1), "b": (2,)},
        outputs={"y": (9, 10), "z": (11,)},
        populations=CORE,
    )
    return fabric.compile(
        Blueprint(graph=body, inputs={"a": Input(2), "b": Input(1)}, outputs={"y": Output(3), "z": Output(2)}, **fields)
    )


@pytest.mark.thorough
def test_the_document_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), names)
    assert names["action"].shape == (2, 10, 4)
    assert "'edges'" in capsys.readouterr().out


@pytest.mark.thorough
@pytest.mark.parametrize("on", ["reference", "cpu"])
@pytest.mark.parametrize("clocked", [False, True])
def test_rows_by_port_are_rows_side_by_side(on: str, clocked: bool) -> None:
    if on == "reference" and clocked:
        return
    model = two_ports(message=DotProduct(head_dim=4, query=ReceiverState()))
    machine = Clocked(network=model.network) if clocked else model.network
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(np.float32)
    streams = [device(on).stream(machine, model.params, batch=2) for _ in range(3)]
    whole = streams[0].run(x)
    assert isinstance(whole, np.ndarray)
    by_port = streams[1].run({"a": x[..., :2], "b": x[..., 2:]})
    assert isinstance(by_port, dict)
    np.testing.assert_array_equal(np.concatenate([by_port["y"], by_port["z"]], 2), whole)
    np.testing.assert_array_equal(np.asarray(streams[2].run({"input": x})), whole)
    want, _ = graphed(model.fabric).forward({n[8:]: s.values() for n, s in model.params.items()}, x)
    np.testing.assert_allclose(whole, want, atol=2e-5)
    with pytest.raises(ShapeError, match="input 'b' has no rows"):
        streams[1].run({"a": x[..., :2]})
    with pytest.raises(ShapeError, match=r"input 'b': expected \[2, T, 1\], got \[2, 5, 2\]"):
        streams[1].run({"a": x[..., :2], "b": x[..., :2]})


def test_a_saved_fabric_is_the_same(tmp_path: Path) -> None:
    model = two_ports()
    save_native(tmp_path / "m", model.network, model.params)
    again = open_model(str(tmp_path / "m"))
    assert again.network == model.network
    for key, store in model.params.items():
        np.testing.assert_array_equal(again.params[key].values(), store.values())
    assert Network.from_json(model.network.to_json()) == model.network


def test_inspect_tells_of_fabrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = two_ports()
    save_native(tmp_path / "m", model.network, model.params)
    assert main(["inspect", str(tmp_path / "m"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fabrics"]["0.0.0.0"]
    assert told["nodes"] == {"inputs": 3, "cells": 6, "outputs": 3}
    assert told["latency"] == {"y": {"a": 1, "b": 1}, "z": {"a": 1, "b": 1}}
    assert main(["inspect", str(tmp_path / "m")]) == 0
    assert "populations core cell LSTM, nodes 6" in capsys.readouterr().out


def test_an_output_that_no_input_reaches_is_refused() -> None:
    body = graph.Explicit(
        coords=[(0.0,), (1.0,), (2.0,)],
        inputs={"in": (0,)},
        outputs={"out": (2,)},
        populations=CORE,
        edges=[(1, 0)],
    )
    with pytest.raises(SpecError, match="output 'out' can depend on no input"):
        fabric.compile(Blueprint(graph=body, inputs={"in": Input(1)}, outputs={"out": Output(1)}))


def test_facts_tell_what_it_comes_to() -> None:
    model = two_ports()
    facts = model.facts()
    assert facts["nodes"] == {"inputs": 3, "cells": 6, "outputs": 3}
    assert facts["populations"] == {"core": {"cell": "LSTM", "nodes": 6, "share": "none"}}
    assert facts["latency"] == model.latency == {"y": {"a": 1, "b": 1}, "z": {"a": 1, "b": 1}}
    assert facts["state_bytes"] == 4 * 2 * 6 * 4
    assert facts["parameters"] == sum(store.values().size for store in model.params.values())
