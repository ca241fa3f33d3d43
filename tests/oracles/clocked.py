"""A clocked network layer by layer, tick by tick, with the layers' own NumPy code: what fast forms must agree with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.clocked import Clocked, ticks
from volumetric.clocked.layer_clocks import firing
from volumetric.clocked.states import out_key, port_key, read_distances, stream_states, wait_key
from volumetric.layers import LayerSpec
from volumetric.layers.clock_steps import counters
from volumetric.network.grid import Coord
from volumetric.network.weight_store import Params
from volumetric.network.wiring import Source


class NumpyClocked:
    """The ticks of some streams.

    Parameters
    ----------
    params : weights by key, as of the network
    batch : streams side by side
    """

    def __init__(self, clocked: Clocked, params: Params, batch: int, dtype: type[np.floating] = np.float32) -> None:
        self.clocked, self.batch, self.dtype = clocked, batch, dtype
        network = clocked.network
        self._weights = {key: store.values().astype(dtype, copy=False) for key, store in params.items()}
        self._own = {
            coord: {p.name: self._weights[network.resolve(f"{coord}/{p.name}")] for p in spec.tensors()}
            for coord, spec in network.layers.items()
        }
        self._kept = stream_states(clocked)
        self._back, self._read = read_distances(clocked)
        self.state = {key: self._fresh(key) for key in self._kept}

    def _fresh(self, key: str) -> Array:
        kept = self._kept[key]
        return np.full((self.batch, *kept.shape), kept.start, np.int32 if kept.dtype == "int32" else self.dtype)

    def tick(self, given: Mapping[str, Array], resets: Array | None = None) -> dict[str, Array]:
        """Run one tick.

        Parameters
        ----------
        given : input → rows ``[batch, …]``; what is left out holds
        resets : ``[batch]``, 1 where a stream begins anew

        Returns
        -------
        Output → rows ``[batch, …]``
        """
        if resets is not None:
            for key, value in self.state.items():
                self.state[key] = _where(resets != 0, self._fresh(key), value)
        before, after = self.state, dict(self.state)
        ports = {name: self._port(name, given) for name in self.clocked.network.ports}
        for coord, spec in self.clocked.network.layers.items():
            x, skip = self._reads(coord, ports, before)
            fires = self._fires(coord, before, after, ports, given)
            if coord in self._read:
                after[f"read/{coord}"] = x
            y = self._layer(coord, spec, x, skip, after, fires)
            after[out_key(coord, 1)] = _where(fires, y, before[out_key(coord, 1)])
            for k in range(2, self._back[coord] + 1):
                after[out_key(coord, k)] = before[out_key(coord, k - 1)]
        for name, row in ports.items():
            if port_key(name) in after:
                after[port_key(name)] = row
        if "age" in after:
            after["age"] = before["age"] + 1
        self.state = after
        return {name: after[out_key(coord, 1)] for name, coord in self.clocked.network.taps.items()}

    def _port(self, name: str, given: Mapping[str, Array]) -> Array:
        port = self.clocked.network.ports[name]
        if name in given:
            return given[name].astype(np.int32 if port.dtype == "int32" else self.dtype, copy=False)
        if port_key(name) in self.state:
            return self.state[port_key(name)]
        return np.zeros((self.batch, *port.shape), np.int32 if port.dtype == "int32" else self.dtype)

    def _reads(
        self, coord: Coord, ports: Mapping[str, Array], before: Mapping[str, Array]
    ) -> tuple[Array, Array | None]:
        w = self.clocked.wires[coord]
        parts = [ports[s.port] if s.coord is None else before[key_of(s)] for s in w.inputs]
        x = parts[0]
        for part in parts[1:]:
            x = x + part
        skip = w.skip
        if skip is None:
            return x, None
        return x, ports[skip.port] if skip.coord is None else before[key_of(skip)]

    def _fires(
        self,
        coord: Coord,
        before: Mapping[str, Array],
        after: dict[str, Array],
        ports: Mapping[str, Array],
        given: Mapping[str, Array],
    ) -> Array:
        fires = np.ones(self.batch, bool)
        if "age" in before:
            fires &= before["age"][:, 0] >= self.clocked.depths[coord]
        if coord in self.clocked.clocks:
            keys = [wait_key(coord, n) for n in range(len(counters(self.clocked.clocks[coord])))]
            due, counts = firing(self.clocked, coord, [before[key] for key in keys], before.__getitem__, ports, given)
            after |= dict(zip(keys, counts, strict=True))
            fires &= due[:, 0]
        return fires

    def _layer(
        self, coord: Coord, spec: LayerSpec, x: Array, skip: Array | None, after: dict[str, Array], fires: Array
    ) -> Array:
        if coord in self.clocked.network.disabled:
            return x
        if skip is not None:
            return x + skip
        if not spec.contextual:
            return oracle(spec).forward(self._own[coord], x)[0]
        held = {key: value for key, value in after.items() if key.startswith(f"{coord}/")}
        memory = Memory(1, dict(held), f"{coord}/", streams=self.batch, bounded=True)
        y = oracle(spec).forward(self._own[coord], x[:, None], memory=memory)[0][:, 0]
        after |= {key: _where(fires, memory.values[key], value) for key, value in held.items()}
        return y


def _where(chosen: Array, new: Array, old: Array) -> Array:
    """`new` for the streams that are chosen."""
    return np.where(chosen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def key_of(source: Source) -> str:
    """Where a layer finds what it reads of another, at the beginning of a tick."""
    assert source.coord is not None
    return f"read/{source.coord}" if source.side == "input" else out_key(source.coord, ticks(source))
