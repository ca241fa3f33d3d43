"""Compiler of programs: it removes everything that the outputs do not need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from volumetric.base._typing import Array, F32Array
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.network import Network, check_params
from volumetric.network.grid import Coord
from volumetric.network.weight_store import Params, WeightStore
from volumetric.program.compiling.compile_passes import SAFE, dead_parts, remark, trim_canvas, unread_meters
from volumetric.program.compiling.compile_report import CompileLog, Report, counts_of
from volumetric.program.compiling.constants import Constants, drop_learning, fold_constants, keep_of
from volumetric.program.compiling.evaluating import rows_of_run
from volumetric.program.layer.edge_tasks import gate_of, names_of, tasks_of
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.program_params import all_params, codes_of, constants_of, rows_of

_AT = "0.0.0.0/"
"""Coordinate of the program in a network of one program."""


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """A compiled program.

    Attributes
    ----------
    program : the compiled program
    params : parameters of its network, by key; None if none were passed
    report : changes and their reasons
    frozen : keys of parameters of frozen regions and of constants' rows, for `TrainConfig.frozen`
    exported : content of regions with keep ``"export"``, by name, float32 ``[rows, d]``, for `loaders.save_exported`
    """

    program: Program
    params: Params | None
    report: Report
    frozen: tuple[str, ...]
    exported: Mapping[str, F32Array] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        """A network of the program alone, for `params`."""
        return self.program.network()


def compile(  # noqa: A001  (as `fabric.compile` and `typed.compile`)
    program: Program,
    params: Mapping[str, WeightStore] | None = None,
    *,
    deploy: bool = True,
    outputs: Sequence[str] | None = None,
    drop_inputs: bool = False,
    after: int | None = None,
    rows: Array | Mapping[str, Array] | None = None,
) -> Compiled:
    """Return a program with the same outputs and less computation.

    It removes edges that never write, or whose writes are all replaced in the same step; clocks that always hold;
    regions and edges that no output depends on (through edges, clocks, conditions, meters and shared positions);
    unread meters; and the end of the canvas after the last region. From the start of a stream, and from each reset,
    all outputs are unchanged.

    Parameters
    ----------
    program : a program that can be run
    params : parameters of ``program.network()``, by key; None: compile without parameters
    deploy : the program will not be trained: learning recipes are removed with their parameters and states, and
        `frozen` lists what to freeze if it is trained after all. If false, regions with their own losses count as
        outputs
    outputs : output ports to keep; None: all. With fewer outputs, more is dead
    drop_inputs : also remove inputs that no output depends on, which moves the columns of other inputs
    after : constants take the content of regions after this many rows of zeros, settled or not
    rows : constants take the content of regions after these rows of one stream, ``[T, columns]``, or ``[T, dim]`` by
        input

    Raises
    ------
    SpecError : the program cannot be run, an output is unknown, or rows do not fit
    CheckpointError : parameters do not fit

    Examples
    --------
    >>> from volumetric.program import Canvas, Edge, In, Out, Program, Region, compile
    >>> regions = {name: Region(((n, n + 1),)) for n, name in enumerate(("eye", "act", "guess"))}
    >>> edges = [Edge("eye", "act"), Edge("act", "guess")]
    >>> made = compile(Program(Canvas(1, (3,), 8, regions), edges, {"in": In("eye", 2), "out": Out("act", 1)}))
    >>> print(made.report.notes[0])
    - edge guess<act#0: no output depends on it
    >>> list(made.program.canvas.regions)
    ['eye', 'act']
    """
    if params is not None:
        check_params(program.network(), params)
    bare = None if params is None else {key.removeprefix(_AT): store for key, store in params.items()}
    part = compiled_part(program, bare, deploy=deploy, outputs=outputs, drop_inputs=drop_inputs, after=after, rows=rows)
    stores = None if part.params is None else Params({_AT + name: store for name, store in part.params.items()})
    return dataclasses.replace(part, params=stores, frozen=tuple(_AT + name for name in part.frozen))


def compiled_part(
    program: Program,
    params: Mapping[str, WeightStore] | None,
    *,
    deploy: bool = True,
    outputs: Sequence[str] | None = None,
    drop_inputs: bool = False,
    after: int | None = None,
    rows: Array | Mapping[str, Array] | None = None,
) -> Compiled:
    """Run `compile` on parameters by the program's own names."""
    from volumetric.program.layer.program_layer import Program as Layer

    Layer(program=program)  # raises SpecError if the program cannot be run
    log = CompileLog()
    run = rows_of_run(program, after, rows)
    compiled = _keep_outputs(program, outputs, log)
    constants = Constants(compiled)
    if deploy:
        constants = fold_constants(drop_learning(compiled, log), params, log, run)
        compiled = constants.program
    else:
        waits = [name for name, region in compiled.canvas.regions.items() if keep_of(region) in ("constant", "export")]
        log.add("kept", "region", waits, "it becomes a constant when the program is deployed")
    before = None
    while compiled != before:
        before = compiled
        for of in SAFE:
            compiled = of(compiled, log)
        compiled = unread_meters(dead_parts(compiled, log, drop_inputs=drop_inputs), log)
    compiled = trim_canvas(compiled, log)
    remark(compiled, log)
    facts = facts_of(compiled)
    stores = None
    if params is not None:
        evaluated = {rows_of(name): WeightStore.from_array(values) for name, values in constants.rows.items()}
        stores = Params(carry_params(facts_of(program), facts, {**params, **evaluated}))
    frozen: tuple[str, ...] = ()
    if deploy:
        frozen_names = frozenset(
            name for name, region in compiled.canvas.regions.items() if keep_of(region) == "freeze"
        )
        frozen = owned_by(facts, frozen_names) + tuple(rows_of(place.name) for place in constants_of(facts))
    exported = {name: constants.rows[name] for name in constants.exported}
    return Compiled(
        compiled, stores, Report(counts_of(program), counts_of(compiled), tuple(log.notes)), frozen, exported
    )


def _keep_outputs(program: Program, outputs: Sequence[str] | None, log: CompileLog) -> Program:
    if outputs is None:
        return program
    if isinstance(outputs, str):
        raise SpecError(f"compile: outputs must be a list of names, got {outputs!r}", hint=f"outputs=[{outputs!r}]")
    for name in outputs:
        if name not in program.outputs:
            known = program.outputs
            raise SpecError(
                f"compile: there is no output {name!r}", hint=suggestion(name, known, f"there are {', '.join(known)}")
            )
    if not outputs:
        raise SpecError("compile: no output is left", hint=f"outputs are {', '.join(program.outputs)}")
    gone = [name for name in program.outputs if name not in outputs]
    log.add("removed", "port", gone, "it was not requested")
    ports = {name: port for name, port in program.ports.items() if not isinstance(port, Out) or name in outputs}
    return replace(program, ports=ports)


T = TypeVar("T")


def carry_params(before: Facts, after: Facts, params: Mapping[str, T]) -> dict[str, T]:
    """Return the parameters of `after`, whose edges are a subset of those of `before`, with their names in `before`.

    Ports, regions and edges keep their names. If edges of a rule share parameters, the owner can change.
    """
    old = {task.wire.name: names_of(before, task) for task in tasks_of(before)}
    origin: dict[str, str] = {}
    for task in tasks_of(after):
        origin |= {name: old[task.wire.name][of] for of, name in names_of(after, task).items()}
    return {of.name: params[origin.get(of.name, of.name)] for of in all_params(after)}


def owned_by(facts: Facts, regions: frozenset[str]) -> tuple[str, ...]:
    """Return the parameters that belong only to the passed regions.

    These are parameters of the regions, of their ports, and of edges that write them, without shared ones.
    """
    mine: set[str] = set()
    others: set[str] = set()
    for place in facts.places:
        (mine if place.name in regions else others).add(f"regions.{place.name}.")
    for name, port in facts.program.ports.items():
        region = getattr(port, "region", None)
        if region is None:
            continue
        names = {f"ports.{name}."}
        if isinstance(port, In):
            names |= set(codes_of(facts.place(region)))
        (mine if region in regions else others).update(names)
    for task in tasks_of(facts):
        (mine if task.place.name in regions else others).update({f"{task.owner}.", gate_of(task)})
    starts = tuple(mine - others)
    return tuple(of.name for of in all_params(facts) if of.name.startswith(starts)) if starts else ()


@dataclass(frozen=True, eq=False, slots=True)
class CompiledNetwork:
    """A network with all its programs compiled.

    Attributes
    ----------
    network, params : the network and its parameters
    reports : coordinate of a program → changes and their reasons
    frozen : keys of parameters of frozen regions and of constants' rows, for `TrainConfig.frozen`
    exported : coordinate of a program → content of its regions with keep ``"export"``, if any
    """

    network: Network
    params: Params
    reports: Mapping[Coord, Report]
    frozen: tuple[str, ...]
    exported: Mapping[Coord, Mapping[str, F32Array]]


def compile_network(
    network: Network,
    params: Mapping[str, WeightStore],
    *,
    deploy: bool = True,
    outputs: Sequence[str] | None = None,
    drop_inputs: bool = False,
    after: int | None = None,
    rows: Array | Mapping[str, Array] | None = None,
) -> CompiledNetwork:
    """Return a network with the same outputs and all its programs compiled; see `compile`.

    Parameters
    ----------
    outputs, drop_inputs, rows : only for a network of one program, since other layers depend on its rows
    after : for each program, with zeros as its input rows

    Raises
    ------
    SpecError : no layer is a program, links share its parameters, or an output is unknown
    CheckpointError : parameters do not fit
    """
    check_params(network, params)
    at = [coord for coord, spec in network.layers.items() if isinstance(spec, Layer)]
    if not at:
        kinds = ", ".join(sorted({spec.kind for spec in network.layers.values()}))
        raise SpecError(
            f"compile: no layer of the network is a program; its layers: {kinds or 'none'}",
            hint="pass a file x.program.json, or a model with a program, as program.network() builds it",
        )
    if (outputs is not None or drop_inputs or rows is not None) and len(network.layers) > 1:
        raise SpecError(
            "compile: outputs, drop_inputs and rows need a network of one program",
            hint=f"this network has {len(network.layers)} layers, which depend on the program's rows",
        )
    shared = [link for link in network.links if link.kind == "shared" and {link.source, link.target} & set(at)]
    if shared:
        raise SpecError(f"compile: {shared[0].source} and {shared[0].target} share parameters of a program")
    layers, shape = dict(network.layers), network.input_shape
    stores = {key: store for key, store in params.items() if Coord.parse(key.partition("/")[0]) not in at}
    reports: dict[Coord, Report] = {}
    frozen: list[str] = []
    exported: dict[Coord, Mapping[str, F32Array]] = {}
    for coord in at:
        spec, start = layers[coord], f"{coord}/"
        assert isinstance(spec, Layer)
        own = {key.removeprefix(start): store for key, store in params.items() if key.startswith(start)}
        part = compiled_part(
            spec.program, own, deploy=deploy, outputs=outputs, drop_inputs=drop_inputs, after=after, rows=rows
        )
        layers[coord] = compiled_layer = Layer(program=part.program)
        stores |= {start + name: store for name, store in (part.params or {}).items()}
        frozen += (start + name for name in part.frozen)
        reports[coord] = part.report
        exported |= {coord: part.exported} if part.exported else {}
        if drop_inputs:
            shape = (*shape[:-1], max(stop for _, stop in compiled_layer.ports("inputs").values()))
    compiled_network = dataclasses.replace(network, layers=layers, input_shape=shape)
    return CompiledNetwork(compiled_network, Params(stores), reports, tuple(frozen), exported)
