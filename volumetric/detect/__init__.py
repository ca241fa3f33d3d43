"""The universal loader: what weights without a configuration are, by their names and shapes, and networks of them.

`detect` looks, `opening` mounts. docs/universal_loader.md says what is evidence for what, and what is asked for.
"""

from __future__ import annotations

from volumetric.detect.assumptions import Assumptions, read_assumptions
from volumetric.detect.detection import Detection, detect
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.opening import detect_model

__all__ = ["Assumptions", "Certainty", "Detection", "Finding", "detect", "detect_model", "read_assumptions"]
