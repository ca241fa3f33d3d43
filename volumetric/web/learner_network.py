"""LearnerNetwork: a network with the graphs of its updates, for pages in which it learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from volumetric.analysis.standardise import Standardisation
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import INPUT, Network
from volumetric.network.weight_store import Params
from volumetric.train import MSE, Adam, CrossEntropy, TrainConfig
from volumetric.web.learner_recording import LearnerRecording
from volumetric.web.variant_writer import VariantWriter

_ACTION_RATE: Final = 0.01
"""A visitor's patience is some hundred samples."""
_PLANE: Final = 32 * 32
"""Points of the plane of two inputs, which a page computes again and again while the network learns."""


@dataclass(frozen=True)
class LearnerNetwork:
    """A network that learns in the page: a `RecordedKind`.

    Predictions and updates read the same buffers, so a prediction always has the newest weights. An update is what
    `train` makes of a batch without masks on one device: forward pass, losses, gradients and optimiser in one program.

    Attributes
    ----------
    network, params : structure, and weights before the first update
    config : losses, optimiser, clip, dtype, frozen parameters and seed; what concerns epochs and schedules is not used
    batches : samples of an update: for each number there is a program, and one for predictions
    steps : None: a sample is a row; else a sequence of so many rows
    classes : names of the classes, if the only loss is cross entropy; None: their numbers
    inputs : how the values of the input are standardised before the network, or None
    features : names of the columns of the input, or None
    rows : samples of further programs for predictions
    ui : hints of the page

    Raises
    ------
    SpecError : a number of samples, rows or steps is below 1
    UnsupportedError : updates of this configuration are not single programs: a mode other than backpropagation of whole
        batches, several batches an update, overlays, or an optimiser whose step depends on the host
    """

    network: Network
    params: Params
    config: TrainConfig
    batches: Sequence[int] = (1, 16)
    steps: int | None = None
    classes: Sequence[str] | None = None
    inputs: Standardisation | None = None
    features: Sequence[str] | None = None
    rows: Sequence[int] = ()
    title: str = "A network that learns"
    origin: Mapping[str, str | None] = field(default_factory=dict)
    ui: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = "learner"

    def __post_init__(self) -> None:
        """Check the numbers, and that the configuration can be recorded."""
        if not self.batches or min(*self.batches, *self.rows, self.steps or 1) < 1:
            numbers = f"{list(self.batches)}, {list(self.rows)} and {self.steps}"
            raise SpecError(f"batches, rows and steps must be 1 or more, got {numbers}")
        if self.config.accumulate > 1 or self.config.overlay is not None:
            raise UnsupportedError(
                "a page makes each update from one batch, of the weights themselves",
                hint="leave out accumulate and overlay",
            )

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record updates and predictions; see `RecordedKind.record`."""
        recording = LearnerRecording(
            self.network, self.params, self.config, self.batches, self.steps, self.classes, self.inputs,
            self.rows, writer,
        )  # fmt: skip
        entries = recording.entries()
        if self.features:
            entries["inputs"][INPUT]["names"] = list(self.features)
        return {**entries, "ui": dict(self.ui)}


def learner_of(
    model: LoadedModel, config: TrainConfig | None, rows: Sequence[int], title: str, origin: Mapping[str, str | None]
) -> LearnerNetwork:
    """Return a model as a network that learns; without a configuration by Adam, from classes or from numbers.

    Raises
    ------
    SpecError, UnsupportedError : as of `LearnerNetwork`; or the model reads token ids
    """
    if model.network.input_dtype == "int32" or model.clocked is not None:
        raise UnsupportedError(
            f"{title} does not learn in a page: networks on rows of numbers do", hint="leave --learn out"
        )
    loss = CrossEntropy() if model.classes else MSE()
    rows = [*rows, _PLANE] if model.network.input_shape == (2,) else rows
    return LearnerNetwork(
        model.network, model.params, config or TrainConfig(loss=loss, optimiser=Adam()), title=title, origin=origin,
        rows=rows, classes=model.classes or None, inputs=model.inputs, features=model.features or None,
    )  # fmt: skip


def learner_of_actions(learner: LearnerNetwork, actions: Sequence[str]) -> LearnerNetwork:
    """Return a learner of what somebody does: from classes, if the network has a score for each of these actions."""
    scores = learner.network.shapes[max(learner.network.layers)][-1] == len(actions)
    config = TrainConfig(loss=CrossEntropy() if scores else MSE(), optimiser=Adam(lr=_ACTION_RATE))
    return replace(learner, config=config, classes=actions if scores else None)
