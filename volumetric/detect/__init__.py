"""The universal loader: what weights without a configuration are, by their names and shapes, and networks of them.

`detect` looks, `open_guessed` mounts. docs/universal_loader.md says what is evidence for what, and what is asked for.
"""

from __future__ import annotations

from volumetric.detect.assumptions import Assumptions, read_assumptions
from volumetric.detect.detection import Detection, detect
from volumetric.detect.findings import Certainty, Finding

__all__ = ["Assumptions", "Certainty", "Detection", "Finding", "detect", "read_assumptions"]
