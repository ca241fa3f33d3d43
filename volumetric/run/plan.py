"""Plan: a network as a flat list of steps over numbered values. Plain data, printable, replayable.

`lower` writes one step for each layer (`op` is the layer kind) plus the joins of containers. All devices run the graph
that `run.graph.open_graph` emits from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from volumetric.base._typing import ROWS, Shape
from volumetric.base.moved_modules import renamed_members
from volumetric.layers import StateSpec
from volumetric.network import INPUT, OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One array that steps read and write. `shape[0]` is `ROWS` for values with a row for each token.

    If a call omits an input with a `default`, all its elements are the default.
    """

    name: str
    shape: Shape
    dtype: Literal["float32", "int32"] = "float32"
    default: float | None = None

    @property
    def width(self) -> int:
        """Elements of a row."""
        size = 1
        for axis in self.shape[1:]:
            size *= axis
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a plan.

    Attributes
    ----------
    op : name of the operation
    where : coordinate text of its layer, ``"3.0.0.1"`` or ``"3.0.0.1/0"`` inside a container
    inputs, outputs : indices into `Plan.values`
    params : role → key in `Params`; shared links are already resolved
    attrs : static attributes, including the layer spec under ``"spec"`` at layer level
    states : name → key in `Plan.states` of each state that the step reads and replaces, such as ``"k"`` →
        ``"3.0.0.1/k"``
    tail : no later step mixes rows, so the step may run on the last row only if only that row is requested
    """

    op: str
    where: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    states: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tail: bool = False


DELAYS = frozenset({"delay", "recall", "retain"})
"""Operations of links with a delay, see `Plan`."""


@renamed_members(piece="max_rows")
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in execution order over `values`.

    Links with a delay are separate steps with a fixed state, the last rows of their source: ``delay`` returns its input
    ``rows`` rows earlier; if the source comes later in the plan, ``recall`` does so without an input, and ``retain``,
    without an output, stores the rows of the call in the state.

    Attributes
    ----------
    inputs, outputs : name → value that a call takes or returns; ``"input"`` and ``"output"`` come first
    params : key → logical shape of every stored tensor that is used
    states : key, ``"<where>/<name>"``, → state of a sequence
    buffers : keys of `params` whose tensors layers change themselves in training
    max_rows : most rows per run, because a step reads the output of a later step from that many rows earlier; None: any
        number
    low_rank : key of a weight → rank of each adapter of it, see `volumetric.run.graph.low_rank`
    """

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    params: Mapping[str, Shape]
    states: Mapping[str, StateSpec]
    buffers: frozenset[str] = frozenset()
    max_rows: int | None = None
    low_rank: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __str__(self) -> str:
        inputs = (f"%{i} = input {name}" for name, i in self.inputs.items() if name != INPUT)
        left = (f"output {name} = %{i}" for name, i in self.outputs.items() if name != OUTPUT)
        return "\n".join([*inputs, *map(self._line, self.steps), *left])

    def _line(self, step: Step) -> str:
        def show(i: int) -> str:
            value = self.values[i]
            axes = "×".join("T" if axis == ROWS else str(axis) for axis in value.shape)
            return f"%{i}[{axes}]"

        attrs = " ".join(f"{k}={v}" for k, v in step.attrs.items() if k != "spec" and v not in (None, False, ()))
        left = ", ".join(show(i) for i in step.outputs)
        args = ", ".join(f"%{i}" for i in step.inputs)
        params = " ".join(f"{role}={key}" for role, key in step.params.items())
        tail = " tail" if step.tail else ""
        return f"{left}{' = ' if left else ''}{step.op}({args}) @{step.where} {params} {attrs}{tail}".rstrip()


def with_outputs(plan: Plan, outputs: Collection[str]) -> Plan:
    """Return a plan with only some outputs, without steps, parameters and states that they do not need.

    Its inputs stay. A plan with a loop keeps all steps, because earlier steps need later ones.
    """
    selected = {name: i for name, i in plan.outputs.items() if name in outputs}
    if len(selected) == len(plan.outputs):
        return plan
    if plan.max_rows is not None:
        return replace(plan, outputs=MappingProxyType(selected))
    needed = set(selected.values())
    steps: list[Step] = []
    for step in reversed(plan.steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            steps.append(step)
    params = {key for step in steps for key in step.params.values()}
    states = {key for step in steps for key in step.states.values()}
    return replace(
        plan,
        steps=tuple(steps[::-1]),
        outputs=MappingProxyType(selected),
        params=MappingProxyType({key: shape for key, shape in plan.params.items() if key in params}),
        states=MappingProxyType({key: spec for key, spec in plan.states.items() if key in states}),
        buffers=plan.buffers & params,
    )
