"""Training: losses, optimisers, schedules, data, the loop, checkpoints and quantisation-aware training."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from volumetric.base.reporting import ConsoleReporter
from volumetric.train.data import ArrayData, Batch, Data, StreamData, as_data, load_npz, token_windows
from volumetric.train.divergence import DivergedError
from volumetric.train.evaluation import Evaluation, evaluate
from volumetric.train.graph_loss import GraphLoss
from volumetric.train.history import CsvReporter, FileReporter, JsonlReporter, LogReporter, Reporter
from volumetric.train.learner import LayerTarget, Learner, LearnerOptions, LearnerState, OpenLearner, StepReport
from volumetric.train.learner_opening import open_learner
from volumetric.train.lora import LowRank, load_overlays, save_overlays
from volumetric.train.losses import BCE, L1, LOSSES, MSE, CrossEntropy, Huber, Loss, LossTerms
from volumetric.train.method_comparison import Comparison, Method, Metrics, compare
from volumetric.train.modes import MODES, Backprop, Mode, Systolic, TargetPropagation
from volumetric.train.optim import OPTIMISERS, SGD, Adam, AdamW, Momentum, Optimiser, RMSprop
from volumetric.train.output_losses import Losses, Tally
from volumetric.train.schedules import SCHEDULES, Constant, Cosine, Linear, Schedule, StepDecay, WarmUp
from volumetric.train.stream_windows import StreamWindows
from volumetric.train.tensorboard import TensorBoardReporter
from volumetric.train.train_result import EpochHistory, TrainResult
from volumetric.train.trainer import train
from volumetric.train.training_checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from volumetric.train.training_config import TrainConfig
from volumetric.train.training_events import EpochEvent, Event, StepEvent, StopEvent, TargetEvent

__all__ = [
    "BCE",
    "L1",
    "LOSSES",
    "MODES",
    "MSE",
    "OPTIMISERS",
    "SCHEDULES",
    "SGD",
    "Adam",
    "AdamW",
    "ArrayData",
    "Backprop",
    "Batch",
    "Checkpoint",
    "CheckpointStore",
    "Comparison",
    "ConsoleReporter",
    "Constant",
    "Cosine",
    "CrossEntropy",
    "CsvReporter",
    "Data",
    "DivergedError",
    "EpochEvent",
    "EpochHistory",
    "Evaluation",
    "Event",
    "FileReporter",
    "GraphLoss",
    "Huber",
    "JsonlReporter",
    "LayerTarget",
    "Learner",
    "LearnerOptions",
    "LearnerState",
    "Linear",
    "LogReporter",
    "Loss",
    "LossTerms",
    "Losses",
    "LowRank",
    "Method",
    "Metrics",
    "Mode",
    "Momentum",
    "OpenLearner",
    "Optimiser",
    "RMSprop",
    "Reporter",
    "Schedule",
    "StepDecay",
    "StepEvent",
    "StepReport",
    "StopEvent",
    "StreamData",
    "StreamWindows",
    "Systolic",
    "Tally",
    "TargetEvent",
    "TargetPropagation",
    "TensorBoardReporter",
    "TrainConfig",
    "TrainResult",
    "WarmUp",
    "as_data",
    "compare",
    "evaluate",
    "load_npz",
    "load_overlays",
    "open_learner",
    "read_checkpoint",
    "save_overlays",
    "token_windows",
    "train",
]


class _CallablePackage(ModuleType):
    """The package as a function: people write ``volumetric.train(network, x, y)`` as well as ``train.train(…)``.

    Type checkers know no callable modules; for them there is ``from volumetric.train import train``.
    """

    def __call__(self, *arguments: Any, **keywords: Any) -> TrainResult:
        """Return the result of `train`."""
        return train(*arguments, **keywords)


sys.modules[__name__].__class__ = _CallablePackage
