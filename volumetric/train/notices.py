"""Warnings of training: setups that run, but learn nothing or less than expected."""

from __future__ import annotations

import logging
from typing import Final

import numpy as np

from volumetric.clocked import Clocked
from volumetric.layers import LayerSpec
from volumetric.layers.softmax import AxisSoftmax
from volumetric.network import Network
from volumetric.train.data import ArrayData
from volumetric.train.losses import BCE, CrossEntropy
from volumetric.train.output_losses import Losses
from volumetric.train.training_config import TrainConfig

logger: logging.Logger = logging.getLogger(__name__)
_LARGE: Final = 1e4
"""Numbers above this are warned of."""
_LOOKED_AT: Final = 4096
"""Samples that are looked at."""


def warn_of_ends(network: Network | Clocked, losses: Losses) -> None:
    """Warn about outputs that are already probabilities but whose loss expects logits."""
    structure = network.network if isinstance(network, Clocked) else network
    for name, loss in losses.of.items():
        coord = structure.taps.get(name)
        if coord is None or coord in structure.disabled:
            continue
        spec = structure.layers[coord]
        if isinstance(loss, CrossEntropy) and isinstance(spec, AxisSoftmax):
            logger.warning(
                "output %r: cross_entropy expects logits, but the layer at %s is a %s: softmax is applied twice, and "
                "training is slow and stops short; remove that layer; `softmax` of the outputs gives probabilities",
                name,
                coord,
                spec.kind,
            )
        elif isinstance(loss, CrossEntropy) and _activation(spec) in ("sigmoid", "relu"):
            logger.warning(
                "output %r: cross_entropy expects logits of any sign, but the layer at %s ends with %s; use "
                'activation="linear"',
                name,
                coord,
                _activation(spec),
            )
        elif isinstance(loss, BCE) and loss.logits and _activation(spec) in ("sigmoid", "relu"):
            logger.warning(
                "output %r: bce expects logits, but the layer at %s ends with %s: no output can mean a probability "
                'below one half; use activation="linear", or the loss logits=False for a sigmoid',
                name,
                coord,
                _activation(spec),
            )


def warn_of_settings(network: Network | Clocked, config: TrainConfig, data: object) -> None:
    """Warn about settings with which nothing, or something else than expected, is learned."""
    if config.optimiser.lr == 0:
        logger.warning("the learning rate is 0: no weight changes; set lr, as lr=0.001")
    losses = config.losses.of.values()
    numbers = isinstance(data, ArrayData) and all(
        np.issubdtype(array.dtype, np.floating) for name, array in data.arrays.items() if name.startswith("targets")
    )
    if config.accuracy and numbers and not any(isinstance(loss, CrossEntropy | BCE) for loss in losses):
        logger.warning(
            "accuracy counts samples in their class, and the loss %s has no classes, so there is none; for classes use "
            'the loss "cross_entropy" with class ids (in a file: classes = true in [data])',
            ", ".join(loss.kind for loss in losses),
        )
    structure = network.network if isinstance(network, Clocked) else network
    first = next((spec for coord, spec in structure.layers.items() if coord not in structure.disabled), None)
    if not isinstance(data, ArrayData) or first is None or "norm" in first.kind:
        return
    for name, array in data.arrays.items():
        if not name.startswith("mask") and np.issubdtype(array.dtype, np.floating) and array.size:
            largest = float(np.abs(array[:_LOOKED_AT]).max())
            if _LARGE < largest < np.inf:
                logger.warning(
                    "%s have numbers up to %.3g, with which networks learn badly; scale them to about 1: "
                    "(x - x.mean(0)) / x.std(0), in a file standardise = true for inputs",
                    name,
                    largest,
                )


def warn_of_dead_outputs(network: Network | Clocked) -> None:
    """Warn about outputs of programs that depend on no input: they can only learn a constant."""
    structure = network.network if isinstance(network, Clocked) else network
    for coord, spec in structure.layers.items():
        if coord in structure.disabled or spec.kind != "program":
            continue
        from volumetric.program.layer.program_facts import facts_of
        from volumetric.program.layer.program_layer import Program as Layer
        from volumetric.program.layer.reachability import dead_outputs

        assert isinstance(spec, Layer)
        for sentence in dead_outputs(facts_of(spec.program)).values():
            logger.warning("program at %s: %s", coord, sentence)


def warn_of_standstill(loss: float) -> None:
    """Warn if no weight had a gradient in any update of the first epoch."""
    logger.warning(
        "no weight had a gradient in the first epoch, so nothing was learned (loss %.4g): the output does not depend "
        "on what is trained, or a relu is 0 for all samples",
        loss,
    )


def warn_of_skipped_updates() -> None:
    """Warn if gradients overflowed float16 in every update, so that none changed a weight."""
    logger.warning(
        "every update was skipped, because gradients overflowed float16, so nothing was learned: the loss scale halves "
        'with each, so train longer, or scale targets to about 1, or use compute="float32"'
    )


def _activation(spec: LayerSpec) -> str | None:
    return getattr(spec, "activation", None)
