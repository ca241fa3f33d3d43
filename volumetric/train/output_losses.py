"""Losses of several outputs of a network, their weights, and their weighted total."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.network import OUTPUT, Network
from volumetric.train.data import ArrayData, Batch
from volumetric.train.losses import Loss

AnyLoss: TypeAlias = Loss | Mapping[str, Loss]
"""Loss of the output ``"output"``, or losses by output name."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Sum of the terms of a loss, and their number."""

    total: float
    count: float


@dataclass(frozen=True, slots=True)
class Tally:
    """Output → terms of its loss, and the first non-finite value, if any."""

    terms: Mapping[str, Terms] = field(default_factory=dict)
    fault: str | None = None

    @property
    def total(self) -> float:
        """Unweighted sum of the terms of all losses."""
        return sum((of.total for of in self.terms.values()), 0.0)

    @property
    def count(self) -> float:
        """Number of the terms of all losses."""
        return sum((of.count for of in self.terms.values()), 0.0)

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys((*self.terms, *other.terms))
        none = Terms(0.0, 0.0)
        both = {name: (self.terms.get(name, none), other.terms.get(name, none)) for name in names}
        terms = {name: Terms(a.total + b.total, a.count + b.count) for name, (a, b) in both.items()}
        return Tally(terms, self.fault or other.fault)


class OutputTargets(NamedTuple):
    """Targets of an output in a batch, and the weights of the loss's terms or None."""

    target: Array
    mask: Array | None


@dataclass(frozen=True, slots=True)
class Losses:
    """``Σ weight · loss`` over outputs; each loss is a mean or a sum over its own terms.

    Attributes
    ----------
    of : output → its loss
    weights : output → its weight, 1 by default
    """

    of: Mapping[str, Loss]
    weights: Mapping[str, float]

    @staticmethod
    def from_losses(loss: AnyLoss, weights: Mapping[str, float]) -> Losses:
        """Check a loss, or losses by output, and their weights.

        Raises
        ------
        SpecError : a loss or a weight is invalid, or a weight has no loss
        """
        of = dict(loss) if isinstance(loss, Mapping) else {OUTPUT: loss}
        if not of:
            raise SpecError("loss: no loss is set", hint="set a loss, or one for each trained output")
        for name, one in of.items():
            if not isinstance(one, Loss):
                raise SpecError(f"loss of output {name!r}: expected a loss, got {one!r}", hint="as CrossEntropy()")
        if not isinstance(weights, Mapping):
            raise SpecError(f"loss_weights: expected weights by output, got {weights!r:.60}", hint="as {'output': 1.0}")
        for name, weight in weights.items():
            if name not in of:
                raise SpecError(f"loss_weights: output {name!r} has no loss", hint=f"losses are of {_names(of)}")
            if not (isinstance(weight, (int, float)) and math.isfinite(weight) and weight >= 0):
                raise SpecError(f"loss_weights: the weight of output {name!r} must be 0 or more, got {weight!r}")
        if not any(weights.get(name, 1.0) for name in of):
            raise SpecError("loss_weights: no loss has a weight above 0")
        return Losses(of, dict(weights))

    def check(self, network: Network) -> None:
        """Raise `SpecError` if a loss names an output that the network does not have."""
        for name in self.of:
            if name not in network.taps:
                raise SpecError(
                    f"loss: the network has no output {name!r}", hint=f"its outputs are {_names(network.taps)}"
                )

    def targets_of(self, batch: Batch | ArrayData) -> dict[str, OutputTargets]:
        """Return targets and mask of each output, in the order of the losses; outputs without targets are skipped.

        Targets without a name belong to the only loss. A mask without a name applies to all targets.

        Raises
        ------
        ShapeError : targets have no loss, or a mask has no targets
        SpecError : the batch masks nodes and the network has none that can be masked, see `Batch.absent`
        """
        if isinstance(batch, Batch) and batch.absent is not None:
            raise SpecError(
                "a batch masks nodes, but no fabric of the network supports masking",
                hint="declare the fabric with dynamic=True",
            )
        targets, masks = batch.targets, batch.mask
        if not isinstance(targets, Mapping):
            if len(self.of) > 1:
                raise ShapeError(
                    f"losses are set for the outputs {_names(self.of)}, but the targets have no output name",
                    hint="pass targets by output, as {" + f"{next(iter(self.of))!r}: …" + "}",
                )
            targets = {next(iter(self.of)): targets}
        for name in targets:
            if name not in self.of:
                raise ShapeError(f"targets of output {name!r} have no loss", hint=f"losses are of {_names(self.of)}")
        if isinstance(masks, Mapping):
            for name in masks:
                if name not in targets:
                    raise ShapeError(
                        f"the mask of output {name!r} has no targets",
                        hint=f"the batch has targets of {_names(targets)}",
                    )
        else:
            masks = {} if masks is None else dict.fromkeys(targets, masks)
        return {name: OutputTargets(targets[name], masks.get(name)) for name in self.of if name in targets}

    def cover(self, data: ArrayData) -> None:
        """Raise `SpecError` if an output has a loss but `data` has no targets for it."""
        targets = self.targets_of(data)
        lacking = [name for name in self.of if name not in targets]
        if lacking:
            raise SpecError(
                f"output {lacking[0]!r} has a loss, but the data have no targets for it",
                hint=f"the data have targets of {_names(targets)}",
            )

    def scales(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return output → factor on the sum of its terms, from the number of its terms; 0 for no terms.

        Raises
        ------
        SpecError : no term has a weight
        """
        if all(count <= 0 for count in counts.values()):  # a NaN in a mask shows up in the loss and is reported there
            next(iter(self.of.values())).scale(0)
        return {
            name: 0.0 if count <= 0 else self.weights.get(name, 1.0) * self.of[name].scale(count)
            for name, count in counts.items()
        }

    def shares(self, counts: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Return a factor on gradients, and output → its share.

        The gradient of the loss is the factor times that of the sum of all terms, each weighted by its output's share.
        """
        scales = self.scales(counts)
        whole = sum(scales.values())
        return whole, {name: scale / whole if whole else 0.0 for name, scale in scales.items()}

    def value(self, tally: Tally) -> float:
        """Return the loss."""
        scales = self.scales({name: terms.count for name, terms in tally.terms.items()})
        return sum(terms.total * scales[name] for name, terms in tally.terms.items())

    def each(self, tally: Tally) -> dict[str, float]:
        """Return output → its unweighted loss, if there are several losses; losses without counted terms are left out.

        For a single loss see `value`.
        """
        if len(self.of) == 1:
            return {}
        return {name: t.total * self.of[name].scale(t.count) for name, t in tally.terms.items() if not t.count <= 0}

    def fault(self, totals: Mapping[str, float]) -> str:
        """Name the first loss whose sum is not finite."""
        odd = next((name for name, total in totals.items() if not math.isfinite(total)), next(iter(self.of)))
        return f"the {self.of[odd].kind} loss" + ("" if len(self.of) == 1 else f" of output {odd!r}")


def _names(known: Mapping[str, object] | Sequence[str]) -> str:
    return ", ".join(map(repr, known))
