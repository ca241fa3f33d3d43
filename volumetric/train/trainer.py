"""Training: the call, its arguments, and the setup of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.base.keyword_synonyms import accept_synonyms
from volumetric.base.notebook_cell import stop_button
from volumetric.base.progress_line import progress_lines
from volumetric.base.reporting import AnyReporter, call_each, reporters_of
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice
from volumetric.dtypes import Scheme
from volumetric.network import Network
from volumetric.network.weight_store import Params, WeightStore
from volumetric.observe import Observer
from volumetric.train.data import AnyData, ArrayData, Data, as_data
from volumetric.train.fitted_samples import fitted_data
from volumetric.train.learner import Learner, OpenLearner, Watchable
from volumetric.train.learner_opening import bind, open_learner
from volumetric.train.losses import CrossEntropy
from volumetric.train.notices import warn_of_dead_outputs, warn_of_ends, warn_of_settings
from volumetric.train.port_rows import data_by_row
from volumetric.train.precision import Precision
from volumetric.train.small_runs import device_of_run
from volumetric.train.train_arguments import train_arguments
from volumetric.train.train_result import TrainResult
from volumetric.train.train_settings import ANSWERS, TrainSettings, config_of
from volumetric.train.training_checkpoint import CheckpointStore
from volumetric.train.training_config import TrainConfig
from volumetric.train.training_events import EpochLine, Event
from volumetric.train.training_loop import TrainingLoop

Samples: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"
"""Entries of samples, first axis samples; or by name."""


@overload
def train(
    network: Network | Clocked,
    x: Params,
    y: AnyData,
    config: TrainConfig | None = ...,
    *,
    validation: AnyData | float | None = ...,
    reporters: Sequence[AnyReporter[Event]] = ...,
    checkpoints: str | Path | None = ...,
    resume: bool = ...,
    device: AnyDevice = ...,
    dtype: Precision = ...,
    learner: OpenLearner | None = ...,
    observers: Sequence[Observer] = ...,
    stop: Callable[[], bool] | None = ...,
    metric: Callable[[Params], float] | None = ...,
    progress: bool | None = ...,
    **settings: Unpack[TrainSettings],
) -> TrainResult: ...
@overload
def train(
    network: Network | Clocked,
    x: Samples,
    y: Samples,
    config: TrainConfig | None = ...,
    *,
    params: Params | Mapping[str, WeightStore | ArrayLike] | None = ...,
    mask: Samples | None = ...,
    validation: AnyData | float | None = ...,
    reporters: Sequence[AnyReporter[Event]] = ...,
    checkpoints: str | Path | None = ...,
    resume: bool = ...,
    device: AnyDevice = ...,
    dtype: Precision = ...,
    learner: OpenLearner | None = ...,
    observers: Sequence[Observer] = ...,
    stop: Callable[[], bool] | None = ...,
    metric: Callable[[Params], float] | None = ...,
    progress: bool | None = ...,
    **settings: Unpack[TrainSettings],
) -> TrainResult: ...
@overload
def train(
    network: Network | Clocked,
    x: AnyData,
    y: TrainConfig | None = ...,
    *,
    params: Params | Mapping[str, WeightStore | ArrayLike] | None = ...,
    validation: AnyData | float | None = ...,
    reporters: Sequence[AnyReporter[Event]] = ...,
    checkpoints: str | Path | None = ...,
    resume: bool = ...,
    device: AnyDevice = ...,
    dtype: Precision = ...,
    learner: OpenLearner | None = ...,
    observers: Sequence[Observer] = ...,
    stop: Callable[[], bool] | None = ...,
    metric: Callable[[Params], float] | None = ...,
    progress: bool | None = ...,
    **settings: Unpack[TrainSettings],
) -> TrainResult: ...
@overload
def train(
    network: Network | Clocked,
    *,
    data: AnyData,
    params: Params | Mapping[str, WeightStore | ArrayLike] | None = ...,
    config: TrainConfig | None = ...,
    validation: AnyData | float | None = ...,
    reporters: Sequence[AnyReporter[Event]] = ...,
    checkpoints: str | Path | None = ...,
    resume: bool = ...,
    device: AnyDevice = ...,
    dtype: Precision = ...,
    learner: OpenLearner | None = ...,
    observers: Sequence[Observer] = ...,
    stop: Callable[[], bool] | None = ...,
    metric: Callable[[Params], float] | None = ...,
    progress: bool | None = ...,
    **settings: Unpack[TrainSettings],
) -> TrainResult: ...
@accept_synonyms(ANSWERS, TrainSettings.__annotations__)
@explain_call_errors
def train(
    network: Any,
    x: Any = None,
    y: Any = None,
    config: TrainConfig | None = None,
    *,
    params: Any = None,
    data: Any = None,
    mask: Any = None,
    validation: AnyData | float | None = None,
    reporters: Sequence[AnyReporter[Event]] = (),
    checkpoints: str | Path | None = None,
    resume: bool = False,
    device: AnyDevice = "auto",
    dtype: Precision = None,
    learner: OpenLearner | None = None,
    observers: Sequence[Observer] = (),
    stop: Callable[[], bool] | None = None,
    metric: Callable[[Params], float] | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> TrainResult:
    """Train a network on samples. The arguments are not modified; the result has new weights.

    ``train(network, x, y, epochs=300, lr=0.05, loss="mse")`` draws weights and trains them. ``train(network, params,
    data, config)`` continues from weights. Both take every setting by name.

    Parameters
    ----------
    network : a network; or a clocked network with the weights of its network, with ``mode=Systolic(…)``: samples are
        sequences, and an update covers a window of ticks
    x, y : inputs and targets, one entry for each sample: arrays of any numeric type, lists, or anything that NumPy
        converts; for several inputs or outputs mappings by name (see `Batch`). Targets of one output may be
        ``[samples]``, class ids ``[samples]`` or ``[samples, 1]``; ids may be floats. They are shuffled and drawn by
        the seed of the settings
    config : settings; the defaults are AdamW on a mean squared error for one epoch
    params : weights to start from; None: `initialise` draws them by the seed of the settings
    data : in place of `x` and `y`: batches, (inputs, targets[, mask]), a problem, the path of an ``.npz`` file, or a
        function from epoch to batches
    mask : weights of the terms of the loss, for `x` and `y`; see `Batch`
    validation : other data, or the fraction of `data` to hold out
    reporters : receive every event: functions, as `print`, or objects (see `base.reporting.Reporter`)
    checkpoints : directory for checkpoints, or None
    resume : continue from the newest checkpoint, if there is one, with the same bits as an uninterrupted run
    device : a name, as for `volumetric.open_device`, or an open device. ``"auto"`` uses the reference device for runs
        of up to about two seconds, before kernels would be compiled. Updates of a network of a few thousand weights
        are slower on a GPU than on the CPU
    dtype : numeric types of the weights, in place of ``config.dtype``
    learner : learner factory, in place of `device`
    observers : receive statistics of every layer, forward and backward, at every update, or at those that all of
        them want (see `observe.Observer`). An optional method ``start(step)`` receives the number of updates at the
        start of the run
    stop : called after every update; true ends the run, with a checkpoint if `checkpoints` is set. So does the stop
        button of a notebook; pressed again, it interrupts at once
    metric : function of the weights, called after every epoch for the history
    progress : show a line with epoch and loss on stderr; None: on a terminal or in a notebook, if there are no
        `reporters`
    **settings : every field of `TrainConfig` and of `TrainSettings`, in place of that of `config`: ``epochs``,
        ``loss``, ``optimiser``, ``lr``, ``batch_size``, …. Names of other packages that mean the same are accepted,
        as ``optimizer`` and ``learning_rate``. A schedule ``"cosine"`` or ``"linear"`` lasts for the whole run

    Raises
    ------
    DivergedError
        Loss, gradient or weight became NaN or infinite; the weights are unchanged and checkpoints remain.
    CheckpointError
        `resume` finds a checkpoint of another run, or not resuming would overwrite one.
    ShapeError, SpecError
        Data, network and settings do not match.
    ArgumentError
        The call has arguments that `train` does not take; the hint says what to write.
    UnsupportedError
        The learner does not support an option, such as observers.

    Examples
    --------
    >>> result = train(network, x, y, epochs=300, lr=0.05, loss="mse", optimiser="adam")  # doctest: +SKIP
    >>> result.save("model")  # doctest: +SKIP
    >>> config = TrainConfig(loss=CrossEntropy(), optimiser=AdamW(lr=3e-4), clip=1.0, epochs=3)  # doctest: +SKIP
    >>> result = train(network, initialise(network), (x, y), config, validation=0.1, device="gpu")  # doctest: +SKIP
    """
    arguments = train_arguments(network, x, y, config, params=params, data=data, mask=mask, settings=settings)
    network, params = arguments.network, arguments.params
    source = data_by_row(network, arguments.data)
    batches = source.batches_per_epoch if isinstance(source, ArrayData) else 0
    if isinstance(source, ArrayData) and source.classes and arguments.config is None:
        settings = {"loss": CrossEntropy(), **settings}  # as files do
    config = config_of(arguments.config, settings, batches)
    if dtype is not None:
        dtype = Scheme.parse(dtype) if isinstance(dtype, type | np.dtype) else dtype
        config = dataclasses.replace(config, dtype=dtype)
    config.losses.check(network.network if isinstance(network, Clocked) else network)
    all_reporters = reporters_of(reporters)
    text = EpochLine(config.epochs)
    lines = progress_lines(progress, text, others=bool(all_reporters), call="train", part=text.part)
    all_reporters += reporters_of(lines)
    source = fitted_data(network, config.losses, source)
    whole: dict[str, Data] = {"": source}
    validation_data: Data | None = None
    if isinstance(validation, (int, float)):
        if not isinstance(source, ArrayData):
            raise SpecError("validation: only arrays can be split by a fraction", hint="pass separate validation data")
        source, validation_data = source.split(validation)
    elif validation is not None:
        validation_data = fitted_data(network, config.losses, data_by_row(network, as_data(validation)))
        whole["validation "] = validation_data
    if config.accuracy is None and validation_data is not None and _has_class_ids(source, config):
        config = dataclasses.replace(config, accuracy=True)
    if config.patience is not None and validation_data is None:
        raise SpecError("patience needs validation data", hint="set validation = 0.1 to hold out a tenth of the data")
    if learner is not None and device != "auto":
        raise SpecError("device and learner exclude each other", hint="pass only one of them")
    store = None if checkpoints is None else CheckpointStore(checkpoints, config.keep_checkpoints)
    chosen = device_of_run(device, network, params, config, source)
    opened = bind(learner or open_learner(chosen), network, params, config.learner)
    if isinstance(source, ArrayData):
        config.losses.cover(source)
    warn_of_ends(network, config.losses)
    warn_of_settings(network, config, source)
    warn_of_dead_outputs(network)
    if observers:
        _watch(opened, observers)
    run = TrainingLoop(
        network=network,
        initial_params=params,
        config=config,
        data=source,
        validation=validation_data,
        given_data={of: data for of, data in whole.items() if isinstance(data, ArrayData)},
        reporters=all_reporters,
        store=store,
        learner=opened,
        stop=stop or (lambda: False),
        stops_between=stop is not None,
        metric=metric,
        device="auto" if learner is not None else chosen,
    )
    try:
        with stop_button(stop) as run.stop:
            run.begin(resume=resume)
            for start in (getattr(observer, "start", None) for observer in observers):
                if start is not None:
                    start(run.step)
            result = run.go()
        if isinstance(source, ArrayData) and (source.classes or source.columns):
            result = dataclasses.replace(result, classes=source.classes, features=source.columns)
        return result
    finally:
        call_each(all_reporters, lambda reporter: reporter.close())


def _has_class_ids(source: Data, config: TrainConfig) -> bool:
    """Whether each sample has one class, which a cross entropy learns."""
    targets = source.targets if isinstance(source, ArrayData) else None
    return (
        isinstance(config.loss, CrossEntropy)
        and isinstance(targets, np.ndarray)
        and targets.ndim == 1
        and targets.dtype.kind in "iu"
    )


def _watch(learner: Learner, observers: Sequence[Observer]) -> None:
    if not isinstance(learner, Watchable):
        raise UnsupportedError(
            f"{type(learner).__name__} does not support observers", hint="train on the reference device"
        )
    learner.watch(observers)
