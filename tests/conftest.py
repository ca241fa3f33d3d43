"""What every test shares: no network, seeded randomness, repeatable hypothesis runs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys

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


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what the tests of a file shared, after its last one: all files together would need 7 GB."""
    if nextitem is None or nextitem.path != item.path:
        if "tests.devices" in sys.modules:
            sys.modules["tests.devices"].release()
        gc.collect()
        _give_heap_back()


def _give_heap_back() -> None:
    """Return freed memory to the system, which glibc keeps otherwise: compiled pipelines are many small pieces."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
