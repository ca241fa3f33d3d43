"""A page of the scope in Python: saved as a file, served to a browser here, or shown in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from volumetric.base.atomic import write_atomic
from volumetric.base.notebook_html import framed_page
from volumetric.scope.document import ScopeDocument
from volumetric.scope.page import scope_page

if TYPE_CHECKING:
    from volumetric.scope.live_server import LiveServer, LiveSource

_FRAME: Final = 720
"""Height in a notebook, in pixels."""


class Viewer:
    """A document of the scope, and what runs behind it.

    In a notebook it shows itself in a frame, without what runs.

    Parameters
    ----------
    document : what the page shows
    live : what sends messages to a served page and answers it; None: the page shows the document only
    """

    def __init__(self, document: ScopeDocument, live: LiveSource | None = None) -> None:
        self.document: ScopeDocument = document
        self.live: LiveSource | None = live

    def __repr__(self) -> str:
        views = ", ".join(view.label for view in self.document.views)
        return f"<Viewer {self.document.title!r}: {views}>"

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        return framed_page(scope_page(self.document), title=self.document.title, height=_FRAME)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file, atomically, and return its path.

        Raises
        ------
        CheckpointError : the file cannot be written
        """
        where = Path(path)
        write_atomic(where, scope_page(self.document).encode())
        return where

    def show(self) -> LiveServer:
        """Serve the page, and open it in a browser; raises as `serve`."""
        import webbrowser

        server = self.serve()
        webbrowser.open(server.address)
        return server

    def serve(self, port: int = 0) -> LiveServer:
        """Serve the page to browsers on this machine until `LiveServer.close`; its `address` has a secret token.

        Raises
        ------
        DeviceError : the port cannot be listened on
        """
        from volumetric.scope.live_server import LiveServer

        return LiveServer(self.document, self.live, port=port)
