"""Windows that are too short for a fabric: a warning names both numbers, once, wherever windows come from."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from volumetric.builders import chain
from volumetric.cli import main
from volumetric.clocked import Clocked
from volumetric.fabric.layer.cell_populations import RNN, CellPopulation, InPort, OutPort
from volumetric.fabric.layer.edge_rules import LocalRadius
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_sets import XBand
from volumetric.layers import Embedding, PassThrough
from volumetric.network import Network, initialise
from volumetric.train import Backprop, Batch, CrossEntropy, StreamWindows, Systolic, TrainConfig, train

SLOW = Fabric(  # of four cells in a line, each row gets to one: the last one has it three rows late
    graph=Lattice((6, 1)),
    inputs=(InPort("a", XBand("low"), 3),),
    outputs=(OutPort("y", XBand("high"), 2),),
    populations=(CellPopulation("core", RNN(3)),),
    connectivity=(LocalRadius(1.0),),
    public=3,
    message=3,
    head_dim=2,
)
ALONE = chain([SLOW], (3,))


def told(caplog: pytest.LogCaptureFixture, network: Network | Clocked, data: Any, config: TrainConfig) -> list[str]:
    caplog.clear()
    params = initialise(network.network if isinstance(network, Clocked) else network)
    with caplog.at_level(logging.WARNING, "volumetric.train.latency"):
        train(network, params, data, config, device="reference")
    return [record.getMessage() for record in caplog.records]


def rows(count: int) -> Batch:
    return Batch(np.ones((2, count, 3), np.float32), np.zeros((2, count, 2), np.float32))


@pytest.mark.parametrize(("count", "warnings"), [(3, 1), (4, 0)])
def test_sequences_are_as_long_as_it_takes(caplog: pytest.LogCaptureFixture, count: int, warnings: int) -> None:
    found = told(caplog, ALONE, lambda epoch: [rows(count)] * 2, TrainConfig(epochs=2))
    assert len(found) == warnings
    for text in found:
        assert "fabric 0.0.0.0: output 'y' depends on input 'a' after 3 rows" in text
        assert "windows of training have 3" in text


def test_windows_that_carry_are_no_longer_for_it(caplog: pytest.LogCaptureFixture) -> None:
    network = chain([Embedding(num_embeddings=5, embedding_dim=3), PassThrough(core=SLOW)], (), "int32")
    config = TrainConfig(mode=Backprop(carry=True), loss=CrossEntropy())
    short, long = (StreamWindows(np.arange(30) % 2, length=length, batch=2) for length in (2, 5))
    [text] = told(caplog, network, short, config)
    assert "fabric 1.0.0.0/core: output 'y' depends on input 'a' after 3 rows" in text
    assert "have 2" in text
    assert told(caplog, network, long, config) == []


def test_ticks_count_in_clocked_networks(caplog: pytest.LogCaptureFixture) -> None:
    config = TrainConfig(mode=Systolic(window=3))
    [text] = told(caplog, Clocked(network=ALONE), lambda epoch: [rows(6)], config)
    assert "have 3" in text
    assert told(caplog, Clocked(network=ALONE), lambda epoch: [rows(6)], TrainConfig(mode=Systolic(window=6))) == []


def test_the_command_line_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "rows.npz", inputs=np.ones((2, 3, 1), np.float32), targets=np.zeros((2, 3, 1), np.float32))
    (tmp_path / "short.toml").write_text(
        """
        [network]
        builder = "fabric"
        [network.options]
        graph = { width = 6, height = 1, populations.core.cell = { kind = "rnn", hidden = 2 } }
        [data]
        npz = "rows.npz"
        """
    )
    assert main(["train", str(tmp_path / "short.toml"), "--device", "reference", "--out", str(tmp_path / "out")]) == 0
    assert "warning: fabric 0.0.0.0: output 'output' depends on input 'input' after 3 rows" in capsys.readouterr().err
