"""Losses as functions: the terms in plain arithmetic, under a name that files and `train` take."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from functools import lru_cache, partial, update_wrapper
from typing import Any, TypeVar

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.train.graph_loss import FORMS, GraphLoss
from volumetric.train.losses import LOSSES, Loss

F = TypeVar("F", bound=Callable[..., Any])


def loss(name: str) -> Callable[[F], F]:
    """Register a function of predictions and targets as a loss.

    The function returns the terms in plain arithmetic, see `GraphLoss`; the order of its arguments is torch's,
    prediction and target. Arguments with a default are the loss's fields. A loss without a name needs no decorator:
    ``train(…, loss=function)``.

    Raises
    ------
    SpecError : the engine has the name, or the function has other arguments

    Examples
    --------
    >>> import numpy as np
    >>> @loss("pinball")
    ... def pinball(prediction, target, quantile=0.9):
    ...     gap = target - prediction
    ...     return np.maximum(quantile * gap, (quantile - 1) * gap)
    >>> LOSSES["pinball"](quantile=0.5).terms(np.zeros((2, 1)), np.ones((2, 1))).total
    1.0
    """

    def declare(function: F) -> F:
        if name in LOSSES.own:
            raise SpecError(f"the engine has a loss {name!r}", hint="choose another name")
        LOSSES.declare(name, _loss_class(name, function), function.__module__)
        return function

    return declare


@lru_cache(maxsize=64)
def _with_fields(function: Callable[..., Any], values: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return a function with its fields set; the same object for equal values, by which graphs are cached."""
    return update_wrapper(partial(function, **dict(values)), function) if values else function


class _FunctionLoss(GraphLoss):
    """A loss whose function takes the fields of the loss as keywords."""

    __slots__ = ()

    @property
    def terms_function(self) -> Callable[..., Any]:
        own = (f.name for f in fields(self) if f.name not in ("reduction", "function"))
        return _with_fields(self.function, tuple((each, getattr(self, each)) for each in own))


def _loss_class(name: str, function: Callable[..., Any]) -> type[Loss]:
    """Return the class of a loss that a function defines."""
    own: list[tuple[str, type, Any]] = []
    for each in inspect.signature(function).parameters.values():
        if each.default is each.empty:
            continue
        if not isinstance(each.default, bool | int | float):
            raise SpecError(
                f"loss {name!r}: the default of {each.name} must be a number, got {each.default!r}",
                hint=f"write {FORMS}",
            )
        own.append((each.name, type(each.default), each.default))
    whole = field(default=function, init=False, repr=False)
    namespace = {"kind": name, "__doc__": inspect.getdoc(function) or f"The loss `{name}`.", "__module__": __name__}
    of = [*own, ("function", Callable[..., Any], whole)]
    cls = make_dataclass(name, of, bases=(_FunctionLoss,), namespace=namespace, frozen=True, slots=True, kw_only=True)
    cls()  # checks the number of arguments
    return explain_call_errors(cls)
