"""Sampling parameters: the definition shared by Python keywords, command-line flags and HTTP fields."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion

if TYPE_CHECKING:
    from volumetric.loaders.generation_config import GenerationDefaults

logger: logging.Logger = logging.getLogger(__name__)

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "n_predict": "max_tokens",
        "max_new_tokens": "max_tokens",
        "min_new_tokens": "min_tokens",
        "temp": "temperature",
        "repeat_penalty": "repetition_penalty",
        "repeat_last_n": "repetition_window",
        "reverse_prompt": "stop",
    }
)
"""Names of other tools. The command line accepts them; in Python an error suggests the right name."""

Source = Literal["explicit", "generation_config", "server", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    r"""Parameters of sampling, and of the end of generation.

    The order is fixed: logit bias, penalties, temperature, top-k, top-p, min-p, draw. A `SamplingParams` is complete:
    the model's defaults are merged only with single parameters passed by name (see `merge`).

    Parameters
    ----------
    max_tokens : int
        Most tokens to generate.
    temperature : float
        Divides the logits before the draw; 0 is greedy decoding.
    top_k : int
        Draw only among the k most likely tokens; 0 is off.
    top_p : float
        Draw only among the fewest tokens whose probabilities reach this sum; 1.0 is off.
    min_p : float
        Drop tokens less likely than this fraction of the most likely one; 0.0 is off.
    repetition_penalty : float
        Divides positive and multiplies negative logits of tokens that have occurred, including the prompt; 1.0 is off.
    repetition_window : int
        Number of last tokens that the repetition penalty considers; -1 is all of them.
    presence_penalty : float
        Subtracted once from the logits of generated tokens; 0.0 is off.
    frequency_penalty : float
        Subtracted from the logits of a generated token for each occurrence; 0.0 is off.
    seed : int
        Seed of the draws; without one, or with -1, a random seed is chosen and reported.
    stop : tuple of str
        End before any of these texts appears. On the command line, \n, \t and escaped backslashes work as in C.
    stop_ids : tuple of int
        End at any of these token ids, in addition to the model's end-of-text ids.
    ignore_eos : bool
        Do not end at the model's end-of-text ids.
    min_tokens : int
        Least number of tokens before a token id may end the text; a stop text still ends it.
    include_stop : bool
        Include the stop text in the output.
    allowed_ids : tuple of int
        Draw only among these token ids; without an end-of-text id among them, the text ends by its length.
    logit_bias : mapping of int to float
        Added to the logits of these token ids, written 42=-1.5 on the command line; at most 1,000,000; -inf bans a
        token.
    logprobs : int
        Report the log-probability of each token, and of this many alternatives, from the model's unchanged logits.

    Raises
    ------
    SpecError : a value has the wrong type or is out of range; the message lists all of them
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = -1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    include_stop: bool = False
    allowed_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    logprobs: int | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise SpecError("sampling parameters: " + "; ".join(problems), hint=self._way_out())
        object.__setattr__(self, "seed", None if self.seed == -1 else self.seed)
        object.__setattr__(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        for name in ("stop_ids", "allowed_ids"):
            object.__setattr__(self, name, tuple(int(i) for i in getattr(self, name)))
        bias = {int(token): float(value) for token, value in self.logit_bias.items()}
        object.__setattr__(self, "logit_bias", MappingProxyType(bias))

    def _way_out(self) -> str:
        """Return what to write in place of the first value that is out of its range."""
        shares = [name for name in ("top_p", "min_p") if isinstance(getattr(self, name), int | float)]
        percent = next((name for name in shares if getattr(self, name) > 1), None)
        if percent is not None:
            return f"{percent} is a fraction: {percent}={min(getattr(self, percent) / 100, 1):g}"
        if isinstance(self.temperature, int | float) and self.temperature < 0:
            return "temperature=0 always takes the most probable token; higher values vary more, as temperature=0.8"
        return "leave it out for its default: SamplingParams() shows all of them"

    def _problems(self) -> Iterator[str]:
        for name, (kind, low, high, text) in _RANGES.items():
            value: Any = getattr(self, name)
            if value is _DEFAULTS[name] or (value is None and name in _OPTIONAL):
                continue
            if not is_number(value, kind) or not low <= value <= high:
                yield f"{name} must be {text}, got {value!r}"
        for name in ("ignore_eos", "include_stop"):
            if not isinstance(getattr(self, name), bool):
                yield f"{name} must be true or false, got {getattr(self, name)!r}"
        if not _texts(self.stop):
            yield f"stop must be one or more non-empty texts, got {self.stop!r}"
        for name in ("stop_ids", "allowed_ids"):
            if not _token_ids(getattr(self, name)):
                yield f"{name} must be token ids, got {getattr(self, name)!r}"
        if not isinstance(self.logit_bias, Mapping):
            yield f"logit_bias must map token ids to numbers, got {self.logit_bias!r}"
        else:
            yield from (f"logit_bias: {item}" for item in _bias_problems(self.logit_bias))

    @property
    def penalised(self) -> bool:
        """Whether penalties change the logits by earlier tokens."""
        window = self.repetition_penalty != 1.0 and self.repetition_window != 0
        return window or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def adjusted(self) -> bool:
        """Whether a draw needs more than the logits, or returns more than a token: penalties, bias, logprobs."""
        return self.penalised or bool(self.logit_bias) or self.logprobs is not None

    @property
    def plain_greedy(self) -> bool:
        """Whether only the arg max of the model's unchanged logits is needed."""
        return self.temperature == 0.0 and not self.adjusted

    def end_ids(self, eos_ids: Iterable[int]) -> frozenset[int]:
        """Token ids that end generation, given the model's end-of-text ids."""
        return frozenset(self.stop_ids) | (frozenset() if self.ignore_eos else frozenset(eos_ids))


_MAX = float("inf")
_MOST_BIAS = 1e6
"""Far larger than any logit; values near the limit of float32 could overflow with a logit, or at a temperature."""
_RANGES: Mapping[str, tuple[type, float, float, str]] = MappingProxyType(
    {
        "max_tokens": (Integral, 1, _MAX, "a whole number of 1 or more"),
        "min_tokens": (Integral, 0, _MAX, "a whole number of 0 or more"),
        "temperature": (Real, 0.0, 1e6, "a number from 0 to 1,000,000"),
        "top_k": (Integral, 0, _MAX, "a whole number of 0 (off) or more"),
        "top_p": (Real, math.ulp(0.0), 1.0, "above 0 and at most 1"),
        "min_p": (Real, 0.0, 1.0, "from 0 to 1"),
        "repetition_penalty": (Real, math.ulp(0.0), 1e6, "above 0"),
        "repetition_window": (Integral, -1, _MAX, "a whole number of 0 or more, or -1 for all tokens"),
        "presence_penalty": (Real, -1e6, 1e6, "a number"),
        "frequency_penalty": (Real, -1e6, 1e6, "a number"),
        "seed": (Integral, -1, 2**64 - 1, "a whole number from 0 to 2⁶⁴ - 1, or -1 for a fresh one"),
        "logprobs": (Integral, 0, 1000, "a whole number from 0 to 1000"),
    }
)
_NAMES = tuple(f.name for f in fields(SamplingParams))
_DEFAULTS: Mapping[str, Any] = MappingProxyType({f.name: f.default for f in fields(SamplingParams)})
_OPTIONAL = frozenset({"seed", "logprobs"})


def is_number(value: object, kind: type = Real) -> TypeGuard[float]:
    """Whether `value` is of the numeric `kind`; True and False, which are integers in Python, are excluded."""
    if type(value) is int or (type(value) is float and kind is Real):  # an abstract class is far slower to check
        return True
    return isinstance(value, kind) and not isinstance(value, bool)


def _texts(value: object) -> bool:
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, Sequence) and all(isinstance(text, str) and text for text in value)


def _token_ids(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return False
    return all(is_number(i, Integral) and i >= 0 for i in value)


def _bias_problems(bias: Mapping[Any, Any]) -> Iterator[str]:
    for token, value in bias.items():
        # JSON keys are always text, so that "42" is a token id like 42.
        if isinstance(token, bool) or not (str(token).isascii() and str(token).isdecimal()):
            yield f"{token!r} is not a token id"
        elif not is_number(value) or not value <= _MOST_BIAS:
            yield f"token {token}: {value!r} is not a number of at most {_MOST_BIAS:,.0f}"


FROM_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "max_new_tokens",
        "temperature": "temperature",
        "top_k": "top_k",
        "top_p": "top_p",
        "min_p": "min_p",
        "repetition_penalty": "repetition_penalty",
    }
)
"""Parameters that a generation config can set → their names there."""
EVEN_GREEDY: frozenset[str] = frozenset({"max_tokens", "repetition_penalty"})
"""Parameters of a generation config that also apply to greedy decoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedParams:
    """Sampling parameters in force, and the source of each."""

    params: SamplingParams
    sources: Mapping[str, Source]

    def __str__(self) -> str:
        """Every parameter that has a value, as ``name=value (source)``."""
        values = {name: getattr(self.params, name) for name in self.sources}
        values["logit_bias"] = dict(self.params.logit_bias)
        shown = {name: value for name, value in values.items() if value not in (None, (), {})}
        return ", ".join(f"{name}={value!r} ({self.sources[name]})" for name, value in shown.items())


def merge(defaults: GenerationDefaults | None, explicit: Mapping[str, Any]) -> MergedParams:
    """Resolve sampling parameters: explicit values, then the model's generation config, then greedy defaults.

    Sampling values of the generation config apply only if it enables ``do_sample``: otherwise they are left-overs,
    which transformers ignores, too. The other values (`EVEN_GREEDY`) always apply, as in transformers. None in
    `explicit` means "not set".

    Raises
    ------
    SpecError : a name is unknown, or a value is out of range
    """
    chosen = {name: value for name, value in explicit.items() if value is not None}
    unknown = [name for name in chosen if name not in _DEFAULTS]
    if unknown:
        raise SpecError(f"unknown sampling parameter {unknown[0]!r}", hint=_suggest(unknown[0], _NAMES))
    values: dict[str, Any] = {}
    if defaults is not None:
        names = FROM_CONFIG if defaults.do_sample else EVEN_GREEDY
        stated = {name: getattr(defaults, FROM_CONFIG[name]) for name in names}
        # transformers samples at temperature 1 if do_sample is set without a temperature.
        values = {"temperature": 1.0} if defaults.do_sample else {}
        values |= {name: value for name, value in stated.items() if value is not None}
    sources: dict[str, Source] = {
        name: "explicit" if name in chosen else "generation_config" if name in values else "default" for name in _NAMES
    }
    try:
        params = SamplingParams(**(values | chosen))
    except SpecError as error:
        SamplingParams(**chosen)  # if this raises, too, the explicit values are invalid
        raise SpecError(f"the model's generation config: {error}", hint="set this parameter yourself") from None
    _warn_idle(params, chosen)
    return MergedParams(params=params, sources=MappingProxyType(sources))


def _suggest(name: str, known: Iterable[str]) -> str:
    alias = ALIASES.get(name)
    return f"did you mean {alias!r}?" if alias else suggestion(name, sorted(known))


def _warn_idle(params: SamplingParams, chosen: Mapping[str, Any]) -> None:
    idle = [name for name in ("top_k", "top_p", "min_p", "seed") if name in chosen]
    if idle and params.temperature == 0.0 and "temperature" not in chosen:
        names = ", ".join(idle)
        logger.warning("%s: no effect at temperature 0 (greedy); set a temperature to sample", names)
