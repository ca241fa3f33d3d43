"""Every operation as a plain formula: element by element, by the book."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.graph.formulas.cells import one_step, one_step_back, recurrent, recurrent_grad
from tests.graph.formulas.elements import PAIR, A, Attrs, element_by_element, gemm, pad, scatter, unary, unary_grad
from tests.graph.formulas.images import fold, pool_back, pool_max, pool_sum, unfold
from tests.graph.formulas.rows import (
    by_row,
    entmax,
    entmax_grad,
    keep_largest,
    norm,
    norm_grad,
    norm_param_grad,
    softmax,
)
from tests.graph.formulas.sequences import (
    cross_attend,
    depthwise,
    depthwise_back,
    distance_attend,
    edge_attend,
    edge_attend_grad,
    linear_scan,
    rope,
    rotate_scan,
    weigh_rows,
)
from tests.graph.formulas.training import dropout, gumbel, loss, noisy, update
from tests.oracles.learner import as_stored
from volumetric.dtypes import Scheme


def scan(xs: list[A], at: Attrs) -> list[A]:
    """Step by step, and the body node by node."""
    body, count, last = at["body"], at["sequences"], len(xs) - at["states"]
    states, ys = xs[last:], []
    trails: list[list[A]] = []
    for t in range(at["length"]):
        t = at["length"] - 1 - t if at["reverse"] else t
        values = dict(zip(body.inputs, [*(x[t] for x in xs[:count]), *xs[count:last], *states], strict=True))
        values |= body.constants
        for node in body.nodes:
            made = FORMULAS[node.op]([values[i] for i in node.inputs], node.attrs)
            values.update(zip(node.outputs, made, strict=True))
        found = [values[i] for i in body.outputs]
        trails.append(states)
        ys.append(found[: len(found) - len(states)])
        states = found[len(found) - len(states) :]
    order = -1 if at["reverse"] else 1
    shapes = [
        (0, *body.tensors[i].shape) for i in (*body.outputs[: len(body.outputs) - len(states)], *body.inputs[last:])
    ]
    every = [[*y, *trail] for y, trail in zip(ys, trails, strict=True)][::order]
    stacked = [np.array([step[i] for step in every]) if every else np.zeros(shape) for i, shape in enumerate(shapes)]
    return [*stacked[: len(shapes) - len(states)], *states, *stacked[len(shapes) - len(states) :]]


FORMULAS: dict[str, Callable[[list[A], Attrs], list[A]]] = {
    "gemm": gemm,
    "unary": unary,
    "unary_grad": unary_grad,
    "binary": lambda xs, at: [element_by_element(PAIR[at["name"]], *xs)],
    "reshape": lambda xs, at: [np.array(xs[0].ravel().tolist()).reshape(at["shape"])],
    "permute": lambda xs, at: [np.einsum(xs[0], range(xs[0].ndim), at["perm"])],
    "flip": lambda xs, at: [np.take(xs[0], range(xs[0].shape[at["axis"]])[::-1], at["axis"])],
    "slice": lambda xs, at: [xs[0][tuple(map(slice, at["starts"], at["stops"]))]],
    "pad": pad,
    "concat": lambda xs, at: [np.concatenate(xs, at["axis"])],
    "broadcast": lambda xs, at: [xs[0] + np.zeros(at["shape"])],
    "reduce": lambda xs, at: [getattr(np, at["name"])(xs[0], axis=at["axes"], keepdims=True)],
    "assign": lambda xs, at: xs,
    "gather_rows": lambda xs, at: [np.array([xs[0][i] for i in xs[1]]).reshape(len(xs[1]), xs[0].shape[1])],
    "scatter_rows": scatter,
    "softmax": by_row(softmax),
    "softmax_grad": by_row(
        lambda y, g: [v * (d - sum(a * b for a, b in zip(y, g, strict=True))) for v, d in zip(y, g, strict=True)]
    ),
    "entmax": by_row(entmax),
    "entmax_grad": by_row(entmax_grad),
    "keep_largest": by_row(keep_largest),
    "norm": norm,
    "norm_grad": norm_grad,
    "norm_param_grad": norm_param_grad,
    "unfold": unfold,
    "fold": fold,
    "pool_max": pool_max,
    "pool_max_grad": pool_back,
    "pool_sum": pool_sum,
    "pool_spread": pool_back,
    "rope": rope,
    "depthwise_conv": depthwise,
    "depthwise_conv_grad": depthwise_back,
    "cross_attend": cross_attend,
    "weigh_rows": weigh_rows,
    "distance_attend": distance_attend,
    "linear_scan": linear_scan,
    "rotate_scan": rotate_scan,
    "edge_attend": edge_attend,
    "edge_attend_grad": edge_attend_grad,
    "recurrent": recurrent,
    "cell": one_step,
    "cell_grad": one_step_back,
    "recurrent_grad": recurrent_grad,
    "scan": scan,
    "loss": loss,
    "update": update,
    "sumsq": lambda xs, at: [np.array([sum(float((x * x).sum()) for x in xs)])],
    "dropout": dropout,
    "gumbel": gumbel,
    "normal": noisy,
    "fake_quant": lambda xs, at: [as_stored(xs[0], Scheme.parse(at["scheme"]))],
}
