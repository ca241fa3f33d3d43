"""Steps of attention over the edges of a graph."""

from __future__ import annotations

from volumetric.devices.cpu.graph.graph_rules import rule
from volumetric.devices.cpu.kernels.graph.edge_attention import ATTEND_ARGUMENTS, BACK_ARGUMENTS, SPREAD_ARGUMENTS
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.ops import Node


def _sizes(builder: StepBuilder, node: Node, q: int, kv: int) -> dict[str, int | float]:
    _, batch, wide = builder.shape(kv)
    _, queries, width = builder.shape(q)
    heads = node.attrs["heads"]
    key = width // heads
    return {
        "batch": batch,
        "heads": heads,
        "key": key,
        "value": (wide - width) // heads,
        "queries": queries,
        "scale": key**-0.5,
    }


def _work(builder: StepBuilder, node: Node, edges: int, kv: int) -> float:
    """Estimated nanoseconds: a fixed cost per head of an edge, and a little per number."""
    count, batch, wide = builder.shape(edges)[0], *builder.shape(kv)[1:]
    return 50 + count * batch * (12.0 * node.attrs["heads"] + wide / 16)


@rule("edge_attend")
def edge_attend(builder: StepBuilder, node: Node) -> None:
    """All receivers."""
    q, kv, bias, starts, senders, *_ = node.inputs
    message, weights = node.outputs
    builder.add(
        "edge_attend",
        ATTEND_ARGUMENTS,
        reads={"q": q, "kv": kv, "bias": bias, "starts": starts, "senders": senders},
        writes={"message": message, "weights": weights},
        work=_work(builder, node, senders, kv),
        receivers=builder.shape(q)[0],
        biases=builder.shape(bias)[1],
        **_sizes(builder, node, q, kv),
    )


@rule("edge_attend_grad")
def edge_attend_grad(builder: StepBuilder, node: Node) -> None:
    """Gradients by receivers, then by senders."""
    g, weights, q, kv, starts, senders, readers, out_starts, out_edges = node.inputs
    slope, g_q, g_kv = node.outputs
    builder.add(
        "edge_attend_back",
        BACK_ARGUMENTS,
        reads={"g": g, "weights": weights, "q": q, "kv": kv, "starts": starts, "senders": senders},
        writes={"slope": slope, "g_q": g_q},
        work=_work(builder, node, senders, kv),
        receivers=builder.shape(q)[0],
        **_sizes(builder, node, q, kv),
    )
    lists = {"readers": readers, "out_starts": out_starts, "out_edges": out_edges}
    builder.add(
        "edge_attend_spread",
        SPREAD_ARGUMENTS,
        reads={"g": g, "weights": weights, "slope": slope, "q": q, **lists},
        writes={"g_kv": g_kv},
        work=_work(builder, node, senders, kv),
        senders=builder.shape(kv)[0],
        **_sizes(builder, node, q, kv),
    )
