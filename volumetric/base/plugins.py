"""Packages outside of this repository: what they register, and verbs, by their entry points.

A registry has a group of entry points, ``volumetric.layers`` and the like: the name of an entry is what it registers,
its value the module that does so, which is imported when somebody asks for the name. Modules of the group
``volumetric.plugins`` register several things; they are imported when a name is asked for that no entry has. Finding
the entry points of what is installed takes longer than opening a small model does, so only a name that the engine
itself does not know costs that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGINS: Final = "volumetric.plugins"
"""Group of entry points: modules that register several things."""
VERBS: Final = "volumetric.verbs"
"""Group of entry points: name of a verb → ``module:function``."""

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_begun: set[EntryPoint] = set()


def points(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group, in the order of their names; nothing is imported."""
    return _points().get(group, ())


def searched() -> bool:
    """Whether the entry points of what is installed have been looked for."""
    return _points.cache_info().currsize > 0


def load_named(group: str, name: str, *, spelled: Callable[[str], str] = str) -> None:
    """Import what the installed packages have under a name of a group, once; `spelled` as for a `Registry`."""
    _load([point for point in points(group) if spelled(point.name) == name])


def load_group(group: str) -> None:
    """Import all that the installed packages have in a group, once."""
    _load(points(group))


def load_plugins() -> None:
    """Import what the installed packages name as plug-ins, once; one that fails is left out, with a warning."""
    load_group(PLUGINS)


@cache
def _points() -> dict[str, tuple[EntryPoint, ...]]:
    """Group → entry points, of the groups that are the engine's."""
    from importlib.metadata import entry_points

    available = entry_points()
    groups = [group for group in available.groups if group.startswith("volumetric.")]
    return {group: tuple(sorted(available.select(group=group), key=lambda point: point.name)) for group in groups}


def _load(entries: Sequence[EntryPoint]) -> None:
    """Import modules; one that fails is left out, with a warning."""
    with _lock:
        for point in entries:
            if point in _begun:
                continue
            _begun.add(point)  # before it is imported, since what is imported asks registries, too
            try:
                point.load()
            except Exception as error:
                _log.warning("the plug-in %s cannot be used: %s: %s", _shown(point), type(error).__name__, error)


def _shown(point: EntryPoint) -> str:
    home = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
    return f"{point.name} ({point.value}){home}"
