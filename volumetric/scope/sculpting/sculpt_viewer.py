"""The page of a stream that runs and can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volumetric.scope.document import ScopeDocument, ScopeView
from volumetric.scope.scene_tables import scene_view
from volumetric.scope.sculpting.live_messages import sculpt_data
from volumetric.scope.sculpting.sculpted_stream import SculptedStream
from volumetric.scope.sculpting.sculpting_session import SculptingSession
from volumetric.scope.viewer import Viewer

if TYPE_CHECKING:
    from volumetric.observe.recorder import AnyStream
    from volumetric.scope.sculpting.row_source import Rows


def sculpting_view(sculpted: SculptedStream, *, name: str = "network", label: str = "Network") -> ScopeView:
    """Return the view of a stream's network in space, with the panel that changes it if a program runs behind it."""
    return scene_view(sculpted.origin.scene, name=name, label=label, more={"sculpt": sculpt_data(sculpted)})


def sculpt_viewer(
    stream: AnyStream | SculptedStream,
    rows: Rows | None = None,
    *,
    rate: float | None = 10.0,
    running: bool = False,
    twin: bool = False,
    row: int | None = 0,
    edges: int = 4000,
    seed: int = 0,
    title: str = "A running network",
    source: str = "",
) -> Viewer:
    """Return the page of a stream that runs in a thread of its own, and that the page can change.

    The stream that is passed does not change, and no file does: a fork of the stream runs.

    Parameters
    ----------
    stream : of a clocked network, or of rows through a network, a fabric or a program; or one that is sculpted already
    rows : arrays that loop, a function of the tick, ``"zeros"`` or ``"noise"``, see `row_source.Rows`
    rate : ticks, or rows, a second; None: as many as possible
    running : whether it runs at once
    twin : whether the untouched twin runs from the start
    row : index of the stream of the batch to show; None: all together
    edges : maximum number of edges that are shown
    seed : of noise

    Raises
    ------
    SpecError, ShapeError : rows do not fit the inputs of the network

    Examples
    --------
    >>> server = sculpt_viewer(stream, "noise").serve()  # doctest: +SKIP
    >>> print(server.address)  # doctest: +SKIP
    """
    sculpted = (
        stream if isinstance(stream, SculptedStream) else SculptedStream(stream, rows, row=row, edges=edges, seed=seed)
    )
    if twin and not sculpted.has_twin:
        sculpted.start_twin()
    session = SculptingSession(sculpted, rate=rate, running=running)
    document = ScopeDocument(title=title, source=source or sculpted.source.label, views=(sculpting_view(sculpted),))
    return Viewer(document, session)
