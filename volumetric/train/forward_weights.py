"""Weights of a forward pass: trained parameters in their schemes, with overlays, or as parts of stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from volumetric.base._typing import Shape
from volumetric.dtypes import Scheme
from volumetric.graph import GraphBuilder
from volumetric.graph.parameter_stacks import ParameterStack, ParameterStacks, stack_key
from volumetric.program.layer.dispatch_plan import plan_of, stacks_of
from volumetric.program.layer.program_layer import Program
from volumetric.run.plan import Plan
from volumetric.train.lora import DOWN, UP, LowRank
from volumetric.train.precision import FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardWeights:
    """Emits each parameter once, at its first use.

    Attributes
    ----------
    stacks : parameters that are stored stacked
    schemes : of the parameters
    shapes : of the trained arrays, by key
    overlay, overlaid : overlays, and the parameters that have one
    """

    work: GraphBuilder
    stacks: ParameterStacks
    schemes: Mapping[str, Scheme]
    shapes: Mapping[str, Shape]
    overlay: LowRank | None = None
    overlaid: Collection[str] = ()
    _made: dict[str, int] = field(default_factory=dict)

    def __call__(self, key: str, shape: Shape, /) -> int:
        """Return the tensor of a parameter, or of a stack."""
        if key not in self._made:
            self._made[key] = self._emitted(key, shape)
        return self._made[key]

    def stack(self, keys: Sequence[str], /) -> int | None:
        """Return the stacked tensor of parameters, if they are stacked."""
        stack = self.stacks.by_buffer.get(stack_key(keys))
        return None if stack is None else self(stack.key, stack.shape)

    def _emitted(self, key: str, shape: Shape) -> int:
        work, stack = self.work, self.stacks.by_member.get(key)
        if stack is not None:
            return stack.emit_member(work, self(stack.key, stack.shape), key)
        own = work.stored_tensor(key, shape)
        if self.overlay is not None and key in self.overlaid:
            down, up = (work.stored_tensor(key + end, self.shapes[key + end]) for end in (DOWN, UP))
            product = work.gemm(work.reshape(up, (1, *work.shape(up))), work.reshape(down, (1, *work.shape(down))))
            return work.add(own, work.affine(work.reshape(product, shape), self.overlay.scale))
        stack = self.stacks.by_buffer.get(key)
        one = key if stack is None else stack.keys[0]
        if one not in self.shapes or self.schemes[one] == FLOAT32:
            return own
        scheme = self.schemes[one]
        return work.fake_quant(own, str(scheme)) if stack is None else stack.emit_quantised(work, own, scheme)


def stacked_weights(plan: Plan, shapes: Mapping[str, Shape], schemes: Mapping[str, Scheme]) -> ParameterStacks:
    """Return the parameters that are only read as a stack, learn by the same rule and are not shared.

    Parameters
    ----------
    shapes : of what is trained, by key
    """
    uses = Counter(key for step in plan.steps for key in step.params.values())
    stacks: list[ParameterStack] = []
    for step in plan.steps:
        spec = step.attrs.get("spec")
        if not isinstance(spec, Program):
            continue
        of = {p.name: p.shape for p in spec.params()}
        for names in stacks_of(plan_of(spec.facts, separate=False)):
            keys = tuple(step.params[name] for name in names)
            alike = {(key in shapes, schemes[key], of[name]) for key, name in zip(keys, names, strict=True)}
            if len(alike) == 1 and all(uses[key] == 1 for key in keys):
                stacks.append(ParameterStack(keys, of[names[0]], transposed=False))
    return ParameterStacks(tuple(stacks))
