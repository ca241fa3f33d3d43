"""Assumptions: values that the user gives because names and shapes of tensors do not determine them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion

SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "hidden_size": ("n_embd", "d_model", "dim"),
    "num_hidden_layers": ("n_layer", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads", "nhead"),
    "num_key_value_heads": ("num_kv_heads",),
    "intermediate_size": ("n_inner", "hidden_dim", "ffn_dim"),
    "max_position_embeddings": ("n_positions",),
    "num_local_experts": ("num_experts",),
    "hidden_act": ("activation_function", "hidden_activation"),
}
"""Name of a value → synonyms in other families; users may give any of them."""


class AssumedError(SpecError):
    """An assumed value that is impossible for these weights."""


class Assumptions:
    """Values by name; records which of them were read.

    Parameters
    ----------
    values : name → value, with the names of Hugging Face's configurations, or ``"conv1.stride"`` for one layer
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.values: dict[str, Any] = dict(values or {})
        self.known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def find(self, name: str) -> Any:
        """Return the value of a name, or None."""
        self.known.add(name)
        return self.values.get(name)

    def find_for_layer(self, path: str, name: str) -> Any:
        """Return the value of one layer, ``"conv1.stride"``, else that of all layers, ``"stride"``, else None."""
        own = self.find(f"{path}.{name}") if path else None
        if own is None:
            own = self.find(name)
        others = SYNONYMS.get(name, ()) if own is None else ()
        return next((value for other in others if (value := self.find(other)) is not None), own)

    def all_spellings(self) -> dict[str, Any]:
        """Return the values under all names that families use for them."""
        every = dict(self.values)
        for first, others in SYNONYMS.items():
            names = (first, *others)
            value = next((every[name] for name in names if name in every), None)
            if value is not None:
                every |= {name: every.get(name, value) for name in names}
        return every

    def check_used(self) -> None:
        """Raise `SpecError` for a value that was never read: it is misspelled, or meant for another model."""
        known = self.known | {
            spelling for name, others in SYNONYMS.items() for spelling in others if {name, *others} & self.known
        }
        for name in self.values:
            if name not in known:
                hint = suggestion(name, known, "known names: " + ", ".join(sorted(known)[:12]), most=3)
                raise SpecError(f"guess: these weights have no use for {name!r}", hint=hint)


def read_assumptions(guess: bool | Mapping[str, Any] | None) -> Assumptions | None:
    """Return the assumptions in the argument `guess` of `volumetric.load`; None if `guess` is None or False.

    Raises
    ------
    SpecError
        `guess` is neither a truth value nor a mapping from names.
    """
    if guess is None or guess is False:
        return None
    if guess is True:
        return Assumptions()
    if not isinstance(guess, Mapping) or not all(isinstance(name, str) for name in guess):
        raise SpecError(
            f"guess must be True or values by name, got {str(guess)[:60]!r}",
            hint='for example guess={"num_attention_heads": 8, "rope_theta": 10000}',
        )
    return Assumptions(guess)


def parse_assumptions(texts: Iterable[str]) -> dict[str, Any]:
    """Parse ``name=value`` of the command line; values are JSON, or plain text.

    Raises
    ------
    SpecError
        A text has no name or no value.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SpecError(
                f"--assume {text!r} is not of the form name=value", hint="for example --assume num_attention_heads=8"
            )
        try:
            values[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            values[name.strip()] = value.strip()
    return values
