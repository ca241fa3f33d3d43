"""Sampling parameters as flags: one for each field of `SamplingParams`, with spellings of other tools."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from volumetric.base.errors import SpecError
from volumetric.cli.exits import UsageError
from volumetric.cli.flags import as_flags
from volumetric.cli.prompting import unescape, whole_numbers
from volumetric.generate.params import ALIASES, FROM_CONFIG, SamplingParams

GROUP = Group("Sampling", sort_key=2)

_SHORT = {"max_tokens": ["-n"], "seed": ["-s"], "stop": ["-r"]}
_BIAS = re.compile(r"(\d+)(?:=|(?=[+-]))(.+)")
"""``42=-1.5``; and ``42-1.5``, llama.cpp's format."""


def _flag(field: dataclasses.Field[Any], kind: Any) -> tuple[str, Any, Any]:
    """Turn one field of `SamplingParams` into an optional flag; None means not set."""
    names = [field.name, *(alias for alias, name in ALIASES.items() if name == field.name)]
    default = field.default if field.default is not dataclasses.MISSING else None
    shown = f"model's, else {default}" if field.name in FROM_CONFIG else str(default)
    parameter = Parameter(
        name=["--" + name.replace("_", "-") for name in names] + _SHORT.get(field.name, []),
        negative="",
        allow_leading_hyphen=field.name == "stop",
        consume_multiple=field.name in ("stop_ids", "allowed_ids"),
        show_default=shown if type(default) in (int, float) else False,
    )
    if field.name in _READERS:
        kind = tuple[str, ...]
    return field.name, Annotated[kind | None, parameter], None


def _stops(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(unescape, texts))


def _ids(flag: str) -> Callable[[tuple[str, ...]], tuple[int, ...]]:
    return lambda texts: tuple(number for text in texts for number in whole_numbers(flag, text))


def _biases(texts: tuple[str, ...]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for text in texts:
        parts = _BIAS.fullmatch(text.strip())
        try:
            biases[int(parts[1] if parts else "")] = float(parts[2] if parts else "")
        except ValueError:
            raise UsageError(f"--logit-bias must be ID=NUMBER, as in 42=-1.5, got {text!r}") from None
    return biases


_READERS = {
    "stop": _stops,
    "stop_ids": _ids("--stop-ids"),
    "allowed_ids": _ids("--allowed-ids"),
    "logit_bias": _biases,
}
"""Parsers of parameters whose text on the command line is not simply their value."""


def _set_values(self: Any) -> dict[str, Any]:
    settings = {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) is not None}
    settings |= {name: _READERS[name](value) for name, value in settings.items() if name in _READERS}
    try:
        SamplingParams(**settings)
    except SpecError as error:
        raise UsageError(str(error), hint=error.hint and as_flags(error.hint, "generate")) from None
    return settings


if TYPE_CHECKING:

    class SamplingOptions:
        """Sampling parameters that were set by flags."""

        def set_values(self) -> dict[str, Any]:
            """Return the names and values that were set. Raises `UsageError` for a value out of range."""
            ...
else:
    _hints = get_type_hints(SamplingParams)
    SamplingOptions = dataclasses.make_dataclass(
        "SamplingOptions",
        [_flag(field, _hints[field.name]) for field in dataclasses.fields(SamplingParams)],
        namespace={"set_values": _set_values, "__doc__": SamplingParams.__doc__},
        frozen=True,
        kw_only=True,
    )
    SamplingOptions.__module__ = __name__
    SamplingOptions = Parameter(name="*", group=GROUP)(SamplingOptions)
