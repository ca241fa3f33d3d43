"""Clocks ↔ text. Errors point at the position in the text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from volumetric.base.errors import SpecError
from volumetric.layers.clock import DEEPEST, And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, On, Or

_LOWER: Final = {">": "above", ">=": "at_least"}
_UPPER: Final = {"<": "below", "<=": "at_most"}
_BOUNDS: Final = {**_LOWER, **_UPPER, "==": "equal", "!=": "unequal"}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WORD: Final = re.compile(r"[\w.\[\]:/-]+")
_TOKEN: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.\[\]:/]))"
    rf"|(?P<word>{_WORD.pattern})"
    r'|(?P<quoted>"(?:[^"\\]|\\.)*")'
    r"|(?P<sign>\|\||&&|[<>=!]=|[<>!(),])"
)
_SHOWN = 60
"""Characters that an error shows on each side of the position."""


def text_of(clock: Clock) -> str:
    """Return the text of a clock; `parse` returns an equal clock."""
    if isinstance(clock, Or):
        return " || ".join(map(text_of, clock.terms))
    if isinstance(clock, And):
        return " && ".join(_in_brackets(term, Or) for term in clock.terms)
    if isinstance(clock, Not):
        return "!" + _in_brackets(clock.term, Or, And, Not)
    if isinstance(clock, (Cooldown, MaxSilence, Inner)):
        return f"{clock.word}({text_of(clock.clock)}, {clock.steps})"
    if isinstance(clock, Every):
        return f"every({clock.period}, {clock.phase})" if clock.phase else f"every({clock.period})"
    if isinstance(clock, On):
        return f"on({_name(clock.name)})"
    assert isinstance(clock, Event)
    bounds = {sign: value for sign, field in _BOUNDS.items() if (value := getattr(clock, field)) is not None}
    if len(bounds) == 2:
        (low, first), (high, last) = bounds.items()
        return f"{_number(first)} {_TURNED[low]} {_name(clock.source)} {high} {_number(last)}"
    [(sign, value)] = bounds.items()
    return f"{_name(clock.source)} {sign} {_number(value)}"


def _in_brackets(clock: Clock, *kinds: type[Clock]) -> str:
    return f"({text_of(clock)})" if isinstance(clock, kinds) else text_of(clock)


def _number(value: float) -> str:
    return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _name(name: str) -> str:
    plain = _WORD.fullmatch(name) and not _TOKEN.fullmatch(name, endpos=len(name)).group("number")  # pyright: ignore[reportOptionalMemberAccess]  (a word is a token)
    return name if plain else json.dumps(name, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Clock:
    """Parse a clock; see `Clock.parse` for the grammar."""
    if not isinstance(text, str):
        raise SpecError(f"clock: expected a string, got {text!r}", hint='"every(4)" or "err.prediction > 0.5"')
    return _Parser(text).parse()


class _Parser:
    """A recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._depth = 0, 0
        self._token = self._next()

    def parse(self) -> Clock:
        """Parse the whole text."""
        clock = self._or()
        if self._token.kind != "end":
            self._fail("expected && or ||, or the end")
        return clock

    def _or(self) -> Clock:
        self._depth += 1
        if self._depth > DEEPEST:
            self._fail(f"more than {DEEPEST} nested clocks")
        clock = self._row("||", lambda: self._row("&&", self._not, And), Or)
        self._depth -= 1
        return clock

    def _row(self, sign: str, one: Callable[[], Clock], kind: Callable[[tuple[Clock, ...]], Clock]) -> Clock:
        start, terms = self._token, [one()]
        while self._accept(sign):
            terms.append(one())
        return terms[0] if len(terms) == 1 else self._build(start, lambda: kind(tuple(terms)))

    def _not(self) -> Clock:
        start = self._token
        if self._accept("!"):
            term = self._atom()
            return self._build(start, lambda: Not(term))
        return self._atom()

    def _atom(self) -> Clock:
        token = self._token
        if self._accept("("):
            clock = self._or()
            self._expect(")")
            return clock
        if token.kind == "number":
            return self._parse_range()
        if token.kind not in ("word", "quoted"):
            self._fail("expected a clock")
        self._advance()
        if token.kind == "word" and self._accept("("):
            return self._parse_call(token)
        return self._parse_comparison(token)

    def _parse_call(self, name: _Token) -> Clock:
        """Parse the arguments of a call."""
        if name.text == "every":
            period = self._count()
            phase = self._count() if self._accept(",") else 0
            self._expect(")")
            return self._build(name, lambda: Every(period, phase))
        if name.text == "on":
            if self._token.kind not in ("word", "quoted", "number"):
                self._fail("expected a name")
            what = self._build_named(self._advance())
            self._expect(")")
            return self._build(name, lambda: On(what))
        kinds = {kind.word: kind for kind in (Cooldown, MaxSilence, Inner)}
        if name.text not in kinds:
            known = ", ".join(("every", "on", *kinds))
            self._fail(f"unknown clock {name.text!r}", name, hint=f"one of {known}")
        clock = self._or()
        self._expect(",")
        steps = self._count()
        self._expect(")")
        return self._build(name, lambda: kinds[name.text](clock, steps))

    def _parse_comparison(self, path: _Token) -> Clock:
        sign = self._token
        if not self._accept(*_BOUNDS):
            self._fail("expected one of " + " ".join(_BOUNDS))
        value, source = self._value(), self._build_named(path)
        return self._build(path, lambda: Event(source, **{_BOUNDS[sign.text]: value}))

    def _parse_range(self) -> Clock:
        """Parse ``number < path < number``."""
        start, first = self._token, self._value()
        low = self._token
        if not self._accept("<", "<="):
            self._fail("expected < or <= between a number and a source")
        if self._token.kind not in ("word", "quoted"):
            self._fail("expected a source, such as err.prediction")
        source = self._build_named(self._advance())
        high = self._token
        if not self._accept("<", "<="):
            self._fail("expected < or <= and a number", hint="with a single bound, write the source first")
        bounds = {_LOWER[_TURNED[low.text]]: first, _UPPER[high.text]: self._value()}
        return self._build(start, lambda: Event(source, **bounds))

    def _value(self) -> float:
        token = self._token
        if token.kind != "number":
            self._fail("expected a number")
        value = float(self._advance().text)
        if value in (float("inf"), float("-inf")):
            self._fail("the number is too large", token)
        return value

    def _count(self) -> int:
        token = self._token
        if token.kind != "number" or not token.text.isdecimal():
            self._fail("expected a whole number")
        self._advance()
        return int(token.text) if len(token.text) < 20 else self._fail("the number is too large", token)

    def _build_named(self, token: _Token) -> str:
        if token.kind != "quoted":
            return token.text
        try:
            return json.loads(token.text)
        except ValueError:
            return self._fail("the quoted text is not a valid JSON string", token)

    def _build(self, token: _Token, make: Callable[[], Clock]) -> Clock:
        """Build a clock; its errors point at `token`."""
        try:
            return make()
        except SpecError as error:
            return self._fail(str(error), token, hint=error.hint)

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            self._fail(f"expected {sign}")

    def _accept(self, *signs: str) -> bool:
        if self._token.kind == "sign" and self._token.text in signs:
            self._advance()
            return True
        return False

    def _advance(self) -> _Token:
        token, self._token = self._token, self._next()
        return token

    def _next(self) -> _Token:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        if self._at == len(self._text):
            return _Token("end", "", self._at)
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            odd = self._text[self._at]
            what = "the quote is not closed" if odd == '"' else f"unexpected {odd!r}"
            self._fail(what, _Token("odd", odd, self._at))
        self._at = match.end()
        return _Token(match.lastgroup or "", match.group(), match.start())

    def _fail(self, what: str, token: _Token | None = None, *, hint: str | None = None) -> NoReturn:
        at = (token or self._token).at
        first, last = max(0, at - _SHOWN), at + _SHOWN
        shown = re.sub(r"\s", " ", self._text[first:last])
        before, after = "…" * (first > 0), "…" * (last < len(self._text))
        mark = " " * (len(before) + at - first) + "^"
        what = what.removeprefix("clock: ")
        raise SpecError(
            f"clock: {what}, at character {at + 1}\n  {before}{shown}{after}\n  {mark}",
            hint=hint or 'clocks are written as "every(4)", "on(name)", "err.prediction > 0.5 && !every(2)"',
        )
