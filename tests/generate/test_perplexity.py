"""Perplexity against its definition, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import volumetric
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.jobs import Job
from volumetric.generate.scheduling.limits import Limits

LLAMA = Path(__file__).parents[1] / "fixtures" / "hf_tiny" / "llama"
IDS = [5, 80, 33, 7, 9, 41, 12, 60, 2, 5, 5]


@pytest.fixture(scope="module")
def model():
    with volumetric.load(LLAMA, device="reference", context=16) as opened:
        yield opened


def losses(model: volumetric.Model, ids: list[int]) -> list[float]:
    logits = model.logits(ids[:-1]).astype(np.float64)
    return [math.log(np.exp(row).sum()) - row[token] for row, token in zip(logits, ids[1:], strict=True)]


@pytest.mark.parametrize("window", [None, 4, 5, 10])
def test_it_is_the_exponential_of_the_mean_loss(model, window) -> None:
    size = window or len(IDS)
    parts = [IDS[at : at + size] for at in range(0, len(IDS), size)]
    expected = [loss for part in parts if len(part) > 1 for loss in losses(model, part)]
    got = model.perplexity(IDS, window=window)
    assert got.tokens == len(expected)
    assert got.value == pytest.approx(math.exp(np.mean(expected)), rel=1e-5)
    assert got.error == pytest.approx(np.std(expected, ddof=1) / math.sqrt(len(expected)), rel=1e-4)


def test_a_long_text_goes_window_by_window(model) -> None:
    assert model.perplexity(IDS * 5).tokens == 55 - 4  # the context holds 16: four windows, each without its first


@pytest.mark.parametrize(("window", "stride"), [(4, 1), (4, 3), (5, 2), (16, 7), (10, 10), (11, 3)])
def test_overlapping_windows_count_each_token_once(model, window, stride) -> None:
    expected = []
    for i in range(1, len(IDS)):
        starts = [start for start in range(0, len(IDS), stride) if start < i < start + window]
        if starts:
            expected.append(losses(model, IDS[starts[0] : i + 1])[-1])
    got = model.perplexity(IDS, window=window, stride=stride)
    assert got.tokens == len(expected)
    assert got.mean == pytest.approx(np.mean(expected), rel=1e-5)


@pytest.mark.parametrize("stride", [0, -1, 5])
def test_strides_leave_no_token_out(model, stride) -> None:
    with pytest.raises(SpecError, match="stride must be 1 to 4"):
        model.perplexity(IDS, window=4, stride=stride)


def test_two_tokens_are_enough_and_one_is_not(model) -> None:
    pair = model.perplexity(IDS[:2])
    assert pair.tokens == 1
    assert math.isnan(pair.error)
    with pytest.raises(GenerationError, match="2 tokens or more"):
        model.perplexity(IDS[:1])


@pytest.mark.parametrize("window", [1, 17, -3])
def test_windows_fit_the_context(model, window) -> None:
    with pytest.raises(SpecError, match="window must be 2 to 16"):
        model.perplexity(IDS, window=window)


def test_windows_that_are_computed_together_are_those_alone() -> None:
    with volumetric.load(LLAMA, device="cpu", context=16) as model:
        text = IDS * 7
        alone = [model.perplexity(text[at : at + 5]).mean for at in range(0, len(text), 5)]
        sizes = [len(text[at : at + 5]) - 1 for at in range(0, len(text), 5)]
        assert model.perplexity(text, window=5).mean == pytest.approx(np.average(alone, weights=sizes), rel=1e-6)


def test_a_target_is_needed_for_each_token() -> None:
    with volumetric.load(LLAMA, device="reference", context=16) as model:
        with pytest.raises(SpecError, match="a prompt of 3 tokens needs as many targets, got 2"):
            Scheduler(model).submit(Job(prompt=[1, 2, 3], params=model.sampling(), targets=[2, 3]))
        scheduler = Scheduler(model)
        ticket = scheduler.submit(Job(prompt=IDS[:-1], params=model.sampling(max_tokens=3), targets=IDS[1:]))
        while not ticket.ended:
            scheduler.step()
        assert np.allclose(ticket.transcripts[0].likelihoods, [-loss for loss in losses(model, IDS)], atol=1e-5)
        assert ticket.generations[0].token_ids == model.generate(IDS[:-1], max_tokens=3).token_ids
        scheduler = Scheduler(model, Limits(prompt_rows=2))
        ticket = scheduler.submit(Job(prompt=IDS[:-1], params=model.sampling(max_tokens=1), targets=IDS[1:], tops=2))
        while not ticket.ended:
            scheduler.step()
        found = ticket.generations[0]
        assert np.allclose(found.likelihoods or (), [-loss for loss in losses(model, IDS)], atol=1e-5)
        best = [tuple(np.argsort(-row, kind="stable")[:2]) for row in model.logits(IDS[:-1])]
        assert [tuple(i for i, _ in row) for row in found.likeliest or ()] == best
