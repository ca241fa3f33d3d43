"""Attention rules as another package computes them: its names and shapes brought to ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from volumetric.base._typing import Array
from volumetric.program.layer.attention import Attention, Pairs, rule_of

FIXTURES = Path(__file__).parent.parent / "fixtures" / "attention"
OPTIONS: dict[str, dict[str, int]] = {
    "hyena": {"length": 16},
    "local": {"window": 6},
    "mamba": {"state_size": 4},
    "perceiver": {"latents": 3},
    "sparse": {"top_k": 3},
    "local_none": {"window": 2},
}
THERE = (
    (r"(^|\.)(q|k|v|r|in|x|dt|out)_proj\.", r"\1\2."),
    (r"(^|\.)out\.", r"\1o."),
    ("^cross_attn\\.", ""),
    ("^filter_params\\.", "filters."),
    ("^D$", "d"),
)
"""Patterns of names of parameters there, and what we have in their place, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A case: what went in, what came out, and gradients of the sum of ``y · cotangent``."""

    rule: Attention
    p: dict[str, Array]
    given: dict[str, Array]
    pairs: Pairs
    y: Array
    cotangent: Array
    grads: dict[str, Array]

    @property
    def written(self) -> Array:
        return self.rule.written_queries(self.pairs)


def ours(name: str) -> str:
    for pattern, with_ in THERE:
        name = re.sub(pattern, with_, name)
    return name


def load(case: str) -> Oracle:
    name = re.sub(r"(_attention)?_(\d+x\d+|rows_without_keys)$", "", case)
    rule = rule_of(name, OPTIONS.get("local_none" if case.endswith("keys") else name), heads=2)
    with np.load(FIXTURES / f"{case}.npz") as file:
        of = {key: file[key].astype(np.float64) for key in file.files}
    _, n, d = of["queries"].shape
    shapes = {param.name: param.shape for param in rule.params(d, n)}

    def params(prefix: str) -> dict[str, Array]:
        found = {ours(key.removeprefix(prefix)): v for key, v in of.items() if key.startswith(prefix)}
        return {key: v.reshape(shapes[key]) for key, v in found.items()}

    p = params("param/")
    assert p.keys() == shapes.keys()
    grads = {key: of[f"grad/{key}"] for key in ("queries", "keys", "values") if f"grad/{key}" in of}
    return Oracle(
        rule=rule,
        p=p,
        given={key: of[key] for key in ("queries", "keys", "values")},
        pairs=Pairs(n, of["keys"].shape[1], of["chosen"] != 0 if "chosen" in of else None),
        y=of["y"],
        cotangent=of["cotangent"],
        grads=grads | params("grad/param/"),
    )


CASES = tuple(sorted(path.stem for path in FIXTURES.glob("*.npz")))
