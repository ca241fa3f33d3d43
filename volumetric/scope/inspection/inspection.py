"""The inspector's questions about one network, answered from its weights and recorded rows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.base.hints import suggestion
from volumetric.clocked import Clocked
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.network import Network, Params
from volumetric.network.grid import Coord
from volumetric.observe.scene import first_nodes, parts_of, program_of
from volumetric.program.layer.program_layer import Program
from volumetric.scope.document import encode_message
from volumetric.scope.inspection.explained_rows import ExplainedRows, SeenRows, explained_rows
from volumetric.scope.inspection.layer_facts import layer_facts
from volumetric.scope.inspection.node_numbers import (
    describe_held,
    describe_numbers,
    find_number,
    number_groups,
    trace_held,
)
from volumetric.scope.inspection.number_trace import STEPS, TERMS, trace_number
from volumetric.scope.inspection.parameter_blocks import matrix_shape, parameter_block

ACTIONS: Final = ("parameter", "facts", "numbers", "explain")


class Inspection:
    """Answers what the inspector asks of a network. Safe to use from several threads.

    Numbers are those of the reference device in float64.

    Parameters
    ----------
    machine : network, or clocked network
    params : its weights
    rows : recorded rows, ``[T, …]`` or ``[B, T, …]``, or a dict by input; None: no numbers, unless `see` is called
    resets : ``[T]`` or ``[B, T]``, 1 for a row that starts a new sequence
    per_row : ticks for each row, for clocked networks
    row : index of the sequence, if there are several

    Raises
    ------
    ShapeError : rows do not match the network's inputs
    """

    def __init__(
        self,
        machine: Network | Clocked,
        params: Params,
        rows: Array | Mapping[str, Array] | None = None,
        *,
        resets: Array | None = None,
        per_row: int = 1,
        row: int = 0,
    ) -> None:
        self.machine = machine
        self.network: Network = machine.network if isinstance(machine, Clocked) else machine
        self.params = params
        self.why: str = "there are no recorded rows to compute numbers from"
        self._rows: ExplainedRows | None = None
        self._lock = threading.Lock()
        if rows is not None:
            try:
                self._rows = explained_rows(machine, params, rows, resets=resets, per_row=per_row, row=row)
            except UnsupportedError as error:
                self.why = str(error)
        self.program: Program | None = program_of(self.network) if machine is self.network else None
        self._parts = parts_of(self.network)
        self._firsts = first_nodes(self.network, self._parts)

    @property
    def count(self) -> int:
        """Number of rows, or ticks, whose numbers can be explained."""
        return 0 if self._rows is None else self._rows.count

    @property
    def spans(self) -> list[tuple[Coord, int, int]]:
        """Coordinate, first node and number of nodes of each layer, in the order of nodes of the scene."""
        if self.program is not None:
            return [(next(iter(self.network.layers)), 0, len(self.program.facts.places))]
        return [(c, first, self._parts[c].count if c in self._parts else 1) for c, first in self._firsts.items()]

    def place(self, node: int) -> tuple[Coord, int | None]:
        """Return the layer of a node of the scene, and which node of the layer it is; None: the layer is one node.

        Raises
        ------
        SpecError : there is no such node
        """
        for coord, first, count in self.spans:
            if first <= node < first + count:
                several = isinstance(self.network.layers[coord], Fabric) or self.program is not None
                return coord, node - first if several else None
        total = sum(count for _, _, count in self.spans)
        raise SpecError(f"there is no node {node}", hint=f"the scene has the nodes 0 … {total - 1}")

    def see(self, t: int, before: Mapping[str, Array], rows: Mapping[str, Array]) -> None:
        """Take over a row of a running stream, whose numbers are explained from now on.

        Parameters
        ----------
        t : number of the row or tick, from 0
        before : states of the stream before it, each ``[1, …]``, by the keys of the stream's ``state()``
        rows : what arrives at it, ``[1, …]`` by input; for a clocked network inputs may be left out

        Raises
        ------
        UnsupportedError : the network has too many weights
        """
        with self._lock:
            if not isinstance(self._rows, SeenRows):
                self._rows = SeenRows(self.machine, self.params)
            self._rows.see(t, before, rows)

    def facts(self, node: int) -> dict[str, Any]:
        """Return the facts of a node's layer, with histograms of its weights."""
        return layer_facts(self.machine, self.params, self.place(node)[0])

    def parameter(
        self, node: int, name: str, rows: tuple[int, int] | None = None, columns: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Return a block of a parameter, see `parameter_blocks.parameter_block`; None: all rows, or columns.

        Raises
        ------
        SpecError : there is no such node or parameter, or the block is not within it
        """
        coord, _ = self.place(node)
        names = [p.name for p in self.network.layers[coord].tensors()]
        if name not in names:
            raise SpecError(f"the layer at {coord} has no parameter {name!r:.80}", hint=suggestion(name, names))
        store = self.params[self.network.resolve(f"{coord}/{name}")]
        height, width = matrix_shape(store.shape)
        return parameter_block(store, rows or (0, height), columns or (0, width))

    def numbers(self, node: int, t: int | None = None) -> dict[str, Any]:
        """Return the numbers of a node at row or tick `t`, from 0; None: the last one.

        Returns
        -------
        dict
            ``t``; ``fired``: whether the layer computed; ``groups``: see `node_numbers.describe_numbers`

        Raises
        ------
        SpecError : there is no such node or row
        UnsupportedError : there are no rows, or the network is too large
        """
        rows, coord, index, t = self._row(node, t)
        held = rows.last_output(coord, t)
        if held is not None:
            return {"t": t, "fired": False, "groups": describe_held(held)}
        graph = rows.graph(coord, t)
        groups = number_groups(graph, self.network.layers[coord], coord, index)
        return {"t": t, "fired": True, "groups": describe_numbers(graph, groups)}

    def explain(
        self,
        node: int,
        t: int | None,
        of: str = "output",
        index: int = 0,
        *,
        at: tuple[int, int] | None = None,
        steps: int = STEPS,
        terms: int = TERMS,
    ) -> dict[str, Any]:
        """Return how a number of a node is computed at row `t`, see `number_trace.trace_number`.

        Parameters
        ----------
        of, index : group of `numbers`, and number in it
        at : a number that an earlier answer mentions, instead of these

        Raises
        ------
        SpecError : there is no such node, row or number
        UnsupportedError : there are no rows, or the network is too large
        """
        rows, coord, place, t = self._row(node, t)
        held = rows.last_output(coord, t)
        if held is not None:
            return {"t": t, "fired": False, **trace_held(held, index)}
        graph = rows.graph(coord, t)
        if at is None:
            at = find_number(number_groups(graph, self.network.layers[coord], coord, place), of, index)
        return {"t": t, "fired": True, **trace_number(graph, *at, steps=steps, terms=terms)}

    def _row(self, node: int, t: int | None) -> tuple[ExplainedRows, Coord, int | None, int]:
        coord, index = self.place(node)
        if self._rows is None:
            raise UnsupportedError(self.why)
        t = self._rows.count - 1 if t is None else t
        if not 0 <= t < self._rows.count:
            raise SpecError(f"there is no row {t}", hint=f"rows are 0 … {self._rows.count - 1}")
        return self._rows, coord, index, t

    def act(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an action of a page, as JSON data in which arrays are in base64.

        Actions are ``{"do": "parameter", "node", "name", "rows", "columns"}``, ``{"do": "facts", "node"}``, ``{"do":
        "numbers", "node", "t"}`` and ``{"do": "explain", "node", "t", "of", "index"}`` or with ``"at"``.

        Raises
        ------
        SpecError : the action is unknown or names something that does not exist
        UnsupportedError : there are no rows, or the network is too large
        """
        known: dict[str, Callable[[int], dict[str, Any]]] = {
            "facts": self.facts,
            "parameter": lambda node: self.parameter(
                node, _text(action, "name"), _pair(action, "rows"), _pair(action, "columns")
            ),
            "numbers": lambda node: self.numbers(node, _optional(action, "t")),
            "explain": lambda node: self.explain(
                node,
                _optional(action, "t"),
                _text(action, "of", "output"),
                _whole(action, "index", 0),
                at=_pair(action, "at"),
            ),
        }
        what = action.get("do")
        if what not in known:
            raise SpecError(f"the inspector cannot do {what!r:.40}", hint="one of " + ", ".join(known))
        with self._lock:
            answer = known[str(what)](_whole(action, "node"))
        return json.loads(encode_message(answer))


def _whole(action: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = action.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise SpecError(f"{name} must be a whole number, got {value!r:.40}")
    return int(value)


def _optional(action: Mapping[str, Any], name: str) -> int | None:
    return None if action.get(name) is None else _whole(action, name)


def _text(action: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = action.get(name, default)
    if not isinstance(value, str):
        raise SpecError(f"{name} must be a text, got {value!r:.40}")
    return value


def _pair(action: Mapping[str, Any], name: str) -> tuple[int, int] | None:
    value = action.get(name)
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise SpecError(f"{name} must be two whole numbers, got {value!r:.40}")
    return _whole({name: value[0]}, name), _whole({name: value[1]}, name)
