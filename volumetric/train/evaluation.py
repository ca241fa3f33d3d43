"""Evaluation of weights on data: loss and accuracy, by output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from volumetric.analysis.scoring import hits
from volumetric.base._typing import Array
from volumetric.base.notebook_html import ShowsFields
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.data import AnyData, Batch, as_data
from volumetric.train.fitted_samples import fitted_data
from volumetric.train.learner import Learner, LearnerOptions
from volumetric.train.learner_opening import bind, open_learner
from volumetric.train.losses import BCE, CrossEntropy, Loss
from volumetric.train.modes import Backprop, Systolic
from volumetric.train.optim import SGD
from volumetric.train.output_losses import Losses, Tally
from volumetric.train.port_rows import data_by_row
from volumetric.train.small_runs import device_of_run
from volumetric.train.training_config import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(ShowsFields):
    """Loss and accuracy of weights on data.

    Attributes
    ----------
    loss : of all samples
    accuracy : fraction of samples classified correctly, for the first output with classes; None: no classes
    losses, accuracies : by output, if several outputs have losses; losses are unweighted
    fault : the first non-finite value, or None
    """

    loss: float
    accuracy: float | None
    losses: Mapping[str, float] = field(default_factory=dict)
    accuracies: Mapping[str, float] = field(default_factory=dict)
    fault: str | None = None


def evaluate(
    network: Network | Clocked,
    params: Params,
    data: AnyData,
    config: TrainConfig | None = None,
    *,
    device: AnyDevice = "auto",
) -> Evaluation:
    """Evaluate `params` as `train` evaluates validation data: the losses of `config`, and accuracies by output.

    Outputs count as classes if the loss is a cross entropy, or if targets are integers without the last axis.

    Parameters
    ----------
    data, device : see `train`

    Raises
    ------
    ShapeError, SpecError
        Data, network and settings do not match.

    Examples
    --------
    >>> found = evaluate(network, result.params, (x, {"output": y, "value": v}), config)  # doctest: +SKIP
    >>> found.losses["value"], found.accuracies["output"]  # doctest: +SKIP
    """
    config = config or TrainConfig()
    ticking = isinstance(network, Clocked) or isinstance(config.mode, Systolic)
    mode = config.mode if ticking else Backprop()  # the forward pass is the same in every mode
    options = LearnerOptions(loss=config.loss, loss_weights=config.loss_weights, mode=mode, optimiser=SGD())
    source = fitted_data(network, config.losses, data_by_row(network, as_data(data)))
    chosen = device_of_run(device, network, params, config, source)
    learner = bind(open_learner(chosen), network, params, options)
    return judge(learner, config.losses, source.batches(0), classes=True)[0]


def judge(
    learner: Learner, losses: Losses, batches: Iterable[Batch], *, classes: bool
) -> tuple[Evaluation, Batch | None]:
    """Evaluate a learner's weights on batches; with `classes` also their accuracy.

    Evaluation ends at the first batch with a non-finite number, and returns it as the fault.
    """
    tally, counts = Tally(), dict[str, tuple[int, int]]()
    for batch in batches:
        if not classes:
            tally += learner.evaluate(batch)
        else:
            terms, outputs = learner.measure(batch)
            tally += terms
            for name, (target, _) in losses.targets_of(replace(batch, absent=None)).items():
                if len(losses.of) == 1 or _has_classes(losses.of[name], outputs[name], target):
                    right, counted = _hits(losses.of[name], outputs[name], target)
                    before = counts.get(name, (0, 0))
                    counts[name] = before[0] + right, before[1] + counted
        if tally.fault is not None:
            return Evaluation(loss=np.nan, accuracy=None, fault=tally.fault), batch
    shares = {name: right / counted for name, (right, counted) in counts.items() if counted}
    evaluation = Evaluation(
        loss=losses.value(tally),
        accuracy=next(iter(shares.values()), None),
        losses=losses.each(tally),
        accuracies=shares if len(losses.of) > 1 else {},
    )
    return evaluation, None


def _hits(loss: Loss, output: Array, target: Array) -> tuple[int, int]:
    """Return `hits`, with class ids as the loss reads them, and a single logit converted to its probability."""
    if isinstance(loss, CrossEntropy):
        target = loss.checked(output.shape, target, None).target
    if isinstance(loss, BCE) and loss.logits and output.shape[-1:] == (1,):
        output = (output > 0).astype(np.float32)
    return hits(output, target)


def _has_classes(loss: Loss, output: Array, target: Array) -> bool:
    """Whether the targets of an output are classes."""
    whole = np.issubdtype(target.dtype, np.integer)
    return isinstance(loss, (CrossEntropy, BCE)) or (whole and target.shape == output.shape[:-1])
