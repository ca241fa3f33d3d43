"""How fast this machine computes, in about a second: ``python -m volumetric.cli.doctor_speed`` prints JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

_SIDE: Final = 1024
_WIDTH: Final = 2048
_LAYERS: Final = 4
_MOVED: Final = 1 << 26
"""Bytes that are copied: more than caches hold."""


def measure() -> dict[str, float]:
    """Measure.

    Returns
    -------
    ``bandwidth``: GB/s read and written by a copy; ``product``: GFLOP/s of a product by NumPy; ``begin``: seconds until
    a new network has computed its first row on the CPU; ``row``: seconds for another; ``weights``: bytes that it reads;
    ``error``: largest difference from NumPy, relative to the largest output
    """
    import numpy as np

    import volumetric
    from volumetric.builders.sequential import chain
    from volumetric.layers import Dense

    source = np.ones(_MOVED // 4, np.float32)
    target = np.empty_like(source)
    a = np.random.default_rng(0).standard_normal((_SIDE, _SIDE)).astype(np.float32)
    bandwidth = 2 * _MOVED / _best(lambda: np.copyto(target, source)) / 1e9
    product = 2 * _SIDE**3 / _best(lambda: a @ a) / 1e9

    began = time.perf_counter()
    network = chain([Dense(in_features=_WIDTH, out_features=_WIDTH) for _ in range(_LAYERS)], (_WIDTH,))
    params = volumetric.initialise(network, seed=1)
    executable = volumetric.open_device("cpu").compile(volumetric.lower(network), params)
    rows = a[: _WIDTH // _SIDE].reshape(1, _WIDTH)

    def run() -> Any:
        return executable.forward(executable.new_state(), rows)

    output = np.asarray(run(), np.float64)
    begin = time.perf_counter() - began
    wanted = rows.astype(np.float64)
    for coord in network.layers:
        weight, bias = (np.asarray(params[f"{coord}/{name}"].values(), np.float64) for name in ("weight", "bias"))
        wanted = wanted @ weight.T + bias
    return {
        "bandwidth": bandwidth,
        "product": product,
        "begin": begin,
        "row": _best(run),
        "weights": float(4 * _LAYERS * _WIDTH * _WIDTH),
        "error": float(np.abs(output - wanted).max() / np.abs(wanted).max()),
    }


def _best(work: Callable[[], Any], seconds: float = 0.15) -> float:
    """Return the least seconds of several runs, at least three, until `seconds` are over."""
    least, count, end = float("inf"), 0, time.perf_counter() + seconds
    while count < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        work()
        least, count = min(least, time.perf_counter() - began), count + 1
    return least


if __name__ == "__main__":
    print(json.dumps(measure()))
