"""What cannot be is refused by name, with what was expected and what came; what is odd in one stream stays there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.clocked.test_streams import CHAIN
from tests.devices import DEVICES, device
from volumetric import Clocked, Coord, Every, Grid, Link, Network
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.builders.sequential import chain
from volumetric.layers import Dense, MultiHeadAttention, Rope
from volumetric.network import initialise
from volumetric.network.grid import Port
from volumetric.train import TargetPropagation, TrainConfig, train

PARAMS = initialise(CHAIN, seed=1)
X = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
Y = np.zeros((2, 5, 3), np.float32)
LAYERS = {Coord(z): Dense(in_features=4, out_features=4) for z in range(2)}


def stream(batch: int = 2, what: Any = None) -> Any:
    return device("reference").stream(what or Clocked(network=CHAIN), PARAMS, batch=batch)


def network(**more: Any) -> Network:
    return Network(grid=Grid(2), layers=LAYERS, input_shape=(4,), input_dtype="float32", **more)


def ring(delay: Any) -> Clocked:
    return Clocked(network=network(links=(Link(kind="activation", source=Coord(1), target=Coord(0), delay=delay),)))


STREAMS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "resets of another shape": (
        lambda: stream().run(X, resets=np.zeros((2, 4))),
        ShapeError,
        r"resets: expected \[2, 5\], got \[2, 4\]",
    ),
    "resets of 2": (
        lambda: stream().run(X, resets=np.full((2, 5), 2)),
        ShapeError,
        "resets: expected 0 and 1, got 2",
    ),
    "resets that are NaN": (lambda: stream().run(X, resets=np.full((2, 5), np.nan)), ShapeError, "got nan"),
    "rows of another width": (
        lambda: stream().run(X[..., :3]),
        ShapeError,
        r"input 'input': expected \[2, T, 4\], got \[2, 5, 3\]",
    ),
    "no such stream": (lambda: stream().reset([2]), SpecError, "there is no stream 2"),
    "a stream below 0": (lambda: stream(what=CHAIN).reset([-1]), SpecError, "there is no stream -1"),
    "another batch": (
        lambda: stream().restore(_ran(stream(3))),
        CheckpointError,
        r"port/input is fixed \[3, 4\] .* fixed \[2, 4\]",
    ),
    "a state cut short": (lambda: stream().restore(_ran(stream())[:-3]), CheckpointError, "damaged"),
    "a state of another version": (
        lambda: stream().restore(b"".join((_ran(stream())[:8], b"\x09", _ran(stream())[9:]))),
        CheckpointError,
        "version 9",
    ),
}
MACHINES: dict[str, tuple[Callable[[], Any], str]] = {
    "an input at a place without a layer": (
        lambda: network(inputs={"side": Port(coord=Coord(1, 0, 0, 1), shape=(4,))}),
        r"input 'side': there is no layer at 1\.0\.0\.1",
    ),
    "an output without a layer": (lambda: network(outputs={"tap": Coord(2)}), r"tap|2\.0\.0\.0"),
    "a delay below 0": (lambda: ring(-1), r"link 1\.0\.0\.0 → 0\.0\.0\.0: delay must be 0 or more rows, got -1"),
    "a delay for ever": (lambda: ring(10**9), "delay must be at most 4096 ticks in a clocked network, got 1000000000"),
    "a clock without a layer": (
        lambda: Clocked(network=network(), clocks={Coord(9): Every(period=2)}),
        r"there is no layer at 9\.0\.0\.0",
    ),
    "a clock that is a number": (
        lambda: Clocked(network=network(), clocks={Coord(1): 3}),  # pyright: ignore[reportArgumentType]
        r"clock of the layer at 1\.0\.0\.0: expected Every\(…\) or another clock, got 3",
    ),
    "a period of True": (lambda: Every(period=True), "period must be 1 … 16777216 steps, got True"),
}
FIELDS: tuple[tuple[str, Any], ...] = (
    ("clamp", "far"),
    ("gate", None),
    ("noise", float("inf")),
    ("depth_scale", 0),
    ("inverse_steps", 1.5),
    ("pinv_every", "often"),
    ("inverse", "exact"),
)


def _ran(one: Any) -> bytes:
    one.run(np.zeros((one.batch, 2, 4), np.float32))
    return one.save()


@pytest.mark.parametrize("name", STREAMS)
def test_streams_name_what_they_refuse_and_go_on(name: str) -> None:
    wrong, kind, message = STREAMS[name]
    with pytest.raises(kind, match=message):
        wrong()


@pytest.mark.parametrize("name", MACHINES)
def test_machines_name_what_they_refuse(name: str) -> None:
    wrong, message = MACHINES[name]
    with pytest.raises(SpecError, match=message):
        wrong()


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_targets_name_what_they_refuse(field: str, value: Any) -> None:
    with pytest.raises(SpecError, match=f"target propagation: {field} must be .*, got {value!r}"):
        TargetPropagation(**{field: value})


def test_learning_names_what_it_refuses() -> None:
    def learn(x: Any, y: Any, what: Any = None, **more: Any) -> None:
        config = TrainConfig(mode=TargetPropagation(**more))
        train(what or Clocked(network=CHAIN), PARAMS, (x, y), config, device="reference")

    with pytest.raises(ShapeError, match=r"targets: expected \[2, 5, …\], got \[2, 4, 3\]"):
        learn(X, Y[:, :4])
    with pytest.raises(ShapeError, match="no rows"):
        learn(X[:, :0], Y[:, :0])
    with pytest.raises(ShapeError, match="resets: expected 0 and 1, got 3"):
        learn({"input": X, "resets": np.full((2, 5), 3)}, Y)
    with pytest.raises(SpecError, match="delay of output 'tap', which has no loss"):
        learn(X, Y, delay={"tap": 1})
    alone = (Link(kind="activation", source=Coord(1), target=Coord(1), combine="replace", delay=1),)
    cut = Clocked(network=network(links=alone))
    with pytest.raises(SpecError, match="no input of the network reaches its output 'output'"):
        train(cut, initialise(cut.network), (X, X), TrainConfig(mode=TargetPropagation()), device="reference")


def test_no_rows_are_no_ticks() -> None:
    one = stream()
    one.run(X)
    before = one.state()
    assert one.run(X[:, :0]).shape == (2, 0, 3)
    for key, value in one.state().items():
        np.testing.assert_array_equal(value, before[key])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_streams_through_attention_begin_anew(name: str) -> None:
    """Rows before a reset are not seen after it; neighbours, and where calls are cut, make no difference."""
    rope = Rope(dim=2)
    specs = [
        MultiHeadAttention(embed_dim=4, num_heads=2, rope=rope),
        MultiHeadAttention(embed_dim=4, num_heads=2, window=2),
    ]
    attending = chain(specs, (4,))
    params = initialise(attending, seed=1)

    def fresh(batch: int = 2) -> Any:
        return device(name).stream(attending, params, batch=batch)

    resets, x = np.zeros((2, 5), np.int64), X.copy()
    plain = fresh().run(x)
    resets[1, 3], x[1, 1] = 1, np.nan
    y = fresh().run(x, resets=resets)
    np.testing.assert_allclose(y[0], plain[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(y[1:, 3:], fresh(1).run(x[1:, 3:]), rtol=0, atol=1e-5)
    assert np.isnan(y[1, 1]).any()
    cut = fresh()
    parts = [cut.run(x[:, :3], resets=resets[:, :3])]
    saved = cut.save()
    parts.append(cut.run(x[:, 3:], resets=resets[:, 3:]))
    np.testing.assert_allclose(np.concatenate(parts, 1), y, rtol=0, atol=1e-5)
    again = fresh()
    again.restore(saved)
    np.testing.assert_array_equal(again.run(x[:, 3:], resets=resets[:, 3:]), parts[1])
