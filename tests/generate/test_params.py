"""Sampling parameters: validation, precedence, provenance."""

from __future__ import annotations

import logging
import math
from dataclasses import fields
from typing import Any

import pytest

from volumetric.base.errors import SpecError
from volumetric.generate.params import ALIASES, SamplingParams, merge
from volumetric.loaders.generation_config import GenerationDefaults


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.5),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_window", -2),
        ("presence_penalty", math.inf),
        ("frequency_penalty", math.nan),
        ("seed", -2),
        ("stop", ("",)),
        ("stop", ""),
        ("stop", 3),
        ("stop_ids", (-1,)),
        ("stop_ids", "12"),
        ("ignore_eos", 1),
        ("logit_bias", {"x": 1.0}),
        ("logit_bias", {3: math.nan}),
        ("logit_bias", {3: math.inf}),
        ("logit_bias", [1, 2]),
        ("logprobs", -1),
    ],
)
def test_bad_value_is_named(name, bad):
    with pytest.raises(SpecError, match=name):
        SamplingParams(**{name: bad})


def test_all_problems_are_listed_at_once():
    with pytest.raises(SpecError, match=r"temperature.*top_p"):
        SamplingParams(temperature=-1, top_p=7)


def test_seed_minus_one_is_a_fresh_seed():
    assert SamplingParams(seed=-1) == SamplingParams()


def test_values_are_normalised():
    loose: dict[str, Any] = {"stop": "end", "stop_ids": [1, 2], "logit_bias": {"7": -math.inf, 8: 1}}
    params = SamplingParams(**loose)
    assert params.stop == ("end",)
    assert params.stop_ids == (1, 2)
    assert dict(params.logit_bias) == {7: -math.inf, 8: 1.0}


def test_greedy_is_the_default():
    merged = merge(None, {})
    assert merged.params == SamplingParams()
    assert merged.params.plain_greedy
    assert set(merged.sources.values()) == {"default"}
    assert set(merged.sources) == {f.name for f in fields(SamplingParams)}


def test_a_bad_value_of_the_generation_config_is_told_from_ones_own():
    with pytest.raises(SpecError, match=r"generation config: .*max_tokens"):
        merge(GenerationDefaults(max_new_tokens=0), {})
    with pytest.raises(SpecError, match=r"^sampling parameters: max_tokens"):
        merge(GenerationDefaults(max_new_tokens=5), {"max_tokens": 0})


def test_generation_config_shapes_the_draw_only_when_it_samples():
    silent = merge(GenerationDefaults(do_sample=False, temperature=0.6, top_p=0.9), {})
    assert silent.params.temperature == 0.0
    greedy = merge(GenerationDefaults(repetition_penalty=1.3, max_new_tokens=7, min_p=0.2, top_k=3), {})
    assert (greedy.params.repetition_penalty, greedy.params.max_tokens) == (1.3, 7)
    assert (greedy.params.temperature, greedy.params.min_p, greedy.params.top_k) == (0.0, 0.0, 0)
    assert (greedy.sources["max_tokens"], greedy.sources["top_k"]) == ("generation_config", "default")
    sampled = merge(GenerationDefaults(do_sample=True, temperature=0.6, top_p=0.9), {})
    assert (sampled.params.temperature, sampled.params.top_p) == (0.6, 0.9)
    assert sampled.sources["top_p"] == "generation_config"
    assert sampled.sources["top_k"] == "default"


def test_sampling_config_without_temperature_means_one():
    assert merge(GenerationDefaults(do_sample=True, top_k=50), {}).params.temperature == 1.0


def test_explicit_wins_and_none_means_not_given():
    merged = merge(GenerationDefaults(do_sample=True, temperature=0.6, top_k=20), {"temperature": 0.0, "top_k": None})
    assert merged.params.temperature == 0.0
    assert merged.sources["temperature"] == "explicit"
    assert merged.params.top_k == 20
    assert "temperature=0.0 (explicit)" in str(merged)
    assert "top_k=20 (generation_config)" in str(merged)


@pytest.mark.parametrize(("name", "hint"), [("max_new_tokens", "max_tokens"), ("temprature", "temperature")])
def test_unknown_name_suggests_the_known_one(name, hint):
    with pytest.raises(SpecError, match=name) as caught:
        merge(None, {name: 1})
    assert caught.value.hint == f"did you mean {hint!r}?"


def test_every_alias_leads_to_a_parameter():
    known = {f.name for f in fields(SamplingParams)}
    assert set(ALIASES.values()) <= known
    assert not set(ALIASES) & known


def test_filters_without_temperature_are_reported(caplog):
    with caplog.at_level(logging.WARNING, logger="volumetric"):
        merge(None, {"top_k": 40})
    assert "top_k: no effect at temperature 0" in caplog.text


def test_end_ids_are_a_union_unless_ignored():
    assert SamplingParams(stop_ids=(5,)).end_ids((1, 2)) == {1, 2, 5}
    assert SamplingParams(stop_ids=(5,), ignore_eos=True).end_ids((1, 2)) == {5}


@pytest.mark.parametrize(
    ("change", "plain"),
    [
        ({}, True),
        ({"seed": 3, "top_k": 5}, True),
        ({"temperature": 0.1}, False),
        ({"logit_bias": {1: 1.0}}, False),
        ({"repetition_penalty": 1.1}, False),
        ({"repetition_penalty": 1.1, "repetition_window": 0}, True),
        ({"presence_penalty": 0.5}, False),
        ({"frequency_penalty": -0.5}, False),
        ({"logprobs": 0}, False),
    ],
)
def test_plain_greedy(change, plain):
    assert SamplingParams(**change).plain_greedy is plain
