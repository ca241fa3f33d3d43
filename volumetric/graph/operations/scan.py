"""`scan`: a loop of a body over time; each step passes states to the next.

``scan``            sequences [T, …] …, constants …, states … → ys [T, …] …, last states … [, trails [T, …] …].
                    ``body``: a `Graph` of fixed shapes, without buffers: (x_t …, constants …, states …) → (y_t …, new
                    states …). It runs T = ``length`` times, from the first step or, with ``reverse``, from the last; ys
                    have the index of their x. ``sequences``, ``states``: how many of each. Sequences and constants
                    may be int32. ys and last states have gradients; sequences, constants and first states get them.
                    ``trails`` adds the states before each step, for the gradient: a scan in the other direction whose
                    body recomputes a step and back-propagates through it. It carries the gradients of the states and
                    the sums of those of the constants, except sums that one product computes after it (`hoisting`). It
                    has no trails, and no gradient. For a device without a loop the steps are unrolled (`unroll`), and
                    the backward steps reuse the results of the forward steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph.inline import inline
from volumetric.graph.operations.operation import Attrs, declare, require
from volumetric.graph.operations.scan_hoisting import Hoisting
from volumetric.graph.ops import Graph, Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

T = TypeVar("T")

ScanBody: TypeAlias = "Callable[[GraphBuilder, list[int], list[int], list[int]], tuple[Sequence[int], Sequence[int]]]"
"""``body(work, xs, constants, states) -> ys, new states`` emits one step into the builder `work`.

It may only use the tensors that are passed: pass tensors that are the same in all steps, such as parameters, as
constants.
"""


class ScanInputs(NamedTuple):
    """Inputs of a scan or of its body, by kind."""

    xs: tuple[Any, ...]
    constants: tuple[Any, ...]
    states: tuple[Any, ...]


class ScanOutputs(NamedTuple):
    """Outputs of a scan or of its body, by kind; a body has no trails."""

    ys: tuple[Any, ...]
    states: tuple[Any, ...]
    trails: tuple[Any, ...]


def scan_inputs(inputs: Sequence[T], attrs: Attrs) -> ScanInputs:
    """Split the inputs of a scan or of its body by kind."""
    first, last = attrs["sequences"], len(inputs) - attrs["states"]
    return ScanInputs(tuple(inputs[:first]), tuple(inputs[first:last]), tuple(inputs[last:]))


def scan_outputs(outputs: Sequence[T], attrs: Attrs) -> ScanOutputs:
    """Split the outputs of a scan or of its body by kind."""
    count = len(attrs["body"].outputs)
    first = count - attrs["states"]
    return ScanOutputs(tuple(outputs[:first]), tuple(outputs[first:count]), tuple(outputs[count:]))


def emit_scan(
    work: GraphBuilder, inner: GraphBuilder, body: ScanBody, of: ScanInputs, length: int | None, *, reverse: bool
) -> tuple[list[int], list[int]]:
    """Emit `body` into the builder `inner`, and a scan of it into `work`; see `GraphBuilder.scan`."""
    for i in of.xs:
        if len(work.shape(i)) < 2:
            raise ShapeError("scan: a step of a sequence needs an axis", hint="reshape [T] to [T, 1]")
        length = work.shape(i)[0] if length is None else length
    if length is None:
        raise SpecError("scan: expected sequences or a length, got neither")
    steps = [work.tensors[i] for i in of.xs]
    steps = [replace(t, shape=t.shape[1:]) for t in steps] + [work.tensors[i] for i in (*of.constants, *of.states)]
    kinds = {"sequences": len(of.xs), "states": len(of.states)}
    inputs = scan_inputs([inner.input(t.name, t.shape, t.dtype) for t in steps], kinds)
    ys, after = body(inner, list(inputs.xs), list(inputs.constants), list(inputs.states))
    attrs = {"body": inner.finish((*ys, *after)), **kinds, "length": length, "reverse": reverse, "trails": True}
    outputs = scan_outputs(work.emit("scan", (*of.xs, *of.constants, *of.states), **attrs), attrs)
    return list(outputs.ys), list(outputs.states)


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    """Check that inputs fit the body, and return the stacked ys, the last states and their trails."""
    body: Graph = attrs["body"]
    length = attrs["length"]
    if body.tensors_by_key or body.derived:
        what = next(iter(body.tensors_by_key), "the positions of rows")
        raise SpecError(f"scan: the body uses {what!r}", hint="pass it as a constant of the scan")
    require(len(inputs) == len(body.inputs), "scan", f"got {len(inputs)} inputs for a body with {len(body.inputs)}")
    require(attrs["sequences"] + attrs["states"] <= len(inputs), "scan", "has more sequences and states than inputs")
    require(attrs["states"] <= len(body.outputs) > 0, "scan", "the body must return as many states as it takes")
    require(any(t.dtype == "float32" for t in inputs), "scan", "needs a float32 input")
    of, wants = scan_inputs(inputs, attrs), scan_inputs([body.tensors[i] for i in body.inputs], attrs)
    for x, step in zip(of.xs, wants.xs, strict=True):
        _fits(x, (length, *step.shape), step)
    for x, want in zip((*of.constants, *of.states), (*wants.constants, *wants.states), strict=True):
        _fits(x, want.shape, want)
    ys, after, _ = scan_outputs([body.tensors[i] for i in body.outputs], attrs)
    require(all(t.dtype == "float32" for t in (*ys, *after, *of.states)), "scan", "ys and states must be float32")
    for i, (old, new) in enumerate(zip(of.states, after, strict=True)):
        shapes = f"{list(old.shape)} to {list(new.shape)}"
        require(new.shape == old.shape, "scan", f"the body changes the shape of state {i} from {shapes}")
    trails = of.states if attrs["trails"] else ()
    return [
        *(Tensor(name=t.name, shape=(length, *t.shape)) for t in ys),
        *(Tensor(name=t.name, shape=t.shape) for t in after),
        *(Tensor(name=f"trail of {t.name}", shape=(length, *t.shape)) for t in trails),
    ]


def _fits(x: Tensor, shape: tuple[int, ...], want: Tensor) -> None:
    message = f"{x.name} is {x.dtype} {list(x.shape)}, the body expects {want.dtype} {list(shape)}"
    require(x.shape == shape and x.dtype == want.dtype, "scan", message)


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    from volumetric.graph.interpret import interpret

    body: Graph = attrs["body"]
    dtype = next(x.dtype.type for x in inputs if np.issubdtype(x.dtype, np.floating))
    xs, constants, states = scan_inputs(inputs, attrs)
    stacked = scan_outputs([np.empty((attrs["length"], *body.tensors[i].shape), dtype) for i in body.outputs], attrs)
    trails = [np.empty((attrs["length"], *state.shape), dtype) for state in states if attrs["trails"]]
    steps = range(attrs["length"])
    for t in reversed(steps) if attrs["reverse"] else steps:
        for trail, state in zip(trails, states, strict=False):
            trail[t] = state
        outputs = scan_outputs(interpret(body, [*(x[t] for x in xs), *constants, *states], {}, dtype), attrs)
        for every, y in zip(stacked.ys, outputs.ys, strict=True):
            every[t] = y
        states = outputs.states
    return [*stacked.ys, *states, *trails]


def _vjp(
    work: GraphBuilder, node: Node, grads: Sequence[int | None], needs_grad: Sequence[bool]
) -> Sequence[int | None]:
    """Emit the backward scan: it recomputes each step and back-propagates; then emit the sums of `hoisting`."""
    from volumetric.graph.build import GraphBuilder
    from volumetric.graph.differentiate import differentiate

    attrs, body = node.attrs, node.attrs["body"]
    g_ys, g_states, g_trails = scan_outputs(grads, attrs)
    if not attrs["trails"]:
        raise UnsupportedError(
            f"the gradient of scan {node.where} has no gradient", hint="differentiate what comes before it"
        )
    if any(g is not None for g in g_trails):
        raise UnsupportedError(f"the states before each step of scan {node.where} have no gradient")
    xs, constants, states = scan_inputs(node.inputs, attrs)
    trails = scan_outputs(node.outputs, attrs).trails
    inner = GraphBuilder()
    inner.where = node.where

    def inputs_like(tensors: Sequence[int]) -> list[int]:
        return [inner.input(body.tensors[i].name, body.tensors[i].shape, body.tensors[i].dtype) for i in tensors]

    of_body, made_by_body = scan_inputs(body.inputs, attrs), scan_outputs(body.outputs, attrs)
    x_in, s_in = inputs_like(of_body.xs), inputs_like(of_body.states)
    with_grad = [i for i, g in enumerate(g_ys) if g is not None]
    gy_in = inputs_like([made_by_body.ys[i] for i in with_grad])
    c_in, gs_in = inputs_like(of_body.constants), inputs_like(of_body.states)
    of = inline(inner, body, dict(zip(body.inputs, (*x_in, *c_in, *s_in), strict=True)))
    ends = [*(made_by_body.ys[i] for i in with_grad), *made_by_body.states]
    seeds: dict[int, int] = {}
    for end, g in zip((of[i] for i in ends), (*gy_in, *gs_in), strict=True):
        seeds[end] = inner.add(seeds[end], g) if end in seeds else g
    want_x, want_c, _ = scan_inputs(needs_grad, attrs)
    wrt = [i for i, want in zip((*x_in, *c_in), (*want_x, *want_c), strict=True) if want]
    gradients = differentiate(inner, seeds, [*wrt, *s_in])
    gx = [i for i, want in enumerate(want_x) if want and x_in[i] in gradients]
    gc = [i for i, want in enumerate(want_c) if want and c_in[i] in gradients]
    sequences = (*xs, *trails, *(g_ys[i] for i in with_grad))
    hoisting = Hoisting(inner, dict(zip((*x_in, *s_in, *gy_in), sequences, strict=True)), gs_in)
    hoisted, added = hoisting.split({i: gradients[c_in[i]] for i in gc})
    ys = list(dict.fromkeys((*(gradients[x_in[i]] for i in gx), *hoisting.extra_outputs)))
    sums = inputs_like([of_body.constants[i] for i in added])
    back = inner.finish(
        [
            *ys,
            *(gradients[s] if s in gradients else inner.zeros(inner.shape(s)) for s in s_in),
            *(inner.add(total, part) for total, part in zip(sums, added.values(), strict=True)),
        ]
    )
    carried = [g if g is not None else work.zeros(work.shape(s)) for s, g in zip(states, g_states, strict=True)]
    carried += [work.zeros(work.shape(constants[i])) for i in added]
    outputs = work.emit(
        "scan",
        (*sequences, *constants, *carried),
        body=back,
        length=attrs["length"],
        reverse=not attrs["reverse"],
        sequences=len(sequences),
        states=len(carried),
        trails=False,
    )
    handed, first = dict(zip(ys, outputs, strict=False)), outputs[len(ys) :]
    by_x = {i: handed[gradients[x_in[i]]] for i in gx}
    by_c = dict(zip(added, first[len(states) :], strict=True))
    for i, terms in hoisted.items():
        whole = hoisting.emit(work, terms, handed, attrs["length"])
        by_c[i] = work.add(by_c[i], whole) if i in by_c else whole
    return [
        *(by_x.get(i) for i in range(len(xs))),
        *(by_c.get(i) for i in range(len(constants))),
        *first[: len(states)],
    ]


declare("scan", _infer, _run, vjp_of_all=_vjp)
