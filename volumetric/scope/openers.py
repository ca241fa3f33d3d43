"""Makes the pages of ``x.scope()``: registered as `base.scope_pages.PAGES`, and the pages that notebooks show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volumetric.base._typing import Array
from volumetric.base.notebook_html import PICTURES
from volumetric.base.scope_pages import PAGES
from volumetric.clocked import Clocked
from volumetric.network import Network, Params
from volumetric.observe.recording import Recording
from volumetric.scope.document import ScopeDocument, ScopeView
from volumetric.scope.network_page import network_page
from volumetric.scope.network_view import network_view
from volumetric.scope.recording_view import recording_view
from volumetric.scope.viewer import Viewer

if TYPE_CHECKING:
    from volumetric.evolution import EvolutionResult
    from volumetric.evolution.genome import Genome
    from volumetric.generate import Model
    from volumetric.train import TrainResult


def page_of_views(title: str, *views: ScopeView, source: str = "Python") -> Viewer:
    """Return a page of views."""
    return Viewer(ScopeDocument(title=title, source=source, views=views))


def _recording(recording: Recording, other: Recording | None = None, names: Sequence[str] = ()) -> Viewer:
    shown = (recording,) if other is None else (recording, other)
    title = recording.meta.title or f"{recording.scene.kind}, {len(recording):,} frames"
    return page_of_views(title, recording_view(*shown, names=names))


def _network(
    network: Network | Clocked, params: Params | None = None, rows: Array | Mapping[str, Array] | None = None
) -> Viewer:
    title = repr(network)[1:-1]
    if params is None:
        return page_of_views(title, network_view(network))
    recording = None
    if rows is not None:
        from volumetric.observe import record

        recording = record(network, rows, params=params, row=0)
    return network_page(network, params, recording, rows=rows, title=title, source="Python")


def _model(model: Model, prompt: str | Sequence[int] | None = None, other: Model | None = None) -> Viewer:
    from volumetric.scope.model_views import model_views

    return page_of_views(model.info.name, *model_views(model, prompt, other))


def _stream(stream: Any, **options: Any) -> Viewer:
    from volumetric.scope.sculpting import sculpt_viewer

    return sculpt_viewer(stream, **options)


def _training(result: TrainResult, others: Sequence[TrainResult] = (), names: Sequence[str] | None = None) -> Viewer:
    from volumetric.scope.training_view import training_view

    return page_of_views("training", training_view(result, *others, names=names))


def _evolution(result: EvolutionResult) -> Viewer:
    from volumetric.scope.evolution_view import evolution_view

    return page_of_views("evolution", evolution_view(result))


def _genome(genome: Genome) -> Viewer:
    return page_of_views(repr(genome), network_view(genome))


PAGES.update(
    evolution=_evolution, genome=_genome, model=_model, network=_network, recording=_recording, stream=_stream,
    training=_training,
)  # fmt: skip
PICTURES.update(recording=lambda recording: _recording(recording)._repr_html_())
