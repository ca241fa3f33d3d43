"""Loops of a body over time, as a scan or unrolled."""

from __future__ import annotations

from collections.abc import Sequence

from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations.scan import ScanBody


def repeat(
    work: GraphBuilder,
    body: ScanBody,
    xs: Sequence[int],
    constants: Sequence[int],
    states: Sequence[int],
    *,
    written: bool,
) -> tuple[list[int], list[int]]:
    """Repeat a body over the first axis of `xs`; see `GraphBuilder.scan`.

    Parameters
    ----------
    written : unroll the steps, which needs a known length. Gradients then reuse the results of each step; those of a
        scan recompute each step
    """
    if not written:
        return work.scan(body, xs, constants, states)
    step_outputs: list[Sequence[int]] = []
    for t in range(work.shape(xs[0])[0]):
        now = [work.reshape(work.part(x, 0, t, t + 1), work.shape(x)[1:]) for x in xs]
        ys, states = body(work, now, list(constants), list(states))
        step_outputs.append([work.reshape(y, (1, *work.shape(y))) for y in ys])
    return [work.concat(steps, 0) for steps in zip(*step_outputs, strict=True)], list(states)
