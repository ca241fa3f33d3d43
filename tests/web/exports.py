"""What exported networks compute, against what the reference device does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.web.export_contents import ExportContents
from volumetric.web.opened_template import opened_template


def greatest_error(got: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest expected number."""
    expected = np.asarray(expected, np.float64).reshape(-1)
    return float(np.abs(got.reshape(-1) - expected).max() / max(np.abs(expected).max(), 1e-30))


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return network.json of an export."""
    return json.loads((folder / "network.json").read_text("utf-8"))


def buffers_of(folder: Path, gguf: Path | None = None) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield names and first contents of the buffers of all variants, in order."""
    manifest = manifest_of(folder)
    contents = ExportContents(folder, manifest["pieces"], opened_template(manifest, gguf))
    for variant in manifest["variants"]:
        for described in variant["buffers"]:
            yield described["name"], contents.of(described)
