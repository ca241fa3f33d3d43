"""Pages of a network: as it is, recorded on rows, or running behind the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from volumetric.base._typing import Array
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.network import Network, Params
from volumetric.observe.recording import Recording
from volumetric.run.streams import open_stream
from volumetric.scope.document import ScopeDocument
from volumetric.scope.inspection import Inspection, InspectionSource, inspected
from volumetric.scope.network_view import EDGES, network_view
from volumetric.scope.recording_view import recording_view
from volumetric.scope.viewer import Viewer

Rows = Mapping[str, Array]


def network_page(
    machine: Network | Clocked,
    params: Params,
    recording: Recording | None = None,
    *,
    rows: Array | Rows | None = None,
    per_row: int = 1,
    edges: int = EDGES,
    title: str,
    source: str,
) -> Viewer:
    """Return the page of a network down to its numbers, with a recording also of its activity.

    What does not fit into the page, a served one asks.

    Parameters
    ----------
    rows : the recorded rows, ``[1, T, …]``, or by input
    per_row : ticks for each row, for clocked networks
    edges : maximum number of edges without a recording
    """
    bare = network_view(machine, params, edges=edges) if recording is None else recording_view(recording)
    view = inspected(bare, machine, params, rows, per_row=per_row)
    answers = InspectionSource({view.name: Inspection(machine, params, rows, per_row=per_row)})
    return Viewer(ScopeDocument(title=title, source=source, views=(view,)), answers)


def running_page(
    machine: Network | Clocked,
    params: Params,
    rows: Rows | None,
    *,
    rate: float | None,
    device: AnyDevice,
    row: int = 0,
    edges: int = 4000,
    title: str,
    source: str,
) -> Viewer:
    """Return a page behind which the network runs, and which can change it; `rows` loop, None: noise."""
    from volumetric.scope.sculpting import sculpt_viewer

    batch = 1 if rows is None else next(iter(rows.values())).shape[0]
    stream = open_stream(open_device(device), machine, params, batch=batch)
    viewer = sculpt_viewer(stream, rows or "noise", rate=rate, row=row, edges=edges, title=title, source=source)
    (view,) = viewer.document.views
    document = replace(viewer.document, views=(inspected(view, machine, params),))
    return Viewer(document, InspectionSource({view.name: Inspection(machine, params)}, viewer.live))
