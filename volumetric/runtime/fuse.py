"""Fusion: fold norms into the products that read them, and sums and soft caps into the products that feed them.

The rules look at the data flow alone, so any network gains them: a pre-norm transformer layer ends as five steps.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

from volumetric.runtime.expand import expand
from volumetric.runtime.lower import mark_tail
from volumetric.runtime.plan import Plan, Step


def fuse(plan: Plan) -> Plan:
    """Return the device-level form of a layer-level plan (as `lower` wrote it)."""
    plan = expand(plan)
    for rule in (_norm_into_matmul, _add_into_matmul, _softcap_into_matmul):
        plan = dataclasses.replace(plan, steps=tuple(rule(plan)))
    return dataclasses.replace(plan, steps=tuple(mark_tail(list(plan.steps))))


def _norm_into_matmul(plan: Plan) -> list[Step]:
    """A norm that only products read becomes their prologue: the norm of a row costs less than a step of its own."""
    steps: list[Step | None] = list(plan.steps)
    for i, norm in enumerate(plan.steps):
        if norm.op != "norm" or norm.attrs["groups"] != 1 or norm.outputs[0] in plan.outputs:
            continue
        readers = list(plan.consumers(norm.outputs[0]))
        if not all(_reads_as_factor(plan.steps[j], norm.outputs[0]) for j in readers):
            continue
        for j in readers:
            reader = plan.steps[j]
            attrs = {
                **reader.attrs,
                "norm": norm.attrs["kind"],
                "norm_eps": norm.attrs["eps"],
                "norm_unit_offset": norm.attrs["unit_offset"],
            }
            params = {**reader.params, **{f"norm.{role}": key for role, key in norm.params.items()}}
            steps[j] = dataclasses.replace(
                reader, inputs=norm.inputs, params=MappingProxyType(params), attrs=MappingProxyType(attrs)
            )
        steps[i] = None
    return [step for step in steps if step is not None]


def _reads_as_factor(step: Step, value: int) -> bool:
    return step.op == "matmul" and step.attrs["norm"] is None and step.inputs == (value,)


def _add_into_matmul(plan: Plan) -> list[Step]:
    """``x W + r`` in one step, where the product is read by this sum alone and r exists before it."""
    steps: list[Step | None] = list(plan.steps)
    made_by = {step.outputs[0]: i for i, step in enumerate(plan.steps)}
    for i, add in enumerate(plan.steps):
        if add.op != "add" or len(add.inputs) != 2 or add.attrs["scale"] != 1.0:
            continue
        for value, other in (add.inputs, add.inputs[::-1]):
            at = made_by.get(value)
            if at is None or value == other or made_by.get(other, -1) > at or not _can_take(plan, steps[at], value):
                continue
            product = steps[at]
            assert product is not None  # _can_take saw it
            attrs = MappingProxyType({**product.attrs, "residual": True})
            inputs = (product.inputs[0], other)
            steps[at] = dataclasses.replace(product, inputs=inputs, outputs=add.outputs, attrs=attrs)
            made_by[add.outputs[0]] = at
            steps[i] = None
            break
    return [step for step in steps if step is not None]


def _can_take(plan: Plan, step: Step | None, value: int) -> bool:
    """Whether `step` is a product without an epilogue of its own whose result one step alone reads."""
    return (
        step is not None
        and step.op == "matmul"
        and step.outputs[0] == value
        and not step.attrs["residual"]
        and step.attrs["softcap"] is None
        and step.attrs["combine"] == "concat"
        and value not in plan.outputs
        and len(list(plan.consumers(value))) == 1
    )


def _softcap_into_matmul(plan: Plan) -> list[Step]:
    """``cap · tanh(x W / cap)`` in one step, where nothing else reads the product."""
    steps: list[Step | None] = list(plan.steps)
    made_by = {step.outputs[0]: i for i, step in enumerate(plan.steps)}
    for i, cap in enumerate(plan.steps):
        at = made_by.get(cap.inputs[0]) if cap.op == "softcap" else None
        if at is None or not _can_take(plan, steps[at], cap.inputs[0]):
            continue
        product = steps[at]
        assert product is not None  # _can_take saw it
        attrs = MappingProxyType({**product.attrs, "softcap": cap.attrs["cap"]})
        steps[at] = dataclasses.replace(product, outputs=cap.outputs, attrs=attrs)
        steps[i] = None
    return [step for step in steps if step is not None]
