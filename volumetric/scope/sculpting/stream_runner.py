"""A stream that runs while its network changes: it is opened anew for each network, and its states go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.layers.node_layer import NodeEntries
from volumetric.network.grid import Coord
from volumetric.observe.recorder import ActivityFrame, AnyStream, Recorder
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.run.streams.stream_io import inputs_by_port
from volumetric.scope.sculpting.network_changes import Changes
from volumetric.scope.sculpting.rebuilt_network import masked_layers, rebuild
from volumetric.scope.sculpting.scene_places import ScenePlaces

Watch = Callable[[ActivityFrame], None]


class StreamRunner:
    """Runs a fork of a stream; the stream itself does not change.

    Parameters
    ----------
    origin : the network of the stream
    row : index of the stream to watch; None: all streams together
    """

    def __init__(self, stream: AnyStream, origin: ScenePlaces, *, row: int | None = 0) -> None:
        self._origin, self._row = origin, row
        self.places: ScenePlaces = origin
        self._stream = stream.fork()
        self._alive: dict[Coord, frozenset[int]] = {  # nodes that were not masked before
            coord: frozenset(self._stream.living_nodes(at=str(coord)).tolist())
            for coord, part in origin.fabrics.items()
            if part.spec.dynamic
        }
        self._changes = Changes()
        self._recorder, self._has_frame = Recorder(self._stream, row=row, most=1, edges=origin.edges), False

    @property
    def stream(self) -> AnyStream:
        """The stream that computes."""
        return self._recorder.running_stream

    def run(self, x: Mapping[str, Array], count: int, watch: Watch | None = None) -> dict[str, Array]:
        """Run rows, and return the outputs by name; `watch` gets the frame of the last one.

        A clocked network runs many ticks in a call. Others run one row in a call: how rows are split into calls can
        change the last bits of numbers, which would then depend on when somebody watches.
        """
        outputs: list[Array | dict[str, Array]] = []
        rows = inputs_by_port(self.places.network, x, self._stream.batch)
        together = count if isinstance(self._stream, ClockedStream) else 1
        start = 0
        while start < count:
            last = start == count - 1
            unseen = count - (watch is not None)
            # The recorder stores its first frame whether somebody watches or not.
            stop = start + 1 if last or not self._has_frame else min(start + together, unseen)
            self._recorder.tell, self._has_frame = watch if last else None, True
            part = {name: value[:, start:stop] for name, value in rows.items()}
            outputs.append(self._recorder.advance(StreamChunk(x=part, count=stop - start)))
            start = stop
        return _join_outputs(outputs)

    def save(self) -> bytes:
        """Return the states as bytes."""
        return self.stream.save()

    def restore(self, data: bytes) -> None:
        """Continue from states that were saved with the same network; masks stay as they are now."""
        self.stream.restore(data)
        if self.stream is not self._stream:
            self._stream.restore(data)
        self._apply_masks(self._changes.masked)

    def change(self, changes: Changes) -> None:
        """Go on with the network that changes make.

        Raises
        ------
        SpecError, ShapeError : the network is not possible; nothing has changed
        """
        places = rebuild(self._origin, changes)
        new_layers = masked_layers(self._origin, changes) - masked_layers(self._origin, self._changes)
        if places.machine != self.places.machine:
            self._reopen(places)
        self._apply_masks(changes.masked)
        self._changes = changes
        if new_layers and isinstance(places.machine, Clocked):
            self.reset_layers(new_layers)

    def states_in(self, places: ScenePlaces) -> bytes:
        """Return the states as bytes for a stream of another network; what that has alone starts anew."""
        return self.save() if places.machine == self.places.machine else self._migrated(places).save()

    def _reopen(self, places: ScenePlaces) -> None:
        stream = self._migrated(places)
        recorder = Recorder(stream, row=self._row, most=1, edges=places.edges)
        self._recorder.close()
        self._recorder, self._has_frame, self._stream, self.places = recorder, False, stream, places

    def _migrated(self, places: ScenePlaces) -> AnyStream:
        before, machine = self.stream, places.machine
        if isinstance(before, ClockedStream):
            assert isinstance(machine, Clocked)
            return before.migrate(machine, places.params, rewired=True)
        assert not isinstance(machine, Clocked)
        after = before.migrate(machine, places.params, rewired=True)
        if self.places.program is not None and places.program is not None:
            self._carry_counts(places, before.state(), after)
        return after

    def _carry_counts(self, places: ScenePlaces, values: Mapping[str, Array], after: AnyStream) -> None:
        from volumetric.scope.sculpting.program_changes import carried_counts

        old, new = self.places.program, places.program
        key = f"{next(iter(places.network.layers))}/clock"
        assert old is not None
        assert new is not None
        counts = carried_counts(old, new, values[key]) if key in values else None
        after.change_states(lambda name, value: counts if name == key and counts is not None else value)

    def _apply_masks(self, masked: frozenset[int]) -> None:
        """Mask the nodes of fabrics that are masked, in addition to those that were masked before."""
        for coord, part in self.places.fabrics.items():
            if not part.spec.dynamic:
                continue
            order = frozenset(part.spec.facts.order.tolist())
            gone = frozenset(self._origin.fabric_ids(self._origin.fabrics[coord], masked))
            want = (self._alive.get(coord, order) & order) - gone
            now = frozenset(self._stream.living_nodes(at=str(coord)).tolist())
            for stream in {id(one): one for one in (self._stream, self.stream)}.values():
                if now - want:
                    stream.mask(sorted(now - want), at=str(coord))
                if want - now:
                    stream.unmask(sorted(want - now), at=str(coord))

    def reset(self) -> None:
        """Reset all states of all streams."""
        self.stream.reset()

    def reset_layers(self, coords: set[Coord]) -> None:
        """Set the states and outputs of layers to those at the start of a stream."""
        names = {str(coord) for coord in coords}

        def change(key: str, value: Array) -> Array:
            first, *rest = key.split("/")
            mine = first in names or (first == "out" and rest[0] in names)
            return np.zeros_like(value) if mine else value

        self.stream.change_states(change)

    def reset_nodes(self, nodes: frozenset[int]) -> None:
        """Set the states of nodes to those at the start of a stream."""
        origin = self._origin
        if origin.program is not None:
            self._reset_regions({origin.region(node) for node in nodes})
            return
        fabrics = origin.fabrics
        layers = {origin.coord(node) for node in nodes} - fabrics.keys()
        entries: dict[str, tuple[NodeEntries, Array]] = {}
        for coord, part in self.places.fabrics.items():
            ids = np.array(origin.fabric_ids(fabrics[coord], nodes), np.int64)
            for name, of in part.spec.state_entries().items():
                places = np.unique(of.places[np.isin(of.nodes, ids)])
                entries[f"{coord}/{name}"] = of, places

        def change(key: str, value: Array) -> Array:
            if key not in entries:
                return value
            of, places = entries[key]
            return np.stack([np.where(of.mask(places, one), 0, one).astype(one.dtype) for one in value])

        self.stream.change_states(change)
        if layers:
            self.reset_layers(layers)

    def _reset_regions(self, regions: set[str]) -> None:
        from volumetric.scope.sculpting.program_changes import region_states

        program = self.places.program
        assert program is not None
        self.stream.change_states(lambda key, value: region_states(program, key.partition("/")[2], value, regions))

    def check_nodes(self, nodes: frozenset[int]) -> None:
        """Raise `SpecError` for an unknown node."""
        if not nodes:
            raise SpecError("no node is chosen")
        for node in nodes:
            self._origin.check(node)


def _join_outputs(parts: list[Array | dict[str, Array]]) -> dict[str, Array]:
    """Return outputs by name."""
    named = [part if isinstance(part, dict) else {"output": part} for part in parts]
    return {name: np.concatenate([part[name] for part in named], 1) for name in named[0]}
