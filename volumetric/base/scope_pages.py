"""Pages of the scope, for packages that it stands on: they ask a registry, whose entries import `volumetric.scope`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from volumetric.base.registry import Registry


class PageServer(Protocol):
    """A page that is served to this machine."""

    @property
    def address(self) -> str:
        """URL of the page, with its secret token."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class ScopePage(Protocol):
    """A page of the scope; a notebook shows it in a frame. See `volumetric.scope.Viewer`."""

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file, atomically, and return its path."""
        ...

    def serve(self, port: int = 0) -> PageServer:
        """Serve the page to browsers on this machine until its `close`."""
        ...

    def show(self) -> PageServer:
        """Serve the page, and open it in a browser."""
        ...


PAGES: Final[Registry[Callable[..., ScopePage]]] = Registry(group="volumetric.scope")
"""Kind of value → what makes its page. The package's own ones are in `volumetric.scope.openers`."""


def page_of(kind: str, value: Any, **options: Any) -> ScopePage:
    """Return the page of a value, as `PAGES` makes it; `options` are its arguments."""
    return PAGES[kind](value, **options)
