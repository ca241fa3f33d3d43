"""An LRU cache of compiled programs; each program has private scratch memory on its device."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from volumetric.graph.graph_device import GraphProgram

CACHED_PROGRAMS = 32
"""Programs that a cache holds by default."""


class ProgramCache:
    """Compiled programs by name; a new one evicts the least recently used one."""

    def __init__(self, capacity: int = CACHED_PROGRAMS) -> None:
        self._capacity = capacity
        self._programs: OrderedDict[Hashable, GraphProgram] = OrderedDict()

    def __iter__(self) -> Iterator[GraphProgram]:
        return iter(self._programs.values())

    def get(self, name: Hashable, compile_it: Callable[[], GraphProgram]) -> GraphProgram:
        """Return the program `name`; compile it if it is not cached."""
        if name not in self._programs:
            while len(self._programs) >= self._capacity:
                _close(self._programs.popitem(last=False)[1])
            with _gc_paused():
                self._programs[name] = compile_it()
        self._programs.move_to_end(name)
        return self._programs[name]

    def clear(self) -> None:
        """Free all programs."""
        while self._programs:
            _close(self._programs.popitem()[1])


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Disable the garbage collector.

    Compiling creates hundreds of thousands of nodes and steps that live until it is done, and each collection scanned
    all of them: a seventh of the compile time of large programs.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _close(program: GraphProgram) -> None:
    """Free the resources of a program that Python does not manage."""
    close = getattr(program, "close", None)
    if close is not None:
        close()
