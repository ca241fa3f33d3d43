"""What training warns of: it goes on, and will teach nothing or less than it seems to."""

from __future__ import annotations

import logging

from volumetric.clocked import Clocked
from volumetric.layers import LayerSpec
from volumetric.layers.softmax import AxisSoftmax
from volumetric.network import Network
from volumetric.train.by_output import Losses
from volumetric.train.losses import BCE, CrossEntropy

logger = logging.getLogger(__name__)


def warn_of_ends(network: Network | Clocked, losses: Losses) -> None:
    """Warn of outputs that are probabilities already, and whose loss takes logits: they would be squashed twice."""
    structure = network.network if isinstance(network, Clocked) else network
    for name, loss in losses.of.items():
        coord = structure.taps.get(name)
        if coord is None or coord in structure.disabled:
            continue
        spec = structure.layers[coord]
        if isinstance(loss, CrossEntropy) and isinstance(spec, AxisSoftmax):
            logger.warning(
                "output %r: cross_entropy takes logits, and the layer at %s is a %s: its softmax is taken twice, and "
                "training is slow and stops short; leave that layer out, `softmax` of the outputs gives probabilities",
                name,
                coord,
                spec.kind,
            )
        elif isinstance(loss, CrossEntropy) and _activation(spec) in ("sigmoid", "relu"):
            logger.warning(
                "output %r: cross_entropy takes logits of any sign, and the layer at %s ends with %s; "
                'activation="linear" learns better',
                name,
                coord,
                _activation(spec),
            )
        elif isinstance(loss, BCE) and loss.logits and _activation(spec) in ("sigmoid", "relu"):
            logger.warning(
                "output %r: bce takes logits, and the layer at %s ends with %s: no output can stand for a probability "
                'below one half; give it activation="linear", or the loss logits=False for a sigmoid',
                name,
                coord,
                _activation(spec),
            )


def warn_of_dead_outputs(network: Network | Clocked) -> None:
    """Warn of outputs of programs that depend on no input: their loss can only teach what is always right."""
    structure = network.network if isinstance(network, Clocked) else network
    for coord, spec in structure.layers.items():
        if coord in structure.disabled or spec.kind != "program":
            continue
        from volumetric.program.layer.facts import facts_of
        from volumetric.program.layer.reach import dead_outputs
        from volumetric.program.layer.spec import Program as Layer

        assert isinstance(spec, Layer)
        for sentence in dead_outputs(facts_of(spec.program)).values():
            logger.warning("program at %s: %s", coord, sentence)


def warn_of_standstill(loss: float) -> None:
    """Warn that no weight had a gradient in any update of the first epoch."""
    logger.warning(
        "no weight had a gradient in the first epoch, so nothing was learned (loss %.4g): the output does not depend "
        "on what is trained, or a relu is 0 for all samples",
        loss,
    )


def _activation(spec: LayerSpec) -> str | None:
    return getattr(spec, "activation", None)
