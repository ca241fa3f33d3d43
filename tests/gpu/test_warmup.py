"""``warmup`` compiles on a GPU what prompts of any length need, of mixtures of experts too."""

from __future__ import annotations

from pathlib import Path

import pytest

import volumetric
from volumetric.cli.warmup import prepare
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.open_gpu import OpenGpu

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


@pytest.mark.thorough
def test_no_prompt_compiles_more() -> None:
    with volumetric.load(TINY / "mixtral", device="gpu", context=6) as model:
        prepare(model)
        assert isinstance(model.executable, GpuExecutable)
        assert isinstance(model.executable.context, OpenGpu)
        compiled = model.executable.context._pipelines
        before = set(compiled)
        for rows in (1, 2, 3, 4):
            model.logits([0] * rows)
        model.generate([0] * 3, max_tokens=3, temperature=0.0)
        assert set(compiled) == before
