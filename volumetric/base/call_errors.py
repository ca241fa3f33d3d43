"""Calls whose arguments do not fit: suggestions for unknown keywords, and names for positional arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from volumetric.base.errors import ArgumentError, ImmutableError
from volumetric.base.hints import suggestion

T = TypeVar("T")
_LONGEST = 40


def explain_call_errors(target: T) -> T:
    """Decorate a function, or the constructor of a class, so that calls that do not fit it are explained.

    Such calls raise `ArgumentError`, a subclass of `TypeError`. The signature does not change.
    """
    of: Any = target
    call = of.__init__ if isinstance(target, type) else of

    @wraps(call)
    def explaining(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except TypeError as error:
            wrong = _explanation(call, of.__name__, args, kwargs)
            if wrong is None:  # raised inside
                raise
            raise wrong from error

    if not isinstance(target, type):
        return explaining  # pyright: ignore[reportReturnType]  (the signature is the same)
    of.__init__ = explaining
    return (
        explain_assignment_errors(target)
        if hasattr(of, "__dataclass_params__") and of.__dataclass_params__.frozen
        else target
    )


def explain_assignment_errors(cls: T, hints: Mapping[str, str] | None = None) -> T:
    """Decorate a frozen dataclass so that setting or deleting an attribute raises `ImmutableError`.

    The generated methods of `dataclasses` fail for classes with slots and unknown names: "super(type, obj): …".
    `hints` maps attribute names to what to do instead.
    """
    of: Any = cls

    def refused(self: object, name: str, *_: object) -> None:
        raise ImmutableError(f"{of.__name__} is immutable: {name!r} cannot be set", hint=(hints or {}).get(name))

    of.__setattr__ = of.__delattr__ = refused
    return cls


def _explanation(call: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ArgumentError | None:
    """Return the error for a call that does not fit, or None if it fits."""
    signature = inspect.signature(call)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        known = [p for p in signature.parameters if p != "self"]
        unknown = next((key for key in kwargs if key not in known), None)
        if unknown is not None:
            return ArgumentError(f"{name} has no argument {unknown!r}", hint=suggestion(unknown, known))
        values = args[1:] if "self" in signature.parameters else args
        places = [n for n, p in signature.parameters.items() if n != "self" and p.kind is not p.KEYWORD_ONLY]
        if len(values) > len(places):
            if len(places) == 1 and str(signature.parameters[places[0]].annotation).startswith("tuple["):
                return ArgumentError(
                    f"{name} takes 1 positional argument, got {len(values)}", hint=f"pass them as one list: {name}([…])"
                )
            rest = [n for n in known if n not in places and n not in kwargs]
            rest.sort(
                key=lambda n: signature.parameters[n].default is not inspect.Parameter.empty
            )  # required parameters first
            named = [f"{n}={_short(v)}" for n, v in zip(rest, values[len(places) :], strict=False)]
            written = ", ".join([*map(_short, values[: len(places)]), *named])
            return ArgumentError(
                f"{name} takes {len(places) or 'no'} positional argument{'' if len(places) == 1 else 's'}, "
                f"got {len(values)}",
                hint=f"name them, as {name}({written})",
            )
        missing = [
            n for n, p in signature.parameters.items() if p.default is p.empty and n not in kwargs and n in known
        ]
        missing = [n for n in missing if n not in places[: len(values)]]
        if missing:
            by_place = [n for n in places if signature.parameters[n].default is inspect.Parameter.empty]
            signature_text = ", ".join([*by_place, *(f"{n}=…" for n in missing if n not in by_place)])
            return ArgumentError(f"{name} needs {', '.join(missing)}", hint=f"as {name}({signature_text})")
        return ArgumentError(f"{name}: {error}", hint=f"it takes {', '.join(known)}")
    return None


def _short(value: object) -> str:
    """Return a one-line text of a value, for the example in a hint."""
    text = repr(value)
    return text if len(text) <= _LONGEST and "\n" not in text else "…"
