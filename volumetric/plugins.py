"""Packages of others: modules that register layers, operations, losses and the like, and verbs, by their entry points.

A package names its modules under ``[project.entry-points."volumetric.plugins"]``. They are imported when a registry is
asked for a name that it does not have, or for all its names: finding the entry points of what is installed takes longer
than opening a small model does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGINS: Final = "volumetric.plugins"
"""Group of entry points: modules that register."""
VERBS: Final = "volumetric.verbs"
"""Group of entry points: name of a verb → ``module:function``."""

_log = logging.getLogger(__name__)
_lock = threading.RLock()
_begun = False


def load_plugins() -> None:
    """Import what the installed packages name as plug-ins, once; one that fails is left out, with a warning."""
    global _begun  # noqa: PLW0603 - set before anything is imported, since what is imported asks registries, too
    with _lock:
        if _begun:
            return
        _begun = True
        for point in points(PLUGINS):
            try:
                point.load()
            except Exception as error:
                _log.warning("the plug-in %s cannot be used: %s: %s", _told(point), type(error).__name__, error)


def points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group, in the order of their names."""
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _told(point: EntryPoint) -> str:
    home = "" if point.dist is None else f" of {point.dist.name} {point.dist.version}"
    return f"{point.name} ({point.value}){home}"
