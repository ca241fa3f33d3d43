"""The file format of canvas-engineering 0.5.0: layouts, topologies, programs (``CanvasProgram``), clocks as text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from volumetric.base.config_tables import record
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.layers.clock import Clock, Cooldown, Event, Every, Inner, MaxSilence, On
from volumetric.program.layer.name_checks import Named
from volumetric.program.layer.program_declaration import MOST_EDGES, refuse_edges
from volumetric.program.layer.text import read_json

T = TypeVar("T")
MODEL = "openai/text-embedding-3-small"
"""Default embedding model of a region."""


class CanvasLayout(Struct, frozen=True, kw_only=True):
    """``CanvasLayout`` without its regions."""

    T: int
    d_model: int
    spatial_shape: tuple[int, ...] | None = None
    H: int | None = None
    W: int | None = None
    t_current: int = 0


class RegionSpec(Struct, frozen=True, kw_only=True):
    """``RegionSpec``."""

    bounds: tuple[int, ...]
    period: int = 1
    is_output: bool = True
    loss_weight: float = 1.0
    semantic_type: str | None = None
    semantic_embedding: tuple[float, ...] | None = None
    embedding_model: str = MODEL
    default_attn: str = "cross_attention"
    carrier: str = "deterministic"


class MaskSpec(Struct, frozen=True, kw_only=True):
    """``MaskSpec``; the package never writes it."""

    kind: str = "full"
    tile_h: int = 1
    tile_w: int = 1
    tile_shape: tuple[int, ...] | None = None


class Connection(Struct, frozen=True, kw_only=True):
    """``Connection``; the package never writes the last three fields, but its edges have them."""

    src: str
    dst: str
    weight: float = 1.0
    t_src: int | None = None
    t_dst: int | None = None
    fn: str | None = None
    operator: str = "attend"
    write_mode: str = "add"
    temporal_fill: str = "hold"
    interpolation_order: int = 1
    mask: MaskSpec | None = None


class ClockFields(Struct, frozen=True, kw_only=True):
    """``ClockSpec``."""

    domain: str = "external"
    mode: str = "periodic"
    period: int = 1
    event_source: str | None = None
    event_threshold: float = 0.0
    cooldown: int = 0
    max_silence: int | None = None
    max_inner_steps: int | None = None


class LearningFields(Struct, frozen=True, kw_only=True):
    """``LearningSpec``."""

    mode: str = "supervised"
    losses: tuple[str, ...] = ()
    compile_mode: str = "runtime"


class ConstraintFields(Struct, frozen=True, kw_only=True):
    """``ConstraintSpec``."""

    equivariance: str | None = None
    conservation: str | None = None
    causal_direction: str | None = None
    monotonicity: str | None = None


class IdentityFields(Struct, frozen=True, kw_only=True):
    """``IdentitySpec``."""

    mode: str = "persistent"
    slot_capacity: int = 64
    binding_fn: str = "cross_attention"
    birth_death: bool = False


class RegionFields(Struct, frozen=True, kw_only=True):
    """``RegionProgram``."""

    family: str = "state"
    tags: tuple[str, ...] = ()
    carrier: str = "deterministic"
    clock: ClockFields | None = None
    learning: LearningFields | None = None
    compile_mode: str = "runtime"
    constraints: ConstraintFields | None = None
    identity: IdentityFields | None = None


class ConnectionFields(Struct, frozen=True, kw_only=True):
    """``ConnectionProgram``."""

    operator: str = "attend"
    trigger: str | None = None
    write_mode: str = "add"


class CanvasFile(Struct, frozen=True, kw_only=True):
    """A file of the package; without ``program_version`` it has only a layout and a topology."""

    layout: CanvasLayout
    regions: Mapping[str, RegionSpec]
    topology: tuple[Connection, ...] = ()
    schema_version: str = "0.2.0"
    program_version: str | None = None
    region_programs: Mapping[str, RegionFields] = Named()
    connection_programs: Mapping[str, ConnectionFields] = Named()
    metadata: Mapping[str, str] = Named()


def read_canvas(text: str | bytes) -> tuple[CanvasFile, list[str]]:
    """Parse a text of the package; also return a note for each unknown field.

    Raises
    ------
    SpecError : the text is no file of the package; the message names the place
    """
    data = read_json(text, "canvas")
    if not isinstance(data, dict) or "layout" not in data or "regions" not in data:
        raise SpecError(
            "canvas: not a file of canvas-engineering: it has no layout and no regions",
            hint="write the file with CanvasProgram.to_json or CanvasSchema.to_json",
        )
    topology, layout = data.get("topology"), data["layout"]
    if isinstance(topology, list) and len(topology) > MOST_EDGES:
        width = layout.get("d_model") if isinstance(layout, dict) else None
        refuse_edges(len(topology), width if isinstance(width, int) else 64)
    notes: list[str] = []
    known = _known_fields(data, CanvasFile, "$", notes)
    metadata = known.get("metadata")
    if isinstance(metadata, dict):
        known["metadata"] = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
    return record(CanvasFile, known, "$"), notes


_INSIDE: Mapping[type, Mapping[str, tuple[type, str]]] = {
    CanvasFile: {
        "layout": (CanvasLayout, "one"),
        "regions": (RegionSpec, "by name"),
        "topology": (Connection, "listed"),
        "region_programs": (RegionFields, "by name"),
        "connection_programs": (ConnectionFields, "by name"),
    },
    Connection: {"mask": (MaskSpec, "one")},
    RegionFields: {
        "clock": (ClockFields, "one"),
        "learning": (LearningFields, "one"),
        "constraints": (ConstraintFields, "one"),
        "identity": (IdentityFields, "one"),
    },
}


def _known_fields(data: Any, cls: type[Struct], where: str, notes: list[str]) -> Any:
    """Drop keys that the package would ignore, with a note for each."""
    if not isinstance(data, dict):
        return data
    known_fields: dict[str, Any] = {}
    for key, value in data.items():
        place = f"{where}.{key}"
        if key not in cls.__struct_fields__:
            notes.append(f"{where}: {format_value(key)} is unknown and was ignored")
            continue
        inside, form = _INSIDE.get(cls, {}).get(key, (None, "one"))
        if inside is None:
            known_fields[key] = value
        elif form == "by name" and isinstance(value, dict):
            known_fields[key] = {
                name: _known_fields(one, inside, f"{place}.{name}", notes) for name, one in value.items()
            }
        elif form == "listed" and isinstance(value, list):
            known_fields[key] = [_known_fields(one, inside, f"{place}[{i}]", notes) for i, one in enumerate(value)]
        else:
            known_fields[key] = _known_fields(value, inside, place, notes)
    return known_fields


NEVER = "!every(1)"
ALWAYS = "every(1)"
_CLAUSE = re.compile(r"\s*(\S(?:.*\S)?)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*", re.DOTALL)


class ClockNames(Protocol):
    """Resolves the names that clocks of a file use."""

    def watched(self, path: str) -> str | None:
        """Return ``region.kind`` with the new names, or None if no meter measures it."""
        ...

    def event(self, name: str) -> str:
        """Return the new name of an event."""
        ...


def clock_of(clock: ClockFields, names: ClockNames) -> str | None:
    """Return the text of a clock; None: it always fires.

    The package checks the cooldown first, then silence, then the rule. There, a cooldown of n blocks n - 1 steps, and
    a value without a meter is 0.
    """
    text = _rule(clock, names)
    if clock.max_silence is not None:
        text = f"silence({text}, {max(clock.max_silence, 1)})"
    if clock.cooldown > 1:
        text = f"cooldown({text}, {clock.cooldown - 1})"
    if clock.domain == "internal" and (clock.max_inner_steps or 0) > 0:
        text = f"inner({text}, {clock.max_inner_steps})"
    return None if text == ALWAYS else text


def trigger_of(trigger: str | None, names: ClockNames) -> str | None:
    """Return the text of a trigger; None: it always holds.

    It has clauses ``region.kind OP number``, joined by ``&&``. A clause that is malformed or has no meter never holds.
    """
    if trigger is None or not trigger.strip():
        return None
    clauses = [_clause(clause, names) for clause in trigger.split("&&")]
    return NEVER if None in clauses else " && ".join(map(str, clauses))


def _clause(clause: str, names: ClockNames) -> str | None:
    match = _CLAUSE.fullmatch(clause)
    number = None if match is None else _number(match[3])
    if match is None or number is None:
        return None
    source = names.watched(match[1])
    return None if source is None else f"{source} {match[2]} {number}"


def _rule(clock: ClockFields, names: ClockNames) -> str:
    if clock.mode == "periodic":
        return f"every({max(clock.period, 1)})"
    if clock.mode == "on_event":
        threshold = _number(repr(clock.event_threshold))
        if clock.event_source is None or "." not in clock.event_source or threshold is None:
            return NEVER
        source = names.watched(clock.event_source)
        if source is None:
            return ALWAYS if clock.event_threshold < 0 else NEVER
        return f"{source} > {threshold}"
    if clock.mode == "boundary":
        return NEVER if clock.event_source is None else f"on({names.event(clock.event_source)})"
    return ALWAYS  # like the package for an unknown mode


def _number(text: str) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def fields_of(clock: Clock) -> dict[str, Any] | None:
    """Return the fields of the equivalent clock of the package; None: there is none."""
    fields: dict[str, Any] = {}
    if isinstance(clock, Inner):
        fields, clock = {"domain": "internal", "max_inner_steps": clock.steps}, clock.clock
    if isinstance(clock, Cooldown):
        fields["cooldown"], clock = clock.steps + 1, clock.clock
    if isinstance(clock, MaxSilence):
        fields["max_silence"], clock = clock.steps, clock.clock
    if isinstance(clock, Every) and not clock.phase:
        return fields | ({} if clock.period == 1 else {"period": clock.period})
    if isinstance(clock, On):
        return fields | {"mode": "boundary", "event_source": clock.name}
    if isinstance(clock, Event) and clock == Event(clock.source, above=clock.above if clock.above is not None else 0):
        return fields | {"mode": "on_event", "event_source": clock.source, "event_threshold": clock.above}
    return fields | {"mode": "on_event"} if str(clock) == NEVER else None
