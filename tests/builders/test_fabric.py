"""Fabrics from tables: what they are, what data tell them, and keys that are wrong."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric import fabric
from volumetric.base.errors import SpecError
from volumetric.cli.training_open import open_run
from volumetric.fabric import (
    Blueprint,
    BySenderTile,
    DotProduct,
    Input,
    Interface,
    Population,
    graph,
    lattice2d,
)
from volumetric.fabric.cells import GRU, LSTM, SLSTM, Axon
from volumetric.fabric.compile import layer_of
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_sets import ZBand
from volumetric.layers import Embedding, LayerSpec
from volumetric.train.settings import settings_from

DOCUMENT = Path(__file__).parents[2] / "docs" / "fabrics.md"
LATTICE, EXPLICIT = (tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))
RECALL = {"problem": "delayed_recall", "options": {"samples": 8, "length": 32}}


def layers_of(table: dict[str, Any], home: Path | None = None) -> list[LayerSpec]:
    """Layers of a configuration, whose data are a task's unless it names others."""
    opened = open_run(settings_from({"data": RECALL} | table, home=home))
    return [opened.network.layers[coord] for coord in sorted(opened.network.layers)]


def test_the_document_is_a_blueprint() -> None:
    body = lattice2d.Graph(
        width=6,
        height=5,
        inputs={"symbols": lattice2d.XBand("low")},
        outputs={"answer": lattice2d.Output(lattice2d.XBand("high"), "attend", 2)},
        connectivity=[
            lattice2d.LocalRadius(1.5),
            lattice2d.Annulus(2, 3, 2),
            lattice2d.SmallWorld(1, 3, 4),
            lattice2d.Columns((2, 5), 1, 4),
            lattice2d.ExplicitEdges(((6, 0), (12, 12))),
        ],
        populations={
            "fast": Population(cell=SLSTM(16, 2), nodes=lattice2d.Region(x=(0, 0.5))),
            "slow": Population(cell=Axon(16), share="all"),
        },
    )
    blueprint = Blueprint(
        graph=body,
        inputs={"symbols": Input(16)},
        outputs={"answer": fabric.Output(8)},
        interface=Interface(32, 32),
        message=DotProduct(value_dim=32, share=BySenderTile((2, 2))),
    )
    assert layers_of(LATTICE) == [Embedding(num_embeddings=12, embedding_dim=16), layer_of(blueprint)]


def test_nodes_without_a_lattice_learn_rows_of_a_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((6, 5, 3)).astype(np.float32)
    body = graph.Explicit(
        coords=[(0,), (1,), (2,), (3.5,)],
        edges=[(1, 0), (2, 1), (1, 2), (3, 2)],
        inputs={"rows": (0,)},
        outputs={"made": (3,)},
        populations={"core": Population(cell=GRU(8))},
    )
    for targets, outputs in ((np.arange(30).reshape(6, 5) % 4, 4), (x[..., :2], 2)):
        np.savez(tmp_path / "rows.npz", inputs=x, targets=targets)
        found = layers_of(EXPLICIT | {"data": {"npz": "rows.npz"}}, tmp_path)
        blueprint = Blueprint(graph=body, inputs={"rows": Input(3)}, outputs={"made": fabric.Output(outputs)})
        assert found == [layer_of(blueprint)]


def test_a_lattice_of_three_axes_has_ends_unless_told() -> None:
    table = {"kind": "lattice3d", "width": 3, "height": 2, "depth": 2, "wrap": True}
    table["populations"] = {
        "a": {"cell": {"kind": "lstm", "hidden": 4}, "nodes": {"kind": "z_band"}},
        "b": {"cell": {"kind": "lstm", "hidden": 4}, "nodes": [5, 7], "share": "tile(1,2,1)"},
    }
    embedding, sheet = layers_of({"network": {"builder": "fabric", "options": {"graph": table}}})
    assert isinstance(sheet, Fabric)
    assert isinstance(embedding, Embedding)
    assert embedding.embedding_dim == sheet.inputs[0].dim == 4
    assert sheet.graph.count == 12
    assert sheet.populations[0].nodes == ZBand("low")
    assert sheet.populations[1].cell == LSTM(4)
    assert sheet.populations[1].nodes == (5, 7)
    assert [len(sheet.facts.coords), sheet.facts.inputs, sheet.facts.outputs] == [12, 4, 4]


WRONG: dict[str, tuple[str, Any, str, str]] = {
    "dynamic": ("dynamic", "yes", "dynamic", ""),
    "without": ("without", [99], "without: there is no node 99", "0 … 29"),
    "option": ("inner_step", 2, "unknown key 'inner_step'", "inner_steps"),
    "graph": ("graph", 3, "Expected `object`", ""),
    "kind": ("graph.kind", "latice2d", "graph: unknown kind 'latice2d'", "lattice2d"),
    "odd kind": ("graph.kind", [2], "graph: expected a name or a table with a kind", "explicit"),
    "size": ("graph.widht", 3, "graph: unknown key 'widht'", "width"),
    "another graph's": ("graph.depth", 3, "graph: unknown key 'depth'", ""),
    "rule": ("graph.connectivity", [{"kind": "local_radus"}], r"connectivity\[0\]: unknown kind", "local_radius"),
    "no rules": ("graph.connectivity", [], "there are no edges", "edges"),
    "no list": ("graph.connectivity", 1.5, "connectivity: expected a list", "local_radius"),
    "radius": ("graph.connectivity", [{"kind": "local_radius", "radius": float("nan")}], "above 0, got nan", ""),
    "edges": ("graph.edges", [[1, 2, 3]], "graph.edges: Expected `array` of length 2", ""),
    "reach": ("graph.connectivity", [{"kind": "local_radius", "radius": 0.5}], "can depend on no input", "radius"),
    "populations": ("graph.populations", {}, "graph.populations must be given", "slstm"),
    "cell": ("graph.populations.fast.cell", {"kind": "slstm", "hiden": 3}, "fast.cell: unknown key 'hiden'", "hidden"),
    "cells": ("graph.populations.fast.cell", "lsm", "fast.cell: unknown kind 'lsm'", "lstm"),
    "no cell": ("graph.populations.fast", {"share": "all"}, "fast: cell must be given", "slstm"),
    "widths": ("graph.populations.fast.cell.hidden", 12, "several hidden widths", "one"),
    "place": ("graph.inputs.symbols.nodes", {"kind": "x_bend"}, "symbols.nodes: unknown kind 'x_bend'", "x_band"),
    "side": ("graph.outputs.answer.nodes.side", "up", "answer.nodes.side: unknown name 'up'", "low, high"),
    "node": ("graph.inputs.symbols.nodes", [0, 99], "there is no node 99", "0 … 29"),
    "ports": ("graph.inputs.b", {"nodes": [1]}, "16 numbers in all, the embedding has 16", "leave out"),
    "no nodes": ("graph.inputs.b", {"dim": 2}, "18 numbers in all, the embedding has 16", "leave out"),
    "no dims": ("graph.outputs", {"a": {}, "b": {}}, "graph.outputs.a: dim must be given", "only one port"),
    "dim": ("graph.outputs.answer.dim", 3, "3 numbers in all, the targets have 8", "leave out"),
    "aggregate": ("graph.outputs.answer.aggregate", "maen", "answer.aggregate: unknown name 'maen'", "mean"),
    "heads": ("message.heads", "x", "message.heads: Expected `int`", ""),
    "message": ("message.kind", "sum", "message.kind: unknown name 'sum'", "dot_product"),
    "query": ("message.query", "stat", "message.query: unknown name 'stat'", "state"),
    "interface": ("interface.pubic", 3, "interface: unknown key 'pubic'", "public"),
    "tile": ("message.share", [2], "a tile of", ""),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_by_its_key(name: str) -> None:
    key, value, message, hint = WRONG[name]
    table = copy.deepcopy(LATTICE)
    *path, last = key.split(".")
    place = table["network"]["options"]
    for part in path:
        place = place[part]
    place[last] = value
    with pytest.raises(SpecError, match=message) as found:
        layers_of(table)
    assert hint in (found.value.hint or "")
    assert "[network] builder" in str(found.value)


def test_samples_that_are_no_sequences_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "images.npz", inputs=np.zeros((2, 3, 4, 5), np.float32), targets=np.arange(2))
    with pytest.raises(SpecError, match="reads sequences of token ids or rows"):
        layers_of(EXPLICIT | {"data": {"npz": "images.npz"}}, tmp_path)


def test_a_width_is_of_the_embedding_of_all_inputs_together() -> None:
    table = copy.deepcopy(LATTICE)
    del table["network"]["options"]["width"]
    table["network"]["options"]["graph"]["inputs"] = {"a": {"nodes": [0, 1], "dim": 3}, "b": {"nodes": [2], "dim": 4}}
    table["network"]["options"]["graph"]["connectivity"].pop()
    embedding = layers_of(table)[0]
    assert isinstance(embedding, Embedding)
    assert embedding.embedding_dim == 7


def test_nodes_can_be_left_out_and_others_masked() -> None:
    table = copy.deepcopy(LATTICE)
    table["network"]["options"] |= {"dynamic": True, "without": [7, 8]}
    spec = layers_of(table)[-1]
    assert isinstance(spec, Fabric)
    assert (spec.dynamic, spec.without, len(spec.facts.order)) == (True, (7, 8), 28)
