"""Losses and their gradients with respect to the output.

A loss keeps the sum of its terms and their number separate. Both are summed over all micro-batches of an update, so
that their quotient is the mean over all counted terms, whatever the masks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass
from typing import ClassVar, Final, Literal

import numpy as np

from volumetric.base import config_tables
from volumetric.base._typing import Array
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.registry import Registry
from volumetric.formula.losses import TERMS, LossTerm
from volumetric.graph.numeric.numpy_formulas import terms_of
from volumetric.graph.numeric.softmax import log_softmax
from volumetric.train.target_checks import (
    check_bits,
    check_classes,
    check_ids,
    check_probabilities,
    check_shapes,
    class_ids,
    spread_weights,
    way_out,
)

Reduction = Literal["mean", "sum"]
IGNORED: Final = -100
"""Class id of an ignored row, as in torch."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Sum of the terms of a loss, their number (the sum of weights, if there is a mask), and the sum's gradient."""

    total: float
    count: float
    gradient: Array


@dataclass(frozen=True, slots=True)
class CheckedTargets:
    """Checked target and weights of a loss.

    Attributes
    ----------
    target : integer class ids, or numbers of the output's shape
    weights : weight of each term, or None if all have weight 1; ignored ids keep their weights here
    count : number of terms: the sum of the weights of counted terms
    """

    target: Array
    weights: Array | None
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Base of all losses.

    Attributes
    ----------
    reduction : ``"mean"`` divides the sum of terms by their number, ``"sum"`` does not
    """

    kind: ClassVar[str]

    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        """Check the plain fields and the reduction."""
        config_tables.check_fields(self, self.kind)
        if self.reduction not in ("mean", "sum"):
            raise SpecError(f"{self.kind}: reduction must be mean or sum, got {self.reduction!r}")

    def terms(self, output: Array, target: Array, mask: Array | None = None) -> LossTerms:
        """Return sum, number and gradient of the terms.

        Parameters
        ----------
        output : output of the network, float ``[ROWS, …]``
        target : expected output, of the same shape, or class ids ``[ROWS, …]`` without the last axis
        mask : weight of each term, bool or at least 0; may lack trailing axes: ``[ROWS]`` weighs whole rows

        Raises
        ------
        ShapeError
            The shapes do not match, or a class id is out of range.
        """
        raise NotImplementedError(self.kind)

    def check_output(self, output: Array) -> None:
        """Raise `ShapeError` if the loss is not defined for the values of an output."""

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> CheckedTargets:
        """Check target and mask for an output of `shape`, as `terms` does, without the output."""
        check_shapes(self.kind, shape, target)
        if mask is None:
            return CheckedTargets(target, None, target.size)
        weights = spread_weights(mask, shape)
        return CheckedTargets(target, weights, float(weights.sum(dtype=np.float64)))

    def value_and_gradient(self, output: Array, target: Array, mask: Array | None = None) -> tuple[float, Array]:
        """Return the loss and its gradient with respect to `output`, in the dtype of `output`."""
        terms = self.terms(output, target, mask)
        scale = self.scale(terms.count)
        return terms.total * scale, terms.gradient * scale

    def scale(self, count: float) -> float:
        """Return the factor that converts a sum over `count` terms to the loss; raise `SpecError` if `count` is 0."""
        if count <= 0:
            raise SpecError(
                "the loss has no counted terms", hint="unmask some rows: every row is masked or has an ignored class"
            )
        return 1 / count if self.reduction == "mean" else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementLoss(Loss):
    """Base of losses with a term for each element, defined in `volumetric.formula.losses` under the kind's name."""

    def terms(self, output: Array, target: Array, mask: Array | None = None) -> LossTerms:
        self.check_output(output)
        checked = self.checked(output.shape, target, mask)
        attrs = {"name": self.kind, **{f.name: getattr(self, f.name) for f in fields(self)}}
        with np.errstate(divide="ignore"):
            values, slopes = terms_of(output, target.astype(output.dtype, copy=False), attrs)
        if checked.weights is None:
            return LossTerms(float(values.sum(dtype=np.float64)), checked.count, slopes)
        weights = checked.weights.astype(output.dtype)
        total = float((values * weights).sum(dtype=np.float64))
        return LossTerms(total, float(weights.sum(dtype=np.float64)), slopes * weights)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class MSE(ElementLoss):
    """Mean squared error: ``(y − t)²`` for each element."""

    kind: ClassVar[str] = "mse"


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class L1(ElementLoss):
    """Mean absolute error: ``|y − t|`` for each element; its slope is 0 if the two are equal, as in torch."""

    kind: ClassVar[str] = "l1"


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Huber(ElementLoss):
    """Huber loss: ``d²/2`` where ``|d| ≤ delta``, else ``delta · (|d| − delta/2)``, with ``d = y − t``."""

    kind: ClassVar[str] = "huber"

    delta: float = 1.0

    def __post_init__(self) -> None:
        """Check the fields."""
        Loss.__post_init__(self)
        if not self.delta > 0:
            raise SpecError(f"huber: delta must be above 0, got {self.delta}")


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class BCE(ElementLoss):
    """Binary cross entropy: ``−t log p − (1 − t) log(1 − p)`` for each element, targets in 0 … 1.

    Attributes
    ----------
    logits : the output is z with ``p = sigmoid(z)``, and the formula ``max(z, 0) − z t + log(1 + exp(−|z|))`` neither
        overflows nor cancels; otherwise the output is p itself, and logarithms are clamped at −100, as in torch
    """

    kind: ClassVar[str] = "bce"

    logits: bool = True

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> CheckedTargets:
        check_shapes(self.kind, shape, target)
        check_bits(target)
        return Loss.checked(self, shape, target, mask)

    def check_output(self, output: Array) -> None:
        if not self.logits and output.size and (output.min() < 0 or output.max() > 1):
            raise ShapeError(
                f"bce: probabilities must be in 0 … 1, got {output.min()} to {output.max()}",
                hint="use BCE(logits=True) for raw outputs",
            )


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEntropy(Loss):
    """Cross entropy of logits over the last axis: ``−Σ q log softmax(z)``, one term for each row.

    The target has class ids without the last axis, integers or bool; or soft targets q with it, 0 or more and not all
    0 in a row. An output of one class raises an error: its loss is always 0.

    Attributes
    ----------
    ignore_index : rows with this class id are ignored
    label_smoothing : share ε of the target that is distributed evenly over the classes: ``q (1 − ε) + ε / C``
    """

    kind: ClassVar[str] = "cross_entropy"

    ignore_index: int = IGNORED
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        Loss.__post_init__(self)
        if not 0 <= self.label_smoothing < 1:
            raise SpecError(f"cross_entropy: label_smoothing must be in 0 … 1, got {self.label_smoothing}")
        if not -(2**31) <= self.ignore_index < 2**31:
            raise SpecError(f"cross_entropy: ignore_index must be an int32, got {self.ignore_index}")

    def terms(self, output: Array, target: Array, mask: Array | None = None) -> LossTerms:
        lead = output.shape[:-1]
        checked = self.checked(output.shape, target, mask)
        target = checked.target
        weights = np.ones(lead, output.dtype) if checked.weights is None else checked.weights.astype(output.dtype)
        logp = log_softmax(output)
        if target.ndim < output.ndim:
            ignored = target == self.ignore_index
            weights = np.where(ignored, output.dtype.type(0), weights)
            values, gradient = self._of_ids(logp, np.where(ignored, 0, target)[..., None])
        else:
            values, gradient = self._of_soft(logp, target.astype(output.dtype, copy=False))
        # A weight of 0 alone would turn an infinite value of an ignored row into NaN.
        none = weights == 0
        values, gradient = values.copy(), gradient.copy()
        values[none], gradient[none] = 0, 0
        total = float((values * weights).sum(dtype=np.float64))
        return LossTerms(total, float(weights.sum(dtype=np.float64)), gradient * weights[..., None])

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> CheckedTargets:
        check_classes(shape)
        lead = shape[:-1]
        ids = class_ids(target) if target.shape == lead else None
        if ids is None and target.shape != shape:
            raise ShapeError(
                f"cross_entropy: an output of shape {shape} needs class ids of shape {lead} or soft targets of its own "
                f"shape, got {target.dtype} of shape {target.shape}",
                hint=way_out(self.kind, shape, target),
            )
        weights = None if mask is None else spread_weights(mask, lead)
        if ids is None:
            check_probabilities(target, weights)
            return CheckedTargets(
                target, weights, float(np.prod(lead) if weights is None else weights.sum(dtype=np.float64))
            )
        counts = ids != self.ignore_index
        check_ids(ids, counts, shape[-1])
        return CheckedTargets(ids, weights, float(counts.sum() if weights is None else (weights * counts).sum()))

    def _of_ids(self, logp: Array, ids: Array) -> tuple[Array, Array]:
        smooth, classes = self.label_smoothing, logp.shape[-1]
        values = -np.take_along_axis(logp, ids, -1)[..., 0]
        gradient = np.exp(logp)
        if smooth:
            values = (1 - smooth) * values - (smooth / classes) * logp.sum(-1)
            gradient -= smooth / classes
        picked = np.take_along_axis(gradient, ids, -1)
        np.put_along_axis(gradient, ids, picked - (1 - smooth), -1)
        return values, gradient

    def _of_soft(self, logp: Array, q: Array) -> tuple[Array, Array]:
        q = q * (1 - self.label_smoothing) + self.label_smoothing / q.shape[-1]
        values = -(q * np.where(q == 0, 0, logp)).sum(-1)  # 0 · log 0 is 0
        return values, np.exp(logp) * q.sum(-1, keepdims=True) - q


def _make_loss_class(name: str, of: LossTerm) -> type[Loss]:
    """Return the class of a loss that is defined only by a formula."""
    own = [(each, float, default) for each, default in of.fields.items()]
    namespace = {"kind": name, "__doc__": of.meaning, "__module__": __name__}
    loss_class = make_dataclass(
        name, own, bases=(ElementLoss,), namespace=namespace, frozen=True, slots=True, kw_only=True
    )
    return explain_call_errors(loss_class)


_CLASSES: Final[tuple[type[Loss], ...]] = (MSE, L1, CrossEntropy, BCE, Huber)


def _of_terms(name: str | None) -> None:
    """Create the class of a loss that has a term but no class; for None, of all imported terms without a class."""
    for each in TERMS.imported_names() if name is None else (name,):
        if not LOSSES.is_declared(each) and each != "bce_logits" and each in TERMS and not LOSSES.is_declared(each):
            LOSSES[each] = _make_loss_class(each, TERMS[each])


_KINDS: Final = frozenset({"mae", *(cls.kind for cls in _CLASSES)})
_SPELLINGS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("mean_squared_error", "mseloss", "mse_loss", "squared_error"), MSE.kind),
    **dict.fromkeys(("mean_absolute_error", "l1loss", "l1_loss", "absolute_error"), L1.kind),
    **dict.fromkeys(
        ("crossentropy", "cross_entropy_loss", "crossentropyloss", "ce", "softmax_cross_entropy"), CrossEntropy.kind
    ),
    **dict.fromkeys(("categorical_crossentropy", "sparse_categorical_crossentropy"), CrossEntropy.kind),
    **dict.fromkeys(("bcewithlogitsloss", "bce_with_logits", "bce_with_logits_loss"), BCE.kind),
    **dict.fromkeys(("sigmoid_binary_cross_entropy", "binary_cross_entropy_with_logits"), BCE.kind),
    **dict.fromkeys(("huberloss", "huber_loss"), Huber.kind),
}
"""Name in torch, Keras or optax → name here, of losses that are the same."""


def _loss_name(name: str) -> str:
    """Return the name here of a loss."""
    plain = name.lower().replace("-", "_").replace(" ", "_") if isinstance(name, str) else name
    return _SPELLINGS.get(plain, plain if plain in _KINDS else name)


LOSSES: Final[Registry[type[Loss]]] = Registry(
    _of_terms, group=TERMS.group, own={"mae": L1, **{cls.kind: cls for cls in _CLASSES}}, spelled=_loss_name
)
"""Name → loss; the mean absolute error has two names. Terms without a class are included, and so are the names of
other packages for the same losses."""
