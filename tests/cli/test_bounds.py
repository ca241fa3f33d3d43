"""Sizes on the command line: each bound is taken, and its neighbour is refused."""

from __future__ import annotations

from typing import Any

import pytest

from volumetric.base.errors import SpecError
from volumetric.base.progress import clock
from volumetric.cli.exits import UsageError
from volumetric.cli.options import SizeOptions
from volumetric.train.settings import NetworkSettings


@pytest.mark.parametrize(("field", "least"), [("threads", 1), ("context", 0)])
def test_the_least_size_is_taken(field: str, least: int) -> None:
    fields: dict[str, Any] = {field: least}
    assert getattr(SizeOptions(**fields), field) == least
    with pytest.raises(UsageError, match=f"--{field} must be {least} or more, got {least - 1}"):
        SizeOptions(**{field: least - 1})


@pytest.mark.parametrize("seconds", [0, 59, 60, 3599, 3600, 3660, 7322, 360_000])
def test_clocks_count_every_second(seconds: int) -> None:
    total = 0
    for part in clock(seconds).split(":"):
        total = 60 * total + int(part)
    assert total == seconds


def test_a_network_has_one_source() -> None:
    with pytest.raises(SpecError, match="builder and file exclude each other"):
        NetworkSettings(builder="sequential", file="network.json")
    assert NetworkSettings(builder="sequential").builder == "sequential"
