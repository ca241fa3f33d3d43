"""Models with adapters in the calls of their base: the bits of each alone, and no prefix of one for another."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tests.devices import device
from volumetric.base.errors import SpecError
from volumetric.generate import Limits, Model, load
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.jobs import Job
from volumetric.run.adapted_executable import AdaptedExecutable, SharedExecutables
from volumetric.run.device import SequenceRows, output_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
PEFT, TINY = FIXTURES / "peft", FIXTURES / "hf_tiny"
LORA = {"plain": ["plain"], "wide": ["wide"], "both": ["plain:0.5", "wide"]}
"""Of ranks 4 and 8 and other targets; name → adapters."""
PROMPTS = {"": range(3, 27), "plain": range(5, 6), "wide": range(2, 25), "both": range(24, 46)}
"""One row, and lengths that have the pipelines of the jobs below."""


def opened(name: str, dtype: str | None = None, compute: Literal["auto", "float32"] = "float32") -> Model:
    return load(TINY / "llama", device=device(name), dtype=dtype, compute=compute, context=64)


def together(model: Model) -> dict[str, Model]:
    return {"": model} | model.with_batched_adapters(
        {name: [PEFT / one for one in paths] for name, paths in LORA.items()}
    )


def shared_by(model: Model) -> SharedExecutables:
    assert isinstance(model.executable, AdaptedExecutable)
    return model.executable.shared


def rows_of(model: Model, ids: range) -> list[np.ndarray]:
    """Logits of a prompt and of two tokens after it, alone."""
    state = model.executable.new_state()
    found = [model.executable.forward(state, np.array(ids), last_only=False)]
    return found + [model.executable.forward(state, np.array([7 + i])) for i in range(2)]


def mixed_rows(models: dict[str, Model]) -> dict[str, list[np.ndarray]]:
    """The same, in calls of all."""
    states = {name: model.executable.new_state() for name, model in models.items()}
    found: dict[str, list[np.ndarray]] = {name: [] for name in models}
    for step in range(3):
        fed = {name: np.array(PROMPTS[name] if step == 0 else [6 + step]) for name in models}
        wanted = "all" if step == 0 else "last"
        pieces = [SequenceRows(states[name], fed[name], wanted, ("output",)) for name in models]
        for name, made in zip(models, models[""].executable.run(pieces), strict=True):
            found[name].append(output_of(made))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "dtype", "compute"),
    [
        ("reference", None, "float32"),
        ("cpu", None, "float32"),
        ("cpu", "int4:g32", "auto"),
        ("gpu", None, "float32"),
    ],
)
def test_each_row_is_as_its_model_makes_it_alone(
    name: str, dtype: str | None, compute: Literal["auto", "float32"]
) -> None:
    """On the CPU bit for bit, of the base, too, which alone runs another plan."""
    base = opened(name, dtype, compute)
    alone = {"": base} | {key: base.with_adapters([str(PEFT / one) for one in paths]) for key, paths in LORA.items()}
    expected = {key: rows_of(model, PROMPTS[key]) for key, model in alone.items()}
    models = together(opened(name, dtype, compute))
    for found in (mixed_rows(models), mixed_rows(dict(reversed(models.items())))):
        for key, made in found.items():
            for one, right in zip(made, expected[key], strict=True):
                if name == "cpu":
                    np.testing.assert_array_equal(one, right)
                else:
                    np.testing.assert_allclose(one, right, rtol=1e-3, atol=1e-4)
    assert np.abs(expected["wide"][1] - expected["plain"][1]).max() > 0.01


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_weights_are_there_once(name: str) -> None:
    apart = opened(name).executable.memory
    models = together(opened(name))
    one = models["wide"].executable.memory
    assert apart.weights < one.weights < 2 * apart.weights
    assert one == models[""].executable.memory
    assert one.state_per_token == apart.state_per_token
    plain = shared_by(models[""]).plain
    assert plain is not None
    assert plain.memory.weights == apart.weights


def generated(scheduler: Scheduler, jobs: list[Job]) -> list[tuple[int, ...]]:
    tickets = [scheduler.submit(job) for job in jobs]
    for _ in range(200):
        if scheduler.idle:
            break
        scheduler.step()
    assert [ticket.error for ticket in tickets] == [None] * len(jobs)
    return [ticket.generations[0].token_ids for ticket in tickets]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "temperature"),
    [("cpu", 1.0), ("gpu", 0.0), ("gpu", 1.0)],  # a GPU takes its own tokens, by kernels of their own; a CPU does not
)
def test_jobs_of_several_adapters_share_calls_and_no_prefixes(name: str, temperature: float) -> None:
    base = opened(name)
    prompt = list(range(3, 27))
    alone = {"": base} | {key: base.with_adapters([str(PEFT / one) for one in paths]) for key, paths in LORA.items()}
    asked = {"max_tokens": 6, "temperature": temperature, "seed": 5}
    expected = [model.generate(prompt, **asked).token_ids for model in alone.values()]
    models = together(opened(name))
    params = models[""].sampling(**asked)
    scheduler = Scheduler(models[""], Limits(prompt_rows=256))
    jobs = [Job(prompt=prompt, params=params, adapter=key) for key in alone]
    assert generated(scheduler, jobs) == expected
    stats = scheduler.stats
    assert (stats.cached_tokens, stats.rows.count) == (0, 6)  # one call for all prompts, five for all tokens
    assert stats.adapter_jobs == dict.fromkeys(LORA, 1)
    assert stats.adapter_tokens == dict.fromkeys(LORA, 6)
    assert generated(scheduler, jobs[::-1]) == expected[::-1]
    assert scheduler.stats.cached_tokens == 4 * (len(prompt) - 1)
    assert len(set(expected)) > 1


def test_scales_change_in_the_middle_of_a_text() -> None:
    models = together(opened("cpu"))
    one = models["wide"]
    states = [one.executable.new_state() for _ in range(2)]
    for state, model in zip(states, (one, models[""]), strict=True):
        model.executable.forward(state, np.array([3, 4, 5]))
    loop = one.executable.greedy(states[:1], [6])
    first = next(loop)
    one.set_adapter("wide", -2.0)
    second = next(loop)
    loop.close()
    again = one.with_adapters([(PEFT / "wide", 1.0)])
    state = again.executable.new_state()
    again.executable.forward(state, np.array([3, 4, 5]))
    assert int(again.executable.forward(state, np.array([6])).argmax()) == first[0]
    again.set_adapter("wide", -2.0)
    assert int(again.executable.forward(state, np.array(first)).argmax()) == second[0]
    assert dict(one.adapters) == {"wide": -2.0}
    assert states[0].position == 5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "order"), [("cpu", ["", "plain", "wide", "both"]), ("gpu", ["both", "", "wide", "plain"])]
)
def test_models_are_closed_in_any_order(name: str, order: list[str]) -> None:
    models = together(opened(name))
    expected = rows_of(models[order[-1]], PROMPTS["plain"])[-1]
    for key in order[:-1]:
        models[key].close()
        models[key].close()
    np.testing.assert_array_equal(rows_of(models[order[-1]], PROMPTS["plain"])[-1], expected)
    models[order[-1]].close()


def test_an_adapter_that_replaces_modules_has_its_own_calls() -> None:
    base = opened("cpu")
    models = base.with_batched_adapters({"saved": PEFT / "saved", "wide": PEFT / "wide"})
    alone = opened("cpu").with_adapters(PEFT / "saved")
    np.testing.assert_array_equal(models["saved"].logits([3, 4, 5]), alone.logits([3, 4, 5]))
    assert [*shared_by(base).scales] == ["", "wide"]


def test_wrong_adapters_are_named() -> None:
    base = opened("cpu")
    job = Job(prompt=[3], params=base.sampling(), adapter="poet")
    with pytest.raises(SpecError, match="no adapter 'poet'"):
        Scheduler(base).submit(job)
    with pytest.raises(SpecError, match="name of a model with adapters is empty"):
        base.with_batched_adapters({"": PEFT / "plain"})
    base.with_batched_adapters({"plain": PEFT / "plain"})
    with pytest.raises(SpecError, match="no adapter 'poet'") as caught:
        Scheduler(base).submit(job)
    assert caught.value.hint == "loaded: plain"
    with pytest.raises(SpecError, match="already has adapters"):
        base.with_batched_adapters({"wide": PEFT / "wide"})
