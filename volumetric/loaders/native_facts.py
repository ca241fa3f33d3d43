"""Facts in a native checkpoint in addition to structure and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from volumetric.analysis.standardise import Standardisation
from volumetric.base.errors import CheckpointError, SpecError, VolumetricError
from volumetric.loaders.sentence_modules import POOLINGS
from volumetric.network.grid import Coord
from volumetric.run.text_pooling import Pooling


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFacts:
    """Facts in a checkpoint in addition to structure and weights.

    Attributes
    ----------
    context_length : context length in tokens, 0 if unknown
    inputs : standardisation of inputs before the network, or None
    classes : names of the output classes, empty if there are none
    features : names of the input columns, empty if the model was not trained on a table
    hidden : layer whose rows are the hidden states, if a head follows it
    pooling : pooling of hidden states for the classification head; None: there is no head
    damage : parameter → estimated KL divergence, in nats per token, that its scheme costs, if it was measured
    """

    context_length: int = 0
    inputs: Standardisation | None = None
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    hidden: Coord | None = None
    pooling: Pooling | None = None
    damage: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return JSON data without unknown values."""
        data: dict[str, Any] = {"context_length": self.context_length}
        if self.inputs is not None:
            data["inputs"] = {"mean": list(self.inputs.mean), "deviation": list(self.inputs.deviation)}
        if self.classes:
            data["classes"] = list(self.classes)
        if self.features:
            data["features"] = list(self.features)
        if self.hidden is not None:
            data["hidden"] = str(self.hidden)
        if self.pooling is not None:
            data["pooling"] = self.pooling
        if self.damage:
            data["damage"] = dict(self.damage)
        return data


def read_facts(about: Mapping[str, Any], where: str) -> NativeFacts:
    """Read facts from the metadata of a file; raise `CheckpointError` if one is ill-typed."""
    context, inputs = about.get("context_length"), about.get("inputs")
    if type(context) is not int or context < 0:
        raise CheckpointError(f"{where}: the metadata lack context_length")
    pooling = about.get("pooling")
    if pooling is not None and pooling not in POOLINGS:
        raise CheckpointError(f"{where}: pooling in the metadata is not one of {', '.join(POOLINGS)}")
    return NativeFacts(
        context_length=context,
        classes=_names(about, "classes", where),
        features=_names(about, "features", where),
        inputs=None if inputs is None else _standardisation(inputs, where),
        hidden=_coord(about.get("hidden"), where),
        pooling=pooling,
        damage=_damage(about.get("damage", {}), where),
    )


def _names(about: Mapping[str, Any], what: str, where: str) -> tuple[str, ...]:
    names = about.get(what, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CheckpointError(f"{where}: {what} in the metadata are not a list of names")
    return tuple(names)


def _damage(data: object, where: str) -> dict[str, float]:
    if not isinstance(data, dict) or not all(type(nats) in (int, float) for nats in data.values()):
        raise CheckpointError(f"{where}: damage in the metadata is not a table of numbers")
    return data


def _coord(text: object, where: str) -> Coord | None:
    try:
        return None if text is None else Coord.parse(str(text))
    except SpecError as error:
        raise CheckpointError(f"{where}: hidden in the metadata: {error}") from error


def _standardisation(data: object, where: str) -> Standardisation:
    if not isinstance(data, dict) or data.keys() != {"mean", "deviation"}:
        raise CheckpointError(f"{where}: inputs in the metadata must have mean and deviation")
    try:
        return Standardisation(**{name: tuple(map(float, numbers)) for name, numbers in data.items()})
    except (VolumetricError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: inputs in the metadata: {error}") from error
