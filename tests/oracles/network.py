"""Whole networks by their layers' oracles: forward, with states, and backward, independent of graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles import oracle
from tests.oracles.delays import delay_vjp, refuse_loops, run_delay
from tests.oracles.joins import join, join_vjp
from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.devices.reference_state import ReferenceState
from volumetric.graph.numeric.counter_noise import Key
from volumetric.graph.state_spec import is_sequence
from volumetric.layers import LayerSpec
from volumetric.network import OUTPUT, Network, Params
from volumetric.run import lower
from volumetric.run.device import RowInputs
from volumetric.run.plan import DELAYS, Plan, Step
from volumetric.run.sequence_state import inputs_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPass:
    """A pass, or several one after the other, with layers as they are while training.

    Attributes
    ----------
    buffers : key → newest value of each buffer that layers may change; the pass replaces them here, and nowhere else
    noise : what random numbers depend on, see `layers.noise`
    first : rows of the batch that go before those of this pass
    """

    buffers: dict[str, Array]
    noise: Key = (0, 0)
    first: int = 0


class NumpyNetwork:
    """A plan whose layers compute by their oracles, step by step, with weights as arrays.

    Attributes
    ----------
    plan : the network, as `lower` wrote it
    weights : key → array, in the precision in which all is computed
    """

    def __init__(
        self, plan: Plan, weights: Mapping[str, Array], dtype: type[np.float32] | type[np.float64] = np.float64
    ) -> None:
        self.plan = plan
        self.weights = dict(weights)
        self._dtype = dtype

    @classmethod
    def of(
        cls, network: Network, params: Params, dtype: type[np.float32] | type[np.float64] = np.float64
    ) -> NumpyNetwork:
        """Return a network with its weights decoded."""
        plan = lower(network)
        return cls(plan, {key: params[key].values().astype(dtype) for key in plan.params}, dtype)

    def new_state(self) -> ReferenceState:
        """Return an empty state."""
        return ReferenceState(self.plan.states, self._dtype)

    def forward(self, state: ReferenceState, x: RowInputs, *, last_only: bool = True) -> Array:
        """Append rows to a state and return the output ``"output"`` of the last one, or of all."""
        return self.trace(x, state=state, last_only=last_only)[0][self.plan.outputs[OUTPUT]]

    def output(self, x: RowInputs) -> Array:
        """Return the output of rows that are a sequence of their own."""
        return self.trace(x)[0][self.plan.outputs[OUTPUT]]

    def trace(
        self,
        x: RowInputs,
        *,
        state: ReferenceState | None = None,
        last_only: bool = False,
        training: TrainingPass | None = None,
        outputs: Collection[str] | None = None,
    ) -> tuple[dict[int, Array], list[Any]]:
        """Compute every value of the plan from the inputs `x`, as at inference unless there is a `training`.

        A `state` goes on by the rows of `x`; without one they are a sequence of their own. Where a link closes a loop
        they go through the steps `plan.piece` at a time. Where fewer `outputs` than the plan has are named, what these
        and the states do not need is left out.

        Returns
        -------
        values : value index → array
        tape : what each step's VJP needs, in step order; empty where the rows went in pieces

        Raises
        ------
        UnsupportedError : a `training` through a loop
        """
        given = {self.plan.inputs[name]: self._typed(rows) for name, rows in inputs_by_name(self.plan, x).items()}
        rows, piece = len(next(iter(given.values()))), self.plan.max_rows
        names = self.plan.outputs.keys() if outputs is None else set(outputs)
        steps = self.plan.steps if len(names) == len(self.plan.outputs) else needed_steps(self.plan, names)
        if training is not None:
            refuse_loops(self.plan, "there is no training")
        carries = state is not None or piece is not None
        start = ReferenceState(self.plan.states, self._dtype) if state is None else state
        memory = Memory(start.position, dict(start.values)) if carries else None
        if memory is None or piece is None or rows <= piece:
            values, tape = self._pass(steps, given, memory, last_only=last_only, training=training)
        else:
            values, tape = self._pieces(steps, given, memory, piece, last_only=last_only), []
        if last_only:
            values |= {self.plan.outputs[name]: values[self.plan.outputs[name]][-1:] for name in names}
        if state is not None and memory is not None:
            state.values = memory.values  # only now: after an error the state is as it was
            state.position += rows
        return values, tape

    def _typed(self, x: Array) -> Array:
        return x.astype(self._dtype, copy=False) if np.issubdtype(x.dtype, np.floating) else x

    def _pass(
        self,
        steps: Sequence[Step],
        given: Mapping[int, Array],
        memory: Memory | None,
        *,
        last_only: bool,
        training: TrainingPass | None = None,
    ) -> tuple[dict[int, Array], list[Any]]:
        """Send rows through steps, once."""
        values: dict[int, Array] = dict(given)
        tape: list[Any] = []
        for step in steps:
            saved = None
            args = [values[i] for i in step.inputs]
            if last_only and step.tail:
                args = [a[-1:] for a in args]
            if step.op in DELAYS:
                run_delay(self.plan, step, values, memory)
            elif training is not None and "spec" in step.attrs:
                values[step.outputs[0]], saved = self._train(step, args, training)
            else:
                values[step.outputs[0]], saved = self._apply(step, args, memory)
            tape.append(saved)
        return values, tape

    def _pieces(
        self, steps: Sequence[Step], given: Mapping[int, Array], memory: Memory, piece: int, *, last_only: bool
    ) -> dict[int, Array]:
        """Send rows through steps, `piece` at a time."""
        found: list[dict[int, Array]] = []
        rows = len(next(iter(given.values())))
        for start in range(0, rows, piece):
            part = {i: x[start : start + piece] for i, x in given.items()}
            found.append(self._pass(steps, part, memory, last_only=last_only and start + piece >= rows)[0])
            memory.position += min(piece, rows - start)
        return {i: np.concatenate([of[i] for of in found]) for i in found[-1]}

    def vjp(
        self,
        values: dict[int, Array],
        tape: list[Any],
        gy: Array | Mapping[str, Array],
        watch: Callable[[Step, Array], None] | None = None,
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the gradients of ``sum(gy * output)`` for inputs by name and for every parameter key.

        `gy` belongs to the output ``"output"``; of several, given by name, the sums are added. `values` and `tape` come
        from `trace` without a state. Gradients of shared parameters are summed. `watch` is called with each step and
        the gradient of its output, last step first.

        Raises
        ------
        UnsupportedError : the plan has a loop
        """
        refuse_loops(self.plan, "there is no gradient")
        grads: dict[int, Array] = {}
        for name, g in (gy if isinstance(gy, Mapping) else {OUTPUT: gy}).items():
            i = self.plan.outputs[name]
            grads[i] = grads[i] + g if i in grads else g
        params: dict[str, Array] = {}
        for step, saved in zip(reversed(self.plan.steps), reversed(tape), strict=True):
            g = grads.pop(step.outputs[0], None)
            if g is None:
                continue
            if watch is not None:
                watch(step, g)
            inputs, by_name = self._apply_vjp(step, [values[i] for i in step.inputs], saved, g)
            for name, grad in by_name.items():
                key = step.params[name]
                params[key] = params[key] + grad if key in params else grad
            for i, grad in zip(step.inputs, inputs, strict=True):
                if grad is not None:
                    grads[i] = grads[i] + grad if i in grads else grad
        return {name: grads[i] for name, i in self.plan.inputs.items() if i in grads}, params

    def _apply(self, step: Step, args: list[Array], memory: Memory | None) -> tuple[Array, Any]:
        spec: LayerSpec | None = step.attrs.get("spec")
        if spec is not None:
            p = {name: self.weights[key] for name, key in step.params.items()}
            kept = None if memory is None or not is_sequence(args[0].shape) else memory.child(step.where)
            return oracle(spec).forward(p, *args, memory=kept)
        if step.op == "concat":
            return join(args, "concat"), None
        total = join(args, "add")
        return total * total.dtype.type(step.attrs["scale"]), None

    def _train(self, step: Step, args: list[Array], of: TrainingPass) -> tuple[Array, Any]:
        spec: LayerSpec = step.attrs["spec"]
        p = {name: of.buffers.get(key, self.weights[key]) for name, key in step.params.items()}
        learned = frozenset(name for name, key in step.params.items() if key in of.buffers)
        training = Training(learned=learned, path=step.where, noise=of.noise, first=of.first)
        result = oracle(spec).train_forward(p, *args, training=training)
        of.buffers.update((step.params[name], value) for name, value in training.changes.items())
        return result

    def _apply_vjp(
        self, step: Step, args: list[Array], saved: Any, g: Array
    ) -> tuple[tuple[Array | None, ...], dict[str, Array]]:
        spec: LayerSpec | None = step.attrs.get("spec")
        if spec is not None:
            p = {name: self.weights[key] for name, key in step.params.items()}
            result = oracle(spec).vjp(p, saved, g)
            return result.inputs, result.params
        if step.op == "delay":
            return (delay_vjp(step, g),), {}
        if step.op == "add":
            g = g * g.dtype.type(step.attrs["scale"])
        return tuple(join_vjp(g, step.op, [a.shape[-1] for a in args])), {}


def needed_steps(plan: Plan, outputs: Collection[str]) -> list[Step]:
    """Return the steps that some outputs and all states need."""
    needed = {plan.outputs[name] for name in outputs}
    kept: list[Step] = []
    for step in reversed(plan.steps):
        if step.states or needed.intersection(step.outputs):
            needed.update(step.inputs)
            kept.append(step)
    return kept[::-1]
