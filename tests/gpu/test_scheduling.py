"""The scheduler on a GPU: prefixes share pages, and tokens are those of the prompt alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.generate.letters import deep_letters
from volumetric.devices.gpu import GpuDevice
from volumetric.generate import Job, Limits, Scheduler
from volumetric.layers import MultiHeadAttention


@pytest.mark.thorough
def test_kept_prefixes_share_pages_and_change_no_token(native_device: GpuDevice):
    random = np.random.default_rng(1)
    shared = random.integers(0, 8, 70).tolist()
    with deep_letters(native_device, MultiHeadAttention(embed_dim=8, num_heads=2), context=128) as model:
        scheduler = Scheduler(model, Limits(slots=3, ahead=4))
        rest: dict[str, Any] = {"max_tokens": 6, "ignore_eos": True}
        kinds: list[dict[str, Any]] = [{}, {"temperature": 1.0, "seed": 3}, {"repetition_penalty": 1.2}]
        jobs = [
            Job(prompt=[*shared, *random.integers(0, 8, 1 + i).tolist()], params=model.sampling(**rest, **kinds[i % 3]))
            for i in range(6)
        ]
        tickets = [scheduler.submit(job) for job in jobs]
        while not scheduler.idle:
            scheduler.step()
        for job, ticket in zip(jobs, tickets, strict=True):
            assert ticket.error is None
            assert ticket.generations[0].token_ids == model.generate(list(job.prompt), job.params).token_ids
        assert scheduler.stats.cached_tokens >= 70 * 5
        scheduler.close()
