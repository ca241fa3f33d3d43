"""RNN, GRU and LSTM: the product of the inputs for all steps at once, then a scan over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from volumetric.graph.build import GraphBuilder
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.element_functions import clipped, hard_sigmoid
from volumetric.loaders.onnx_import.operators.operator_table import operator

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_PLAIN = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Softplus": "softplus"}
Activate = Callable[[GraphBuilder, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Direction:
    """One direction of a recurrent node.

    Attributes
    ----------
    xs : ``[T, B, gates · H]``, the product of the inputs and all biases that are not inside a gate
    weight : ``[1, gates · H, H]``
    inner_bias : ``[1, H]``, the bias inside the reset gate of a GRU, or None
    peepholes : ``[1, H]`` each, of the gates i, o and f
    states : ``[B, H]`` each
    keep : ``[T, B, 1]``, 1 for steps within the length of a sequence, or None
    """

    xs: int
    weight: int
    inner_bias: int | None
    peepholes: tuple[int, ...]
    states: tuple[int, ...]
    keep: int | None
    activations: tuple[Activate, ...]
    reverse: bool


@operator("RNN", "GRU", "LSTM", static=(4,))
def _recurrent(
    call: NodeCall,
    x: OnnxValue,
    weight: OnnxValue,
    recurrence: OnnxValue,
    bias: OnnxValue | None = None,
    lengths: OnnxValue | None = None,
    first_h: OnnxValue | None = None,
    first_c: OnnxValue | None = None,
    peepholes: OnnxValue | None = None,
) -> list[OnnxValue]:
    """Emit one or two directions, and join their outputs."""
    work, op = call.work, call.node.op
    batch_first = bool(call.attribute("layout", 0))
    direction = call.attribute("direction", "forward")
    table = call.move_axis(call.tensor(x), 0, 1) if batch_first else call.tensor(x)
    length, batch, _ = work.shape(table)
    count, _, size = recurrence.shape
    ends = None if lengths is None else call.array(lengths, "the lengths of sequences")
    if ends is not None and (ends == length).all():
        ends = None
    ys: list[int] = []
    lasts: list[list[int]] = []
    for d in range(count):
        reverse = direction == "reverse" or d == 1
        order = _reversal(ends, length, batch) if reverse and ends is not None else None
        rows = table if order is None else _reordered(call, table, order)
        states = [_first_state(call, s, d, batch, size, batch_first) for s in (first_h, first_c)[: 1 + (op == "LSTM")]]
        xs, inner = _from_inputs(call, rows, weight, bias, d, size)
        of = _Direction(
            xs=xs,
            weight=work.part(call.tensor(recurrence), 0, d, d + 1),
            inner_bias=inner,
            peepholes=_parts(call, peepholes, d, size, 3),
            states=tuple(states),
            keep=None if ends is None else work.constant(_mask(ends, length)),
            activations=_activations(call, d, len(_DEFAULTS[op])),
            reverse=reverse and order is None,
        )
        y, last = _scan(call, of, size)
        ys.append(y if order is None else _reordered(call, y, order))
        lasts.append(last)
    whole = work.concat([work.reshape(y, (length, 1, batch, size)) for y in ys], 1)
    outputs = [call.result(work.permute(whole, (2, 0, 1, 3)) if batch_first else whole, x.dtype)]
    for i in range(1 + (op == "LSTM")):
        last = work.concat([work.reshape(of[i], (1, batch, size)) for of in lasts], 0)
        outputs.append(call.result(work.permute(last, (1, 0, 2)) if batch_first else last, x.dtype))
    return outputs


def _first_state(call: NodeCall, state: OnnxValue | None, d: int, batch: int, size: int, batch_first: bool) -> int:
    work = call.work
    if state is None:
        return work.zeros((batch, size))
    tensor = call.move_axis(call.tensor(state), 0, 1) if batch_first else call.tensor(state)
    return work.reshape(work.part(tensor, 0, d, d + 1), (batch, size))


def _parts(call: NodeCall, value: OnnxValue | None, d: int, size: int, count: int) -> tuple[int, ...]:
    """Return parts ``[1, size]`` of a direction's vector."""
    if value is None:
        return ()
    row = call.work.part(call.tensor(value), 0, d, d + 1)
    return tuple(call.work.split(row, [size] * count, 1))


def _from_inputs(
    call: NodeCall, rows: int, weight: OnnxValue, bias: OnnxValue | None, d: int, size: int
) -> tuple[int, int | None]:
    """Emit the product of all inputs with their weights, and the biases; return the bias inside a gate apart."""
    work, op = call.work, call.node.op
    gates = _GATES[op]
    length, batch, width = work.shape(rows)
    product = work.gemm(
        work.reshape(rows, (1, length * batch, width)), work.part(call.tensor(weight), 0, d, d + 1), trans_b=True
    )
    product = work.reshape(product, (length, batch, gates * size))
    if bias is None:
        return product, None
    parts = list(_parts(call, bias, d, size, 2 * gates))
    outer = [work.add(parts[i], parts[gates + i]) for i in range(gates)]
    inner = None
    if op == "GRU" and call.attribute("linear_before_reset", 0):
        outer[2], inner = parts[2], parts[5]
    return call.pair("add", product, work.concat(outer, 1)), inner


def _mask(ends: Any, length: int) -> Any:
    return (np.arange(length)[:, None, None] < np.asarray(ends)[None, :, None]).astype(np.float64)


def _reversal(ends: Any, length: int, batch: int) -> Any:
    """Return the flat indices ``[T · B]`` that reverse each sequence within its length."""
    index = np.tile(np.arange(length)[:, None], (1, batch))
    for b, end in enumerate(np.asarray(ends).tolist()):
        index[:end, b] = np.arange(end)[::-1]
    return (index * batch + np.arange(batch)).reshape(-1)


def _reordered(call: NodeCall, x: int, order: Any) -> int:
    work = call.work
    length, batch, width = work.shape(x)
    return work.reshape(call.take(work.reshape(x, (length * batch, width)), 0, order), (length, batch, width))


def _activations(call: NodeCall, d: int, count: int) -> tuple[Activate, ...]:
    names = call.attribute("activations") or _DEFAULTS[call.node.op] * (d + 1)
    alphas, betas = list(call.attribute("activation_alpha", ())), list(call.attribute("activation_beta", ()))
    chosen: list[Activate] = []
    for i, name in enumerate(names):
        alpha = beta = None
        if name not in (*_PLAIN, "Softsign"):
            alpha = alphas.pop(0) if alphas else None
            beta = betas.pop(0) if betas and name in ("HardSigmoid", "ScaledTanh", "Affine") else None
        if d * count <= i < (d + 1) * count:
            chosen.append(_activation(call, name, alpha, beta))
    if len(chosen) < count:
        chosen = [_activation(call, name, None, None) for name in names[:count]]
    return tuple(chosen)


def _activation(call: NodeCall, name: str, alpha: float | None, beta: float | None) -> Activate:
    if name in _PLAIN:
        return lambda work, x: work.unary(x, _PLAIN[name])
    if name == "HardSigmoid":
        a, b = 0.2 if alpha is None else alpha, 0.5 if beta is None else beta
        return lambda work, x: hard_sigmoid(replace(call, work=work), x, a, b)
    if name == "LeakyRelu":
        slope = 0.01 if alpha is None else alpha
        return lambda work, x: work.binary("max", x, work.affine(x, slope))
    if name in ("ScaledTanh", "Affine"):
        a, b = 1.0 if alpha is None else alpha, 1.0 if beta is None and name == "ScaledTanh" else beta or 0.0
        if name == "Affine":
            return lambda work, x: work.affine(x, a, b)
        return lambda work, x: work.affine(work.unary(work.affine(x, b), "tanh"), a)
    raise call.refuse(f"the activation {name}")


def _scan(call: NodeCall, of: _Direction, size: int) -> tuple[int, list[int]]:
    """Emit the steps; return all outputs ``[T, B, H]`` and the last states."""
    step = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[call.node.op]
    constants = [of.weight, *of.peepholes, *(() if of.inner_bias is None else (of.inner_bias,))]
    xs = [of.xs] if of.keep is None else [of.xs, of.keep]

    def body(
        work: GraphBuilder, now: list[int], fixed: list[int], states: list[int]
    ) -> tuple[Sequence[int], Sequence[int]]:
        inner = replace(call, work=work)
        peepholes = fixed[1 : 1 + len(of.peepholes)]
        bias = fixed[-1] if of.inner_bias is not None else None
        new = step(inner, of, now[0], fixed[0], states, peepholes, bias, size)
        y = new[0]
        if len(now) > 1:
            new = [inner.select(now[1], after, before) for after, before in zip(new, states, strict=True)]
            y = inner.pair("mul_nonzero", y, now[1])
        return [y], new

    ys, last = call.work.scan(body, xs, constants, list(of.states), reverse=of.reverse)
    return ys[0], last


def _by_weight(call: NodeCall, h: int, weight: int) -> int:
    """Emit ``h Rᵀ``, [B, gates · H]."""
    work = call.work
    product = work.gemm(work.reshape(h, (1, *work.shape(h))), weight, trans_b=True)
    return work.reshape(product, work.shape(product)[1:])


def _bounded(call: NodeCall, x: int) -> int:
    limit = call.attribute("clip")
    return x if limit is None else clipped(call, x, -float(limit), float(limit))


def _rnn_step(
    call: NodeCall,
    of: _Direction,
    x: int,
    weight: int,
    states: list[int],
    peepholes: list[int],
    bias: int | None,
    size: int,
) -> list[int]:
    work = call.work
    return [of.activations[0](work, _bounded(call, work.binary("add", x, _by_weight(call, states[0], weight))))]


def _gru_step(
    call: NodeCall,
    of: _Direction,
    x: int,
    weight: int,
    states: list[int],
    peepholes: list[int],
    bias: int | None,
    size: int,
) -> list[int]:
    work, [h] = call.work, states
    f, g = of.activations
    from_x = work.split(x, [size] * 3, 1)
    before = bool(call.attribute("linear_before_reset", 0))
    gates = 3 if before else 2
    from_h = work.split(_by_weight(call, h, work.part(weight, 1, 0, gates * size)), [size] * gates, 1)
    z = f(work, _bounded(call, work.binary("add", from_x[0], from_h[0])))
    r = f(work, _bounded(call, work.binary("add", from_x[1], from_h[1])))
    if before:
        inner = from_h[2] if bias is None else call.pair("add", from_h[2], bias)
        inner = work.binary("mul", r, inner)
    else:
        inner = _by_weight(call, work.binary("mul", r, h), work.part(weight, 1, 2 * size, 3 * size))
    n = g(work, _bounded(call, work.binary("add", from_x[2], inner)))
    return [work.binary("add", n, work.binary("mul", z, work.binary("sub", h, n)))]


def _lstm_step(
    call: NodeCall,
    of: _Direction,
    x: int,
    weight: int,
    states: list[int],
    peepholes: list[int],
    bias: int | None,
    size: int,
) -> list[int]:
    """Emit a step of an LSTM: the output and the cell."""
    work, (h, c) = call.work, states
    f, g, last = of.activations
    i, o, forget, cell = work.split(work.binary("add", x, _by_weight(call, h, weight)), [size] * 4, 1)

    def watched(gate: int, state: int, which: int) -> int:
        if not peepholes:
            return gate
        return work.binary("add", gate, call.pair("mul", state, peepholes[which]))

    i = f(work, _bounded(call, watched(i, c, 0)))
    if call.attribute("input_forget", 0):
        forget = work.affine(i, -1.0, 1.0)
    else:
        forget = f(work, _bounded(call, watched(forget, c, 2)))
    new = g(work, _bounded(call, cell))
    after = work.binary("add", work.binary("mul", forget, c), work.binary("mul", i, new))
    o = f(work, _bounded(call, watched(o, after, 1)))
    return [work.binary("mul", o, last(work, after)), after]
