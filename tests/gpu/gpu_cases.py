"""A plug-in of pytest that leaves the tests on a GPU alone: ``pytest -p tests.gpu.gpu_cases``.

With ``--quick`` each layer, operation and dtype runs once on the GPU; the quick tier divides them among devices.
"""

from __future__ import annotations

import pytest

_OF_GPUS = frozenset({"gpu", "gpu_graph"})
"""Folders of which every test is on a GPU."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of other devices."""
    left = [item for item in items if not _is_on_gpu(item)]
    items[:] = [item for item in items if _is_on_gpu(item)]
    config.hook.pytest_deselected(items=left)


def _is_on_gpu(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    values = () if call is None else call.params.values()
    return item.path.parent.name in _OF_GPUS or any(value == "gpu" for value in values if isinstance(value, str))
