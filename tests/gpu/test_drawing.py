"""Tokens drawn on a GPU are those that the host draws from the same logits with the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest

from tests.gpu.harness import Kernel, aligned
from tests.networks import tiny_llama
from volumetric import Params, WeightStore
from volumetric.base.errors import GenerationError, UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.command_list import entry
from volumetric.devices.gpu.draw_plans import UNCERTAIN, DrawnRow, draw_kinds, pick_entries
from volumetric.devices.gpu.draw_plans import DrawPlans as Rows
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.kernels import elementwise, token_draw
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import DeviceChooser, Sampler, draw_together
from volumetric.network import OUTPUT, initialise
from volumetric.run import RunOptions, lower
from volumetric.run.device import LogitAdjustments, SequenceRows, TokenSampler, output_of

CHOICES: Sequence[dict[str, Any]] = [
    {"temperature": 0.8},
    {"temperature": 0.0},
    {"temperature": 1.0, "top_p": 0.95},
    {"temperature": 0.3, "top_p": 0.5, "min_p": 0.1},
    {"temperature": 1.7, "top_p": 0.1},
    {"temperature": 1.0, "top_k": 40},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.8},
    {"temperature": 1.3, "top_k": 200, "top_p": 0.99, "min_p": 0.01},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 2.0, "min_p": 0.2},
    {"temperature": 0.01, "top_p": 0.999},
    {"temperature": 100.0, "top_p": 0.9},
]


def params_of(choice: dict[str, Any], seed: int) -> SamplingParams:
    return SamplingParams(**choice, seed=seed if choice["temperature"] else None)


def on_device(kernel: Kernel, logits: np.ndarray, samplers: Sequence[Sampler]) -> list[int]:
    """Draw one token for each row; rows that are left to the host must have their logits kept."""
    rows, width = logits.shape
    draws = Rows(kernel.context, width, rows)
    drawn = [draws.row_of_call(sampler.chooser) for sampler in samplers]
    draws.make(rows, sum(len(row.changes) for row in drawn))
    for number, row in enumerate(drawn):
        row.write_randoms(3 * number)
    draws.write_rows(drawn)
    control, counts = kernel.call([SequenceSpan(0, 3 * number, 1) for number in range(rows)])
    tokens = kernel.array(np.zeros(rows, np.uint32))
    buffers = {
        **draws.buffers,
        "x": kernel.array(aligned(logits)),
        "winners": kernel.empty(rows * elementwise.ARGMAX_GROUPS, 2),
        "token": tokens,
        "control": control,
    }
    entries = pick_entries(width, draw_kinds(drawn), {name: name for name in ("x", "winners", "token")}, "control")
    kernel.context.run(kernel.context.bind_all(entries, buffers), counts)
    found = kernel.context.read(tokens, 4 * rows).view(np.uint32).tolist()
    assert kernel.context.read(control, 4 * (61 + 4 * rows)).view(np.uint32)[60::4][:rows].tolist() == [
        3 * number + 1 for number in range(rows)
    ]
    for number, token in enumerate(found):
        if token == UNCERTAIN:
            assert np.array_equal(draws.host_logits([number])[number], logits[number])
    draws.close()
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("width", [97, 5003])
def test_draws_are_those_of_the_host(native_kernel: Kernel, rng: np.random.Generator, width: int) -> None:
    count, certain = len(CHOICES), 0
    for trial, scale in enumerate((0.5, 2.0, 6.0)):
        logits = (rng.standard_normal((count, width)) * scale).astype(np.float32)
        if trial == 1:
            logits[rng.random(logits.shape) < 0.3] = -np.inf
            logits[:, width // 2] = 0.0
        params = [params_of(choice, 100 * trial + place) for place, choice in enumerate(CHOICES)]
        found = on_device(native_kernel, logits, [Sampler(one) for one in params])
        drawn = draw_together([Sampler(one) for one in params], list(logits))
        for number, (token, draw) in enumerate(zip(found, drawn, strict=True)):
            assert not isinstance(draw, GenerationError)
            assert token in (draw.token, UNCERTAIN), params[number]
            certain += token != UNCERTAIN
    assert certain > 0.95 * 3 * count


@pytest.mark.thorough
def test_ties_are_cut_as_the_host_cuts_them_or_left_to_it(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Equal scores at the cut: the first ones are drawn from. Where all are equal, the host must say which."""
    logits = np.round(rng.standard_normal((len(CHOICES), 97)) * 8).astype(np.float32) / 4
    logits[0] = 0.0
    params = [params_of(choice, place) for place, choice in enumerate(CHOICES)]
    for _ in range(2):
        found = on_device(native_kernel, logits, [Sampler(one) for one in params])
        drawn = draw_together([Sampler(one) for one in params], list(logits))
        for token, draw in zip(found, drawn, strict=True):
            assert not isinstance(draw, GenerationError)
            assert token in (draw.token, UNCERTAIN)
        assert found.count(UNCERTAIN) <= 2
        logits[:] = np.roll(logits, 17, axis=1)


def test_a_number_at_a_border_is_left_to_the_host(native_kernel: Kernel) -> None:
    """Two tokens of equal weight, and a number in the middle: float64 decides, and the sums of the GPU do not."""
    sampler = Sampler(SamplingParams(temperature=1.0, seed=0))
    assert sampler.chooser is not None
    draws = Rows(native_kernel.context, 2, 1)
    row = DrawnRow(draws.row(sampler.chooser).plan, None)
    for value, expected in ((0.5, UNCERTAIN), (0.5 - 1e-8, 0), (0.5 + 1e-8, 1), (0.0, UNCERTAIN), (1e-6, 0)):
        row.ring[:] = token_draw.numbers([value])
        draws.make(1)
        draws.write_rows([row])
        control, counts = native_kernel.call([SequenceSpan(0, 0, 1)])
        tokens = native_kernel.array(np.zeros(1, np.uint32))
        names = {name: name for name in ("x", "winners", "token")}
        x, winners = (
            native_kernel.array(np.zeros((1, 4), np.float32)),
            native_kernel.empty(elementwise.ARGMAX_GROUPS, 2),
        )
        buffers = {**draws.buffers, "x": x, "winners": winners, "token": tokens, "control": control}
        calls = native_kernel.context.bind_all(pick_entries(2, draw_kinds([row]), names, "control"), buffers)
        native_kernel.context.run(calls, counts)
        assert native_kernel.context.read(tokens, 4).view(np.uint32).item() == expected, value
        draws.close()


PENALTIES: Sequence[dict[str, Any]] = [
    {"temperature": 0.0, "repetition_penalty": 1.7},
    {"temperature": 0.0, "logit_bias": {3: 2.5, 96: -100.0, 11: 4.0}},
    {"temperature": 0.9, "presence_penalty": 0.3, "frequency_penalty": 0.7},
    {"temperature": 1.0, "top_p": 0.9, "repetition_penalty": 1.3, "repetition_window": 5},
    {"temperature": 1.0, "top_k": 20, "frequency_penalty": -0.4, "logit_bias": {7: 1.0, 90: 3.0}},
    {"temperature": 0.7, "min_p": 0.1, "repetition_penalty": 0.8, "presence_penalty": 0.1, "logit_bias": {1: -1.5}},
    {"temperature": 1.0},
    {"temperature": 0.0},
]


@pytest.mark.thorough
def test_draws_after_bias_and_penalties_are_those_of_the_host(native_kernel: Kernel, rng: np.random.Generator) -> None:
    """Over several tokens: each changes the next scores. Among the logits are zeros, subnormals and infinities."""
    prompt, width = [5, 9, 5, 60, 2, 2, 2, 71], 97
    params = [params_of(choice, place) for place, choice in enumerate(PENALTIES)]
    here, there = ([Sampler(one, prompt) for one in params] for _ in range(2))
    certain = 0
    for _ in range(12):
        logits = (rng.standard_normal((len(params), width)) * 2).astype(np.float32)
        logits[:, 60], logits[:, 2], logits[:, 5], logits[:, 71] = 0.0, 1e-40, -np.inf, -3e-39
        found = on_device(native_kernel, logits, here)
        drawn = draw_together(there, list(logits))
        for number, (token, draw) in enumerate(zip(found, drawn, strict=True)):
            assert not isinstance(draw, GenerationError)
            assert token in (draw.token, UNCERTAIN), params[number]
            certain += token != UNCERTAIN
            chooser = here[number].chooser
            if token == UNCERTAIN:
                assert here[number].draw(logits[number]) == draw
            elif chooser is not None:
                chooser.record_token(token)
    assert certain > 0.9 * 12 * len(params)


@pytest.mark.parametrize("op", ["bias", "penalty", "less"])
def test_changed_scores_have_the_bits_of_float32(native_kernel: Kernel, rng: np.random.Generator, op: str) -> None:
    """All scores of a row change, subnormals and large ones among them; bits are compared with NumPy's."""
    width = 256
    x = rng.integers(0, 2**32, width, np.uint32).view(np.float32)
    x[~np.isfinite(x)] = 1.5
    other = np.float32({"bias": -0.3, "penalty": 1.37, "less": 0.1}[op])
    with np.errstate(all="ignore"):
        expected = {
            "bias": x + other,
            "penalty": np.where(x > 0, x / other, x * other),
            "less": x - other,
        }[op].astype(np.float32)
    none = np.zeros(width, np.float32)
    changes = LogitAdjustments(
        ids=np.arange(width, dtype=np.int32),
        bias=none + other if op == "bias" else none,
        recent=np.full(width, op == "penalty"),
        less=none + other if op == "less" else none,
        repetition=float(other),
    )
    sampler = Sampler(SamplingParams(logit_bias={0: 1.0}))
    chooser = sampler.chooser
    assert isinstance(chooser, DeviceChooser)
    chooser.adjustments = lambda: changes
    draws = Rows(native_kernel.context, width, 1)
    row = draws.row_of_call(chooser)
    draws.make(1, width)
    draws.write_rows([row])
    scores = native_kernel.array(aligned(x[None]))
    buffers = {**draws.buffers, "x": scores}
    adjust = entry(token_draw.adjust(width), {name: name for name in ("x", "plans", "changes")})
    native_kernel.context.run(
        native_kernel.context.bind_all([adjust], buffers), native_kernel.call([SequenceSpan(0, 0, 1)])[1]
    )
    found = native_kernel.context.read(scores, 4 * width).view(np.float32)
    np.testing.assert_array_equal(found, expected)
    draws.close()


def test_why_changed_scores_allow_no_choice_is_told_by_the_host(native_kernel: Kernel) -> None:
    logits = np.zeros((2, 40), np.float32)
    logits[0, 3] = np.nan
    logits[1] = -np.inf
    samplers = [Sampler(SamplingParams(temperature=1.0, seed=0, logit_bias={1: 1.0})) for _ in range(2)]
    assert on_device(native_kernel, logits[1:], samplers[1:]) == [UNCERTAIN]
    assert on_device(native_kernel, np.full((1, 40), np.inf, np.float32), samplers[:1]) == [UNCERTAIN]


@pytest.mark.thorough
def test_logits_that_allow_no_choice_are_told(native_kernel: Kernel) -> None:
    logits = np.zeros((3, 40), np.float32)
    logits[0, 3], logits[1, 5] = np.nan, np.inf
    logits[2] = -np.inf
    samplers = [Sampler(SamplingParams(temperature=1.0, seed=0, top_p=0.9)) for _ in range(3)]
    assert on_device(native_kernel, logits, samplers) == [0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD]


def test_what_the_fixed_point_does_not_hold_is_the_hosts() -> None:
    def plan(**more: Any) -> object:
        return token_draw.plan(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "width": 1000} | more)

    assert plan() is not None
    assert plan(top_k=5000) is not None  # more than there are: off
    assert plan(temperature=1e-3) is None
    assert plan(temperature=1e3) is None
    assert plan(top_k=600) is None
    weights = -np.log(np.array([0.3, 0.05, 0.9]))
    for weight, depth in zip((0.3, 0.05, 0.9), weights, strict=True):
        words = token_draw.plan(temperature=1.0, top_k=0, top_p=1.0, min_p=weight, width=1000)
        assert words is not None
        deepest = words[7:8].view(np.float32).item()
        assert abs(deepest - depth) < 1e-6 * depth
        assert np.exp(-deepest) >= weight > np.exp(-float(np.nextafter(np.float32(deepest), np.float32(np.inf))))


def executable_of(device: GpuDevice, *, zero: bool = False) -> GpuExecutable:
    network = tiny_llama()
    params = initialise(network, 21)
    if zero:  # all tokens equally likely: nothing that top-p could be certain of
        params = Params({key: WeightStore.from_array(np.zeros(params[key].shape, np.float32)) for key in params})
    return device.compile(lower(network), params, RunOptions(context=220))


def prefilled(executable: GpuExecutable, count: int) -> list[Any]:
    states = [executable.new_state() for _ in range(count)]
    for number, state in enumerate(states):
        tokens = np.random.default_rng(number).integers(0, 97, 5 + number).astype(np.int32)
        executable.forward(state, tokens)
    return states


def by_host(executable: GpuExecutable, params: Sequence[SamplingParams], count: int) -> list[list[int]]:
    states, samplers, tokens, found = prefilled(executable, len(params)), [Sampler(one) for one in params], [], []
    tokens = [5] * len(params)
    for _ in range(count):
        pieces = [
            SequenceRows(s, np.array([t], np.int32), "last", (OUTPUT,)) for s, t in zip(states, tokens, strict=True)
        ]
        logits = [output_of(rows)[-1] for rows in executable.run(pieces)]
        tokens = [sampler.draw(row).token for sampler, row in zip(samplers, logits, strict=True)]
        found.append(tokens)
    return found


@pytest.mark.thorough
def test_a_loop_of_draws_is_run_and_draw(native_device: GpuDevice) -> None:
    """Longer than the numbers that are sent at once, stopped and gone on with in the middle."""
    executable = executable_of(native_device)
    params = [params_of(choice, place) for place, choice in enumerate(CHOICES[:6])]
    expected = by_host(executable, params, 75)
    states, samplers, tokens = prefilled(executable, len(params)), [Sampler(one) for one in params], [5] * len(params)
    found = []
    for steps in (1, 70, 4):
        loop = executable.sample_loop(states, tokens, [sampler.chooser for sampler in samplers])
        found += [next(loop) for _ in range(steps)]
        loop.close()
        tokens = found[-1]
    assert found == expected
    assert [state.position for state in states] == [80 + number for number in range(len(params))]


@pytest.mark.thorough
def test_tokens_that_the_host_must_draw_come_in_their_place(native_device: GpuDevice) -> None:
    executable = executable_of(native_device, zero=True)
    params = [SamplingParams(temperature=1.0, top_p=0.5, seed=place) for place in range(2)] + [SamplingParams()]
    samplers = [Sampler(one) for one in params]
    loop = executable.sample_loop(prefilled(executable, 3), [5] * 3, [sampler.chooser for sampler in samplers])
    assert [next(loop) for _ in range(6)] == by_host(executable, params, 6)
    loop.close()


def test_an_executable_tells_what_it_cannot_draw(native_device: GpuDevice) -> None:
    executable = executable_of(native_device)
    hot = Sampler(SamplingParams(temperature=1e5, seed=0)).chooser
    assert executable.can_sample([None, Sampler(SamplingParams(temperature=1.0, seed=0)).chooser])
    assert not executable.can_sample([None, hot])
    penalised = Sampler(SamplingParams(temperature=1.0, seed=0, presence_penalty=1.0)).chooser
    assert penalised is not None
    assert not executable.can_sample([penalised])
    assert Sampler(SamplingParams(temperature=1.0, seed=0, logprobs=1)).chooser is None
    with pytest.raises(UnsupportedError, match="cannot sample"):
        executable.sample_loop([executable.new_state()], [1], [hot])


@pytest.mark.thorough
def test_tokens_of_prompts_beside_sequences_that_decode(native_device: GpuDevice) -> None:
    """One call with all: a prompt, a piece of one, sequences, and rows whose logits are asked for."""
    executable = executable_of(native_device)
    tokens = np.random.default_rng(2).integers(0, 97, 40).astype(np.int32)
    wants: list[tuple[int, Literal["last", "none"], SamplingParams]] = [
        (1, "last", SamplingParams(temperature=1.0, seed=1, top_p=0.9)),
        (1, "last", SamplingParams()),
        (1, "last", SamplingParams(temperature=1.0, seed=2, logprobs=1)),
        (17, "last", SamplingParams(temperature=0.9, seed=3, top_k=20)),
        (23, "none", SamplingParams(temperature=0.9, seed=4)),
        (9, "last", SamplingParams(temperature=1e4, seed=5)),
    ]

    def pieces() -> list[SequenceRows]:
        states = prefilled(executable, len(wants))
        pairs = zip(states, wants, strict=True)
        return [SequenceRows(state, tokens[:rows], wanted, (OUTPUT,)) for state, (rows, wanted, _) in pairs]

    logits = [output_of(found) for found in executable.run(pieces())]
    samplers = [Sampler(params) for _, _, params in wants]
    choosers: list[TokenSampler | Literal["logits"] | None] = [
        None if sampler.params.plain_greedy else sampler.chooser or "logits" for sampler in samplers
    ]
    assert executable.can_pick
    fed = pieces()
    found = executable.sample(fed, choosers)
    assert [piece.state.position for piece in fed] == [5 + i + rows for i, (rows, _, _) in enumerate(wants)]
    assert found[4] is None
    for place in (2, 5):
        np.testing.assert_array_equal(found[place], logits[place][-1])
    for place in (0, 1, 3):
        assert found[place] == Sampler(wants[place][2]).draw(logits[place][-1]).token
    following = np.zeros(97, np.float32)
    assert samplers[0].draw(following) != Sampler(wants[0][2]).draw(following)  # a number was used
    assert samplers[4].draw(following) == Sampler(wants[4][2]).draw(following)


@pytest.mark.thorough
def test_sequences_with_penalties_bring_tokens_and_no_logits(
    native_device: GpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Call by call, as the scheduler does; more scores change than there was room for at first."""
    executable = executable_of(native_device)
    params = [params_of(choice, place) for place, choice in enumerate(PENALTIES[:6])]
    expected = by_host(executable, params, 12)
    left: list[int] = []
    monkeypatch.setattr(Rows, "host_logits", lambda _, rows: left.extend(rows) or {})
    states, samplers, tokens, found = prefilled(executable, len(params)), [Sampler(one) for one in params], [], []
    tokens = [5] * len(params)
    for _ in range(12):
        pieces = [
            SequenceRows(s, np.array([t], np.int32), "last", (OUTPUT,)) for s, t in zip(states, tokens, strict=True)
        ]
        tokens = executable.sample(pieces, [sampler.chooser for sampler in samplers])
        found.append(tokens)
    assert found == expected
    assert not left


def test_logits_that_allow_no_choice_are_the_error_of_their_piece(native_device: GpuDevice) -> None:
    network = tiny_llama()
    broken = {
        key: WeightStore.from_array(np.full(store.shape, np.nan, np.float32)) if key.startswith("3.0.0") else store
        for key, store in initialise(network, 21).items()
    }
    executable = native_device.compile(lower(network), Params(broken), RunOptions(context=40))
    tokens = np.arange(4, dtype=np.int32)
    found = executable.sample([SequenceRows(executable.new_state(), tokens, "last", (OUTPUT,))], [None])
    assert isinstance(found[0], GenerationError)
