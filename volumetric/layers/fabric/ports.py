"""Ends of a fabric: what input nodes show of rows, and the rows that outputs are made into."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.graph.build import GraphBuilder
from volumetric.layers.fabric.declared import OutPort
from volumetric.layers.fabric.spec import Fabric


def shown_by_inputs(work: GraphBuilder, spec: Fabric, p: Mapping[str, int], x: int) -> int:
    """Emit what input nodes show, ``[inputs, R, H]``, of rows ``[R, columns]``."""
    rows = work.shape(x)[0]
    made: list[int] = []
    for name, (first, last) in spec.ports("inputs").items():
        part = work.reshape(work.part(x, 1, first, last), (1, rows, last - first))
        weight = p[f"ports.{name}.weight"]
        wide = work.shape(weight)[0]
        y = work.gemm(part, work.reshape(weight, (1, wide, last - first)), p[f"ports.{name}.bias"], trans_b=True)
        made.append(work.permute(work.reshape(y, (rows, wide // spec.hidden, spec.hidden)), (1, 0, 2)))
    return work.concat(made, 0)


def handed_out(work: GraphBuilder, spec: Fabric, p: Mapping[str, int], o: int, living: int | None) -> int:
    """Emit rows of all outputs ``[R, columns]`` of what their nodes have, ``[outputs, R, H]``.

    Masked nodes have zeros there; `living` ``[nodes, 1]`` tells which are not, None: none is.
    """
    return work.concat([_port(work, spec, port, p, o, living) for port in spec.outputs], 1)


def _port(work: GraphBuilder, spec: Fabric, port: OutPort, p: Mapping[str, int], o: int, living: int | None) -> int:
    own, h, first = spec.facts.ports[port.name], spec.hidden, spec.facts.senders_count
    there = None if living is None else work.part(living, 0, first + own.start, first + own.stop)
    nodes = work.part(o, 0, own.start, own.stop)
    count, rows, _ = work.shape(nodes)
    if port.aggregate == "mean" and there is not None:
        most = work.binary("max", work.reduce(there, "sum", (0,)), work.scalar(1.0))
        total = work.reshape(work.reduce(nodes, "sum", (0,)), (1, rows, h))
        read = work.binary("div", total, work.reshape(most, (1, 1, 1)))
    elif port.aggregate == "mean":
        read = work.reshape(work.reduce(nodes, "mean", (0,)), (1, rows, h))
    elif port.aggregate == "flatten":
        read = work.reshape(work.permute(nodes, (1, 0, 2)), (1, rows, count * h))
    else:
        read = _asked(work, work.permute(nodes, (1, 0, 2)), p[f"ports.{port.name}.query"], there)
    weight = work.reshape(p[f"ports.{port.name}.weight"], (1, port.dim, work.shape(read)[2]))
    y = work.gemm(read, weight, p[f"ports.{port.name}.bias"], trans_b=True)
    return work.reshape(y, (rows, port.dim))


def _asked(work: GraphBuilder, nodes: int, query: int, there: int | None) -> int:
    """Emit what learned queries find among ``[R, n, H]`` that are `there`, side by side: ``[1, R, slots · H]``."""
    rows, count, h = work.shape(nodes)
    slots = work.shape(query)[0]
    ask = work.reshape(work.affine(query, h**-0.5), (1, slots, h))
    scores = work.gemm(ask, nodes, trans_b=True, groups=rows)
    if there is not None:
        scores = work.binary("mask", scores, work.reshape(there, (1, 1, count)))
    weights = work.softmax(work.reshape(scores, (rows * slots, count)))
    found = work.gemm(work.reshape(weights, (rows, slots, count)), nodes)
    return work.reshape(found, (1, rows, slots * h))
