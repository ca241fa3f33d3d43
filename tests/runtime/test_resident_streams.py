"""Streams whose states are of fixed size: programs over all of them are what an executable makes of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import FAST, device
from volumetric.base.errors import CheckpointError, ShapeError
from volumetric.builders.sequential import chain
from volumetric.dtypes import Scheme
from volumetric.layers import GRU, MLSTM, SLSTM, Axon, CausalConv1d, Dense, LayerSpec, MultiHeadAttention
from volumetric.network import Network, Params, initialise
from volumetric.program import Canvas, Edge, In, Out, Program, Region
from volumetric.run.streams import ResidentStream, open_stream
from volumetric.run.streams import resident_stream as resident_module
from volumetric.run.streams.row_stream import RowStream

CELLS = chain(
    [
        Axon(in_features=4, out_features=6),
        SLSTM(embed_dim=6, num_heads=2, kernel_size=2),
        Dense(in_features=6, out_features=3),
    ],
    (4,),
)
PARAMS = initialise(CELLS, seed=3)
X = np.random.default_rng(5).standard_normal((3, 11, 4)).astype(np.float32)
CLOSE: dict[str, Any] = {"rtol": 0, "atol": 2e-6}


def resident(batch: int = 3, network: Network = CELLS, params: Params = PARAMS, *, on: str = "cpu") -> Any:
    stream = open_stream(device(on), network, params, batch=batch)
    assert isinstance(stream, ResidentStream)
    return stream


def executed(name: str) -> Any:
    return RowStream(device(name), CELLS, PARAMS, batch=3)


def some_resets() -> np.ndarray:
    resets = np.zeros((3, 11), np.int64)
    resets[0, [3, 4]] = resets[1, 0] = resets[2, 10] = 1
    return resets


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_rows_are_those_of_an_executable(name: str) -> None:
    one, other = resident(on=name), executed("cpu")
    for resets in (None, some_resets()):
        np.testing.assert_allclose(one.run(X, resets=resets), other.run(X, resets=resets), **CLOSE)
        for t in range(3):
            np.testing.assert_allclose(one.run(X[:, t : t + 1]), other.run(X[:, t : t + 1]), **CLOSE)
    assert one.run(X[:, :0]).shape == (3, 0, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_either_goes_on_from_what_the_other_saved(name: str) -> None:
    one, other = resident(on=name), executed("reference")
    one.run(X, resets=some_resets())
    other.restore(one.save())
    want = one.run(X)
    np.testing.assert_allclose(other.run(X), want, **CLOSE)
    again = resident()
    again.restore(other.save())
    np.testing.assert_allclose(again.run(X[:, :2]), one.run(X[:, :2]), **CLOSE)
    with pytest.raises(CheckpointError, match="has a batch of 3, expected 2"):
        resident(2).restore(one.save())
    damaged = bytearray(one.save())
    damaged[-3] ^= 1
    before = again.fork()
    with pytest.raises(CheckpointError):
        again.restore(bytes(damaged))
    np.testing.assert_array_equal(again.run(X), before.run(X))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_forks_and_resets_touch_nothing_else(name: str) -> None:
    stream = resident(on=name)
    stream.run(X)
    fork, other = stream.fork(), stream.fork()
    want = other.run(X)
    other.close()
    fork.reset([1])
    fresh = resident(on=name).run(X)
    found = fork.run(X)
    np.testing.assert_array_equal(found[[0, 2]], want[[0, 2]])
    np.testing.assert_array_equal(found[1], fresh[1])
    np.testing.assert_array_equal(stream.run(X), want)
    with pytest.raises(ShapeError):
        stream.run(X[:2])


def test_rows_that_go_straight_to_their_program_are_as_others() -> None:
    quick, slow = resident(), resident()
    apart = np.zeros((3, 8, 8), np.float32)
    apart[:, ::2, ::2] = X[:, :4]
    for rows in (X[:, :4], X[:, 4:8], apart[:, ::2, ::2]):  # the last lies apart in memory
        found = quick.run(rows)
        np.testing.assert_array_equal(found, slow.run(rows.astype(np.float64)))
        kept = found.copy()
        quick.fork().run(rows)
        quick.run(X[:, 8:9])
        slow.run(X[:, 8:9], resets=np.zeros((3, 1), np.int64))
        np.testing.assert_array_equal(found, kept)  # it is the caller's own
    assert quick.save() == slow.save()
    for wrong in (X[:, :4, :3], X[:2, :4], X[0]):
        with pytest.raises(ShapeError):
            quick.run(wrong)
    assert quick.save() == slow.save()
    quick.restore(resident().save())
    np.testing.assert_array_equal(quick.run(X[:, :4]), resident().run(X[:, :4]))


@pytest.mark.thorough
def test_a_program_of_many_nodes_has_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Program(
        Canvas(1, (2, 2), 4, {"a": Region(((0, 1), (0, 2))), "b": Region(((1, 2), (0, 2)))}),
        [Edge("a", "b"), Edge("b", "a")],
        {"in": In("a", 3), "out": Out("b", 2)},
    )
    network = spec.network()
    params, x = initialise(network, seed=1), X[:2, :, :3]
    want = resident(2, network, params).run(x)
    monkeypatch.setattr(resident_module, "MOST_NODES", 60)
    stream = resident(2, network, params)
    np.testing.assert_array_equal(stream.run(x), want)
    assert stream._longest == 2
    np.testing.assert_array_equal(stream.fork().run(x[:, :8]), stream.run(x[:, :8]))


def test_a_stream_has_the_same_bits_in_any_company() -> None:
    whole = resident().run(X)
    for b in range(3):
        np.testing.assert_array_equal(resident(1).run(X[b : b + 1])[0], whole[b])


@pytest.mark.parametrize("name", FAST)
def test_not_a_number_stays_in_its_stream_until_it_resets(name: str) -> None:
    stream, clean = resident(on=name), resident(on=name)
    odd = X.copy()
    odd[1, 2] = np.nan
    resets = np.zeros((3, 11), np.int64)
    resets[1, 6] = 1
    found, want = stream.run(odd, resets=resets), clean.run(X, resets=resets)
    assert np.isnan(found[1, 2:6]).all()
    np.testing.assert_array_equal(found[[0, 2]], want[[0, 2]])
    np.testing.assert_array_equal(found[1, 6:], want[1, 6:])


@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(embed_dim=4, num_heads=2),  # keeps rows
        GRU(input_size=4, hidden_size=4, reverse=True),  # sees later ones
        Dense(in_features=4, out_features=4),  # keeps nothing
    ],
)
def test_what_cannot_run_so_does_not(layer: LayerSpec) -> None:
    network = chain([layer, CausalConv1d(channels=4)] if not isinstance(layer, Dense) else [layer], (4,))
    stream = open_stream(device("cpu"), network, initialise(network))
    assert type(stream) is RowStream


def test_packed_weights_run_through_an_executable() -> None:
    network = chain([MLSTM(embed_dim=4, num_heads=1)], (4,))
    params = initialise(network)
    assert isinstance(open_stream(device("cpu"), network, params), ResidentStream)
    params["0.0.0.0/i.weight"].morph(Scheme.parse("bfloat16"))
    assert type(open_stream(device("cpu"), network, params)) is RowStream
