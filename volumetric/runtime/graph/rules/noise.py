"""Rules of layers that draw random numbers while training."""

from __future__ import annotations

from volumetric.errors import SpecError
from volumetric.graph.numeric.noise import stream_of
from volumetric.layers import Dropout
from volumetric.runtime.graph.rules.base import Scope, rule


@rule("dropout")
def _dropout(scope: Scope, spec: Dropout, x: int) -> int:
    if scope.training is None or spec.p == 0:
        return x
    if scope.training.noise is None:
        raise SpecError(f"dropout at {scope.path} needs the key of a pass")
    return scope.work.emit("dropout", (x, scope.training.noise), p=float(spec.p), stream=stream_of(scope.path))[0]
