"""What every test shares: no network, seeded randomness, repeatable hypothesis runs."""

from __future__ import annotations

import os

import hypothesis
import numpy as np
import pytest

# Set before any library reads them: a test that reaches for the network is wrong and must fail at once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

# A kernel's first call compiles it, which takes far longer than hypothesis' deadline and says nothing about the code.
# Fixed seeds: the suite checks the same cases everywhere, so a failure on one machine is a failure on all.
hypothesis.settings.register_profile(
    "volumetric",
    deadline=None,
    derandomize=True,
    database=None,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("volumetric")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(20_260_101)
