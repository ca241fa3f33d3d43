"""The file format of canvas-engineering 0.5.0: layouts, topologies, programs (``CanvasSchema``, ``CanvasProgram``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct

from volumetric.errors import SpecError
from volumetric.hints import shown
from volumetric.layers.program.declared import MOST_EDGES, refuse_edges
from volumetric.layers.program.named import Named
from volumetric.layers.program.text import read_json
from volumetric.tables import record

T = TypeVar("T")
MODEL = "openai/text-embedding-3-small"
"""Embedding model of a region that names none."""


class Layout(Struct, frozen=True, kw_only=True):
    """``CanvasLayout`` without its regions."""

    T: int
    d_model: int
    spatial_shape: tuple[int, ...] | None = None
    H: int | None = None
    W: int | None = None
    t_current: int = 0


class Spec(Struct, frozen=True, kw_only=True):
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


class Masked(Struct, frozen=True, kw_only=True):
    """``MaskSpec``, which the package does not write."""

    kind: str = "full"
    tile_h: int = 1
    tile_w: int = 1
    tile_shape: tuple[int, ...] | None = None


class Connection(Struct, frozen=True, kw_only=True):
    """``Connection``; the package does not write the last three, but an edge has them."""

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
    mask: Masked | None = None


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
    """A file of the package; without ``program_version`` it has a layout and a topology alone."""

    layout: Layout
    regions: Mapping[str, Spec]
    topology: tuple[Connection, ...] = ()
    schema_version: str = "0.2.0"
    program_version: str | None = None
    region_programs: Mapping[str, RegionFields] = Named()
    connection_programs: Mapping[str, ConnectionFields] = Named()
    metadata: Mapping[str, str] = Named()


def read_canvas(text: str | bytes) -> tuple[CanvasFile, list[str]]:
    """Return what a text of the package says, and what of it is not known.

    Raises
    ------
    SpecError : it is none; the message names the place
    """
    data = read_json(text, "canvas")
    if not isinstance(data, dict) or "layout" not in data or "regions" not in data:
        raise SpecError(
            "canvas: no file of canvas-engineering: it has no layout and regions",
            hint="CanvasProgram.to_json or CanvasSchema.to_json writes one",
        )
    topology, layout = data.get("topology"), data["layout"]
    if isinstance(topology, list) and len(topology) > MOST_EDGES:
        width = layout.get("d_model") if isinstance(layout, dict) else None
        refuse_edges(len(topology), width if isinstance(width, int) else 64)
    notes: list[str] = []
    known = _known(data, CanvasFile, "$", notes)
    metadata = known.get("metadata")
    if isinstance(metadata, dict):
        known["metadata"] = {k: v if isinstance(v, str) else json.dumps(v) for k, v in metadata.items()}
    return record(CanvasFile, known, "$"), notes


_INSIDE: Mapping[type, Mapping[str, tuple[type, str]]] = {
    CanvasFile: {
        "layout": (Layout, "one"),
        "regions": (Spec, "by name"),
        "topology": (Connection, "listed"),
        "region_programs": (RegionFields, "by name"),
        "connection_programs": (ConnectionFields, "by name"),
    },
    Connection: {"mask": (Masked, "one")},
    RegionFields: {
        "clock": (ClockFields, "one"),
        "learning": (LearningFields, "one"),
        "constraints": (ConstraintFields, "one"),
        "identity": (IdentityFields, "one"),
    },
}


def _known(data: Any, cls: type[Struct], where: str, notes: list[str]) -> Any:
    """Leave keys out that the package would pass over, each with a note."""
    if not isinstance(data, dict):
        return data
    found: dict[str, Any] = {}
    for key, value in data.items():
        place = f"{where}.{key}"
        if key not in cls.__struct_fields__:
            notes.append(f"{where}: {shown(key)} is not known and left out")
            continue
        inside, form = _INSIDE.get(cls, {}).get(key, (None, "one"))
        if inside is None:
            found[key] = value
        elif form == "by name" and isinstance(value, dict):
            found[key] = {name: _known(one, inside, f"{place}.{name}", notes) for name, one in value.items()}
        elif form == "listed" and isinstance(value, list):
            found[key] = [_known(one, inside, f"{place}[{i}]", notes) for i, one in enumerate(value)]
        else:
            found[key] = _known(value, inside, place, notes)
    return found
