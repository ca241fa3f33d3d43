"""What the quick tier runs: ``make test``, and ``pytest --quick``.

Everything belongs to ``make test-all``. The quick tier leaves out tests that are marked ``thorough``, and of a function
with parameters it takes just enough cases that each value of each parameter is there once: three devices by forty kinds
are some fifty cases, not 120. Cases of one table may stand for each other (`alike`), and a mark ``each_of`` names the
parameters that count, where the others are met elsewhere. Where there is a choice, a device with kernels goes before
the reference. `test_tiers.py` holds the tier to what it must not leave out.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import pytest

_ALIKE: dict[str, Hashable] = {}
"""Name of a case → what it has in common with others."""


def alike(groups: Mapping[str, Hashable]) -> None:
    """Let one case of each group stand for the others in the quick tier, wherever a parameter is the name of a case.

    Parameters
    ----------
    groups : name of a case → its group
    """
    _ALIKE.update(groups)


def split(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Part tests into those of the quick tier and the others, each in their order."""
    functions = defaultdict[tuple[object, str], list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("thorough") is None:
            functions[item.path, getattr(item, "originalname", item.name)].append(item)
    chosen = {item.nodeid for cases in functions.values() for item in _each_value_once(cases)}
    return [item for item in items if item.nodeid in chosen], [item for item in items if item.nodeid not in chosen]


def _each_value_once(cases: list[pytest.Item]) -> list[pytest.Item]:
    """Enough of the cases that each value of each parameter is in one of them.

    They are looked through in an order that has nothing to do with that of the values: otherwise all kinds of the first
    device would be taken, and one of each other device.
    """
    seen = set[tuple[str, Hashable]]()
    chosen = []
    for case in sorted(cases, key=lambda case: (_is_on_reference(case), zlib.crc32(case.nodeid.encode()))):
        values = set(_values(case))
        if not values or values - seen:
            chosen.append(case)
            seen |= values
    return chosen


def _values(case: pytest.Item) -> Iterable[tuple[str, Hashable]]:
    call = getattr(case, "callspec", None)
    if call is None:
        return ()
    mark = case.get_closest_marker("each_of")
    names = mark.args if mark else call.params
    return [(name, _named(call.params[name], call.indices[name])) for name in names]


def _named(value: Any, index: int) -> Hashable:
    """What equal values share, where parameters are written as rows of a table."""
    if isinstance(value, str) and value in _ALIKE:
        return _ALIKE[value]
    try:
        return type(value).__name__, hash(value)
    except TypeError:
        return index


def _is_on_reference(case: pytest.Item) -> bool:
    call = getattr(case, "callspec", None)
    return call is not None and any(value == "reference" for value in call.params.values() if isinstance(value, str))
