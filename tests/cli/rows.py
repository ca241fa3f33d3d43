"""A small network, plain and by ticks, and rows for it as lines."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import numpy as np
import pytest

from volumetric import Clocked, Coord, Every, Grid, Network
from volumetric.devices.named_devices import open_device
from volumetric.layers import RNN, Dense
from volumetric.network import initialise
from volumetric.run.streams import open_stream

NETWORK = Network(
    grid=Grid(2),
    layers={Coord(0): RNN(input_size=3, hidden_size=4), Coord(1): Dense(in_features=4, out_features=2)},
    input_shape=(3,),
    input_dtype="float32",
)
MACHINE = Clocked(network=NETWORK, clocks={Coord(1): Every(period=2)})
PARAMS = initialise(NETWORK, seed=2)
X = np.random.default_rng(0).standard_normal((2, 70, 3)).astype(np.float32)
REFERENCE: Any = open_device("reference")
ON_REFERENCE = ("--device", "reference")


def wanted(machine: Any, x: np.ndarray, **how: Any) -> Any:
    return open_stream(REFERENCE, machine, PARAMS, batch=len(x)).run(x, **how)


def lines(x: np.ndarray) -> bytes:
    return "".join(f"{json.dumps(row.tolist())}\n" for row in x).encode()


def type_in(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def same(found: Any, expected: Any) -> None:
    """Products of other numbers of rows may differ in their last bits."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def numbers(out: str) -> np.ndarray:
    return np.array([json.loads(line) for line in out.splitlines()], np.float32)
