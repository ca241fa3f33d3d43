"""Clocks of layers: they read the layers' outputs of the previous tick and the current values of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.clocked.machine import Clocked
from volumetric.clocked.states import out_key, port_key, stream_states, wait_key
from volumetric.graph.build import GraphBuilder
from volumetric.layers.clock import Every
from volumetric.layers.clock_steps import NumpyClockOps, counters, step
from volumetric.network.grid import Coord

if TYPE_CHECKING:
    from volumetric.clocked.window import Machine

_OVER_FEATURES: Mapping[str, Callable[[Array], Array]] = {
    "mean": lambda x: x.mean(1, keepdims=True),
    "max": lambda x: x.max(1, keepdims=True),
    "min": lambda x: x.min(1, keepdims=True),
    "rms": lambda x: np.sqrt(np.square(x).mean(1, keepdims=True)),
}


@dataclass(frozen=True, slots=True)
class ClockReads:
    """Values that clocks watch, emitted for one tick; each is ``[streams, 1]``.

    Attributes
    ----------
    before : states of the streams at the start of the tick
    ports : input → current value
    new_rows : input → rows that arrive at this tick
    """

    work: GraphBuilder
    machine: Machine
    before: Mapping[str, int]
    ports: Mapping[str, int]
    new_rows: Mapping[str, int]

    def number(self, source: str) -> int:
        """Emit the value that an event watches."""
        work, (place, kind) = self.work, self.machine.clocked.watched(source)
        x = self._rows(self.ports[place] if isinstance(place, str) else self._last_output(place))
        if kind == "min":
            return work.unary(work.reduce(work.unary(x, "neg"), "max", (1,)), "neg")
        if kind == "rms":
            return work.unary(work.reduce(work.unary(x, "square"), "mean", (1,)), "sqrt")
        return work.reduce(x, kind, (1,))

    def happens(self, name: str) -> int:
        """Emit whether an input receives a row that is not all zeros; any row of ids counts."""
        work, batch = self.work, self.machine.batch
        if name not in self.new_rows:
            return work.zeros((batch, 1))
        x = self.new_rows[name]
        if work.tensors[x].dtype == "int32":
            return work.affine(work.zeros((batch, 1)), 1.0, 1.0)
        x, zero = self._rows(x), work.scalar(0.0)
        apart = work.binary("max", work.binary("greater", x, zero), work.binary("greater", zero, x))
        return work.reduce(apart, "max", (1,))

    def _last_output(self, coord: Coord) -> int:
        i, n = self.machine.places[coord]
        return self.work.part(self.before[f"plane/{i}/1"], 0, n, n + 1)

    def _rows(self, x: int) -> int:
        batch = self.machine.batch
        return self.work.reshape(x, (batch, prod(self.work.shape(x)) // batch))


def firing(
    clocked: Clocked,
    coord: Coord,
    counts: Sequence[Array],
    read: Callable[[str], Array],
    ports: Mapping[str, Array],
    new_rows: Mapping[str, Array],
) -> tuple[Array, list[Array]]:
    """Return whether a layer's clock fires, bool ``[streams, 1]``, and its counts after the tick, in NumPy.

    Parameters
    ----------
    counts : counts of the clock, each ``[streams, 1]``
    read : returns a state by its key in `stream_states`
    ports, new_rows : see `ClockReads`
    """
    batch = len(next(iter(ports.values())))

    def number(source: str) -> Array:
        place, kind = clocked.watched(source)
        x = ports[place] if isinstance(place, str) else read(out_key(place, 1))
        return _OVER_FEATURES[kind](x.reshape(batch, -1))

    def happens(name: str) -> Array:
        if name not in new_rows:
            return np.zeros((batch, 1), bool)
        x = new_rows[name].reshape(batch, -1)
        return np.ones((batch, 1), bool) if clocked.network.ports[name].dtype == "int32" else _is_nonzero(x)

    return step(clocked.clocks[coord], counts, NumpyClockOps(number, happens))


def firing_layers(
    clocked: Clocked, read_state: Callable[[str], Array], new_rows: Mapping[str, Array], resets: Array
) -> Array:
    """Return which layers compute at the next tick, bool ``[layers, streams]``.

    Parameters
    ----------
    read_state : returns a state by its key in `stream_states`
    new_rows : input → rows ``[streams, …]`` that arrive at the tick
    resets : bool ``[streams]``: streams that are reset at the tick
    """
    network, states = clocked.network, stream_states(clocked)

    def read(key: str) -> Array:
        value = read_state(key)
        return np.where(resets.reshape(-1, *(1,) * (value.ndim - 1)), value.dtype.type(states[key].start), value)

    fires = np.ones((len(network.layers), len(resets)), bool)
    ports = {name: np.zeros((len(resets), *port.shape), np.float32) for name, port in network.ports.items()}
    ports |= {name: read(port_key(name)) for name in network.ports if clocked.clocks and port_key(name) in states}
    ports |= new_rows
    age = read("age")[:, 0] if clocked.start == "wavefront" else None
    for i, coord in enumerate(network.layers):
        if age is not None:
            fires[i] = age >= clocked.depths[coord]
        if coord in clocked.clocks:
            counts = [read(wait_key(coord, n)) for n in range(len(counters(clocked.clocks[coord])))]
            fires[i] &= firing(clocked, coord, counts, read, ports, new_rows)[0][:, 0]
    return fires


def _is_nonzero(x: Array) -> Array:
    """Return whether a row has a nonzero number; NaN does not count."""
    return np.asarray(((x > 0) | (x < 0)).any(1, keepdims=True))


def layers_fired(clocked: Clocked, read_state: Callable[[str], Array], batch: int) -> Array | None:
    """Return which layers computed at the last tick, bool ``[layers, streams]``, from the states after it.

    None if a clock depends on more than the number of the tick, so that the states do not say.

    Parameters
    ----------
    read_state : returns a state by its key in `stream_states`; there must have been a tick
    """
    if any(not isinstance(clock, Every) for clock in clocked.clocks.values()):
        return None
    fires = np.ones((len(clocked.network.layers), batch), bool)
    age = read_state("age")[:, 0] if clocked.start == "wavefront" else None
    for i, coord in enumerate(clocked.network.layers):
        if age is not None:
            fires[i] = age - 1 >= clocked.depths[coord]
        clock = clocked.clocks.get(coord)
        if isinstance(clock, Every):  # it counts the ticks until it fires, and began anew if it did
            fires[i] &= read_state(wait_key(coord, 0))[:, 0] > clock.period - 1.5
    return fires
