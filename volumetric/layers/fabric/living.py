"""Nodes of a fabric that are masked: what they show is 0, and edges from them are none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from volumetric._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.layers.fabric.messages import Reading
from volumetric.layers.fabric.spec import Fabric
from volumetric.layers.scope import Scope


def living_of(scope: Scope, spec: Fabric) -> int | None:
    """Emit which nodes live, 1 or 0 ``[nodes, 1]``, in their order; None: all of them do, always."""
    if not spec.dynamic:
        return None
    work, told = scope.work, scope.buffers(spec)["living"]
    there = work.binary("greater", work.unary(told, "abs"), work.scalar(0.0))
    return work.reshape(there, (*work.shape(told), 1))


def first_of(spec: Fabric, state: str) -> int:
    """Return the first of the nodes that a state is of: ``"shown"``, or what a population keeps."""
    facts = spec.facts
    return facts.inputs + (0 if state == "shown" else facts.populations[state.rpartition(".")[0]].start)


def shown_by(work: GraphBuilder, living: int | None, x: int, first: int) -> int:
    """Emit ``[n, …]`` of the nodes from `first` on, 0 where they are masked, whatever is there."""
    if living is None:
        return x
    count, *rest = work.shape(x)
    own = work.reshape(work.part(living, 0, first, first + count), (count, *(1 for _ in rest)))
    return work.binary("mul_nonzero", x, own)


def without_masked(work: GraphBuilder, reading: Reading, bias: Mapping[str, int], living: int) -> dict[str, int]:
    """Emit what is added to scores, by what `attend` calls it, with -inf for edges from masked nodes.

    Parameters
    ----------
    bias : of edges and blocks
    living : ``[senders, 1]``; a sender that is counted once for each delay is there once
    """
    count = work.shape(living)[0]

    def of(senders: Array) -> int:
        return work.gather_rows(living, work.constant(np.asarray(senders % count, np.int32), "senders"))

    made = dict(bias)
    if len(reading.rest):
        made["far"] = work.binary("mask", bias["far"], of(reading.edges.senders))
    for n, block in enumerate(reading.blocks):
        there = work.reshape(of(block.senders), (1, 1, len(block.senders)))
        made[f"far.{n}"] = work.binary("mask", bias[f"far.{n}"], there)
    return made
