"""Arguments of `train`: weights and data in any of the forms of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from volumetric.base.errors import ArgumentError
from volumetric.clocked import Clocked
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params, WeightStore
from volumetric.train.data import ArrayData, Data, as_data
from volumetric.train.problems import Problem
from volumetric.train.table_objects import is_table
from volumetric.train.train_settings import OF_BATCHES, check_seed, refuse_batches
from volumetric.train.training_config import TrainConfig

_FORMS = "call train(network, x, y, epochs=300), or train(network, params, (x, y), config) to continue from weights"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainArguments:
    """Arguments of a call, in order.

    Attributes
    ----------
    network, params, data, config : see `train`
    """

    network: Network | Clocked
    params: Params
    data: Data
    config: TrainConfig | None


def train_arguments(
    network: object,
    x: Any,
    y: Any,
    config: Any,
    *,
    params: Any,
    data: Any,
    mask: Any,
    settings: Mapping[str, Any],
) -> TrainArguments:
    """Return the arguments of a call of `train` in order.

    Positional arguments after the network are ``x, y``, ``data`` or ``params, data``, and then perhaps a configuration.

    Raises
    ------
    ArgumentError : an argument is missing, set twice, or of another type
    """
    if not isinstance(network, Network | Clocked):
        raise ArgumentError(
            f"train: expected a network, got {type(network).__name__}",
            hint="call train(network, x, y) with Network(layers=[…]) or a builder",
        )
    if _is_config(y) and config is None:
        y, config = None, y
    if _is_weights(x):
        if params is not None:
            raise ArgumentError("train: weights are passed twice", hint="pass them by position or as params=…")
        if config is not None and not _is_config(config) and not isinstance(config, Mapping):
            raise ArgumentError(
                f"train: expected a configuration, got {type(config).__name__}",
                hint="pass samples as one argument: train(network, params, (x, y)); or weights by name: "
                "train(network, x, y, params=params)",
            )
        x, y, params, data = None, None, x, y if data is None else data
    checked = None if config is None else _checked_config(config)
    seed = check_seed(settings.get("seed", (checked or TrainConfig()).seed))
    samples = _samples(x, y, data, mask, seed, settings)
    if params is None:
        params = initialise(network.network if isinstance(network, Clocked) else network, seed)
    elif not isinstance(params, Mapping):
        raise ArgumentError(f"train: expected weights, got {type(params).__name__}", hint=_FORMS)
    return TrainArguments(network=network, params=Params.of(params), data=samples, config=checked)


def _samples(x: Any, y: Any, data: Any, mask: Any, seed: int, settings: Mapping[str, Any]) -> Data:
    """Return the samples of a call, whether passed as x and y or as data, in batches of the size that it asks for."""
    batches = {name: settings[name] for name in OF_BATCHES if name in settings}
    if data is not None and (x is not None or y is not None):
        raise ArgumentError("train: x, y and data are passed together", hint="pass x and y, or data")
    if data is None and y is not None:
        if x is None:
            raise ArgumentError("train needs x", hint=_FORMS)
        return ArrayData(inputs=x, targets=y, mask=mask, seed=seed, **batches)
    data = x if data is None else data
    if data is None:
        raise ArgumentError("train needs samples", hint=_FORMS)
    if mask is not None:
        raise ArgumentError("train: mask is of x and y", hint="pass (x, y, mask) as the data, or x and y")
    if isinstance(data, list) and len(data) in (2, 3) and all(hasattr(of, "shape") for of in data):
        data = tuple(data)
    known = isinstance(data, tuple | Data | Problem | str) or is_table(data)
    if not known and not callable(data) and hasattr(data, "__array__"):
        raise ArgumentError("train needs y, the targets of the samples", hint=_FORMS)
    samples: Any = data
    source = as_data(samples)
    if not batches:
        return source
    if not isinstance(source, ArrayData):
        refuse_batches(batches, type(data).__name__)
    assert isinstance(source, ArrayData)
    return dataclasses.replace(source, **batches)


def _is_weights(of: object) -> bool:
    return isinstance(of, Params) or (
        isinstance(of, Mapping) and all(isinstance(store, WeightStore) for store in of.values())
    )


def _is_config(of: object) -> bool:
    return isinstance(of, TrainConfig) or (isinstance(of, type) and issubclass(of, TrainConfig))


def _checked_config(config: object) -> TrainConfig:
    """Return `config`; raise `ArgumentError` for anything but a configuration."""
    if isinstance(config, type):
        raise ArgumentError("train: expected a configuration, got the class", hint="create an instance: TrainConfig()")
    if not isinstance(config, TrainConfig):
        raise ArgumentError(
            f"train: expected a configuration, got {type(config).__name__}",
            hint="pass settings by name, as train(network, x, y, epochs=3), or as TrainConfig(epochs=3, …)",
        )
    return config
