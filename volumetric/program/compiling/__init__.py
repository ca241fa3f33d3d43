"""The compiler of programs: what they compute stays, what it does not take to compute it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from volumetric._typing import Array, F32Array
from volumetric.errors import SpecError
from volumetric.hints import suggestion
from volumetric.layers.program.constants import constants_of, rows_of
from volumetric.layers.program.declared import Program
from volumetric.layers.program.facts import facts_of
from volumetric.layers.program.ports import Out
from volumetric.network import Network, check_params
from volumetric.program.compiling.constants import Constants, with_constants
from volumetric.program.compiling.evaluating import rows_of_run
from volumetric.program.compiling.keeping import keep_of, without_learning
from volumetric.program.compiling.passes import SAFE, dead_parts, trimmed, unread_meters
from volumetric.program.compiling.remarks import remark
from volumetric.program.compiling.report import Log, Report, counts_of
from volumetric.program.compiling.weights import carried, owned_by
from volumetric.weights import Params, WeightStore

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
    return Compiled(part.program, stores, part.report, tuple(_AT + name for name in part.frozen), part.exported)


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """A compiled program as a part of something: as `Compiled`, with the program's own names of parameters."""

    program: Program
    params: dict[str, WeightStore] | None
    report: Report
    frozen: tuple[str, ...]
    exported: Mapping[str, F32Array]


def compiled_part(
    program: Program,
    params: Mapping[str, WeightStore] | None,
    *,
    deploy: bool = True,
    outputs: Sequence[str] | None = None,
    drop_inputs: bool = False,
    after: int | None = None,
    rows: Array | Mapping[str, Array] | None = None,
) -> Part:
    """Do what `compile` does, to parameters by the names that the program has for them."""
    from volumetric.layers.program.spec import Program as Layer

    Layer(program=program)  # refuses what cannot be run
    log = Log()
    run = rows_of_run(program, after, rows)
    made = _handing_out(program, outputs, log)
    found = Constants(made)
    if deploy:
        found = with_constants(without_learning(made, log), params, log, run)
        made = found.program
    else:
        waits = [name for name, region in made.canvas.regions.items() if keep_of(region) in ("constant", "export")]
        log.add("kept", "region", waits, "it becomes a constant where the program is deployed")
    before = None
    while made != before:
        before = made
        for of in SAFE:
            made = of(made, log)
        made = unread_meters(dead_parts(made, log, drop_inputs=drop_inputs), log)
    made = trimmed(made, log)
    remark(made, log)
    facts = facts_of(made)
    stores = None
    if params is not None:
        evaluated = {rows_of(name): WeightStore.from_array(held) for name, held in found.rows.items()}
        stores = carried(facts_of(program), facts, {**params, **evaluated})
    frozen: tuple[str, ...] = ()
    if deploy:
        asked = frozenset(name for name, region in made.canvas.regions.items() if keep_of(region) == "freeze")
        frozen = owned_by(facts, asked) + tuple(rows_of(place.name) for place in constants_of(facts))
    exported = {name: found.rows[name] for name in found.exported}
    return Part(made, stores, Report(counts_of(program), counts_of(made), tuple(log.notes)), frozen, exported)


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
