"""A stream that is changed while it runs: masks, edges, inputs, clocks and states, with undo and replay."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.observe.recorder import ActivityFrame, AnyStream
from volumetric.scope.sculpting_changes import AddedEdge, Changes, Pulse, Values
from volumetric.scope.sculpting_history import Entry, History, Step, history_json, history_script, read_history
from volumetric.scope.sculpting_node import NodeFacts, changed_clock, node_facts
from volumetric.scope.sculpting_places import ScenePlaces
from volumetric.scope.sculpting_rows import RowSource, Rows, with_values
from volumetric.scope.sculpting_runner import StreamRunner

CHUNK: Final = 64
"""Maximum ticks of one call of the stream."""
MOST_STEPS: Final = 10_000
"""Maximum number of steps of a history."""
ACTS: Final = (
    "mask", "unmask", "cut", "connect", "clamp", "release", "inject", "set_clock", "set_number", "reset", "rewind",
)  # fmt: skip
"""Names of the methods that change the stream and can be undone."""
STEPS: Final = (*ACTS, "undo", "redo", "save_state", "start_twin", "stop_twin")
"""Names of all methods that a history has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlace:
    """States that a stream can be rewound to, the network that they belong to, and the tick of its rows."""

    states: bytes
    changes: Changes
    position: int
    twin: bytes | None


class SculptedStream:
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
        self._digest = hashlib.sha256(machine.to_json().encode()).hexdigest()
        self.seconds: dict[str, float] = {"stream": 0.0, "twin": 0.0}

    @property
    def places(self) -> ScenePlaces:
        """The network as it is now."""
        return self._runner.places

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
            watch(replace(frames[-1], t=self.position), twins[-1].rms if twins else None)
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

    def mask(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Mask nodes, or a population.

        A masked node of a fabric is not read, and its state is reset. A masked layer of a clocked network outputs
        zeros; one of a network that runs row by row passes its input on. A masked region of a program keeps its
        content, and its edges rest.
        """
        chosen, what = self._chosen(nodes, population)
        return self._change("mask", what, {"masked": self.changes.masked | chosen}, nodes=nodes, population=population)

    def unmask(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Unmask nodes, or a population; nodes of fabrics start with reset states."""
        chosen, what = self._chosen(nodes, population)
        masked = self.changes.masked - chosen
        return self._change("unmask", what, {"masked": masked}, nodes=nodes, population=population)

    def cut(self, source: int | None = None, target: int | None = None, *, nodes: Iterable[int] | None = None) -> str:
        """Cut the edge from one node to another; or, with `nodes`, all edges from and to nodes of fabrics or programs."""
        if nodes is not None:
            chosen, what = self._chosen(nodes, None)
            pairs = self._edges_of(chosen)
            if not pairs:
                raise SpecError(f"{what} has no edges that can be cut")
            text = f"all {len(pairs)} edges of {what}"
            listed = sorted(chosen)
        else:
            if source is None or target is None:
                raise SpecError("cut needs the source and the target of an edge, or nodes")
            pairs = {(self.origin.check(source), self.origin.check(target))}
            text, listed = f"the edge from {self.origin.name(source)} to {self.origin.name(target)}", None
        extra = {(edge.source, edge.target) for edge in self.changes.added} & pairs
        added = tuple(edge for edge in self.changes.added if (edge.source, edge.target) not in extra)
        own = pairs - {pair for pair in extra if not self._had_edge(*pair)}
        fields = {"cut": self.changes.cut | own, "added": added}
        arguments = {"nodes": listed} if listed is not None else {"source": source, "target": target}
        return self._change("cut", text, fields, **arguments)

    def connect(self, source: int, target: int, delay: int | None = None) -> str:
        """Add an edge, or restore one that was cut.

        Parameters
        ----------
        delay : ticks, or rows, None: the smallest possible, or that of the edge that was cut
        """
        pair = self.origin.check(source), self.origin.check(target)
        if delay is not None:
            _check_number("a delay", delay, 0, 4096, whole=True)
        text = f"an edge from {self.origin.name(source)} to {self.origin.name(target)}"
        if pair in self.changes.cut and delay is None:
            fields: dict[str, Any] = {"cut": self.changes.cut - {pair}}
        else:
            if any((edge.source, edge.target) == pair for edge in self.changes.added):
                raise SpecError(f"there is {text} already")
            text += "" if delay is None else f" with delay {delay}"
            added = AddedEdge(source=source, target=target, delay=delay)
            fields = {"added": (*self.changes.added, added)}
        return self._change("connect", text, fields, source=source, target=target, delay=delay)

    def clamp(self, name: str, values: float | Sequence[float | None]) -> str:
        """Put numbers in place of those of an input, until `release`.

        Parameters
        ----------
        values : one number for all columns, or one for each; None leaves a column as it is
        """
        numbers = self._numbers(name, values)
        clamps = self.changes.with_entry("clamps", name, numbers)
        return self._change(
            "clamp", f"input {name} to {_shown(numbers)}", {"clamps": clamps.clamps}, name=name, values=list(numbers)
        )

    def release(self, name: str) -> str:
        """End the clamp of an input."""
        if name not in self.changes.clamps:
            raise SpecError(f"input {name!r:.60} is not clamped")
        clamps = {one: values for one, values in self.changes.clamps.items() if one != name}
        return self._change("release", f"input {name}", {"clamps": clamps}, name=name)

    def inject(self, name: str, values: float | Sequence[float | None], ticks: int = 1) -> str:
        """Add numbers to an input for some ticks from the next one on."""
        numbers = self._numbers(name, values)
        if self.source.columns[name].dtype == "int32":
            raise SpecError(f"input {name!r} takes ids, to which nothing can be added", hint="clamp it")
        _check_number("ticks", ticks, 1, 1_000_000, whole=True)
        pulse = Pulse(name=name, values=numbers, first=self.elapsed, stop=self.elapsed + ticks)
        text = f"{_shown(numbers)} into input {name} for {ticks} {'tick' if ticks == 1 else 'ticks'}"
        fields = {"pulses": (*self.changes.pulses, pulse)}
        return self._change("inject", text, fields, states=True, name=name, values=list(numbers), ticks=ticks)

    def set_clock(self, node: int | str, clock: str | None) -> str:
        """Set the clock of a layer of a clocked network, of a region, or the condition of an edge (by name).

        Parameters
        ----------
        clock : text of a clock, such as ``"every(4)"``; None: at every tick
        """
        facts = self.node_facts(node)
        what = f"the clock of {facts.name} to {clock or 'every tick'}"
        text = changed_clock(facts, clock)
        clocks = self.changes.with_entry("clocks", node, text).clocks
        return self._change("set_clock", what, {"clocks": clocks}, node=node, clock=clock)

    def set_number(self, node: int | str, number: int, value: float) -> str:
        """Set a number of a node's clock, or its threshold; `node_facts` lists them in order."""
        facts = self.node_facts(node)
        _check_number("the number", number, 0, max(0, len(facts.numbers) - 1), whole=True)
        _check_number("the value", value, -1e30, 1e30)
        if not facts.numbers:
            raise SpecError(f"{facts.name} has no clock with numbers, and no threshold")
        label = facts.numbers[number][0]
        what = f"{label} of {facts.name} to {value:g}"
        if label == "threshold" and isinstance(node, int):
            fields: dict[str, Any] = {
                "thresholds": self.changes.with_entry("thresholds", node, float(value)).thresholds
            }
        else:
            clock = changed_clock(facts, number=number, value=value)
            fields = {"clocks": self.changes.with_entry("clocks", node, clock).clocks}
        return self._change("set_number", what, fields, node=node, number=number, value=value)

    def reset(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Reset the states of nodes, of a population, or, without either, all states."""
        if nodes is None and population is None:
            return self._change("reset", "all states", {}, states=True, then=self._runner.reset)
        chosen, what = self._chosen(nodes, population)
        return self._change(
            "reset",
            f"the states of {what}",
            {},
            states=True,
            then=lambda: self._runner.reset_nodes(chosen),
            nodes=nodes,
            population=population,
        )

    def save_state(self, name: str = "start") -> str:
        """Save the states of now under a name, for `rewind`; they stay in memory."""
        if not isinstance(name, str) or not 0 < len(name) <= 64:
            raise SpecError("a saved state needs a name of 1 to 64 characters")
        if name not in self._saved and len(self._saved) >= 64:
            raise SpecError("there are 64 saved states already", hint="save under a name that exists")
        twin = None if self._twin is None else self._twin.save()
        self._saved[name] = SavedPlace(
            states=self._runner.save(), changes=self.changes.of_network, position=self.position, twin=twin
        )
        self._note("save_state", {"name": name})
        return f"save state {name} at tick {self.position}"

    def rewind(self, name: str = "start") -> str:
        """Go back to saved states and to the rows from there on; the network stays as it is now."""
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

        text = f"to state {name} of tick {saved.position}"
        return self._change("rewind", text, {}, states=True, then=back, name=name)

    def start_twin(self) -> str:
        """Start the untouched twin: the original network, from the states of now, on the rows without any change."""
        twin = StreamRunner(self._first_stream, self.origin, row=self._row)
        twin.restore(self._runner.states_in(self.origin))
        self._twin = twin
        self.seconds["twin"] = self.seconds["stream"] = 0.0
        self._note("start_twin", {})
        return f"start the twin at tick {self.position}"

    def stop_twin(self) -> str:
        """Stop the untouched twin."""
        self._twin = None
        self._note("stop_twin", {})
        return f"stop the twin at tick {self.position}"

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

    def node_facts(self, node: int | str) -> NodeFacts:
        """Return what can be changed of a node, or of an edge of a program by its name."""
        return node_facts(self.origin, self.places, self.changes, node)

    def to_json(self) -> str:
        """Return the history as JSON, for `replay`."""
        return history_json(self.history.steps, self.elapsed, self._digest)

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
        from volumetric.scope.sculpting_copy import save_checkpoint

        return save_checkpoint(Path(path), self.places, self.origin, self.changes)

    def _change(
        self,
        act: str,
        what: str,
        fields: Mapping[str, Any],
        *,
        states: bool = False,
        then: Callable[[], object] | None = None,
        **arguments: Any,
    ) -> str:
        """Do an act, and list it."""
        if len(self.history.steps) >= MOST_STEPS:
            raise SpecError(f"there are {MOST_STEPS:,} steps already", hint="save the history, and start anew")
        changes = replace(self.changes, **fields)
        verb = act.replace("set_clock", "set").replace("set_number", "set").replace("connect", "add")
        text = f"{verb} {what} at tick {self.position}"
        plain = {
            name: list(value) if isinstance(value, (set, frozenset, tuple, range)) else value
            for name, value in arguments.items()
            if value is not None or name == "clock"
        }
        entry = Entry(act=act, arguments=plain, text=text, before=self.changes, position=self.position)
        entry.states = self._runner.save() if states else None
        if changes.of_network != self.changes.of_network:
            self._runner.change(changes.of_network)
        if then is not None:
            then()
        self.changes = changes
        self.history.undone.clear()
        self.history.add(entry)
        self._note(act, plain)
        return text

    def _note(self, act: str, arguments: Mapping[str, Any]) -> None:
        self.history.steps.append(Step(after=self.elapsed, act=act, arguments=arguments))

    def _chosen(self, nodes: Iterable[int] | None, population: str | None) -> tuple[frozenset[int], str]:
        """Return nodes, and their name."""
        if (nodes is None) == (population is None):
            raise SpecError("pass nodes or a population")
        if population is not None:
            own = self.origin.population(population)
            return frozenset(own), f"population {population} ({len(own)} {'node' if len(own) == 1 else 'nodes'})"
        chosen = frozenset(nodes or ())
        self._runner.check_nodes(chosen)
        if len(chosen) <= 3:
            return chosen, ", ".join(self.origin.name(node) for node in sorted(chosen))
        return chosen, f"{len(chosen)} nodes"

    def _numbers(self, name: str, values: float | Sequence[float | None]) -> Values:
        if not isinstance(name, str) or name not in self.source.columns:
            known = ", ".join(map(repr, self.source.columns))
            raise SpecError(f"there is no input {name!r:.60}", hint=f"inputs are {known}")
        of = self.source.columns[name]
        single = isinstance(values, (int, float))
        numbers: list[Any] = [values] * of.size if isinstance(values, (int, float)) else list(values)
        if len(numbers) != of.size or all(value is None for value in numbers):
            raise SpecError(f"input {name!r} has {of.size} columns, got {len(numbers)} numbers")
        for value in numbers[: 1 if single else None]:
            if value is not None:
                low, high = (0, of.most if of.most is not None else 2**31 - 1) if of.dtype == "int32" else (-1e30, 1e30)
                _check_number(f"a number of input {name!r}", value, low, high, whole=of.dtype == "int32")
        return tuple(numbers)

    def _edges_of(self, nodes: frozenset[int]) -> set[tuple[int, int]]:
        """Return the edges of nodes as they are now, within fabrics and between layers or regions."""
        from volumetric.scope.sculpting_node import edges_of

        return {pair for node in nodes for pair in edges_of(self.places, node)} - self.changes.cut

    def _had_edge(self, source: int, target: int) -> bool:
        from volumetric.scope.sculpting_node import edges_of

        return (source, target) in edges_of(self.origin, source)


def _check_number(what: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    fits = isinstance(value, (int, np.integer) if whole else (int, float, np.number)) and not isinstance(value, bool)
    if not fits or not math.isfinite(float(value)) or not low <= float(value) <= high:  # pyright: ignore[reportArgumentType]
        kind = "a whole number" if whole else "a number"
        raise SpecError(f"{what} must be {kind} in {low:g} … {high:g}, got {value!r:.40}")


def _shown(values: Values) -> str:
    """Return numbers as a short text."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    shown = ["·" if value is None else f"{value:g}" for value in values]
    return "(" + ", ".join(shown if len(shown) <= 6 else [*shown[:5], "…"]) + ")"


def replay(
    stream: AnyStream, history: str | bytes | Path, rows: Rows | None = None, *, row: int | None = 0, seed: int = 0
) -> tuple[SculptedStream, dict[str, Array]]:
    """Repeat a history on a stream at the same ticks; return the sculpted stream, and the outputs of all ticks by name.

    On the same device with the same rows, outputs are the same bits.

    Parameters
    ----------
    history : JSON text of `SculptedStream.to_json`, or a file of it

    Raises
    ------
    CheckpointError : the history is invalid, or of another network
    SpecError : a step is not possible
    """
    steps, ticks, digest = read_history(history)
    sculpted = SculptedStream(stream, rows, row=row, seed=seed)
    if digest != sculpted._digest:
        raise CheckpointError("the history is of another network", hint="open the stream that was sculpted")
    outputs: list[dict[str, Array]] = []
    for step in steps:
        if step.act not in STEPS:
            raise CheckpointError(f"the history has an unknown step {step.act!r:.40}")
        if step.after > sculpted.elapsed:
            outputs.append(sculpted.advance(step.after - sculpted.elapsed))
        try:
            getattr(sculpted, step.act)(**step.arguments)
        except TypeError as error:
            raise CheckpointError(f"the step {step.act} of the history is invalid: {error}") from None
    if ticks > sculpted.elapsed:
        outputs.append(sculpted.advance(ticks - sculpted.elapsed))
    return sculpted, {name: np.concatenate([y[name] for y in outputs], 1) for name in (outputs[0] if outputs else {})}
