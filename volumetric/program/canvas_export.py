"""Programs as files of canvas-engineering."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import fields

from volumetric.layers.clock import And, Clock, Event
from volumetric.program.canvas_file import MODEL, NEVER, Connection, ConstraintFields, RegionSpec, fields_of
from volumetric.program.layer.edge import BY_OPERATOR
from volumetric.program.layer.edge_masks import Full
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.name_checks import ALIASES
from volumetric.program.layer.ports import Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, Place, Wire, facts_of
from volumetric.program.layer.region import Region
from volumetric.program.layer.region_learning import Semantic

_NAMES: Mapping[str, str] = {of: name for name, of in ALIASES.items() if name == f"{of}_attention"}
_SIGNS = {"above": ">", "at_least": ">=", "below": "<", "at_most": "<=", "equal": "==", "unequal": "!="}


class Exported(NamedTuple):
    """Text of a file, and the parts of the program that it cannot represent, a sentence each."""

    text: str
    lost: tuple[str, ...]


def export_canvas(program: Program) -> Exported:
    """Return a program in the file format of canvas-engineering 0.5.0, for its ``CanvasProgram.from_json``.

    `writes` becomes ``src``, and `reads` becomes ``dst``, because there ``src`` has the queries and is written.

    Raises
    ------
    SpecError : masks or lags of the program do not fit
    """
    return _Export(facts_of(program)).to_file()


class _Export:
    """State of one export."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._lost: list[str] = []
        self._pairs = Counter((wire.writes, wire.reads) for wire in facts.wires)

    def to_file(self) -> Exported:
        """Return the file."""
        program, canvas = self._facts.program, self._facts.program.canvas
        self._of_program(program)
        pairs: dict[str, dict[str, Any]] = {}
        layout = {"T": canvas.frames, "spatial_shape": list(canvas.shape), "d_model": canvas.width}
        data = {
            "schema_version": "0.2.0",
            "layout": {**layout, "t_current": canvas.current},
            "regions": {place.name: _spec(place) for place in self._facts.places},
            "topology": [self._connection(wire, pairs) for wire in self._facts.wires],
            "metadata": dict(program.metadata),
            "program_version": "2.0.0",
            "region_programs": {place.name: self._region(place) for place in self._facts.places},
            "connection_programs": pairs,
        }
        nonempty = {name: value for name, value in data.items() if value or name in ("regions", "topology")}
        return Exported(json.dumps(nonempty, indent=2, ensure_ascii=False) + "\n", tuple(self._lost))

    def _of_program(self, program: Program) -> None:
        if not program.parity:
            self._lost.append("parity with the package, with one set of parameters per rule")
        elif program.share == "edge":
            self._lost.append("parameters of each edge: the package has one set per rule")
        if program.timing == "stream":
            self._lost.append("time: the package runs windows")
        self._lost += [f"port {name!r}" for name, port in program.ports.items() if not isinstance(port, Signal)]
        residual = [name for name, region in program.canvas.regions.items() if region.carrier == "residual"]
        for meter in program.meters:
            if meter.region not in residual or meter != Meter(meter.region, meter.kinds, signed=True):
                self._lost.append(f"the meter of region {meter.region!r}")

    def _region(self, place: Place) -> dict[str, Any]:
        """Return the region's entry of ``region_programs``; note everything without a field in the file."""
        region, what = place.region, f"region {place.name!r}"
        if region.keeps_old:
            self._lost.append(f"{what}: residual additions of edges")
        if region.slots is not None:
            self._lost.append(f"{what}: its {region.slots} slots of memory")
        if region.carrier == "constant":
            self._lost.append(f"{what}: its constant, whose rows are a parameter")
        region_fields: dict[str, Any] = {
            "family": region.family,
            "tags": list(region.tags),
            "carrier": _carrier(region),
        }
        if region.fires is not None:
            clock = fields_of(region.fires)
            if clock is None:
                self._lost.append(f"{what}: clock {region.clock!r}")
            else:
                region_fields["clock"] = clock
        if region.learning is not None:
            region_fields["learning"] = self._learning(place)
        if region.keep == "runtime":
            self._lost.append(f"{what}: its keep 'runtime', which its family may override there")
        elif region.keep != "auto":
            region_fields["compile_mode"] = region.keep
        if region.constraints is not None:
            constraints = region.constraints
            region_fields["constraints"] = _fields(
                ConstraintFields(
                    equivariance=constraints.equivariance,
                    conservation=constraints.conservation,
                    causal_direction=constraints.causal,
                    monotonicity=constraints.monotone,
                )
            )
        if region.identity is not None:
            slots = region.identity
            region_fields["identity"] = {
                "mode": slots.mode,
                "slot_capacity": slots.capacity,
                "birth_death": slots.births,
            }
        return region_fields

    def _learning(self, place: Place) -> dict[str, Any]:
        learning = place.region.learning
        assert learning is not None
        learning_fields: dict[str, Any] = {"mode": learning.mode}
        if learning.losses is not None:
            learning_fields["losses"] = list(learning.losses)
            if any(weight != 1 for weight in learning.losses.values()):
                self._lost.append(f"region {place.name!r}: weights of losses")
        if learning.keep != "auto":
            learning_fields["compile_mode"] = learning.keep
        return learning_fields

    def _connection(self, wire: Wire, pairs: dict[str, dict[str, Any]]) -> dict[str, Any]:
        edge, what = wire.edge, f"edge {wire.name!r}"
        if edge.lag is not None and edge.fill != "hold":
            self._lost.append(f"{what}: fill {edge.fill!r}, which the package does not write")
        region = self._facts.places[wire.writes].region
        connection = Connection(
            src=edge.writes,
            dst=edge.reads,
            weight=wire.weight,
            t_src=None if edge.lag is None else 0,
            t_dst=None if edge.lag is None else -edge.lag,
            fn=None if wire.rule == (region.rule or "cross") else _NAMES.get(wire.rule, wire.rule),
            operator=edge.operator,
            write_mode=wire.write,
        )
        own_rule, own_write = BY_OPERATOR.get(edge.operator, (None, "add"))
        if (wire.rule == "cross" and own_rule not in (None, "cross")) or (wire.write == "add" and own_write != "add"):
            self._lost.append(f"{what}: operator {edge.operator!r} has its own rule and write mode there")
        for field in ("options", "heads"):
            if getattr(edge, field):
                self._lost.append(f"{what}: {field}")
        if edge.mask is not None and not isinstance(edge.mask, Full):
            self._lost.append(f"{what}: its mask")
        self._condition(wire, pairs)
        return _fields(connection)

    def _condition(self, wire: Wire, pairs: dict[str, dict[str, Any]]) -> None:
        edge = wire.edge
        several = self._pairs[wire.writes, wire.reads] > 1
        if several:
            self._lost.append(f"edge {wire.name!r}: the package distinguishes edges of a pair only by rule")
        if edge.holds is None:
            return
        trigger = _trigger(edge.holds)
        if trigger is None or several:
            self._lost.append(f"edge {wire.name!r}: condition {edge.when!r}")
        else:
            pairs[f"{edge.writes}|{edge.reads}"] = {
                "operator": edge.operator,
                "trigger": trigger,
                "write_mode": wire.write,
            }


def _spec(place: Place) -> dict[str, Any]:
    region, semantic = place.region, place.region.semantic or Semantic()
    return _fields(
        RegionSpec(
            bounds=tuple(end for side in region.box for end in side),
            period=region.period,
            is_output=region.output,
            loss_weight=region.loss_weight,
            semantic_type=semantic.type,
            semantic_embedding=semantic.vector,
            embedding_model=semantic.model or MODEL,
            default_attn=_NAMES.get(region.rule or "cross", region.rule or "cross"),
            carrier=_carrier(region),
        )
    )


def _fields(of: Struct) -> dict[str, Any]:
    """Return the fields of a part that differ from the package's defaults."""
    return {field.name: value for field in fields(of) if (value := getattr(of, field.name)) != field.default}


def _carrier(region: Region) -> str:
    """Return the carrier in the terms of the package, which has no constants."""
    return "deterministic" if region.carrier == "constant" else region.carrier


def _trigger(clock: Clock) -> str | None:
    """Return a condition in the terms of the package: a conjunction of comparisons."""
    if str(clock) == NEVER:
        return "never"  # malformed there, so that it never holds
    clauses: list[str] = []
    for part in clock.terms if isinstance(clock, And) else (clock,):
        if not isinstance(part, Event):
            return None
        bounds = {sign: value for name, sign in _SIGNS.items() if (value := getattr(part, name)) is not None}
        clauses += [f"{part.source} {sign} {value!r}" for sign, value in bounds.items()]
    return " && ".join(clauses)
