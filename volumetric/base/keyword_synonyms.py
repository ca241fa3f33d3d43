"""Keywords of a call under the names of other packages: accepted if they mean the same, else answered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar

from volumetric.base.errors import ArgumentError
from volumetric.base.hints import CALLED, suggestion

C = TypeVar("C", bound=Callable[..., Any])


def accept_synonyms(answers: Mapping[str, str], further: Collection[str] = ()) -> Callable[[C], C]:
    """Decorate a function so that it takes keywords under the names of other packages. The signature does not change.

    Parameters
    ----------
    answers, further : see `own_keywords`; `further` are names that the function takes besides its parameters
    """

    def decorate(function: C) -> C:
        variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        parameters = inspect.signature(function).parameters.values()
        known = [*(p.name for p in parameters if p.kind not in variable), *further]

        @wraps(function)
        def renaming(*args: Any, **keywords: Any) -> Any:
            return function(*args, **own_keywords(function.__name__, keywords, known, answers))

        return renaming  # pyright: ignore[reportReturnType]  (the signature is the same)

    return decorate


def own_keywords(
    call: str, keywords: Mapping[str, Any], known: Collection[str], answers: Mapping[str, str]
) -> dict[str, Any]:
    """Return `keywords` under the names that the function `call` uses.

    Parameters
    ----------
    known : names that the function takes; names of `hints.CALLED` that stand for one of these are accepted
    answers : keyword of another package → what to write here, for those that do not mean the same
    used : names that the call sets already

    Raises
    ------
    ArgumentError : a keyword is unknown, has an answer, or is set twice under two names
    """
    own: dict[str, Any] = {}
    for name, value in keywords.items():
        here = name if name in known else CALLED.get(name)
        if name in answers:
            raise ArgumentError(f"{call} has no argument {name!r}", hint=answers[name])
        if here is None or here not in known:
            raise ArgumentError(f"{call} has no argument {name!r}", hint=suggestion(name, known))
        if here in own or (here != name and here in keywords):
            raise ArgumentError(f"{call}: {name!r} sets {here!r}, which is set already", hint=f"pass only {here}=…")
        own[here] = value
    return own
