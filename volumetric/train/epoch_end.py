"""The end of an epoch, as reporters with a method ``end_epoch`` see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from volumetric.base._typing import Array
from volumetric.clocked import Clocked
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.data import Batch, Data
from volumetric.train.training_config import TrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """A run at the end of an epoch. Weights and outputs cost time only if they are asked for.

    Attributes
    ----------
    step, epoch : updates so far, and the number of the epoch, from 0
    last : whether training ends here
    config : settings of the run
    network : the trained network
    samples : validation data, or the training data if there are none
    held_out : whether `samples` are validation data
    params : returns the current weights
    outputs : returns the outputs that have targets, by name, for a batch of `samples`
    """

    step: int
    epoch: int
    last: bool
    config: TrainConfig
    network: Network | Clocked
    samples: Data
    held_out: bool
    params: Callable[[], Params]
    outputs: Callable[[Batch], Mapping[str, Array]]
