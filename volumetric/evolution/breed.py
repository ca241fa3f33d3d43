"""Children of a pool, in one compiled call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.genes import CONNECTION
from volumetric.evolution.innovation import Innovations
from volumetric.evolution.pool import Pool
from volumetric.evolution.settings import Settings

IntArray = NDArray[np.int64]


def breed(
    pool: Pool,
    parents: IntArray,
    mutates: NDArray[np.uint8],
    first_id: int,
    key: np.uint64,
    settings: Settings,
    innovations: Innovations,
) -> Pool:
    """Return one child for each row of `parents`; `innovations` must have room for them.

    Parameters
    ----------
    parents : int64 [children, 3]: row of the fitter parent, row of the other or -1, and 1 if they are equally fit
    mutates : uint8 [children]; 0 leaves a child as it was inherited
    first_id : id of the first child; with `key` it names the random stream of each child
    """
    from volumetric.kernels.cpu import breeding

    first, second, tie = parents.T
    # Equally fit parents may both give all they have; otherwise all genes come from the fitter one.
    nodes, connections = (pool.sizes[first] + pool.sizes[second] * tie[:, None]).max(axis=0)
    children = Pool.empty(pool.interface, len(parents), int(nodes) + 1, int(connections) + 3)
    breeding.breed(
        pool.nodes, pool.connections, pool.sizes, parents, mutates, first_id, key, settings.record,
        settings.activations, settings.aggregations, innovations.table, innovations.counters,
        np.zeros(1, CONNECTION), np.zeros(int(nodes) + 2, np.uint8),
        children.nodes, children.connections, children.sizes,
    )  # fmt: skip
    return children
