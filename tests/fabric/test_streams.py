"""Streams of fabrics: the laws of streams, on every device, with ports, delays and resets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.examples.fabrics import MIXED
from tests.fabric.test_layer import alone, given
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base.errors import ShapeError, SpecError
from volumetric.network.weight_store import Params, WeightStore
from volumetric.run.streams.row_stream import RowStream

NETWORK = alone(MIXED)
P, X = given(MIXED, 12)
X = X.astype(np.float32)
PARAMS = Params({f"0.0.0.0/{name}": WeightStore.from_array(value.astype(np.float32)) for name, value in P.items()})
RESETS = np.zeros((2, 12))
RESETS[0, [3, 9]] = RESETS[1, 7] = 1


def opened(where: str) -> RowStream:
    return device(where).stream(NETWORK, PARAMS, batch=2)


def fresh(rows: int) -> np.ndarray:
    return oracle(MIXED).forward(P, X[:, :rows].astype(np.float64))[0]


@pytest.mark.thorough
@pytest.mark.parametrize("where", DEVICES)
def test_streams_go_on_wherever_they_are_cut(where: str) -> None:
    want = oracle(MIXED).forward(P, X.astype(np.float64), memory=Memory(streams=2, resets=RESETS))[0]
    stream = opened(where)
    cuts = ((0, 5), (5, 5), (5, 12))
    parts = [np.asarray(stream.run(X[:, a:b], resets=RESETS[:, a:b])) for a, b in cuts]
    np.testing.assert_allclose(np.concatenate(parts, 1), want, atol=3e-5)
    later = np.asarray(stream.fork().run(X[:, :3]))
    again = opened("reference")
    again.restore(stream.save())
    np.testing.assert_allclose(np.asarray(again.run(X[:, :3])), later, atol=3e-5)
    np.testing.assert_array_equal(np.asarray(stream.run(X[:, :3])), later)
    stream.reset([1])
    half = np.asarray(stream.run(X[:, :3]))
    np.testing.assert_allclose(half[1], fresh(3)[1], atol=3e-5)
    assert np.abs(half[0] - fresh(3)[0]).max() > 1e-3


def test_rows_come_one_by_one_by_port() -> None:
    stream = opened("cpu")
    names = MIXED.ports("inputs")
    rows = ({name: X[:, t, first:last] for name, (first, last) in names.items()} for t in range(5))
    parts = list(stream.iterate(rows, chunk=4))
    assert [list(part) for part in parts if isinstance(part, dict)] == [["y", "z"]] * 2
    found = np.concatenate([np.concatenate([*part.values()], 2) for part in parts if isinstance(part, dict)], 1)
    np.testing.assert_allclose(found, fresh(5), atol=3e-5)


def test_what_does_not_fit_changes_nothing() -> None:
    stream = opened("cpu")
    stream.run(X[:, :4])
    before = stream.save()
    with pytest.raises(ShapeError, match="resets"):
        stream.run(X[:, :2], resets=np.full((2, 2), 2))
    with pytest.raises(SpecError, match="there is no stream 2"):
        stream.reset([2])
    assert stream.save() == before
