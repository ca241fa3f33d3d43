"""A stream that is changed while it runs: masks, edges, inputs, clocks and states, with undo and replay."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.observe.recorder import ActivityFrame, AnyStream
from volumetric.scope.sculpting.act_history import History, history_json, history_script
from volumetric.scope.sculpting.network_changes import Changes
from volumetric.scope.sculpting.row_source import Rows, RowSource, with_values
from volumetric.scope.sculpting.scene_places import ScenePlaces
from volumetric.scope.sculpting.stream_acts import StreamActs
from volumetric.scope.sculpting.stream_runner import StreamRunner

CHUNK: Final = 64
"""Maximum ticks of one call of the stream."""
ACTS: Final = (
    "mask", "unmask", "cut", "connect", "clamp", "release", "inject", "set_clock", "set_number", "reset", "rewind",
)  # fmt: skip
"""Names of the methods that change the stream and can be undone."""
STEPS: Final = (*ACTS, "undo", "redo", "save_state", "start_twin", "stop_twin")
"""Names of all methods that a history has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlace:
    """States that a stream can be rewound to, and the network that they belong to.

    Attributes
    ----------
    position : number of rows of the source that have run
    elapsed : number of ticks that have run in all
    """

    states: bytes
    changes: Changes
    position: int
    elapsed: int
    twin: bytes | None


class SculptedStream(StreamActs):
    """A stream that runs on rows of a source, and is changed between ticks.

    The stream that is passed does not change: a fork of it runs. Nodes are indices of the scene. An act that cannot be
    done while running opens the stream anew, with all states that both networks have. Each act returns a sentence, is
    listed for `undo`, and is in the history, which repeats the same numbers on the same stream and rows.

    Parameters
    ----------
    stream : stream of a clocked network, or of rows through a network, a fabric or a program
    rows : what it runs on, see `Rows`; None: zeros
    row : index of the stream of the batch to watch; None: all together
    edges : maximum number of edges of its scene
    seed : of noise

    Raises
    ------
    SpecError, ShapeError : rows do not fit the inputs, or `row` is out of range

    Examples
    --------
    >>> sculpted = SculptedStream(stream, "noise")  # doctest: +SKIP
    >>> sculpted.advance(120)  # doctest: +SKIP
    >>> sculpted.mask(population="core")  # doctest: +SKIP
    'mask population core (36 nodes) at tick 120'
    """

    def __init__(
        self,
        stream: AnyStream,
        rows: Rows | None = None,
        *,
        row: int | None = 0,
        edges: int = 4000,
        seed: int = 0,
    ) -> None:
        machine = stream.clocked if isinstance(stream, ClockedStream) else stream.network
        self.origin: ScenePlaces = ScenePlaces(machine, stream.params, edges)
        self.source: RowSource = RowSource(self.origin.network, rows, batch=stream.batch, seed=seed)
        self.history: History = History()
        self.changes: Changes = Changes()
        self.position: int = 0
        self.elapsed: int = 0
        self._row, self._first_stream = row, stream
        self._runner = StreamRunner(stream, self.origin, row=row)
        self._twin: StreamRunner | None = None
        self._saved: dict[str, SavedPlace] = {}
        self.digest: str = hashlib.sha256(machine.to_json().encode()).hexdigest()
        self.seconds: dict[str, float] = {"stream": 0.0, "twin": 0.0}

    @property
    def stream(self) -> AnyStream:
        """The stream that runs."""
        return self._runner.stream

    @property
    def has_twin(self) -> bool:
        """Whether the untouched twin runs, too."""
        return self._twin is not None

    @property
    def saved_names(self) -> list[str]:
        """Names of saved states."""
        return list(self._saved)

    def advance(
        self, count: int, watch: Callable[[ActivityFrame, Array | None], None] | None = None
    ) -> dict[str, Array]:
        """Run ticks, or rows, and return the outputs by name, ``[batch, count, …]``.

        Parameters
        ----------
        watch : gets the frame of the last tick, and the strengths of the nodes of the twin if it runs

        Raises
        ------
        ShapeError : a row of the user's function does not fit; ticks before it have run
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise SpecError(f"count must be 1 tick or more, got {count!r:.40}")
        outputs: list[dict[str, Array]] = []
        for start in range(0, count, CHUNK):
            some = min(CHUNK, count - start)
            last = start + some == count
            outputs.append(self._run_chunk(some, watch if last else None))
        return {name: np.concatenate([one[name] for one in outputs], 1) for name in outputs[0]}

    def _run_chunk(self, count: int, watch: Callable[[ActivityFrame, Array | None], None] | None) -> dict[str, Array]:
        raw = self.source.rows(self.position, count)
        frames: list[ActivityFrame] = []
        seen = frames.append if watch is not None else None
        began = perf_counter()
        outputs = self._runner.run(self._with_changes(raw, count), count, seen)
        self.seconds["stream"] += perf_counter() - began
        twins: list[ActivityFrame] = []
        if self._twin is not None:
            began = perf_counter()
            self._twin.run(raw, count, twins.append if watch is not None else None)
            self.seconds["twin"] += perf_counter() - began
        self.position += count
        self.elapsed += count
        if any(pulse.stop <= self.elapsed for pulse in self.changes.pulses):
            left = tuple(pulse for pulse in self.changes.pulses if pulse.stop > self.elapsed)
            self.changes = replace(self.changes, pulses=left)
        if watch is not None and frames:
            watch(replace(frames[-1], t=self.elapsed), twins[-1].rms if twins else None)
        return outputs

    def _with_changes(self, rows: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Return rows with the pulses and clamps of these ticks."""
        x = dict(rows)
        for pulse in self.changes.pulses:
            first, stop = (max(0, min(count, at - self.elapsed)) for at in (pulse.first, pulse.stop))
            if first < stop:
                value = x[pulse.name].copy()
                value[:, first:stop] = with_values(value[:, first:stop], pulse.values, add=True)
                x[pulse.name] = value
        for name, values in self.changes.clamps.items():
            x[name] = with_values(x[name], values, add=False)
        return x

    def save_state(self, name: str = "start") -> str:
        """Save the states of now under a name, for `rewind`; they stay in memory."""
        if not isinstance(name, str) or not 0 < len(name) <= 64:
            raise SpecError("a saved state needs a name of 1 to 64 characters")
        if name not in self._saved and len(self._saved) >= 64:
            raise SpecError("there are 64 saved states already", hint="save under a name that exists")
        twin = None if self._twin is None else self._twin.save()
        self._saved[name] = SavedPlace(
            states=self._runner.save(),
            changes=self.changes.of_network,
            position=self.position,
            elapsed=self.elapsed,
            twin=twin,
        )
        self._note("save_state", {"name": name})
        return f"save state {name} at tick {self.elapsed}"

    def rewind(self, name: str = "start") -> str:
        """Go back to saved states and to the rows from there on; the network stays as it is, and ticks count on."""
        if name not in self._saved:
            raise SpecError(f"there is no saved state {name!r:.60}", hint=f"saved are {list(self._saved)}")
        saved = self._saved[name]

        def back() -> None:
            now = self.changes.of_network
            if saved.changes != now:
                self._runner.change(saved.changes)
            self._runner.restore(saved.states)
            if saved.changes != now:
                self._runner.change(now)
            self.position = saved.position
            if self._twin is not None and saved.twin is not None:
                self._twin.restore(saved.twin)

        text = f"to state {name} of tick {saved.elapsed}"
        return self._change("rewind", text, {}, {"name": name}, states=True, then=back)

    def start_twin(self) -> str:
        """Start the untouched twin: the original network, from the states of now, on the rows without any change."""
        twin = StreamRunner(self._first_stream, self.origin, row=self._row)
        twin.restore(self._runner.states_in(self.origin))
        self._twin = twin
        self.seconds["twin"] = self.seconds["stream"] = 0.0
        self._note("start_twin", {})
        return f"start the twin at tick {self.elapsed}"

    def stop_twin(self) -> str:
        """Stop the untouched twin."""
        self._twin = None
        self._note("stop_twin", {})
        return f"stop the twin at tick {self.elapsed}"

    def undo(self) -> str:
        """Undo the last act that is not undone.

        The network and the inputs are as before it, and the stream goes on. An act on states alone (`reset`, `inject`,
        `rewind`) is undone by restoring the states from before it.

        Raises
        ------
        SpecError : there is none, or its states are no longer stored
        """
        if not self.history.done:
            raise SpecError("there is nothing to undo")
        entry = self.history.done[-1]
        if entry.dropped:
            raise SpecError(f"“{entry.text}” cannot be undone: the states before it are no longer stored")
        self._runner.change(entry.before.of_network)
        if entry.states is not None:
            self._runner.restore(entry.states)
            self.position = entry.position
        self.changes = entry.before
        self.history.undone.append(self.history.done.pop())
        self._note("undo", {})
        return f"undo “{entry.text}”"

    def redo(self) -> str:
        """Do the act again that was undone last."""
        if not self.history.undone:
            raise SpecError("there is nothing to redo")
        entry = self.history.undone[-1]
        left, steps = self.history.undone[:-1], len(self.history.steps)
        text = getattr(self, entry.act)(**entry.arguments)
        self.history.undone = left
        del self.history.steps[steps:]
        self._note("redo", {})
        return f"redo “{text}”"

    def to_json(self) -> str:
        """Return the history as JSON, for `replay`."""
        return history_json(self.history.steps, self.elapsed, self.digest)

    def to_python(self) -> str:
        """Return a Python script that repeats the history."""
        return history_script(self.history.steps, self.elapsed)

    def save_copy(self, path: str | Path) -> Path:
        """Write the sculpted network with its weights as a new checkpoint; masks of nodes are in its buffers.

        Clamped inputs are not part of it.

        Raises
        ------
        CheckpointError : there is something at the path already, or it cannot be written
        """
        from volumetric.scope.sculpting.checkpoint_copy import save_checkpoint

        return save_checkpoint(Path(path), self.places, self.origin, self.changes)
