"""Requests to the sampling kernel: a generation's parameters and history as words in memory, and its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.devices.cpu.kernels.sampling import row_scratch as kernel
from volumetric.devices.cpu.sampling import SAMPLING
from volumetric.generate.params import SamplingParams
from volumetric.generate.rng_stream import RngStream
from volumetric.generate.token_events import Draw
from volumetric.run.device import LogitAdjustments
from volumetric.run.logits import INFINITE, MODEL_LOGITS, NAN, NONE_POSSIBLE, unusable_logits_error


class TokenHistory:
    """Counts of the tokens of one generation.

    Parameters
    ----------
    window : number of last tokens that count as recent; below 0: all
    prompt : token ids before the first one generated

    Attributes
    ----------
    table : int32 ``[3, room]``: token ids, their counts among the recent tokens, and among the generated ones
    """

    def __init__(self, window: int, prompt: Iterable[int]) -> None:
        self._recent: deque[int] = deque(prompt, maxlen=None if window < 0 else window)
        ids, counts = np.unique(np.fromiter(self._recent, np.int64), return_counts=True)
        self.table: NDArray[np.int32] = np.zeros((3, ids.size + 64), np.int32)
        self.table[:2, : ids.size] = ids, counts
        self._places = {token: place for place, token in enumerate(ids.tolist())}

    def __len__(self) -> int:
        """Number of different tokens so far, which are the entries of the table."""
        return len(self._places)

    def add(self, token: int) -> None:
        """Count the next generated token."""
        recent = self._recent
        if recent.maxlen is not None and recent.maxlen == len(recent) > 0:
            self.table[1, self._places[recent[0]]] -= 1
        recent.append(token)
        place = self._place(token)
        self.table[1, place] += recent.maxlen != 0
        self.table[2, place] += 1

    def _place(self, token: int) -> int:
        place = self._places.setdefault(token, len(self._places))
        if place == self.table.shape[1]:
            self.table = np.concatenate((self.table, np.zeros_like(self.table)), axis=1)
        self.table[0, place] = token
        return place


_AT = {name: place for place, name in enumerate(kernel.WORDS)}
_LOGITS, _SIZE, _HISTORIES, _RANDOM, _TOKEN, _STATE, _NORM = (
    _AT[name] for name in ("logits", "size", "histories", "random", "token", "state", "norm")
)
_STATES = {kernel.NAN: NAN, kernel.INFINITE: INFINITE, kernel.NONE_POSSIBLE: NONE_POSSIBLE}
_LN2 = Fraction(6931471805599453094172321214581765680755, 10**40)
_MANY = 2**31 - 1
_PENALTIES = ("repetition", "presence", "frequency")
_COLDEST = 1e-300
"""Lower temperatures are clipped to it: at it every difference of two scores already excludes the lower one."""


class SamplingRequest:
    """A generation in the kernel's format: the words of ``volumetric.devices.cpu.kernels.sampling.row_scratch.WORDS``.

    Parameters
    ----------
    params, prompt : see `volumetric.generate.sampler.Sampler`
    randoms : numbers for the draws; None for the arg max
    """

    def __init__(self, params: SamplingParams, randoms: RngStream | None, prompt: Iterable[int]) -> None:
        self._words: NDArray[np.int64] = np.zeros(len(kernel.WORDS), np.int64)
        self._numbers: NDArray[np.float64] = self._words.view(np.float64)
        self.address: int = self._words.ctypes.data
        self._randoms = randoms
        window = params.repetition_window if params.repetition_penalty != 1.0 else 0
        self._history = TokenHistory(window, prompt) if params.penalised else None
        self._bias: NDArray[np.int32] = np.fromiter((min(i, _MANY) for i in params.logit_bias), np.int32)
        self._bias_values = np.fromiter(params.logit_bias.values(), np.float32)
        self._last_bias = max(params.logit_bias, default=-1)
        self._tops: int | None = params.logprobs
        self._top_ids: NDArray[np.int32] = np.empty(params.logprobs or 0, np.int32)
        self._top_values: F32Array = np.empty(params.logprobs or 0, np.float32)
        words = {
            "bias": self._bias.ctypes.data,
            "bias_values": self._bias_values.ctypes.data,
            "biases": self._bias.size,
            "top_k": min(params.top_k, _MANY),
            "logprobs": -1 if params.logprobs is None else params.logprobs,
            "top_ids": self._top_ids.ctypes.data,
            "top_values": self._top_values.ctypes.data,
        }
        numbers = {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "repetition": params.repetition_penalty,
            "presence": params.presence_penalty,
            "frequency": params.frequency_penalty,
        } | _heat(params.temperature)
        for name, word in words.items():
            self._words[_AT[name]] = word
        for name, number in numbers.items():
            self._numbers[_AT[name]] = number
        self._told: NDArray[np.int32] | None = None
        self._tell_history()

    def prepare(self, logits: F32Array) -> GenerationError | None:
        """Set the logits of the next draw; return an error if bias names a token outside of them."""
        if self._last_bias >= logits.size:
            return GenerationError(
                f"logit_bias names token {self._last_bias}, but the model has {logits.size} tokens",
                hint="token ids are specific to a model's vocabulary",
            )
        self._words[_LOGITS] = logits.ctypes.data
        self._words[_SIZE] = logits.size
        if self._randoms is not None:
            self._numbers[_RANDOM] = self._randoms.take()
        return None

    def take(self, logits: F32Array) -> Draw | GenerationError:
        """Return the kernel's draw from `logits`, and count the token."""
        state = self._words.item(_STATE)
        if state != kernel.USABLE:
            adjusted = state > kernel.ADJUSTED
            what = "after logit bias and penalties, the logits" if adjusted else MODEL_LOGITS
            return unusable_logits_error(_STATES[state - kernel.ADJUSTED if adjusted else state], what)
        token = self._words.item(_TOKEN)
        self.remember(token)
        if self._tops is None:
            return Draw(token=token)
        norm = self._numbers.item(_NORM)
        count = min(self._tops, logits.size)
        values = self._top_values[:count].astype(np.float64) - norm
        top = tuple(zip(self._top_ids[:count].tolist(), values.tolist(), strict=True))
        return Draw(token=token, logprob=logits.item(token) - norm, top_logprobs=top)

    def remember(self, token: int) -> None:
        """Count the next token for penalties."""
        if self._history is not None:
            self._history.add(token)
            self._words[_HISTORIES] = len(self._history)
            if self._history.table is not self._told:
                self._tell_history()

    def adjustments(self) -> LogitAdjustments:
        """Return the effect of bias and penalties on the scores of the next draw."""
        table = np.zeros((3, 0), np.int32) if self._history is None else self._history.table[:, : len(self._history)]
        ids, (recent, generated) = table[0], table[1:]
        more = self._bias[~np.isin(self._bias, ids)]
        ids = np.concatenate((ids, more))
        bias, less, is_recent = (
            np.zeros(ids.size, np.float32),
            np.zeros(ids.size, np.float32),
            np.zeros(ids.size, np.bool_),
        )
        order = np.argsort(ids)
        bias[order[np.searchsorted(ids[order], self._bias)]] = self._bias_values
        repetition, presence, frequency = (float(self._numbers[_AT[name]]) for name in _PENALTIES)
        often = generated.astype(np.float32) * np.float32(frequency) + np.float32(presence)
        less[: generated.size] = np.where(generated > 0, often, np.float32(0))
        is_recent[: recent.size] = recent > 0
        return LogitAdjustments(ids=ids, bias=bias, recent=is_recent, less=less, repetition=repetition)

    def _tell_history(self) -> None:
        if self._history is None:
            return
        self._told = table = self._history.table
        base, stride = table.ctypes.data, table.strides[0]
        first = _AT["history"]
        self._words[first : first + 4] = base, base + stride, base + 2 * stride, len(self._history)


def _heat(temperature: float) -> dict[str, float]:
    """Constants of the weights at a temperature: ``t ln 2`` in two parts, the first of 40 bits, and its inverse."""
    if not temperature:
        return {}
    t = Fraction(max(float(temperature), _COLDEST))
    whole = np.array([float(t * _LN2)])
    whole.view(np.int64)[0] &= -(1 << 13)
    high = whole.item()
    return {
        "turns": float(1 / (t * _LN2)),
        "high": high,
        "low": float(t * _LN2 - Fraction(high)),
        "inverse": float(1 / t),
        "least": float(-708 * t),
    }


def answer_requests(requests: Sequence[SamplingRequest], rows: Sequence[F32Array]) -> list[Draw | GenerationError]:
    """Draw for `requests` from their `rows` of logits; see `volumetric.generate.sampler.draw_together`."""
    rows = [np.ascontiguousarray(row, np.float32) for row in rows]
    errors = [request.prepare(row) for request, row in zip(requests, rows, strict=True)]
    ready = [request.address for request, error in zip(requests, errors, strict=True) if error is None]
    if ready:
        SAMPLING.draw(ready, max(row.size for row in rows))
    return [error or request.take(row) for request, row, error in zip(requests, rows, errors, strict=True)]
