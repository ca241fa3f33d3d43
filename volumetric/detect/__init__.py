"""The universal loader: recognises weights without a configuration by names and shapes, and builds their network.

`detect` recognises, `opening` opens. docs/universal_loader.md lists the evidence, and the values that the user must
give.
"""

from __future__ import annotations

from volumetric.detect.assumptions import Assumptions, read_assumptions
from volumetric.detect.detection import Detection, detect
from volumetric.detect.findings import Certainty, Finding
from volumetric.detect.load_state import load_state
from volumetric.detect.open_unconfigured import detect_model

__all__ = [
    "Assumptions",
    "Certainty",
    "Detection",
    "Finding",
    "detect",
    "detect_model",
    "load_state",
    "read_assumptions",
]
