"""How much of the past does a program hold? A fitness function for ``volumetric evolve examples/echo.toml``.

It is the memory capacity of Jaeger (2001), for the first `DELAYS` steps: what came in so many steps ago is told from
the outputs by linear regression, fitted to some streams and judged on others.
"""

from __future__ import annotations

import numpy as np

from volumetric.evolution import GridGenome

STREAMS, ROWS, FIRST, DELAYS = 12, 48, 12, 8
SIGNAL = np.random.default_rng(1).uniform(-1.0, 1.0, (STREAMS, ROWS, 1)).astype(np.float32)
PAST = np.stack([np.roll(SIGNAL[..., 0], delay, axis=1) for delay in range(1, DELAYS + 1)], -1)[:, FIRST:]


def score(genome: GridGenome) -> float:
    """Return the mean over all delays of the share of variance that is explained, at least 0; more is better."""
    outputs = genome.predict(SIGNAL)[:, FIRST:].astype(np.float64)
    ones = np.ones((*outputs.shape[:2], 1))
    features = np.concatenate([outputs, ones], -1)
    fitted, judged = (features[half].reshape(-1, features.shape[-1]) for half in (slice(0, 8), slice(8, None)))
    wanted, answers = (PAST[half].reshape(-1, DELAYS) for half in (slice(0, 8), slice(8, None)))
    ridge = 1e-6 * np.eye(features.shape[-1])
    weights = np.linalg.solve(fitted.T @ fitted + ridge, fitted.T @ wanted)
    unexplained = np.square(judged @ weights - answers).mean(0) / answers.var(0)
    return float(np.maximum(0.0, 1.0 - unexplained).mean())
