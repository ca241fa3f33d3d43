"""Steps of a body over time, as a scan or written out."""

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
    """Repeat a body over the first axis of `xs`, as `GraphBuilder.scan` does, which see.

    Parameters
    ----------
    written : the steps stand one behind the other in the graph, whose length is known then. Gradients go back through
        what each of them made; those of a scan compute each step once more
    """
    if not written:
        return work.scan(body, xs, constants, states)
    step_outputs: list[Sequence[int]] = []
    for t in range(work.shape(xs[0])[0]):
        now = [work.reshape(work.part(x, 0, t, t + 1), work.shape(x)[1:]) for x in xs]
        ys, states = body(work, now, list(constants), list(states))
        step_outputs.append([work.reshape(y, (1, *work.shape(y))) for y in ys])
    return [work.concat(steps, 0) for steps in zip(*step_outputs, strict=True)], list(states)
