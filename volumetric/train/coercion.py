"""Conversion of names, tables and functions to losses, optimisers, schedules and modes.

TOML files and Python accept the same forms: ``{"kind": "adam", "lr": 0.01}`` means ``Adam(lr=0.01)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from volumetric.base import config_tables
from volumetric.base.errors import DTypeError, SpecError, VolumetricError
from volumetric.base.import_by_name import import_function
from volumetric.dtypes import DType, Scheme
from volumetric.network.grid import Coord
from volumetric.train.graph_loss import FORMS, GraphLoss
from volumetric.train.lora import LowRank
from volumetric.train.losses import LOSSES, Loss
from volumetric.train.modes import MODES, Mode
from volumetric.train.optim import OPTIMISERS, Optimiser
from volumetric.train.output_losses import AnyLoss
from volumetric.train.precision import Precision
from volumetric.train.schedules import SCHEDULES, Schedule, WarmUp

_COORDINATE: Final = re.compile(r"\d+(\.\d+){3}")


def as_loss(value: Any, where: str = "loss", home: Path | None = None) -> AnyLoss:
    """Return a loss, or losses by output name.

    Parameters
    ----------
    value : a loss, its name, a table with its kind, a function (see `GraphLoss`), or ``"module:function"``; or a
        mapping of outputs to these
    home : directory of modules, in addition to the current one
    """
    if isinstance(value, Mapping) and not isinstance(value.get("kind"), str):
        return {name: _one_loss(item, f"{where}.{name}", home) for name, item in value.items()}
    return _one_loss(value, where, home)


def _one_loss(value: Any, where: str, home: Path | None) -> Loss:
    if isinstance(value, Loss):
        return value
    if isinstance(value, str) and ":" in value:
        value = import_function(value, home or Path(), "loss")
    if callable(value) and not isinstance(value, type):
        try:
            return GraphLoss(function=value)
        except SpecError as error:
            raise SpecError(f"{where}: {error}", hint=error.hint) from None
    if not isinstance(value, (str, Mapping)):
        raise _wrong(where, value, LOSSES, f"or {FORMS}")
    if isinstance(value, str) and value not in LOSSES and ((home or Path()) / f"{value}.py").is_file():
        raise SpecError(
            f"{where}: {value!r} names a file and no function", hint=f'add the function: "{value}:function"'
        )
    return config_tables.build_from_registry(LOSSES, value, where)


def as_optimiser(value: Any, where: str = "optimiser") -> Optimiser:
    """Return an optimiser from an optimiser, its name, or a table with its kind."""
    if isinstance(value, Optimiser):
        return value
    if not isinstance(value, (str, Mapping)):
        raise _wrong(where, value, OPTIMISERS)
    return config_tables.build_from_registry(OPTIMISERS, value, where)


def as_schedule(value: Any, where: str = "schedule") -> Any:
    """Return a `Schedule` from a schedule, its name or a table with its kind; or a function from update to factor."""
    if isinstance(value, Schedule) or (callable(value) and not isinstance(value, type)):
        return value
    if not isinstance(value, (str, Mapping)):
        raise _wrong(where, value, SCHEDULES)
    if isinstance(value, Mapping) and value.get("kind") == WarmUp.kind and "then" in value:
        rest = {key: item for key, item in value.items() if key not in ("kind", "then")}
        then = as_schedule(value["then"], f"{where}.then")
        steps = config_tables.checked_value(
            config_tables.expect_keys(rest, ("steps",), where).get("steps", 100), int, f"{where}.steps"
        )
        return WarmUp(steps=steps, then=then)
    return config_tables.build_from_registry(SCHEDULES, value, where)


def as_mode(value: Any, where: str = "mode") -> Mode:
    """Return a mode from a mode, its name, or a table with its kind."""
    if isinstance(value, tuple(MODES.values())):
        return value
    if not isinstance(value, (str, Mapping)):
        raise _wrong(where, value, MODES)
    return config_tables.build_from_registry(MODES, value, where)


def as_overlay(value: Any, where: str = "overlay") -> LowRank | None:
    """Return low-rank overlays from overlays or a table, or None."""
    if value is None or isinstance(value, LowRank):
        return value
    return config_tables.call_with_table(LowRank, dict(value) if isinstance(value, Mapping) else value, where)


def as_precision(value: Any, where: str = "dtype") -> Precision:
    """Return dtypes of weights, after checking that their names parse."""
    if value is None or isinstance(value, (Scheme, DType)):
        return value
    chosen = dict(value) if isinstance(value, Mapping) else config_tables.checked_value(value, str, where)
    for of in chosen.values() if isinstance(chosen, dict) else [chosen]:
        if not isinstance(of, (Scheme, DType)):
            text = config_tables.checked_value(of, str, where)
            try:
                Scheme.parse(text)
            except VolumetricError as error:
                raise DTypeError(f"{where}: {error}", hint=error.hint) from None
    return chosen


def as_key_patterns(value: Any, where: str = "frozen") -> tuple[str, ...]:
    """Return patterns of parameter keys; a coordinate, also as text or tuple, means all parameters of its layer."""
    entries = value if isinstance(value, (list, set, frozenset)) else [value]
    if isinstance(value, tuple) and not all(isinstance(part, int) for part in value):
        entries = value
    patterns: list[str] = []
    for entry in [] if value == () else entries:
        if isinstance(entry, str) and not _COORDINATE.fullmatch(entry):
            patterns.append(entry)
            continue
        try:
            patterns.append(f"{Coord.of(entry)}/*")
        except SpecError:
            raise SpecError(
                f"{where}: {entry!r:.60} is no pattern of parameters",
                hint="write a layer's coordinate, as '0.0.0.0' or (0, 0, 0, 0), or a pattern of keys, as '*/bias'",
            ) from None
    return tuple(patterns)


CONVERTERS: Final[dict[str, Callable[..., Any]]] = {
    "loss": as_loss,
    "optimiser": as_optimiser,
    "schedule": as_schedule,
    "mode": as_mode,
    "overlay": as_overlay,
    "dtype": as_precision,
    "frozen": as_key_patterns,
}
"""Field of `TrainConfig` → function that converts its value; other fields are plain."""


def _wrong(where: str, value: Any, registry: Mapping[str, type], further: str = "") -> SpecError:
    if isinstance(value, type) and value in registry.values():
        return SpecError(
            f"{where}: {value.__name__} is a class, expected an instance",
            hint=f"create an instance: {value.__name__}()",
        )
    names = ", ".join(registry)
    return SpecError(
        f"{where}: expected a name or a table with a kind, got {value!r:.60}",
        hint=f"choose one of {names}; as {next(iter(registry.values())).__name__}()"
        + (f"; {further}" if further else ""),
    )
