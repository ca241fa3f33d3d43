"""Edges by families, without naming them."""

from __future__ import annotations

from volumetric.layers.program.wiring import Autowire


def autowire(*, loops: bool = True) -> list[Autowire]:
    """Return what stands in a list of edges for all that families ask for: ``autowire() + [Edge(...)]``.

    A pair that another edge of the list joins is left to that edge. For families of (reads → writes):

    ============================  ===============
    observation → state           observe
    state → observation           predict
    state → state                 integrate
    state → memory                write
    memory → state                retrieve
    state → action                act
    action → state                intervene
    state → residual              emit_residual
    observation → residual        emit_residual
    residual → state              correct
    other families → the same     attend
    ============================  ===============

    Parameters
    ----------
    loops : regions read themselves, too
    """
    return [Autowire(loops=loops)]
