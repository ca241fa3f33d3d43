"""Findings: what a group of tensors is taken for, how certain that is, and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from volumetric.detect.fills import Fill
from volumetric.layers import LayerSpec

Certainty = Literal["certain", "likely", "possible"]
"""``certain``: nothing else has these names and shapes. ``likely``: what they mean by convention, as a norm without a
bias is an RMSNorm. ``possible``: several things have them, and this one is the most common."""

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One layer that was recognised, or a group of tensors that was not.

    Attributes
    ----------
    path : start of the tensors' names, ``"encoder.0.conv1"``
    what : kind and sizes for people, ``"Conv2d 3 → 64, 7×7"``; empty where nothing was recognised
    reason : what in names and shapes says so
    tensors : names in the file
    layer : the layer as far as shapes tell it; None where it takes more than one
    fills : parameter of `layer` → what fills it
    needs : value that no tensor tells → the one that `layer` computes with, and why it must be said
    asks : value that no tensor tells, and of which the layer is made → why it must be said
    assumes : value that convention tells, and of which the layer is made → what it is
    choose : makes the layer, and what fills it, of the values of `asks` and `assumes` that were said
    alike : how many groups that differ in a number of their path alone this one stands for
    """

    path: str
    what: str
    certainty: Certainty = "certain"
    reason: str
    tensors: tuple[str, ...]
    layer: LayerSpec | None = None
    fills: Mapping[str, Fill] = field(default_factory=dict)
    needs: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    asks: Mapping[str, str] = field(default_factory=dict)
    assumes: Mapping[str, Any] = field(default_factory=dict)
    choose: Callable[[Mapping[str, Any]], tuple[LayerSpec, Mapping[str, Fill]]] | None = None
    alike: int = 1


def collapsed(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings in order; those that differ in the numbers of their path alone become one, ``h.0…11.mlp``."""
    groups: dict[tuple[str, str, str, str], list[Finding]] = {}
    for finding in findings:
        key = _NUMBER.sub("#", finding.path), finding.what, finding.certainty, _NUMBER.sub("#", finding.reason)
        groups.setdefault(key, []).append(finding)
    for alike in groups.values():
        yield replace(alike[0], path=_range([finding.path for finding in alike]), alike=len(alike))


def _range(paths: list[str]) -> str:
    """One path for several that differ in numbers: the smallest and the largest of each number that varies."""
    if len(paths) == 1:
        return paths[0]
    texts = _NUMBER.split(paths[0])
    columns = list(zip(*(map(_short, _NUMBER.findall(path)) for path in paths), strict=True))
    spans = [_spans(sorted(set(column))) for column in columns]
    return "".join(part for pair in zip(texts, [*spans, ""], strict=True) for part in pair)


def _spans(numbers: list[int]) -> str:
    """Runs of rising numbers, ``0…2,5``; what is not there is not told."""
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if i == len(numbers) - 1 or numbers[i + 1] != n + 1]
    return ",".join(f"{a}" if a == b else f"{a}…{b}" for a, b in zip(starts, ends, strict=True))


def _short(digits: str) -> int:
    """Read a number; of one with hundreds of digits, which no model has, the end is enough to tell it from others."""
    return int(digits[-18:])
