"""Transcript: the record of one generation: its tokens, text, times and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING

from volumetric.generate.params import SamplingParams
from volumetric.generate.process_memory import peak_resident_bytes
from volumetric.generate.sampler import Draw, Sampler
from volumetric.generate.stop_texts import StopMatcher
from volumetric.generate.token_events import FinishReason, Generation, GenerationStats, TokenEvent, TopLogprobs

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.loaders.stream_decoder import StreamDecoder


class Transcript:
    """The record of one generation, independent of the source of its logits.

    Parameters
    ----------
    model : its tokenizer, context and end-of-text ids apply
    prompt : token ids, which fit into the context
    params : complete sampling parameters
    shown : ids of special tokens that belong to the text

    Attributes
    ----------
    cached : number of cached tokens of the prompt
    prompt_seconds : time to compute the prompt
    end_ids : tokens that end the text
    likelihoods, likeliest : ``log p`` of the job's targets, and of the most likely tokens at their positions, as far as
        they are computed
    drafted, accepted : tokens that a draft proposed, and those that were accepted
    reason : finish reason; None while it runs
    before_read : called before `generation` and `stats` are made, while another object has tokens that are not yet here
    """

    def __init__(
        self, model: CompiledModel, prompt: Sequence[int], params: SamplingParams, shown: Set[int] = frozenset()
    ) -> None:
        self.params = params
        self.prompt: tuple[int, ...] = tuple(prompt)
        self.decoder: StreamDecoder | None = model.decoder(shown)
        self.cached = 0
        self.prompt_seconds: float = 0.0
        self.likelihoods: list[float] = []
        self.likeliest: list[TopLogprobs] = []
        self.drafted = self.accepted = 0
        self.reason: FinishReason | None = None
        self.before_read: Callable[[], None] | None = None
        # The last token drawn needs no position in the context: it is not fed again.
        self._limit = min(params.max_tokens, model.room_after(len(self.prompt)) + 1)
        self.end_ids: frozenset[int] = params.end_ids(model.eos_ids)
        self._device_bytes = model.device_bytes
        self._stops = StopMatcher(params.stop, shown=params.include_stop) if params.stop else None
        self._tokens: list[int] = []
        self._logprobs: list[tuple[float, TopLogprobs]] = []  # one for each token, if they are requested
        self._texts: list[str] = []
        self._first_seconds = self._seconds = 0.0
        self._final: GenerationStats | None = None
        if not params.plain_greedy:
            _ = self.sampler

    @cached_property
    def sampler(self) -> Sampler:
        """The sampler, for generations that are not greedy."""
        return Sampler(self.params, self.prompt)

    @property
    def begun(self) -> bool:
        """Whether the first token has been drawn."""
        return bool(self._tokens)

    @property
    def tokens_left(self) -> int:
        """Most tokens that may still be drawn."""
        return self._limit - len(self._tokens)

    @property
    def token_count(self) -> int:
        """Number of tokens drawn."""
        return len(self._tokens)

    @property
    def texts_by_id(self) -> Mapping[int, str] | None:
        """Texts of tokens behind others, as far as they are known.

        None if a token's text depends on more than its id, as with stop texts, or if there is no tokenizer.
        """
        return None if self._stops is not None or self.decoder is None else self.decoder.texts_by_id

    @property
    def whole(self) -> bool:
        """Whether no text is held back, so that the next one may come from `texts_by_id`."""
        return self.decoder is not None and self.decoder.whole

    @property
    def last_token(self) -> int:
        """The token drawn last; raises IndexError before the first one."""
        return self._tokens[-1]

    def count_time(self, seconds: float) -> None:
        """Add time spent for the next token; for the first one this includes the prompt."""
        if self._tokens:
            self._seconds += seconds
        else:
            self._first_seconds += seconds

    def take_texts(self, tokens: Sequence[int], texts: Sequence[str], seconds: float) -> None:
        """Append tokens before the last, with their texts from `texts_by_id`, which took so many seconds together."""
        self._tokens += tokens
        self._texts += texts
        self._seconds += seconds

    def align_decoder(self) -> None:
        """Let the decoder go on behind the tokens of `take_texts`."""
        if self.decoder is not None:
            self.decoder.follow(self._tokens[-1])

    def take(self, draw: Draw) -> TokenEvent:
        """Append a token, and return its event, which has the finish reason if the token is the last."""
        if self.params.logprobs is not None:
            self._logprobs.append((draw.logprob or 0.0, draw.top_logprobs or ()))
        event = self.take_token(draw.token)
        event.logprob, event.top_logprobs = draw.logprob, draw.top_logprobs
        return event

    def take_token(self, token: int) -> TokenEvent:
        """Append a token without log-probabilities, see `take`."""
        tokens = self._tokens
        tokens.append(token)
        ended = token in self.end_ids
        shown = "" if ended or self.decoder is None else self.decoder.push(token)
        stopped = False
        if self._stops is not None:
            shown, stopped = self._stops.push(shown)
        if ended or stopped:
            self.reason = "stop"
        elif len(tokens) >= self._limit:
            self.reason = "length"
        if self.reason is not None and not stopped:
            shown += self._flush()
        self._texts.append(shown)
        event = TokenEvent(index=len(tokens) - 1, token_id=token, text=shown)
        if self.reason is not None:
            event.finish_reason, event.stats = self.reason, self._stats()
        if self.likelihoods and len(tokens) == 1:
            event.likelihoods, event.likeliest = tuple(self.likelihoods), tuple(self.likeliest)
        return event

    def _flush(self) -> str:
        """Return all held-back text; a stop text that completes in it still ends the text."""
        left = "" if self.decoder is None else self.decoder.flush()
        if self._stops is None:
            return left
        shown, stopped = self._stops.push(left)
        if stopped:
            self.reason = "stop"
            return shown
        return shown + self._stops.flush()

    def forget(self, count: int) -> None:
        """Drop all tokens but the first `count`, which were returned; if any are dropped, it was cancelled."""
        if count < len(self._tokens):
            del self._tokens[count:], self._logprobs[count:], self._texts[count:]
            self.reason, self._final = "cancelled", None

    def end(self) -> None:
        """Set the finish reason and flush held-back text, once."""
        if self.reason is None:
            self._texts.append(self._flush())
            self.reason = "cancelled"

    @property
    def generation(self) -> Generation:
        """The generation so far; its finish reason is ``cancelled`` until it has ended."""
        if self.before_read is not None:
            self.before_read()
        with_logprobs = self.params.logprobs is not None
        return Generation(
            text="".join(self._texts),
            token_ids=tuple(self._tokens),
            finish_reason=self.reason or "cancelled",
            stats=self._stats(),
            seed=None if self.params.temperature == 0.0 else self.sampler.seed,
            logprobs=tuple([logprob for logprob, _ in self._logprobs]) if with_logprobs else None,
            top_logprobs=tuple([tops for _, tops in self._logprobs]) if with_logprobs else None,
            likelihoods=tuple(self.likelihoods) or None,
            likeliest=tuple(self.likeliest) or None,
        )

    @property
    def stats(self) -> GenerationStats:
        """Counts and times so far, or at the end."""
        if self.before_read is not None:
            self.before_read()
        return self._stats()

    def _stats(self) -> GenerationStats:
        if self._final is not None:
            return self._final
        stats = GenerationStats(
            prompt_tokens=len(self.prompt),
            cached_tokens=self.cached,
            generated_tokens=len(self._tokens),
            prompt_seconds=self.prompt_seconds,
            first_token_seconds=self._first_seconds,
            generation_seconds=self._seconds,
            peak_bytes=peak_resident_bytes(),
            device_bytes=self._device_bytes,
            finish_reason=self.reason or "cancelled",
            drafted_tokens=self.drafted,
            accepted_tokens=self.accepted,
        )
        self._final = None if self.reason is None else stats
        return stats
