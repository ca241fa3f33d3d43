"""Import of programs and layouts of canvas-engineering."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import asdict

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.program.canvas_file import (
    MODEL,
    NEVER,
    CanvasFile,
    Connection,
    ConnectionFields,
    RegionFields,
    RegionSpec,
    clock_of,
    read_canvas,
    trigger_of,
)
from volumetric.program.layer.edge import BY_OPERATOR, Edge
from volumetric.program.layer.edge_masks import Mask, Rects, Tile
from volumetric.program.layer.frames import fill_frames
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.name_checks import ALIASES, LOSSES, MODES, NAME
from volumetric.program.layer.ports import Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.region import Canvas, Identity, Region
from volumetric.program.layer.region_learning import Constraints, Learning, Semantic

_FILLS = {"drop": "drop", "hold": "hold", "interpolate": "lerp"}


class Imported(NamedTuple):
    """A program, and its differences from the file, a sentence each."""

    program: Program
    notes: tuple[str, ...]


def import_canvas(text: str | bytes, *, operators: bool = True, heads: int = 4) -> Imported:
    """Return the program of a file of canvas-engineering 0.5.0, a program or a layout with its topology.

    There ``src`` has the queries and is written, so it becomes `writes` of the edge, and ``dst`` becomes `reads`. The
    program computes as the package does (`parity`): one set of parameters for all edges of a rule, no residual sums.
    Frames that the package excludes from an edge become masks.

    Parameters
    ----------
    operators : an operator sets rule and write mode if the file does not, as the package documents; if false it is only
        a label, as in version 0.5.0
    heads : number of attention heads, which files do not have

    Raises
    ------
    SpecError : the text is no valid file; the message names the place
    """
    file, notes = read_canvas(text)
    return _Import(file, notes, operators and file.program_version is not None, heads).to_program()


class _Import:
    """State of one import."""

    def __init__(self, file: CanvasFile, notes: list[str], by_operator: bool, heads: int) -> None:
        self._file, self._notes, self._by_operator, self._heads = file, notes, by_operator, heads
        self._names = _names_of(file.regions)
        self._kinds: dict[str, dict[str, None]] = {}
        self._events: dict[str, str] = {}
        notes += [f"region {format_value(old)} is called {new!r}" for old, new in self._names.items() if old != new]

    def to_program(self) -> Imported:
        """Return the program."""
        file = self._file
        for what, of in (("region_programs", file.region_programs), ("connection_programs", file.connection_programs)):
            pairs = {f"{one.src}|{one.dst}" for one in file.topology}
            for key in of:
                if key not in (file.regions if what == "region_programs" else pairs):
                    self._notes.append(f"$.{what}: there is no {format_value(key)}; its entry was ignored")
        layout = file.layout
        shape = layout.spatial_shape or tuple(side for side in (layout.H, layout.W) if side is not None)
        regions = {self._names[name]: self._region(name, spec) for name, spec in file.regions.items()}
        canvas = _with_place("$.layout", lambda: Canvas(layout.T, shape, layout.d_model, regions, layout.t_current))
        edges = [edge for number, one in enumerate(file.topology) for edge in self._edges(number, one, canvas)]
        metered = [name for name in file.regions if self._carrier(name) == "residual"]
        kinds = {name: tuple(self._kinds.get(name, ())) or ("prediction",) for name in metered}
        if not file.topology:
            self._notes.append("there is no topology: the program has no edges")
        program = _with_place(
            "$",
            lambda: Program(
                canvas,
                edges,
                ports={name: Signal() for name in self._events.values()},
                meters=[Meter(self._names[name], kinds[name], signed=True) for name in metered],
                time="window",
                heads=self._heads,
                share="rule",
                parity=True,
                metadata=file.metadata,
            ),
        )
        return Imported(program, tuple(self._notes))

    def watched(self, path: str) -> str | None:
        """Return ``region.kind`` with the new names, or None if no meter measures it."""
        region, _, kind = path.rpartition(".")
        if (
            region not in self._names
            or self._carrier(region) != "residual"
            or not re.fullmatch(r"[A-Za-z_][\w-]*", kind)
        ):
            self._notes.append(
                f"nothing measures {format_value(path)}: a clock reads 0, and a trigger on it never holds"
            )
            return None
        self._kinds.setdefault(region, {})[kind] = None
        return f"{self._names[region]}.{kind}"

    def event(self, name: str) -> str:
        """Return the new name of an event, which becomes a port."""
        return self._events.setdefault(name, _name(name))

    def _carrier(self, name: str) -> str:
        fields = self._file.region_programs.get(name)
        return (
            self._file.regions[name].carrier if fields is None or fields.carrier == "deterministic" else fields.carrier
        )

    def _region(self, name: str, spec: RegionSpec) -> Region:
        """Return the region of an entry of ``regions``; note each difference."""
        where, fields = f"$.regions.{name}", self._file.region_programs.get(name) or RegionFields()
        bounds = spec.bounds
        if len(bounds) % 2:
            raise SpecError(
                f"{where}.bounds: got {len(bounds)} numbers", hint="expected a low and a high end along each axis"
            )
        carrier = self._carrier(name)
        if spec.carrier not in ("deterministic", carrier):
            self._notes.append(f"{where}: carrier {carrier!r} replaces {spec.carrier!r} of the layout")
        if carrier == "constant":
            raise SpecError(f"{where}: the package has no carrier 'constant'", hint="its keep can be constant")
        if carrier in ("filter", "memory", "diffusive"):
            self._notes.append(
                f"{where}: carrier {carrier!r} has no equations in the package; it has no effect with parity"
            )
        family = (
            fields.family if re.fullmatch(r"[A-Za-z_][\w-]{0,63}", fields.family, re.ASCII) else _word(fields.family)
        )
        if family != fields.family:
            self._notes.append(f"{where}: family {format_value(fields.family)} is now called {family!r}")
        if family == "memory" and fields.learning is None and fields.compile_mode == "runtime":
            self._notes.append(f"{where}: the package exports memories by default; this one has keep 'runtime'")
        semantic = Semantic(
            spec.semantic_type,
            spec.semantic_embedding,
            spec.embedding_model if spec.semantic_embedding or spec.embedding_model != MODEL else None,
        )
        return _with_place(
            where,
            lambda: Region(
                tuple(zip(bounds[::2], bounds[1::2], strict=True)),
                family=family,
                carrier=carrier,  # pyright: ignore[reportArgumentType]  (checked there)
                tags=fields.tags,
                period=spec.period,
                clock=None if fields.clock is None else clock_of(fields.clock, self),
                rule=None if spec.default_attn == "cross_attention" else spec.default_attn,
                residual=False if family in ("state", "memory") else None,
                learning=self._learning(where, fields),
                keep="auto" if fields.compile_mode == "runtime" else fields.compile_mode,  # pyright: ignore[reportArgumentType]  (checked there)
                identity=self._identity(where, fields),
                constraints=None if fields.constraints is None else _constraints(asdict(fields.constraints)),
                loss_weight=spec.loss_weight,
                output=spec.is_output,
                semantic=None if semantic == Semantic() else semantic,
            ),
        )

    def _learning(self, where: str, fields: RegionFields) -> Learning | None:
        if fields.learning is None:
            return None
        learning, where = fields.learning, f"{where}: learning"
        mode, keep = learning.mode, learning.compile_mode
        if mode not in MODES:
            self._notes.append(f"{where} mode {format_value(mode)} is unknown; it learns nothing")
            mode = "none"
        if keep == "distill":
            self._notes.append(f"{where} compile_mode 'distill' does nothing in the package; the keep is 'runtime'")
            keep = "runtime"
        odd = [name for name in learning.losses if name not in LOSSES]
        if odd:
            self._notes.append(f"{where} losses without equations were ignored: {format_value(', '.join(odd))}")
        losses = dict.fromkeys((name for name in learning.losses if name in LOSSES), 1.0)
        return Learning(mode, losses or None, keep)  # pyright: ignore[reportArgumentType]  (checked there)

    def _identity(self, where: str, fields: RegionFields) -> Identity | None:
        identity = fields.identity
        if identity is None:
            return None
        if identity.mode == "persistent":
            self._notes.append(f"{where}: slots persist; the package resets them at each call")
        if identity.mode == "tracklet":
            self._notes.append(f"{where}: slots of mode 'tracklet' are persistent ones with births")
        if ALIASES.get(identity.binding_fn, identity.binding_fn) != "cross":
            self._notes.append(
                f"{where}: slots are bound by cross attention, not by {format_value(identity.binding_fn)}"
            )
        mode = "ephemeral" if identity.mode == "ephemeral" else "persistent"
        return Identity(identity.slot_capacity, mode, identity.birth_death)

    def _edges(self, number: int, one: Connection, canvas: Canvas) -> Iterator[Edge]:
        """Yield the edges of an entry of ``topology``; note each difference."""
        where = f"$.topology[{number}]"
        for end in (one.src, one.dst):
            if end not in self._names:
                raise SpecError(f"{where}: there is no region {format_value(end)}")
        more = self._file.connection_programs.get(f"{one.src}|{one.dst}") or ConnectionFields()
        when = trigger_of(more.trigger, self)
        if when == NEVER:
            self._notes.append(f"{where}: trigger {format_value(more.trigger)} never holds")
        operator = more.operator if more.operator != "attend" else one.operator
        mask = self._mask(where, one)
        if mask is not None and (one.t_src is not None or one.t_dst is not None):
            self._notes.append(f"{where}: its mask was ignored because it has frames")
            mask = None
        rule = ALIASES.get(fn := one.fn or self._file.regions[one.src].default_attn, fn)
        write = next((mode for mode in (more.write_mode, one.write_mode) if mode != "add"), "add")
        if self._by_operator:
            own_rule, own_write = BY_OPERATOR.get(operator, (None, "add"))
            if (rule == "cross" and own_rule not in (None, "cross")) or (write == "add" and own_write != "add"):
                self._notes.append(f"{where}: operator {operator!r} has its own rule or write mode")
            rule = own_rule if rule == "cross" and own_rule is not None else rule
            write = own_write if write == "add" else write
        if one.temporal_fill not in _FILLS:
            raise SpecError(f"{where}: unknown temporal_fill {format_value(one.temporal_fill)}", hint=", ".join(_FILLS))
        fields: dict[str, Any] = {
            "reads": self._names[one.dst],
            "writes": self._names[one.src],
            "rule": rule,
            "operator": operator,
            "write": write,
            "when": when,
            "fill": _FILLS[one.temporal_fill],
            "order": one.interpolation_order,
        }
        for own in _frame_edges(one, canvas, self._names, mask):
            yield _with_place(where, lambda own=own: Edge(**{**fields, **own}))

    def _mask(self, where: str, one: Connection) -> Mask | None:
        mask = one.mask
        if mask is None or mask.kind == "full":
            return None
        if mask.kind != "tile":
            self._notes.append(f"{where}: a mask of kind {format_value(mask.kind)} masks nothing, as in the package")
            return None
        self._notes.append(f"{where}: a tile without keys writes nothing; the package lets it read the whole region")
        return _with_place(where, lambda: Tile(mask.tile_shape or (mask.tile_h, mask.tile_w)))


def _frame_edges(
    one: Connection, canvas: Canvas, names: Mapping[str, str], mask: Mask | None
) -> Iterator[dict[str, Any]]:
    """Yield lag, mask and weight of the edges of a connection.

    For each reference frame of the canvas there, positions ``t_src`` frames later are queries, and those ``t_dst``
    frames later are keys; None means all frames.
    """
    if one.t_src is None and one.t_dst is None:
        yield {"weight": one.weight, "mask": mask}
        return
    writes, reads = canvas.regions[names[one.src]], canvas.regions[names[one.dst]]
    asks, answers = _frame_rows(writes), _frame_rows(reads)
    columns = (0, answers[-1][2])
    if one.t_src is not None:
        there = [(low, high) for frame, low, high in asks if one.t_src <= frame < canvas.frames + one.t_src]
        if there:
            whole = len(there) == len(asks)
            rows = None if whole else Rects([(there[0][0], there[-1][1], *columns)])
            lag = None if one.t_dst is None else one.t_src - one.t_dst
            yield {"weight": one.weight, "mask": rows, "lag": lag}
        return
    times = sorted({frame * reads.period for frame, _, _ in answers})
    rows_of = {frame * reads.period: (low, high) for frame, low, high in answers}
    for frame in range(canvas.frames):
        fill, order = _FILLS[one.temporal_fill], one.interpolation_order
        for time, share in fill_frames(fill, order, frame + (one.t_dst or 0), times):
            rows = Rects([(0, asks[-1][2], *rows_of[time])])
            yield {"weight": one.weight * share, "mask": None if len(answers) == 1 else rows}


def _frame_rows(region: Region) -> list[tuple[int, int, int]]:
    """Return the frames of a region, each with the range of its positions."""
    each = 1
    for low, high in region.box[1:]:
        each *= high - low
    first, last = region.box[0]
    return [(frame, (frame - first) * each, (frame - first + 1) * each) for frame in range(first, last)]


def _constraints(fields: Mapping[str, Any]) -> Constraints:
    return Constraints(
        fields["equivariance"], fields["conservation"], fields["causal_direction"], fields["monotonicity"]
    )


def _names_of(regions: Mapping[str, RegionSpec]) -> dict[str, str]:
    """Return the names of regions: those of the file, with invalid characters replaced."""
    own_names: dict[str, str] = {}
    for name in regions:
        own = _name(name)
        while own != name and (own in own_names.values() or own in regions):
            own += "_"
        own_names[name] = own
    return own_names


def _name(name: str) -> str:
    return name if re.fullmatch(NAME, name, re.ASCII) else _word(name)


def _word(text: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", text)[:60]
    return word if re.match(r"[A-Za-z_]", word) else f"_{word}"


def _with_place(where: str, make: Any) -> Any:
    try:
        return make()
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None
