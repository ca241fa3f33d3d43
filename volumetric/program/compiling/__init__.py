"""The compiler of programs: what they compute stays, what it does not take to compute it goes."""

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
from volumetric.network.weights import Params, WeightStore
from volumetric.program.compiling.constants import Constants, keep_of, with_constants, without_learning
from volumetric.program.compiling.evaluating import rows_of_run
from volumetric.program.compiling.passes import SAFE, dead_parts, remark, trimmed, unread_meters
from volumetric.program.compiling.report import Log, Report, counts_of
from volumetric.program.layer.declared import Program
from volumetric.program.layer.facts import Facts, facts_of
from volumetric.program.layer.parameters import all_params, codes_of, constants_of, rows_of
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.spec import Program as Layer
from volumetric.program.layer.tasks import gate_of, names_of, tasks_of

_AT = "0.0.0.0/"
"""Where a network of a program alone has it."""


@dataclass(frozen=True, eq=False, slots=True)
class Compiled:
    """A compiled program.

    Attributes
    ----------
    program : what is left of it
    params : of its network, by key; None where none were given
    report : what was done, and why
    frozen : keys of parameters that regions to be frozen own, and rows of constants: what `TrainConfig.frozen` takes
    exported : what regions hold whose keep is export, by name, float32 ``[rows, d]``; `loaders.save_exported` takes it
    """

    program: Program
    params: Params | None
    report: Report
    frozen: tuple[str, ...]
    exported: Mapping[str, F32Array] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        """A network of it alone, which `params` fit."""
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
    """Return a program that hands out the same and has less to compute.

    Edges that never write go, and those of which all is replaced in the same step; clocks that always hold; regions and
    edges that no output depends on, through edges, clocks, conditions, meters and positions that regions share; meters
    that nobody reads; and the end of the canvas where no region is. From the start of a stream, and from each
    reset, all outputs are what they were.

    Parameters
    ----------
    program : that can be run
    params : of ``program.network()``, by key; None: it is compiled without
    deploy : it will not learn any more: what regions learn by goes, with parameters and states of it, and `frozen` has
        what is to stay where it is trained further after all. Otherwise regions with losses of their own count as
        outputs do
    outputs : ports to hand out; None: all. With fewer, more is dead
    drop_inputs : inputs that no output depends on go too, which moves the columns of others
    after : constants are what regions hold after so many rows of zeros, settled or not
    rows : constants are what regions hold after these rows of one stream, ``[T, columns]``, or by input ``[T, dim]``

    Raises
    ------
    SpecError : the program cannot be run, or has no such output; rows do not fit it
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
    """Do what `compile` does, to parameters by the names that the program has for them."""
    from volumetric.program.layer.spec import Program as Layer

    Layer(program=program)  # refuses what cannot be run
    log = Log()
    run = rows_of_run(program, after, rows)
    compiled = _handing_out(program, outputs, log)
    constants = Constants(compiled)
    if deploy:
        constants = with_constants(without_learning(compiled, log), params, log, run)
        compiled = constants.program
    else:
        waits = [name for name, region in compiled.canvas.regions.items() if keep_of(region) in ("constant", "export")]
        log.add("kept", "region", waits, "it becomes a constant where the program is deployed")
    before = None
    while compiled != before:
        before = compiled
        for of in SAFE:
            compiled = of(compiled, log)
        compiled = unread_meters(dead_parts(compiled, log, drop_inputs=drop_inputs), log)
    compiled = trimmed(compiled, log)
    remark(compiled, log)
    facts = facts_of(compiled)
    stores = None
    if params is not None:
        evaluated = {rows_of(name): WeightStore.from_array(values) for name, values in constants.rows.items()}
        stores = Params(carried(facts_of(program), facts, {**params, **evaluated}))
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


def _handing_out(program: Program, outputs: Sequence[str] | None, log: Log) -> Program:
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
    log.add("removed", "port", gone, "it was not asked for")
    ports = {name: port for name, port in program.ports.items() if not isinstance(port, Out) or name in outputs}
    return replace(program, ports=ports)


T = TypeVar("T")


def carried(before: Facts, after: Facts, params: Mapping[str, T]) -> dict[str, T]:
    """Return the parameters of `after`, of which all edges are in `before`, by the names that they have there.

    Ports, regions and edges keep their names. Where edges of a rule share parameters, their owner can be another one.
    """
    old = {task.wire.name: names_of(before, task) for task in tasks_of(before)}
    origin: dict[str, str] = {}
    for task in tasks_of(after):
        origin |= {name: old[task.wire.name][of] for of, name in names_of(after, task).items()}
    return {of.name: params[origin.get(of.name, of.name)] for of in all_params(after)}


def owned_by(facts: Facts, regions: frozenset[str]) -> tuple[str, ...]:
    """Return the parameters that belong to some regions alone.

    Those of the regions, of ports at them, and of edges that write them; not what others share.
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
    """A network of which all programs are compiled.

    Attributes
    ----------
    network, params : of it
    reports : where a program is → what was done to it, and why
    frozen : keys of parameters that regions to be frozen own, and rows of constants: what `TrainConfig.frozen` takes
    exported : where a program is → what regions of it hold whose keep is export, if there are any
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
    """Return a network that makes the same, with all its programs compiled; `compile` says how.

    Parameters
    ----------
    outputs, drop_inputs, rows : of a network that is a program alone, for others read its rows, or make them
    after : of each program, which its inputs are zeros for

    Raises
    ------
    SpecError : no layer is a program, links share its parameters, or there is no such output
    CheckpointError : parameters do not fit
    """
    check_params(network, params)
    at = [coord for coord, spec in network.layers.items() if isinstance(spec, Layer)]
    if not at:
        kinds = ", ".join(sorted({spec.kind for spec in network.layers.values()}))
        raise SpecError(
            f"compile: no layer of the network is a program; there is: {kinds or 'none'}",
            hint="give a file x.program.json, or a model with a program, as program.network() makes it",
        )
    if (outputs is not None or drop_inputs or rows is not None) and len(network.layers) > 1:
        raise SpecError(
            "compile: outputs and inputs can go only where the program is all there is, and rows come in only there",
            hint=f"this network has {len(network.layers)} layers, which read the program's rows or make them",
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
