"""What a template asks of a GGUF file: metadata, arrays and tensors, which its network was recorded with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from volumetric.base.errors import CheckpointError
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_types import GGUF_TYPES, TYPE_NUMBERS
from volumetric.loaders.gguf_values import SCALAR_NUMBERS, STRING, LazyStrings

_ARCHITECTURE: Final = "general.architecture"
CHAT_TEMPLATE: Final = "tokenizer.chat_template"
TEMPLATE_COMMAND: Final = "volumetric export FILE.gguf OUT --web --template"


def facts_of(file: GGUFSource, where: str) -> dict[str, Any]:
    """Return the entries ``metadata``, ``arrays`` and ``tensors`` of a template.

    Raises
    ------
    CheckpointError : a number of the metadata is infinite or NaN
    """
    metadata: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    for key, value in file.metadata.items():
        if not _counts(key, file.metadata):
            continue
        if isinstance(value, LazyStrings):
            arrays[key] = {"type": STRING, "count": len(value), "sha256": hashlib.sha256(value.raw()).hexdigest()}
        elif isinstance(value, np.ndarray):
            kind = SCALAR_NUMBERS[value.dtype]
            arrays[key] = {"type": kind, "count": value.size, "sha256": hashlib.sha256(value.tobytes()).hexdigest()}
        elif isinstance(value, float) and not math.isfinite(value):
            raise CheckpointError(f"{where}: {key} is {value}", hint="the file is damaged: download it again")
        else:
            metadata[key] = value
    tensors = {name: [TYPE_NUMBERS[entry.type], list(entry.shape[::-1])] for name, entry in file.entries.items()}
    return {"metadata": metadata, "arrays": arrays, "tensors": tensors}


def check_facts(template: Mapping[str, Any], file: GGUFSource, where: str) -> None:
    """Check that a file is one that a template was written for.

    Raises
    ------
    CheckpointError : it is not; the message has the first difference
    """
    own = facts_of(file, where)
    fixed = {
        name: hashlib.sha256(file.raw(name).data).hexdigest() for name in template["fixed"] if name in own["tensors"]
    }
    difference = next(_differences(template, {**own, "fixed": fixed}), None)
    if difference is not None:
        name = template["name"] or "another file"
        raise CheckpointError(
            f"{where} does not fit this template, which is for {name}: {difference}",
            hint=f"write a template for it: {TEMPLATE_COMMAND}",
        )


def _differences(template: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for table, what in (("metadata", ""), ("arrays", ""), ("tensors", "tensor "), ("fixed", "tensor ")):
        expected, got = template[table], own[table]
        for key in dict.fromkeys([*expected, *got]):
            if key not in got:
                yield f"it has no {what}{key}"
            elif key not in expected:
                yield f"it has {what}{key}, and the template does not"
            elif got[key] != expected[key]:
                yield f"{what}{key} {_compared(table, got[key], expected[key])}"


def _compared(table: str, got: Any, expected: Any) -> str:
    if table == "metadata":
        return f"is {got!r:.60}, expected {expected!r:.60}"
    if table == "tensors":
        return f"is {_tensor_text(*got)}, expected {_tensor_text(*expected)}"
    if table == "arrays" and got["count"] != expected["count"]:
        return f"has {got['count']} elements, expected {expected['count']}"
    return "has other contents"


def _tensor_text(number: int, shape: list[int]) -> str:
    return f"{GGUF_TYPES[number].name} {'×'.join(map(str, shape))}"


def _counts(key: str, metadata: Mapping[str, Any]) -> bool:
    """Whether a key decides what is computed, or how texts become tokens."""
    starts = f"{metadata.get(_ARCHITECTURE)}.", "tokenizer."
    return key == _ARCHITECTURE or (key.startswith(starts) and not key.startswith(CHAT_TEMPLATE))
