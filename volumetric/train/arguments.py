"""Whether what `train` is given is what it takes, in the order in which it takes it."""

from __future__ import annotations

from collections.abc import Mapping

from volumetric.clocked import Clocked
from volumetric.errors import ArgumentError
from volumetric.network import Network
from volumetric.train.config import TrainConfig


def check_arguments(network: object, params: object, config: object) -> None:
    """Raise `ArgumentError` where network, weights or configuration are something else."""
    if not isinstance(network, Network | Clocked):
        raise ArgumentError(
            f"train: the network is of type {type(network).__name__}",
            hint="as train(network, initialise(network), (x, y)), of Network(layers=[…]) or a builder",
        )
    if not isinstance(params, Mapping):
        raise ArgumentError(
            f"train: the weights are of type {type(params).__name__}",
            hint="as train(network, initialise(network), (x, y))",
        )
    if isinstance(config, type) and issubclass(config, TrainConfig):
        raise ArgumentError("train: the configuration is a class", hint="make one of it: TrainConfig()")
    if config is not None and not isinstance(config, TrainConfig):
        samples = "samples are one argument: train(network, params, (x, y)); "
        raise ArgumentError(
            f"train: the configuration is of type {type(config).__name__}",
            hint=("" if isinstance(config, dict) else samples) + "settings are TrainConfig(epochs=3, …)",
        )
