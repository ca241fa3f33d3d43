"""The words of programs: families, carriers, operators, rules; and what names may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from volumetric.errors import SpecError
from volumetric.hints import shown
from volumetric.layers.checks import check_choice

FAMILIES: Final = ("observation", "state", "memory", "residual", "action")
"""Families that the tables know; a region may be of any other."""
CARRIERS: Final = ("deterministic", "residual", "filter", "memory", "diffusive", "constant")
OPERATORS: Final = (
    "attend",
    "observe",
    "predict",
    "correct",
    "bind",
    "retrieve",
    "write",
    "act",
    "compress",
    "integrate",
    "intervene",
    "emit_residual",
)
RULES: Final = (
    "cross",
    "linear",
    "cosine",
    "sigmoid",
    "gated",
    "perceiver",
    "pooling",
    "copy",
    "none",
    "sparse",
    "local",
    "random_fixed",
    "mixture",
    "mamba",
    "rwkv",
    "hyena",
)
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "self_attention": "cross",
        "cogvideox": "cross",
        **{f"{name}_attention": name for name in ("cross", "linear", "cosine", "sigmoid", "sparse", "local")},
    }
)
"""Other names of rules."""
MODES: Final = ("supervised", "ssl_prediction", "posterior_match", "retrieval", "calibration", "none")
LOSSES: Final = (
    "task",
    "next_step",
    "masked_prediction",
    "predictive_consistency",
    "calibration",
    "retrieval_accuracy",
    "write_utility",
    "sparsity",
)
KEEPS: Final = ("auto", "runtime", "freeze", "constant", "export")

NAME: Final = r"[A-Za-z_](?:[A-Za-z0-9_.\[\]-]{0,126}[A-Za-z0-9_\]-])?"
"""What a region, a port and an event may be called."""
_NAME = re.compile(NAME, re.ASCII)
_EDGE = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]<#-]{0,299}", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", re.ASCII)


def check_name(what: str, name: Any) -> None:
    """Raise `SpecError` unless `name` can be that of a region, a port or an event."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise SpecError(
            f"{what} cannot be called {shown(name)}",
            hint='a letter or "_", then letters, digits, "_", "-", "[", "]" and, not at the end, ".", 128 in all',
        )


def check_edge_name(name: Any) -> None:
    """Raise `SpecError` unless `name` can be that of an edge."""
    if not isinstance(name, str) or _EDGE.fullmatch(name) is None:
        raise SpecError(
            f"an edge cannot be called {shown(name)}",
            hint='a letter or "_", then letters, digits, "_", "-", ".", "[", "]", "<" and "#", 300 in all',
        )


def check_word(what: str, word: Any) -> None:
    """Raise `SpecError` unless `word` is one."""
    if not isinstance(word, str) or _WORD.fullmatch(word) is None:
        raise SpecError(f"{what} cannot be {shown(word)}", hint='a letter or "_", then letters, digits, "_" and "-"')


def rule_of(what: str, name: Any) -> str:
    """Return the name of a rule that one may call by several."""
    name = ALIASES.get(name, name) if isinstance(name, str) else name
    check_choice(f"{what}: rule", name, RULES)
    return name
