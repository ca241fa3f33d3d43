"""The sampler: from the logits of one position to the next token.

The order is fixed, as in transformers: logit bias → penalties → temperature → top-k → top-p → min-p → draw.
`tests/oracles/sampler.py` is a NumPy version; here one compiled kernel handles all rows of a batch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

from volumetric.base import rng
from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError
from volumetric.generate.params import SamplingParams
from volumetric.generate.rng_stream import RngStream
from volumetric.generate.token_events import Draw

if TYPE_CHECKING:
    from volumetric.generate.sampling_request import SamplingRequest
    from volumetric.run.device import LogitAdjustments, TokenSampler


class Sampler:
    """Draws the tokens of one generation.

    Parameters
    ----------
    params : sampling parameters
    prompt : token ids before the first draw, for the repetition penalty

    Attributes
    ----------
    seed : the seed in use, a random one if `params` has none
    """

    def __init__(self, params: SamplingParams, prompt: Iterable[int] = ()) -> None:
        self.params = params
        self.seed: int = rng.fresh_seed() if params.seed is None else int(params.seed)
        self._prompt = tuple(prompt) if params.penalised else ()
        self._randoms = RngStream(self.seed) if params.temperature else None
        if not params.plain_greedy:
            _load_ahead()

    def draw(self, logits: F32Array) -> Draw:
        """Draw the next token.

        Parameters
        ----------
        logits : float32 ``[V]``; left unchanged

        Raises
        ------
        GenerationError : the logits contain NaN or +inf, or no token is possible
        """
        drawn = draw_together((self,), (logits,))[0]
        if isinstance(drawn, GenerationError):
            raise drawn
        return drawn

    @property
    def chooser(self) -> TokenSampler | None:
        """The generation for a device that draws itself; None for the arg max, and with log-probabilities."""
        plain = self.params.plain_greedy or self.params.logprobs is not None
        return None if plain else DeviceChooser(self, self._randoms)

    @cached_property
    def request(self) -> SamplingRequest:
        """The generation in the kernel's format."""
        from volumetric.generate.sampling_request import SamplingRequest

        return SamplingRequest(self.params, self._randoms, self._prompt)


class DeviceChooser:
    """A generation whose tokens a device draws, see `volumetric.run.device.TokenSampler`."""

    def __init__(self, sampler: Sampler, randoms: RngStream | None) -> None:
        params = sampler.params
        self.adjusted: bool = params.adjusted
        self.temperature: float = float(params.temperature)
        self.top_k: int = int(params.top_k)
        self.top_p: float = float(params.top_p)
        self.min_p: float = float(params.min_p)
        self._sampler, self._randoms = sampler, randoms
        self._penalised = params.penalised

    def next_randoms(self, count: int) -> list[float]:
        """Return the random numbers of the next draws; an arg max uses none."""
        return [0.0] * count if self._randoms is None else self._randoms.ahead(count)

    def adjustments(self) -> LogitAdjustments:
        """Return the changes of scores before the next draw."""
        return self._sampler.request.adjustments()

    def record_token(self, token: int) -> None:
        """Advance to the next random number, and count the token that the device has drawn."""
        if self._randoms is not None:
            self._randoms.take()
        if self._penalised:
            self._sampler.request.remember(token)

    def choose(self, logits: F32Array) -> int:
        """Draw a token on the host."""
        return self._sampler.draw(logits).token


def _load() -> None:
    import volumetric.generate.sampling_request  # noqa: F401  (for what it imports)


@cache
def _load_ahead() -> None:
    """Import Numba in a separate thread, if no device has, while the prompt is computed."""
    if "numba" not in sys.modules:
        threading.Thread(target=_load).start()


def draw_together(samplers: Sequence[Sampler], rows: Sequence[F32Array]) -> list[Draw | GenerationError]:
    """Draw the next token of several generations in one call of the kernel.

    Parameters
    ----------
    samplers, rows : generations, and the logits of each: float32 ``[V]``, left unchanged

    Returns
    -------
    draws : for each generation the result of `Sampler.draw`, or its error
    """
    return _answer()([sampler.request for sampler in samplers], rows)


@cache
def _answer() -> Callable[[Sequence[SamplingRequest], Sequence[F32Array]], list[Draw | GenerationError]]:
    """Return `request.answer`; Numba is imported only for draws."""
    from volumetric.generate.sampling_request import answer_requests

    return answer_requests
