"""Propagation of targets through layers: computes the target of an input from the target of the output.

Layers with an exact or nearly exact inverse use it; others get a learned inverse layer or, for products, an inverse
computed from their weights. The plan alone determines the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.formula.unary_functions import LEAKY_SLOPE, Activation
from volumetric.graph.build import GraphBuilder
from volumetric.graph.differentiate import differentiate
from volumetric.layers import Dense, Discrete, LayerNorm, LayerSpec, RMSNorm, Scale, Softcap
from volumetric.layers.conv import Conv
from volumetric.layers.emit_scope import Scope
from volumetric.layers.layer_spec import LAYERS
from volumetric.layers.pooling import AvgPool
from volumetric.run.plan import DELAYS, Plan, Step

InverseKind = Literal["learned", "transpose", "pinv"]

FLATTENED = 4096
"""Most elements of a row with several axes in the input or output of a learned inverse."""
_SMALL = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """The inverse of the step at `where`: a learned layer, or a product with a matrix computed from its weights.

    Attributes
    ----------
    layer : the learned layer, or None
    shape : shape of a row of its output
    kind : kind of the inverse
    """

    where: str
    kind: InverseKind
    layer: LayerSpec | None
    shape: Shape

    def key(self, name: str) -> str:
        """Return the name of the buffer of a parameter."""
        return f"inverse/{self.where}/{name}"

    def shapes(self) -> dict[str, Shape]:
        """Return key → shape of every learned parameter."""
        return {} if self.layer is None else {self.key(p.name): p.shape for p in self.layer.params()}


def weighted_values(plan: Plan) -> set[int]:
    """Return the values of a plan that depend on weights: those that can have a target."""
    numbers: set[int] = set()
    for step in plan.steps:
        if step.params or numbers.intersection(step.inputs):
            numbers.update(step.outputs)
    return numbers


def last_steps(plan: Plan) -> tuple[list[Step], list[Step]]:
    """Return the steps without weights after all steps with weights, and the last steps with weights."""
    above: set[int] = set()  # values that a step with weights reads, directly or through others
    tail: list[Step] = []
    last: list[Step] = []
    for step in reversed(plan.steps):
        if above.isdisjoint(step.outputs):
            (last if step.params else tail).append(step)
        if step.params or not above.isdisjoint(step.outputs):
            above.update(step.inputs)
    return tail, last


def plan_inverses(plan: Plan, kind: InverseKind, *, derived: Collection[str]) -> dict[str, Inverse]:
    """Return the inverses, by ``where``, that a network needs for targets of its hidden layers.

    Parameters
    ----------
    kind : kind of inverse of dense layers; other layers learn theirs
    derived : ``where`` of the steps that use a derivative instead

    Raises
    ------
    UnsupportedError
        A layer has no inverse; the message names it.
    """
    maker: dict[int, Step] = {step.outputs[0]: step for step in plan.steps if step.outputs}
    below, inverses = weighted_values(plan), dict[str, Inverse]()
    for step in plan.steps:
        if step.op in DELAYS:
            raise UnsupportedError(
                f"targets do not cross the link {step.attrs['link']}, which has a delay", hint="train by backprop"
            )
        spec = step.attrs.get("spec")
        hidden = [i for i in step.inputs if i in below]
        if not hidden or spec is None or spec.inert or step.op in EXACT or step.where in derived:
            continue
        if len(step.inputs) > 1:
            raise UnsupportedError(f"targets do not cross {step.op} at {step.where}, which reads several layers")
        output_shape, input_shape = plan.values[step.outputs[0]].shape[1:], plan.values[hidden[0]].shape[1:]
        exact = kind if isinstance(spec, Dense) else "learned"
        layer = (
            learned_inverse(step, spec, output_shape, input_shape, _activation(maker, hidden[0]))
            if exact == "learned"
            else None
        )
        inverses[step.where] = Inverse(where=step.where, kind=exact, layer=layer, shape=input_shape)
    return inverses


def _activation(maker: Mapping[int, Step], value: int) -> Activation:
    """Return the activation that computes a value, before a discrete layer if there is one."""
    step = maker.get(value)
    while step is not None and step.op == "discrete":
        step = maker.get(step.inputs[0])
    return "linear" if step is None else getattr(step.attrs.get("spec"), "activation", "linear")


def refuse_opaque(spec: Discrete, where: str) -> None:
    """Raise `UnsupportedError` for a discrete layer, at `where`, that no gradient crosses."""
    if spec.surrogate == "none":
        raise UnsupportedError(
            f"no gradient crosses the discrete layer at {where}",
            hint='set method="difference", which needs no gradient, or set a surrogate of the layer',
        )


def learned_inverse(
    step: Step, spec: LayerSpec, output_shape: Shape, input_shape: Shape, activation: Activation
) -> LayerSpec:
    """Return the layer that learns the inverse: a transposed convolution for a convolution, else a dense layer."""
    if isinstance(spec, Conv):
        transposed = _transposed_conv(spec, output_shape, input_shape, activation)
        if transposed is not None:
            return transposed
    sizes = prod(output_shape), prod(input_shape)
    if max(len(output_shape), len(input_shape)) > 1 and max(sizes) > FLATTENED:
        raise UnsupportedError(
            f"targets do not cross {step.op} at {step.where}: its learned inverse would have {sizes[0]} × {sizes[1]} "
            f"elements, and the limit is {FLATTENED} on either side",
            hint='train with mode = { kind = "target", method = "gradient" }, or by backprop',
        )
    return Dense(in_features=sizes[0], out_features=sizes[1], activation=activation)


def _transposed_conv(spec: Conv, output_shape: Shape, input_shape: Shape, activation: Activation) -> LayerSpec | None:
    """Return the transposed convolution that outputs images of the size `input_shape`, if there is one."""
    windows = spec.windows()
    if windows.before != spec.zeros(windows.kernel, windows.stride, windows.dilation)[1]:
        return None
    spans = zip(output_shape[1:], windows.stride, windows.spans, windows.before, input_shape[1:], strict=True)
    more = tuple(n - ((count - 1) * stride + span - 2 * padding) for count, stride, span, padding, n in spans)
    fields: dict[str, Any] = {
        "in_channels": spec.out_channels,
        "out_channels": spec.in_channels,
        "kernel_size": windows.kernel,
        "stride": windows.stride,
        "dilation": windows.dilation,
        "groups": spec.groups,
        "padding": windows.before,
        "output_padding": more,
        "activation": activation,
    }
    try:
        return LAYERS[f"conv_transpose{spec.spatial}d"](**fields)
    except SpecError:  # the windows skip more than a stride
        return None


def emit_inverse(base: Scope, inverse: Inverse, step: Step, y: int) -> int:
    """Emit the inverse of `step` at the output `y`."""
    work = base.work
    rows = work.shape(y)[0]
    shape = (rows, *inverse.shape)
    if inverse.layer is not None:
        keys = {p.name: work.stored_tensor(inverse.key(p.name), p.shape) for p in inverse.layer.params()}
        if isinstance(inverse.layer, Dense):
            y = work.reshape(y, (rows, inverse.layer.in_features))
        scope = replace(base, path=f"inverse/{step.where}", param=lambda name, _: keys[name], training=None)
        return work.reshape(scope.emit(inverse.layer, y), shape)
    spec: Dense = step.attrs["spec"]
    y = work.reshape(y, (1, prod(work.shape(y)[:-1]), spec.out_features))
    weight = base.param(step.params["weight"], (spec.out_features, spec.in_features))
    if inverse.kind == "transpose":
        back = work.reshape(weight, (1, spec.out_features, spec.in_features))
        size = work.affine(work.reduce(work.unary(weight, "abs"), "sum", (0,)), 1.0, _SMALL)
        x = work.binary("div", work.gemm(y, back), work.reshape(size, (1, 1, spec.in_features)))
    else:
        if spec.bias:
            bias = base.param(step.params["bias"], (spec.out_features,))
            y = work.binary("sub", before_activation(work, spec.activation, y), bias)
        else:
            y = before_activation(work, spec.activation, y)
        solved = work.stored_tensor(inverse.key("pinv"), (spec.in_features, spec.out_features))
        x = work.gemm(y, work.reshape(solved, (1, spec.in_features, spec.out_features)), trans_b=True)
    return work.reshape(x, shape)


def before_activation(work: GraphBuilder, name: str, y: int) -> int:
    """Emit the inverse of an activation at `y`; if it is not unique or does not exist, a simple nearby value."""
    if name == "tanh":
        return _half_log_odds(work, _clamp_to(work, y, -0.999, 0.999))
    if name == "sigmoid":  # σ(x) = (1 + tanh(x / 2)) / 2
        return work.affine(_half_log_odds(work, work.affine(_clamp_to(work, y, 0.001, 0.999), 2.0, -1.0)), 2.0)
    if name == "leaky_relu":
        zero = work.scalar(0.0)
        below = work.affine(work.binary("min", y, zero), 1 / LEAKY_SLOPE)
        return work.add(work.binary("max", y, zero), below)
    return y


def _clamp_to(work: GraphBuilder, y: int, low: float, high: float) -> int:
    return work.binary("min", work.binary("max", y, work.scalar(low)), work.scalar(high))


def _half_log_odds(work: GraphBuilder, y: int) -> int:
    """Emit the inverse of tanh."""
    odds = work.binary("div", work.affine(y, 1.0, 1.0), work.affine(y, -1.0, 1.0))
    return work.affine(work.unary(odds, "log"), 0.5)


Cross: TypeAlias = Callable[[Scope, Step, int, int, int], int]
"""``(base, step, x, y, shift)``: how far the input `x` of a step should move for its output `y` to move by `shift`."""


def _cross_reshape(base: Scope, step: Step, x: int, y: int, shift: int) -> int:
    return base.work.reshape(shift, base.work.shape(x))


def _cross_scale(base: Scope, step: Step, x: int, y: int, shift: int) -> int:
    spec: Scale = step.attrs["spec"]
    return base.work.affine(shift, 1 / spec.factor if spec.factor else 0.0)


def _softcap(base: Scope, step: Step, x: int, y: int, shift: int) -> int:
    work, spec = base.work, step.attrs["spec"]
    assert isinstance(spec, Softcap)
    ends = (work.affine(z, 1 / spec.cap) for z in (work.add(y, shift), y))
    there, here = (before_activation(work, "tanh", z) for z in ends)
    return work.affine(work.binary("sub", there, here), spec.cap)


def _norm(base: Scope, step: Step, x: int, y: int, shift: int) -> int:
    """Emit ``shift / gain / rstd`` with the statistics of `x`; a gain near 0 passes little on."""
    work, spec = base.work, step.attrs["spec"]
    assert isinstance(spec, (RMSNorm, LayerNorm))
    gain = base.param(step.params["weight"], (spec.num_features,))
    if isinstance(spec, RMSNorm) and spec.unit_offset:
        gain = work.affine(gain, 1.0, 1.0)
    back = work.binary("div", gain, work.affine(work.unary(gain, "square"), 1.0, _SMALL))
    last = len(work.shape(x)) - 1
    centred = x
    if isinstance(spec, LayerNorm):
        centred = work.binary("sub", x, work.reduce(x, "mean", (last,)))
    power = work.reduce(work.unary(centred, "square"), "mean", (last,))
    spread = work.unary(work.affine(power, 1.0, spec.eps), "sqrt")
    return work.binary("mul", work.binary("mul", shift, back), spread)


def _cross_pool(base: Scope, step: Step, x: int, y: int, shift: int) -> int:
    """Emit the shift of the elements that were selected, or of all that were averaged."""
    work, spec = base.work, step.attrs["spec"]
    gradient = differentiate(work, {y: shift}, [x])[x]
    return work.affine(gradient, float(prod(spec.along("kernel_size", 1)))) if isinstance(spec, AvgPool) else gradient


EXACT: Mapping[str, Cross] = MappingProxyType(
    {
        **dict.fromkeys(("reshape", "flatten", "discrete", "clamp", "position_embedding"), _cross_reshape),
        **dict.fromkeys((f"{kind}_pool{axes}d" for kind in ("max", "avg") for axes in (1, 2, 3)), _cross_pool),
        "scale": _cross_scale,
        "softcap": _softcap,
        "rms_norm": _norm,
        "layer_norm": _norm,
    }
)
"""Layer kind → its exact rule; all others need an inverse."""


def cross_join(work: GraphBuilder, step: Step, xs: tuple[int, ...], shift: int) -> list[int]:
    """Split the shift of a join between its inputs: parts of a concatenation, equal shares of a sum."""
    if step.op == "concat":
        axis = len(work.shape(shift)) - 1
        return work.split(shift, [work.shape(x)[axis] for x in xs], axis)
    own = work.affine(shift, 1 / (len(xs) * step.attrs["scale"]))
    return [own] * len(xs)
