"""Attention over the edges of a graph: one invocation for each score, and for each element of a message."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.devices.gpu.kernels.dispatch import Constant
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    one_each,
    result,
    scratch,
    source,
)

_Q, _KV, _BIAS, _STARTS, _SENDERS, _READERS = map(source, range(6))


def edge_attend(request: LoweringRequest) -> LoweredNode:
    """Scores; then their softmax and the weighted sums."""
    edges, batch, heads = request.outputs[1]
    receivers, _, width = request.outputs[0]
    scores = edges * batch * heads
    shared = {"kv": _KV, "senders": _SENDERS}
    score = _launch(
        "edge_scores",
        request,
        scores,
        {**shared, "a": _Q, "readers": _READERS, "bias": _BIAS, "scores": scratch(0)},
        {"OF_VALUES": False},
    )
    message = _launch(
        "edge_messages",
        request,
        receivers * batch * width,
        {**shared, "scores": scratch(0), "starts": _STARTS, "weights": result(1), "message": result(0)},
    )
    return LoweredNode(launches=_nonempty_launches(score, message), scratch=(4 * max(scores, 1),))


def edge_attend_grad(request: LoweringRequest) -> LoweredNode:
    """Gradients of weights; then of scores, of queries, and of keys and values."""
    g, weights, q, kv, starts, senders, readers, out_starts, out_edges = map(source, range(9))
    slope, g_q, g_kv = map(result, range(3))
    edges, batch, heads = request.outputs[0]
    scores = edges * batch * heads
    receivers, queries, keys = request.outputs[1]
    ids = {"senders": senders, "readers": readers}
    launches = (
        _launch("edge_scores", request, scores, {**ids, "kv": kv, "a": g, "scores": scratch(0)}, {"OF_VALUES": True}),
        _launch(
            "edge_slopes",
            request,
            receivers * batch * heads,
            {"scores": scratch(0), "weights": weights, "starts": starts, "slope": slope},
        ),
        _launch(
            "edge_queries",
            request,
            receivers * queries * keys,
            {"kv": kv, "senders": senders, "starts": starts, "slope": slope, "g_q": g_q},
        ),
        _launch(
            "edge_spread",
            request,
            request.outputs[2][0] * batch * request.outputs[2][2],
            {
                "g": g,
                "weights": weights,
                "slope": slope,
                "q": q,
                "readers": readers,
                "out_starts": out_starts,
                "out_edges": out_edges,
                "g_kv": g_kv,
            },
        ),
    )
    return LoweredNode(launches=_nonempty_launches(*launches), scratch=(4 * max(scores, 1),))


def _nonempty_launches(*launches: KernelLaunch) -> tuple[KernelLaunch, ...]:
    """Launches that have any work."""
    return tuple(one for one in launches if one.dims[0])


def _launch(
    kernel: str,
    request: LoweringRequest,
    count: int,
    buffers: Mapping[str, BufferRef],
    constants: Mapping[str, Constant] | None = None,
) -> KernelLaunch:
    first = 2 if request.op == "edge_attend_grad" else 0
    (_, queries, width), (_, batch, wide) = request.inputs[first : first + 2]
    heads, biases = request.attrs["heads"], request.inputs[2][-1]
    key = width // heads
    dims = (count, batch, heads, key, wide // heads - key, queries, biases, request.attrs["most_in"])
    edges = (request.outputs[1] if first == 0 else request.outputs[0])[0]
    ends = (edges, *(max(request.inputs[first + at][0], 1) - 1 for at in (1, 0)))
    return one_each(
        kernel, count, request.caps, buffers, (*dims, request.attrs["most_out"], key**-0.5, *ends), constants=constants
    )
