"""What a native checkpoint says beside structure and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volumetric.analysis.standardise import Standardisation
from volumetric.errors import CheckpointError, VolumetricError


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFacts:
    """What a checkpoint says beside structure and weights.

    Attributes
    ----------
    context_length : tokens that the model was trained for, 0 if unknown
    inputs : how inputs were standardised before the network read them, or None
    classes : names of the classes that outputs stand for, empty where there are none
    """

    context_length: int = 0
    inputs: Standardisation | None = None
    classes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return JSON data; what is not known is left out."""
        data: dict[str, Any] = {"context_length": self.context_length}
        if self.inputs is not None:
            data["inputs"] = {"mean": list(self.inputs.mean), "deviation": list(self.inputs.deviation)}
        if self.classes:
            data["classes"] = list(self.classes)
        return data


def read_facts(about: Mapping[str, Any], where: str) -> NativeFacts:
    """Read facts among the metadata of a file; raise `CheckpointError` where one is ill-typed."""
    context, classes, inputs = about.get("context_length"), about.get("classes", []), about.get("inputs")
    if type(context) is not int or context < 0:
        raise CheckpointError(f"{where}: the metadata lack context_length")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise CheckpointError(f"{where}: classes in the metadata are no list of names")
    return NativeFacts(
        context_length=context,
        classes=tuple(classes),
        inputs=None if inputs is None else _standardisation(inputs, where),
    )


def _standardisation(data: object, where: str) -> Standardisation:
    if not isinstance(data, dict) or data.keys() != {"mean", "deviation"}:
        raise CheckpointError(f"{where}: inputs in the metadata must have mean and deviation")
    try:
        return Standardisation(**{name: tuple(map(float, numbers)) for name, numbers in data.items()})
    except (VolumetricError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: inputs in the metadata: {error}") from error
