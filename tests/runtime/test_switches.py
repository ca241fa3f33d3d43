"""Every fast path has a switch to a slow one, which computes the same: docs/performance.md lists them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import device
from volumetric.builders.sequential import chain
from volumetric.devices.cpu.graph.graphs import CpuGraphs
from volumetric.dtypes import Scheme
from volumetric.layers import MLSTM, SLSTM, AGaLiTe, Axon, Dense, XLAttention
from volumetric.network import Network, initialise
from volumetric.run import lower
from volumetric.run.device import RunOptions
from volumetric.run.graph import graph_of

ROOT = Path(__file__).parent.parent.parent
X = np.random.default_rng(4).standard_normal((3, 21, 16)).astype(np.float32)
RESETS = (np.random.default_rng(5).random((3, 21)) < 0.2).astype(np.float32)


def window(network: Network, graphs: Any) -> np.ndarray:
    """Three sequences of 21 rows with resets, as one program."""
    params, store = initialise(network, seed=2), graphs.store()
    for key, value in params.items():
        store.write(key, value.values())
    [y] = graphs.compile(graph_of(network, 21, sequences=3, resets=True), store).run([X, RESETS])
    return y


def test_threads_change_no_bit() -> None:
    layers = [SLSTM(embed_dim=16), MLSTM(embed_dim=16, chunk_size=8), Axon(in_features=16, out_features=16)]
    network = chain([*layers, AGaLiTe(embed_dim=16, num_heads=4), XLAttention(embed_dim=16, memory=5)], (16,))
    alone, both = (window(network, CpuGraphs(threads, always=True)) for threads in (1, 2))
    np.testing.assert_array_equal(alone, both)


@pytest.mark.parametrize("chunk", [1, 5])
def test_chunks_of_rows_are_single_steps(chunk: int) -> None:
    whole, cut = (
        window(chain([MLSTM(embed_dim=16, chunk_size=size)], (16,)), device("cpu").graphs()) for size in (64, chunk)
    )
    np.testing.assert_allclose(cut, whole, rtol=0, atol=2e-5)


@pytest.mark.thorough
def test_activations_need_not_be_rounded() -> None:
    network = chain([Dense(in_features=32, out_features=32, activation="tanh")] * 2, (32,))
    params = initialise(network, seed=1)
    for weight in params.values():
        if len(weight.shape) == 2:
            weight.morph(Scheme.parse("int8:g32"))
    rows = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)

    def run(name: str, options: RunOptions) -> np.ndarray:
        executable = device(name).compile(lower(network), params, options)
        return executable.forward(executable.new_state(), rows, last_only=False)

    want = run("reference", RunOptions())
    plain, rounded = (run("cpu", RunOptions(compute=how)) for how in ("float32", "int8"))
    np.testing.assert_allclose(plain, want, rtol=0, atol=1e-6)
    assert np.abs(rounded - want).max() > 1e-4  # the switch does something


def test_the_list_names_tests_that_there_are() -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    table = text.split("## Switches to the slow path", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"`(tests/[\w/]+\.py)`", table)
    assert len(named) >= 8
    for path in named:
        assert (ROOT / path).exists(), path
