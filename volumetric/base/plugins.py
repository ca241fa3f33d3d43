"""Third-party packages: what they register, and CLI commands, found by their entry points.

A registry has a group of entry points, ``volumetric.layers`` and so on. The name of an entry is the registered name,
and its value is the module that registers it; the module is imported on the first lookup of the name. Modules of the
group ``volumetric.plugins`` register several things; they are imported when a name has no entry point. Finding the
entry points of installed packages takes longer than opening a small model, so it is done only for names unknown to the
engine.
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
"""Group of entry points: name of a CLI command → ``module:function``."""

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_begun: set[EntryPoint] = set()


def entry_points_of(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group, sorted by name; nothing is imported."""
    return _engine_entry_points().get(group, ())


def were_plugins_searched() -> bool:
    """Whether the entry points of installed packages have been looked up."""
    return _engine_entry_points.cache_info().currsize > 0


def load_named(group: str, name: str, *, spelled: Callable[[str], str] = str) -> None:
    """Import the entry points of installed packages for a name of a group, once; `spelled` as in `Registry`."""
    _load([point for point in entry_points_of(group) if spelled(point.name) == name])


def load_group(group: str) -> None:
    """Import all entry points of installed packages in a group, once."""
    _load(entry_points_of(group))


def load_plugins() -> None:
    """Import the plug-ins of installed packages, once; skip one that fails, with a warning."""
    load_group(PLUGINS)


@cache
def _engine_entry_points() -> dict[str, tuple[EntryPoint, ...]]:
    """Group → entry points, for the groups of the engine."""
    from importlib.metadata import entry_points

    available = entry_points()
    groups = [group for group in available.groups if group.startswith("volumetric.")]
    return {group: tuple(sorted(available.select(group=group), key=lambda point: point.name)) for group in groups}


def _load(entries: Sequence[EntryPoint]) -> None:
    """Import modules; skip one that fails, with a warning."""
    with _lock:
        for point in entries:
            if point in _begun:
                continue
            _begun.add(point)  # before the import, since the imported module looks up registries, too
            try:
                point.load()
            except Exception as error:
                _log.warning("the plug-in %s cannot be used: %s: %s", _plugin_text(point), type(error).__name__, error)


def _plugin_text(point: EntryPoint) -> str:
    home = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
    return f"{point.name} ({point.value}){home}"
