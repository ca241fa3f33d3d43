"""Random machines: grids of small layers with links anywhere, delays, clocks, disabled and shared layers."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.clocked import WATCHED, Clocked, Hold
from volumetric.layers import GRU, LSTM, MLP, RNN, Clamp, Dense, Discrete, LayerNorm, LayerSpec, Residual, SwiGLU
from volumetric.layers.clock import Clock, Cooldown, Event, Every, MaxSilence, On
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord, Grid, Link, Port
from volumetric.network.weight_store import WeightStore

WIDTH = 3
KINDS: tuple[LayerSpec, ...] = (
    Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh"),
    Dense(in_features=WIDTH, out_features=WIDTH, activation="tanh"),
    Dense(in_features=WIDTH, out_features=WIDTH, bias=False),
    MLP(in_features=WIDTH, hidden_features=4, activation="tanh"),
    SwiGLU(in_features=WIDTH, hidden_features=2),
    LayerNorm(num_features=WIDTH),
    RNN(input_size=WIDTH, hidden_size=WIDTH),
    LSTM(input_size=WIDTH, hidden_size=WIDTH),
    GRU(input_size=WIDTH, hidden_size=WIDTH),
    Clamp(min=-1.0, max=1.0),
    Discrete(function="ternary", threshold=0.1),
)


def machine(seed: int) -> Clocked:
    """A machine that depends on the seed alone."""
    rng = np.random.default_rng(seed)
    depth, height, width, slots = (int(n) for n in rng.integers(1, (4, 4, 4, 3)))
    grid = Grid(depth, height, width, slots)
    every = [
        Coord(z, y, x, s)
        for z in range(grid.depth)
        for y in range(grid.rows)
        for x in range(grid.cols)
        for s in range(grid.slots)
    ]
    coords = sorted(every[i] for i in rng.permutation(len(every))[: max(2, len(every) * 3 // 4)])
    kinds = rng.choice(len(KINDS), size=3)
    layers: dict[Coord, LayerSpec] = {c: KINDS[int(rng.choice(kinds))] for c in coords}
    for c in coords[2:]:
        if rng.random() < 0.1:
            layers[c] = Residual()

    def pick() -> Coord:
        return coords[int(rng.integers(len(coords)))]

    links = []
    for _ in range(int(rng.integers(0, len(coords) + 1))):
        source, target, delay = pick(), pick(), int(rng.integers(0, 4))
        combine = "replace" if rng.random() < 0.2 else "add"
        links.append(Link(kind="activation", source=source, target=target, combine=combine, delay=max(delay, 1)))
    alike = [c for c in coords if layers[c] is KINDS[0]]
    links += [
        Link(kind="shared", source=alike[0], target=c, param="weight", source_param="weight")
        for c in alike[1:]
        if rng.random() < 0.3
    ]
    network = Network(
        grid=grid,
        layers=layers,
        links=tuple(links),
        disabled=frozenset(c for c in coords if rng.random() < 0.1),
        input_shape=(WIDTH,),
        input_dtype="float32",
        inputs={"side": Port(coord=pick(), shape=(WIDTH,), combine="add")} if rng.random() < 0.5 else {},
        outputs={"tap": pick()} if rng.random() < 0.7 else {},
    )
    clocks: dict[Coord, Clock] = {}
    other = np.random.default_rng((seed, 1))
    for c in coords:
        if rng.random() < 0.2:
            period = int(rng.integers(1, 4))
            clocks[c] = Every(period=period, phase=int(rng.integers(period)))
            if other.random() < 0.6:  # never silent for long, so that layers have a gradient
                clocks[c] = MaxSilence(clock(other, [*map(str, coords), *network.ports], list(network.ports)), 3)
    hold: dict[str, Hold] = {"input": "zero"} if rng.random() < 0.3 else {}
    return Clocked(network=network, clocks=clocks, hold=hold, start="wavefront" if rng.random() < 0.4 else "zeros")


def clock(rng: np.random.Generator, watched: list[str], inputs: list[str], depth: int = 0) -> Clock:
    """A clock of any kind over what can be watched, and inputs."""
    kind = int(rng.integers(4 if depth > 2 else 8))
    if kind < 2:
        period = int(rng.integers(1, 4))
        return Every(period=period, phase=int(rng.integers(period)))
    if kind == 2:
        return On(inputs[int(rng.integers(len(inputs)))])
    if kind == 3:
        source = f"{watched[int(rng.integers(len(watched)))]}.{WATCHED[int(rng.integers(4))]}"
        bounds = (("above",), ("below",), ("at_least", "below"), ("unequal",))[int(rng.integers(4))]
        values = sorted(rng.uniform(-0.5, 1.0, len(bounds)))
        return Event(source, **dict(zip(bounds, values, strict=True)))
    one = clock(rng, watched, inputs, depth + 1)
    if kind == 4:
        return ~one
    if kind == 5:
        return MaxSilence(one, int(rng.integers(1, 4)))
    if kind == 6:
        return Cooldown(one, int(rng.integers(1, 4)))
    other = clock(rng, watched, inputs, depth + 1)
    return one & other if rng.random() < 0.5 else one | other


def weights(clocked: Clocked, seed: int = 0) -> Params:
    """Weights that are large enough for values to differ."""
    rng = np.random.default_rng(seed)
    given = initialise(clocked.network, seed)
    return Params(
        {key: WeightStore.from_array(0.6 * rng.standard_normal(s.shape).astype(np.float32)) for key, s in given.items()}
    )


def rows(clocked: Clocked, batch: int, count: int, seed: int = 1) -> dict[str, Array]:
    """Rows for all inputs."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal((batch, count, *port.shape)).astype(np.float32)
        for name, port in clocked.network.ports.items()
    }
