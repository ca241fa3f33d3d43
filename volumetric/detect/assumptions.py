"""Assumptions: what the person says about weights that names and shapes do not tell."""

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
"""Name of a value → what families of other origin call it; people may use any of them."""


class AssumedError(SpecError):
    """A value that somebody said is none that the weights can have."""


class Assumptions:
    """Values by name, of which it is known afterwards which were looked at.

    Parameters
    ----------
    values : name → value, in the words of Hugging Face's configurations, or ``"conv1.stride"`` for one layer
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.values: dict[str, Any] = dict(values or {})
        self.known: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return self.find(name) is not None

    def find(self, name: str) -> Any:
        """Return the value that was given for a name, or None."""
        self.known.add(name)
        return self.values.get(name)

    def under(self, path: str, name: str) -> Any:
        """Return what was given for one layer, ``"conv1.stride"``, or else for all of them, ``"stride"``; or None."""
        own = self.find(f"{path}.{name}") if path else None
        if own is None:
            own = self.find(name)
        others = SYNONYMS.get(name, ()) if own is None else ()
        return next((value for other in others if (value := self.find(other)) is not None), own)

    def spelled(self) -> dict[str, Any]:
        """Return the values in every spelling that families use for them."""
        every = dict(self.values)
        for first, others in SYNONYMS.items():
            names = (first, *others)
            value = next((every[name] for name in names if name in every), None)
            if value is not None:
                every |= {name: every.get(name, value) for name in names}
        return every

    def check_used(self) -> None:
        """Raise `SpecError` for a value that nothing has looked at: it is a misspelling, or meant for another model."""
        known = self.known | {
            spelling for name, others in SYNONYMS.items() for spelling in others if {name, *others} & self.known
        }
        for name in self.values:
            if name not in known:
                hint = suggestion(name, known, "known here: " + ", ".join(sorted(known)[:12]), most=3)
                raise SpecError(f"guess: nothing in these weights asks for {name!r}", hint=hint)


def read_assumptions(guess: bool | Mapping[str, Any] | None) -> Assumptions | None:
    """Return what the argument `guess` of `volumetric.load` says; None where nothing is to be guessed.

    Raises
    ------
    SpecError
        `guess` is no truth value and no mapping from names.
    """
    if guess is None or guess is False:
        return None
    if guess is True:
        return Assumptions()
    if not isinstance(guess, Mapping) or not all(isinstance(name, str) for name in guess):
        raise SpecError(
            f"guess must be True or values by name, got {str(guess)[:60]!r}",
            hint='as in guess={"num_attention_heads": 8, "rope_theta": 10000}',
        )
    return Assumptions(guess)


def parse_assumptions(texts: Iterable[str]) -> dict[str, Any]:
    """Read ``name=value`` as the command line has them; values are JSON, or plain text.

    Raises
    ------
    SpecError
        One of them has no name or no value.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise SpecError(f"--assume {text!r} is no name=value", hint="as in --assume num_attention_heads=8")
        try:
            values[name.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            values[name.strip()] = value.strip()
    return values
