"""Emits whole networks as graphs from the layer-level plan, in which links, residuals and sharing are resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.expert_fusion import fuse_experts
from volumetric.graph.fusion import fuse_rows, mark_tail
from volumetric.graph.ops import Graph
from volumetric.graph.state_spec import bounded_states, resets_unsupported
from volumetric.layers import LayerSpec, StateSpec
from volumetric.layers.emit_scope import GetStack, GraphTraining, Scope, emit_join, no_stack
from volumetric.network import INPUT, Network
from volumetric.run.graph.low_rank import ADAPTERS, with_low_rank
from volumetric.run.graph.row_nodes import GENERAL
from volumetric.run.lower import looks_ahead, lower, mixes_rows, sees_batch
from volumetric.run.plan import DELAYS, Plan, Step

DIALECT = frozenset(
    {
        "lookup",
        "linear",
        "attend",
        "recurrence",
        "mix",
        "gated",
        "causal_conv",
        "selective_scan",
        "grouped_norm",
    }
)
"""Fused row operations, which graphs with open rows use if their layers allow it."""

NATIVE = DIALECT | GENERAL.keys()
"""All operations that fast devices run on the rows of a call."""

GROUPED = frozenset({"experts"})
"""Operations that a pass fuses from those, for devices that have them."""


def graph_of(
    network: Network,
    rows: int,
    *,
    sequences: int | None = None,
    resets: bool = False,
    resumes: bool = False,
    parted: bool = False,
) -> Graph:
    """Return the forward pass of `network` as a graph with its inputs and outputs, in the order of `lower`.

    Parameters
    ----------
    rows : rows (tokens, samples) of a call
    sequences : None: inputs are ``[rows, …]``, one sequence for layers that mix rows. A number: inputs and outputs are
        ``[sequences, rows, …]``, and the sequences are independent
    resets : adds an input, float32 ``[rows]`` or ``[sequences, rows]``: 1 for a row that starts a new sequence, which
        is independent of earlier rows
    resumes : sequences continue from run to run: their states are in buffers of the store, ``[sequences, …]`` by the
        keys of `resumed_states`, which start as zeros and which every run replaces
    parted : see `GraphDevice.parted`

    Returns
    -------
    Graph
        Its persistent buffers are the network's parameters by their keys, and states.

    Raises
    ------
    UnsupportedError : a layer that reads other rows or positions does not support resets or cannot resume, such as
        attention without a window
    """
    plan = lower(network)
    if resumes:
        resumed_states(plan)
    work = GraphBuilder(parted=parted)
    lead = (rows,) if sequences is None else (sequences, rows)
    values = {name: plan.values[i] for name, i in plan.inputs.items()}
    inputs = {name: work.input(name, (*lead, *value.shape[1:]), value.dtype) for name, value in values.items()}
    starts = work.reshape(work.input("resets", lead), (sequences or 1, rows)) if resets else None
    emitted = emit_plan(work, plan, inputs, EmitOptions(sequences=sequences, resumes=resumes, resets=starts))
    return work.finish([*emitted.outputs.values()])


def resumed_states(plan: Plan) -> dict[str, StateSpec]:
    """Return the states that `graph_of` stores of a sequence between runs, by key.

    Raises
    ------
    UnsupportedError : a layer needs states or positions that only executables have
    """
    states: dict[str, StateSpec] = {}
    for step in plan.steps:
        spec = step.attrs.get("spec")
        if step.op in DELAYS or (isinstance(spec, LayerSpec) and spec.contextual and not spec.takes_resets):
            raise UnsupportedError(
                f"{step.op} at {step.where} cannot continue from run to run of a graph",
                hint="compile the network with Device.compile, whose states also hold rows of keys and values",
            )
        own_states = bounded_states((plan.states[key] for key in step.states.values()), f"{step.op} at {step.where}")
        states |= {f"{step.where}/{state.name}": state for state in own_states}
    return states


def open_graph(plan: Plan, dialect: frozenset[str] = DIALECT, *, parted: bool = False) -> Graph:
    """Return the forward pass of a layer-level plan for any number of rows that continue from the states of a sequence.

    Its buffers are parameters and states, by key. Norms, sums and soft caps are fused into neighbouring products.

    Parameters
    ----------
    dialect : fused row operations that the device runs
    parted : see `GraphDevice.parted`
    """
    work = GraphBuilder(dialect, parted=parted)
    outputs_by_name = _emit_open(work, plan).outputs
    outputs: list[int] = []
    for y in outputs_by_name.values():  # of features, each a separate tensor
        apart = (work.tensors[y].role == "input" or y in outputs) and len(work.shape(y)) <= 2
        outputs.append(work.copy(y) if apart else y)
    graph = work.finish(outputs)
    # The noise of samples depends on their index in the call: it needs all open rows at once.
    numbered = any(node.op == "gumbel" and graph.tensors[node.inputs[0]].shape[1] < 0 for node in graph.nodes)
    whole = numbered or any(looks_ahead(plan, step) for step in plan.steps)
    fused = fuse_rows(replace(graph, max_rows=plan.max_rows, whole_sequences=whole), dialect)
    adapted = fused
    if plan.low_rank:
        weights = dict(zip(plan.inputs, fused.caller_inputs, strict=True))[ADAPTERS]
        adapted = with_low_rank(fused, plan.low_rank, weights)
    return mark_tail(fuse_experts(adapted) if "experts" in dialect else adapted)


def layered_graph(
    plan: Plan, *, values: bool = False, dialect: frozenset[str] = DIALECT
) -> tuple[Graph, tuple[int, ...]]:
    """Return the forward pass as emitted by the layers, without fusion, for any number of rows.

    Parameters
    ----------
    values : the outputs are the outputs of all steps, instead of those of the plan
    dialect : fused row operations that layers may emit

    Returns
    -------
    Graph
    outputs : the value of the plan for each output of the graph
    """
    work = GraphBuilder(dialect)
    emitted = _emit_open(work, plan)
    numbers = [i for step in plan.steps for i in step.outputs] if values else [*plan.outputs.values()]
    tensors = dict(zip(plan.outputs.values(), emitted.outputs.values(), strict=True)) | emitted.values
    graph = work.finish([tensors[i] for i in numbers])
    return replace(graph, max_rows=plan.max_rows), tuple(numbers)


def _emit_open(work: GraphBuilder, plan: Plan) -> EmittedPlan:
    """Emit a plan for open rows that continue from the states of their sequence."""
    values = {name: plan.values[i] for name, i in plan.inputs.items()}
    inputs = {name: work.input(name, value.shape, value.dtype) for name, value in values.items()}
    return emit_plan(work, plan, inputs, EmitOptions(resumes=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitOptions:
    """Options of emitting a plan.

    Attributes
    ----------
    param : key and shape of a parameter → the tensor to use for it; None: the persistent buffer of that key
    sequences : None: inputs are ``[rows, …]``; a number: ``[sequences, rows, …]``
    resumes : layers continue from the states of a sequence
    training : None at inference
    resets : ``[sequences, rows]``, 1 for a row that starts a new sequence; None: no resets
    states : key → value of a state, which layers replace here; None: states are in buffers of the device
    stack : returns the tensor of stacked parameters
    """

    param: Callable[[str, Shape], int] | None = None
    sequences: int | None = None
    resumes: bool = False
    training: GraphTraining | None = None
    resets: int | None = None
    states: dict[str, int] | None = None
    stack: GetStack = no_stack


@dataclass(frozen=True, slots=True)
class EmittedPlan:
    """Tensors of an emitted plan: its outputs by name, with the axes of the inputs, and all its values."""

    outputs: dict[str, int]
    values: dict[int, int]


def emit_plan(
    work: GraphBuilder, plan: Plan, inputs: Mapping[str, int], options: EmitOptions = EmitOptions()
) -> EmittedPlan:
    """Emit a layer-level plan (of `lower`); `given` has its inputs by name, see `EmitOptions.sequences`."""
    sequences = options.sequences
    axes = 1 if sequences is None else 2
    lead = work.shape(inputs[INPUT])[:axes]
    for name, i in plan.inputs.items():
        row, shape = plan.values[i].shape[1:], work.shape(inputs[name])
        if shape != (*lead, *row) or len(lead) != axes or lead[0] != (sequences or lead[0]):
            raise ShapeError(f"the plan's input {name!r} has rows of shape {list(row)}, got {list(shape)}")
    rows = lead[0] if sequences is None else sequences * lead[1]
    values = {i: work.reshape(inputs[name], (rows, *plan.values[i].shape[1:])) for name, i in plan.inputs.items()}
    base = Scope(
        work=work,
        param=options.param or work.stored_tensor,
        path="",
        sequences=1 if sequences is None else sequences,
        resumes=options.resumes,
        training=options.training,
        resets=options.resets,
        states=options.states,
        stack=options.stack,
    )
    for step in plan.steps:
        if step.op in DELAYS:
            if options.resets is not None:
                raise resets_unsupported(f"the link {step.attrs['link']} with a delay")
            result = _emit_delay(base, step, [values[i] for i in step.inputs], plan.states[step.states["past"]])
        else:
            result = emit_step(base, step, [values[i] for i in step.inputs])
        values |= dict.fromkeys(step.outputs, result)
    outputs = {name: values[i] for name, i in plan.outputs.items()}
    return EmittedPlan({name: work.reshape(y, (*lead, *work.shape(y)[1:])) for name, y in outputs.items()}, values)


def emit_step(base: Scope, step: Step, inputs: Sequence[int]) -> int:
    """Emit one step of a layer-level plan and return its output; `base` resolves parameters by key."""
    work, spec = base.work, step.attrs.get("spec")
    with work.at(step.where, mixes=mixes_rows(step) or sees_batch(step)):
        if isinstance(spec, LayerSpec):
            keys = step.params
            scope = replace(
                base, path=step.where, param=lambda path, shape: base.param(keys[path], shape), key=keys.__getitem__
            )
            return scope.emit(spec, *inputs)
        if step.op == "concat":
            return emit_join(work, inputs, "concat")
        return emit_join(work, inputs, "avg" if step.attrs["scale"] != 1 else "add")


def _emit_delay(base: Scope, step: Step, inputs: Sequence[int], spec: StateSpec) -> int:
    """Emit a step of a link with a delay; `spec` is the state of the last rows of its source."""
    work, shape, count = base.work, spec.shape, spec.shape[0]
    with work.at(step.where, mixes=True):
        if not base.resumes:
            if not inputs:
                raise UnsupportedError(
                    f"cannot train through the loop that the link {step.attrs['link']} closes",
                    hint="remove the link, or let its source come before its target",
                )
            return _shift_rows(base, inputs[0], count)
        key = step.states["past"]
        past = work.stored_tensor(key, shape, spec.dtype, role="state")
        if step.op == "recall":
            return work.slice(past, (0,) * len(shape), (ROWS, *shape[1:]))
        earlier, left = work.emit("delay", (inputs[0], past))
        work.assign(key, left)
        return earlier


def _shift_rows(base: Scope, x: int, count: int) -> int:
    """Return the rows of each sequence shifted `count` rows later, preceded by zeros."""
    work = base.work
    rows, *row = work.shape(x)
    length = rows // max(base.sequences, 1)
    remaining = max(length - count, 0)
    apart = work.reshape(x, (base.sequences, length, *row))
    shifted = work.pad(
        work.part(apart, 1, 0, remaining), (0, length - remaining, *(0 for _ in row)), (0,) * (2 + len(row))
    )
    return work.reshape(shifted, (rows, *row))
