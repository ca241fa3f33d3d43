"""Programs that are kept, and what goes on while one is compiled."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from volumetric.graph.program_cache import ProgramCache


def test_cycles_are_looked_for_before_and_behind_a_compilation_but_not_during_it() -> None:
    seen: list[bool] = []

    def compiled() -> Any:
        seen.append(gc.isenabled())
        return object()

    def failing() -> Any:
        seen.append(gc.isenabled())
        raise ValueError("no kernel")

    assert gc.isenabled()
    programs = ProgramCache()
    assert programs.get("a", compiled) is programs.get("a", compiled)
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no kernel"):
        programs.get("b", failing)
    assert gc.isenabled()
    assert seen == [False, False]
    gc.disable()
    try:
        programs.get("c", compiled)
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()
