"""Findings: how a group of tensors was recognised, with which certainty, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from volumetric.detect.parameter_fills import ParameterFill
from volumetric.layers import LayerSpec

Certainty = Literal["certain", "likely", "possible"]
"""``certain``: nothing else has these names and shapes. ``likely``: the conventional meaning; for example, a norm
without a bias is an RMSNorm. ``possible``: several layers have them, and this one is the most common."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One layer that was recognised, or a group of tensors that was not.

    Attributes
    ----------
    path : start of the tensors' names, ``"encoder.0.conv1"``
    what : readable kind and sizes, ``"Conv2d 3 → 64, 7×7"``; empty if not recognised
    reason : the evidence in names and shapes
    tensors : names in the file
    layer : the layer, as far as shapes determine it; None for a group of several layers
    fills : parameter of `layer` → its fill
    needs : name of a value that no tensor shows → the only value that `layer` supports, and why it is required
    asks : name of a value that no tensor shows and that builds the layer → why it is required
    assumes : name of a conventional value that builds the layer → value
    choose : function from the values of `asks` and `assumes` to the layer and its fills
    repeats : number of groups that this one represents; their paths differ in numbers only
    """

    path: str
    what: str
    certainty: Certainty = "certain"
    reason: str
    tensors: tuple[str, ...]
    layer: LayerSpec | None = None
    fills: Mapping[str, ParameterFill] = field(default_factory=dict)
    needs: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)
    assumes: Mapping[str, Any] = field(default_factory=dict)
    choose: Callable[[Mapping[str, Any]], tuple[LayerSpec, Mapping[str, ParameterFill]]] | None = None
    repeats: int = 1


def collapse_findings(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings in order; those whose paths differ in numbers only become one, ``h.0…11.mlp``."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        key = _NUMBER.sub("#", finding.path), finding.what, finding.certainty, _NUMBER.sub("#", finding.reason)
        groups.setdefault(key, []).append(finding)
    for alike in groups.values():
        yield replace(alike[0], path=_range([finding.path for finding in alike]), repeats=len(alike))


def _range(paths: list[str]) -> str:
    """One path for several that differ in numbers, each as ranges."""
    if len(paths) == 1:
        return paths[0]
    texts = _NUMBER.split(paths[0])
    columns = list(zip(*(map(_read_short_number, _NUMBER.findall(path)) for path in paths), strict=True))
    spans = [_spans(sorted(set(column))) for column in columns]
    return "".join(part for pair in zip(texts, [*spans, ""], strict=True) for part in pair)


def _spans(numbers: list[int]) -> str:
    """Numbers as ranges, ``0…2,5``."""
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if i == len(numbers) - 1 or numbers[i + 1] != n + 1]
    return ",".join(f"{a}" if a == b else f"{a}…{b}" for a, b in zip(starts, ends, strict=True))


def _read_short_number(digits: str) -> int:
    """Read a number; only the last digits of one with hundreds of digits, which no model has."""
    return int(digits[-18:])
