"""What every test shares: no network, seeded randomness, repeatable hypothesis runs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from tests import costs, tiers

ROOMY = 1 << 30
"""Bytes in memory from which devices are given back after each function of tests."""
LEFT = pytest.StashKey[int]()
"""Bytes in memory after they were given back: once it is more, half as much again may be taken before the next time."""

EARLY = ("parity/test_parity.py", "gpu/", "web/", "golden/", "cpu/", "gpu_graph/", "runtime/", "loaders/", "evolution/")
"""Files that run first, in this order. `make test` hands each file to the first process that is free: long ones at the
end would leave the others without work, and processes that begin with kernels of one device would compile them twice.
"""
LATE = ("dtypes/", "network/", "builders/", "viz/", "analysis/")
"""Files that compile nothing and are short, which even out what is left."""

# Set before any library reads them: a test that reaches for the network is wrong and must fail at once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
# Tests run in as many processes as there are cores already.
os.environ["VOLUMETRIC_COMPILE_PROCESSES"] = "1"

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the quick tier, and a list of what each test costs."""
    parser.addoption("--quick", action="store_true", help="run the quick tier alone (tests/tiers.py)")
    parser.addoption("--costs", metavar="FILE", help="append a line of JSON for each test: seconds, kernels, pipelines")


def pytest_configure(config: pytest.Config) -> None:
    """Note what each test costs, in processes that run tests."""
    path = config.getoption("--costs")
    if path and not config.getoption("numprocesses", None):
        config.pluginmanager.register(costs.Costs(Path(path).absolute()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier does not run, and bring files into the order in which processes take them."""
    if config.getoption("--quick"):
        from tests.examples import EXAMPLES

        tiers.alike({name: kind for kind, entry in EXAMPLES.items() for name in entry.cases})
        items[:], left = tiers.split(items)
        config.hook.pytest_deselected(items=left)
    here = Path(__file__).parent
    items.sort(key=lambda item: _turn(os.path.relpath(item.path, here).replace(os.sep, "/")))


def _turn(path: str) -> int:
    return next(
        (i for i, start in enumerate(EARLY) if path.startswith(start)),
        len(EARLY) + any(path.startswith(start) for start in LATE),
    )


def pytest_collection_finish() -> None:
    """Leave the half a million objects of the collected tests, which live to the end, out of later collections."""
    costs.watch()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what tests shared, after the last one of a file, and of a function where memory is short.

    Kept until the end, it would take 7 GB. Fixtures of the file are gone by then, and so is what they held.
    """
    _forget_logging()
    function = getattr(item, "originalname", item.name)
    changes = nextitem is None or nextitem.path != item.path
    short = max(ROOMY, item.config.stash.get(LEFT, 0) + ROOMY // 2)
    if changes or (function != getattr(nextitem, "originalname", "") and _resident() > short):
        if "tests.devices" in sys.modules:
            sys.modules["tests.devices"].release()
        gc.collect()
        if changes:
            gc.freeze()  # what is left, compiled kernels above all, stays to the end: later collections leave it out
        _give_heap_back()
        item.config.stash[LEFT] = _resident()
    why = costs.beyond_budget(item.path) if changes else None
    if why and not item.config.getoption("--costs"):
        pytest.fail(why, pytrace=False)


def _forget_logging() -> None:
    """Take back what a command line chose to show: ``--quiet`` of one test would hide warnings from later ones."""
    if not logging.getLogger("volumetric").handlers:  # no command line was there
        return
    for name, logger in logging.Logger.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and (name == "volumetric" or name.startswith("volumetric.")):
            logger.handlers.clear()
            if logger.level:
                logger.setLevel(logging.NOTSET)


def _resident() -> int:
    """Bytes that this process has in memory; 0 where the system does not tell."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _give_heap_back() -> None:
    """Return freed memory to the system, which glibc keeps otherwise: compiled pipelines are many small pieces."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
