"""A Vulkan driver that Dawn takes: that of the system, or a newer llvmpipe that ``make drivers`` has unpacked.

Dawn refuses the llvmpipe of Debian 12. Tests of Dawn run in processes of their own, whose environment names the driver.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from volumetric.devices.gpu.webgpu.webgpu_implementation import VARIABLE

ROOT = Path(__file__).parents[2]
REQUIRED = "VOLUMETRIC_REQUIRE_DAWN"
UNPACKED = Path(sys.prefix) / "lavapipe" / "lvp_icd.json"
_PROBE = "from volumetric.devices.gpu import GpuDevice; print(GpuDevice().info.details['webgpu'])"


@cache
def environment() -> dict[str, str] | None:
    """Return the variables with which Dawn opens a GPU here; None if it opens none."""
    drivers = [{}, *([{"VK_DRIVER_FILES": str(UNPACKED)}] if UNPACKED.is_file() else [])]
    for driver in drivers:
        variables = {**os.environ, **driver, VARIABLE: "dawn"}
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
        )
        if probe.returncode == 0 and probe.stdout.startswith("dawn"):
            return variables
    return None


def environment_or_skip() -> dict[str, str]:
    """Return the variables, or skip a test unless ``$VOLUMETRIC_REQUIRE_DAWN`` demands it."""
    why = "wgpudawn is not installed"
    if importlib.util.find_spec("wgpudawn") is not None:
        variables = environment()
        if variables is not None:
            return variables
        why = "Dawn takes no Vulkan driver of this machine"
    if os.environ.get(REQUIRED):
        pytest.fail(why)
    pytest.skip(f"{why}; {REQUIRED}=1 demands it")
