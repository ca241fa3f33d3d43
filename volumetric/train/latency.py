"""Check that training windows are longer than the latency of fabrics."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from volumetric.clocked import Clocked
from volumetric.network import Network
from volumetric.train.data import Batch
from volumetric.train.modes import Mode, Systolic, TargetPropagation

logger: logging.Logger = logging.getLogger(__name__)


def warn_of_latency(network: Network | Clocked, mode: Mode, batches: Sequence[Batch]) -> None:
    """Warn about each fabric output that no input reaches within a window of `batches`.

    With a latency of n, row t of an output depends on rows up to t - n; in a window of n rows or fewer no gradient
    reaches that input.
    """
    from volumetric.fabric.layer.fabric_layer import Fabric
    from volumetric.fabric.layer.node_latency import latencies
    from volumetric.layers.node_layer import node_layers_in

    structure = network.network if isinstance(network, Clocked) else network
    fabrics = node_layers_in(structure.layers, Fabric)
    rows = max((rows_of(structure, batch) for batch in batches), default=0) if fabrics else 0
    if isinstance(network, Clocked) and isinstance(mode, Systolic | TargetPropagation):
        rows = min(rows * mode.ticks_per_row, mode.window)
    if rows < 1:
        return
    for path, spec in fabrics.items():
        for output, inputs in latencies(spec).items():
            for name, late in inputs.items():
                if late is not None and late >= rows:
                    logger.warning(
                        "fabric %s: output %r depends on input %r after %d rows at the earliest, but windows of "
                        "training have %d: no gradient gets there; take longer windows, more inner_steps or edges",
                        path,
                        output,
                        name,
                        late,
                        rows,
                    )


def rows_of(network: Network, batch: Batch) -> int:
    """Return the number of rows of each sequence in a batch; 0 if samples are not sequences."""
    shape = batch.features.shape
    return shape[1] if len(shape) == len(network.input_shape) + 2 else 0
