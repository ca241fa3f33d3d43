"""What can be done to a stream while it runs; each act names what it changes, and is listed for undoing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.scope.sculpting.act_history import MOST_STEPS, Entry, History, Step
from volumetric.scope.sculpting.network_changes import AddedEdge, Changes, Pulse, Values
from volumetric.scope.sculpting.node_facts import NodeFacts, changed_clock, edges_of, node_facts
from volumetric.scope.sculpting.row_source import RowSource
from volumetric.scope.sculpting.scene_places import ScenePlaces
from volumetric.scope.sculpting.stream_runner import StreamRunner


class StreamActs:
    """Acts on a stream. Nodes are indices of the scene.

    Attributes
    ----------
    origin : the network before all changes
    source : rows of its inputs
    changes : what differs now
    position : number of rows of the source that have run
    elapsed : number of ticks, or rows, that have run in all
    """

    origin: ScenePlaces
    source: RowSource
    changes: Changes
    history: History
    position: int
    elapsed: int
    _runner: StreamRunner

    @property
    def places(self) -> ScenePlaces:
        """The network as it is now."""
        return self._runner.places

    def mask(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Mask nodes, or a population.

        A masked node of a fabric is not read, and its state is reset. A masked layer of a clocked network outputs
        zeros; one of a network that runs row by row passes its input on. A masked region of a program keeps its
        content, and its edges rest.
        """
        chosen, what = self._chosen(nodes, population)
        return self._change("mask", what, {"masked": self.changes.masked | chosen}, _node_arguments(chosen, population))

    def unmask(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Unmask nodes, or a population; nodes of fabrics start with reset states."""
        chosen, what = self._chosen(nodes, population)
        masked = self.changes.masked - chosen
        return self._change("unmask", what, {"masked": masked}, _node_arguments(chosen, population))

    def cut(self, source: int | None = None, target: int | None = None, *, nodes: Iterable[int] | None = None) -> str:
        """Cut the edge from one node to another; or, with `nodes`, all edges from and to these nodes."""
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
        arguments: dict[str, Any] = {"source": source, "target": target} if listed is None else {"nodes": listed}
        return self._change("cut", text, fields, arguments)

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
        return self._change("connect", text, fields, {"source": source, "target": target, "delay": delay})

    def clamp(self, name: str, values: float | Sequence[float | None]) -> str:
        """Put numbers in place of those of an input, until `release`.

        Parameters
        ----------
        values : one number for all columns, or one for each; None leaves a column as it is
        """
        numbers = self._numbers(name, values)
        clamps = self.changes.with_entry("clamps", name, numbers)
        arguments = {"name": name, "values": list(numbers)}
        return self._change("clamp", f"input {name} to {_number_text(numbers)}", {"clamps": clamps.clamps}, arguments)

    def release(self, name: str) -> str:
        """End the clamp of an input."""
        if name not in self.changes.clamps:
            raise SpecError(f"input {name!r:.60} is not clamped")
        clamps = {one: values for one, values in self.changes.clamps.items() if one != name}
        return self._change("release", f"input {name}", {"clamps": clamps}, {"name": name})

    def inject(self, name: str, values: float | Sequence[float | None], ticks: int = 1) -> str:
        """Add numbers to an input for some ticks from the next one on."""
        numbers = self._numbers(name, values)
        if self.source.columns[name].dtype == "int32":
            raise SpecError(f"input {name!r} takes ids, to which nothing can be added", hint="clamp it")
        _check_number("ticks", ticks, 1, 1_000_000, whole=True)
        pulse = Pulse(name=name, values=numbers, first=self.elapsed, stop=self.elapsed + ticks)
        text = f"{_number_text(numbers)} into input {name} for {ticks} {'tick' if ticks == 1 else 'ticks'}"
        fields = {"pulses": (*self.changes.pulses, pulse)}
        return self._change(
            "inject", text, fields, {"name": name, "values": list(numbers), "ticks": ticks}, states=True
        )

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
        return self._change("set_clock", what, {"clocks": clocks}, {"node": node, "clock": clock})

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
        return self._change("set_number", what, fields, {"node": node, "number": number, "value": value})

    def reset(self, nodes: Iterable[int] | None = None, *, population: str | None = None) -> str:
        """Reset the states of nodes, of a population, or, without either, all states."""
        if nodes is None and population is None:
            return self._change("reset", "all states", {}, {}, states=True, then=self._runner.reset)
        chosen, what = self._chosen(nodes, population)
        return self._change(
            "reset",
            f"the states of {what}",
            {},
            _node_arguments(chosen, population),
            states=True,
            then=lambda: self._runner.reset_nodes(chosen),
        )

    def node_facts(self, node: int | str) -> NodeFacts:
        """Return what can be changed of a node, or of an edge of a program by its name."""
        return node_facts(self.origin, self.places, self.changes, node)

    def _change(
        self,
        act: str,
        what: str,
        fields: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        states: bool = False,
        then: Callable[[], object] | None = None,
    ) -> str:
        """Do an act, list it, and return its text.

        Parameters
        ----------
        act, arguments : name and arguments of the method that a replay calls
        what : what the act is done to, for its text
        fields : fields of `changes` that it sets
        states : whether it changes states alone, which are saved then
        then : called after the network has changed
        """
        if len(self.history.steps) >= MOST_STEPS:
            raise SpecError(f"there are {MOST_STEPS:,} steps already", hint="save the history, and start anew")
        changes = replace(self.changes, **fields)
        verb = act.replace("set_clock", "set").replace("set_number", "set").replace("connect", "add")
        text = f"{verb} {what} at tick {self.elapsed}"
        plain = {name: value for name, value in arguments.items() if value is not None or name == "clock"}
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
        chosen = frozenset(int(node) if isinstance(node, np.integer) else node for node in nodes or ())
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
        return {pair for node in nodes for pair in edges_of(self.places, node)} - self.changes.cut

    def _had_edge(self, source: int, target: int) -> bool:

        return (source, target) in edges_of(self.origin, source)


def _node_arguments(chosen: frozenset[int], population: str | None) -> dict[str, Any]:
    """Return the arguments of an act on nodes or a population, for the history."""
    return {"nodes": sorted(chosen)} if population is None else {"population": population}


def _check_number(what: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    fits = isinstance(value, (int, np.integer) if whole else (int, float, np.number)) and not isinstance(value, bool)
    if not fits or not math.isfinite(float(value)) or not low <= float(value) <= high:  # pyright: ignore[reportArgumentType]
        kind = "a whole number" if whole else "a number"
        raise SpecError(f"{what} must be {kind} in {low:g} … {high:g}, got {value!r:.40}")


def _number_text(values: Values) -> str:
    """Return numbers as a short text."""
    if len(set(values)) == 1:
        return f"{values[0]:g}"
    shown = ["·" if value is None else f"{value:g}" for value in values]
    return "(" + ", ".join(shown if len(shown) <= 6 else [*shown[:5], "…"]) + ")"
