"""GBNF: llama.cpp's grammar notation, converted to llguidance's Lark in time linear in its length.

Source: https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md. A rule that expands to texts and
characters without recursion becomes a terminal in Lark, which llguidance matches by one automaton.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from volumetric.base.errors import SpecError

MOST_NESTED: Final = 100
"""Most nested groups."""
_TOKEN: Final = re.compile(
    r"""(?P<none>[ \t\r\n]+|\#[^\r\n]*)|(?P<name>[A-Za-z0-9_-]+)|(?P<is>::=)|(?P<text>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<times>[*+?]|\{\s*[0-9]{1,6}\s*(?:,\s*[0-9]{0,6}\s*)?\})|(?P<mark>[().|])""",
    re.DOTALL,
)
_CHAR: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(slots=True)
class _GbnfRule:
    """A rule: pieces of Lark, and the names of rules at their places between them."""

    pieces: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Index in `pieces` → name of the referenced rule."""


def lark_of(text: str, most_rules: int) -> str:
    """Return a grammar in llguidance's Lark.

    Parameters
    ----------
    text : the grammar in GBNF
    most_rules : most rules of the grammar

    Raises
    ------
    SpecError : it is not GBNF, refers to an undefined rule, or is too large
    """
    rules = _GbnfReader(text, most_rules).rules()
    if "root" not in rules:
        raise SpecError("the grammar has no rule 'root'", hint="GBNF begins with root ::= …, Lark with start: …")
    for rule in rules.values():
        for name in rule.names.values():
            if name not in rules:
                raise SpecError(f"the grammar refers to {name!r}, which it does not define")
    terminals = _terminals(rules)
    written = _names(rules, terminals)
    lines = ["%llguidance {}"]
    for name, rule in rules.items():
        pieces = [f" {written[rule.names[i]]}" if i in rule.names else piece for i, piece in enumerate(rule.pieces)]
        lines.append(f"{written[name]}:{''.join(pieces)}")
    return "\n".join(lines)


def _terminals(rules: dict[str, _GbnfRule]) -> set[str]:
    """Return the rules that expand to texts and characters without recursion."""
    missing = {name: len(rule.names) for name, rule in rules.items()}
    users: dict[str, list[str]] = {}
    for name, rule in rules.items():
        for other in rule.names.values():
            users.setdefault(other, []).append(name)
    ready = [name for name, count in missing.items() if not count and name != "root"]
    terminals: set[str] = set()
    while ready:
        terminals.add(name := ready.pop())
        for user in users.get(name, ()):
            missing[user] -= 1
            if not missing[user] and user != "root":
                ready.append(user)
    return terminals


def _names(rules: dict[str, _GbnfRule], terminals: set[str]) -> dict[str, str]:
    """Return unique names in Lark's format: lower case for rules, upper case for terminals."""
    used, written = {"start"}, {"root": "start"}
    for name in rules:
        if name == "root":
            continue
        plain = name.replace("-", "_").lower()
        plain = plain if _PLAIN.fullmatch(plain) else f"r{plain}"
        unique, count = plain, 0
        while unique in used:
            unique, count = f"{plain}_{count}_{len(used)}", count + 1
        used.add(unique)
        written[name] = unique.upper() if name in terminals else unique
    return written


class _GbnfReader:
    """Parses a text token by token. Newlines do not end a rule: it ends before the next name and ``::=``."""

    def __init__(self, text: str, most_rules: int) -> None:
        self._text = text
        self._most = most_rules
        self._tokens: list[tuple[str, str, int]] = []
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                self._fail(at, "this is not GBNF")
            if match.lastgroup != "none":
                self._tokens.append((match.lastgroup or "", match[0], at))
            at = match.end()
        self._tokens += [("end", "", len(text))] * 2
        self._at = 0

    def rules(self) -> dict[str, _GbnfRule]:
        """Return the rules by name."""
        rules: dict[str, _GbnfRule] = {}
        while self._kind != "end":
            kind, name, at = self._tokens[self._at]
            if kind != "name" or self._tokens[self._at + 1][0] != "is":
                self._fail(at, "expected a rule, such as: name ::= …")
            if name in rules:
                self._fail(at, f"the rule {name!r} is defined twice")
            if len(rules) >= self._most:
                raise SpecError(f"the grammar has more than {self._most} rules", hint="merge rules that are used once")
            self._at += 2
            rules[name] = rule = _GbnfRule()
            self._alternatives(rule, 0)
        return rules

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _alternatives(self, rule: _GbnfRule, depth: int) -> None:
        if depth > MOST_NESTED:
            self._fail(self._tokens[self._at][2], f"groups are nested more than {MOST_NESTED} deep")
        while True:
            self._sequence(rule, depth)
            if self._tokens[self._at][1] != "|" or self._kind != "mark":
                return
            rule.pieces.append(" |")
            self._at += 1

    def _sequence(self, rule: _GbnfRule, depth: int) -> None:
        """Parse names, texts, sets and groups up to the end of a sequence, and add them to `rule` as Lark."""
        begin = len(rule.pieces)
        while True:
            kind, text, at = self._tokens[self._at]
            if kind == "name" and self._tokens[self._at + 1][0] != "is":
                rule.names[len(rule.pieces)] = text
                rule.pieces.append("")
            elif kind == "text":
                written = "".join(map(chr, self._chars(text[1:-1], at)))
                rule.pieces.append(f" {json.dumps(written, ensure_ascii=False)}")
            elif kind == "set":
                rule.pieces.append(" " + self._set(text[1:-1], at))
            elif text == "." and kind == "mark":
                rule.pieces.append(" /(?s:.)/")
            elif text == "(" and kind == "mark":
                self._at += 1
                rule.pieces.append(" (")
                self._alternatives(rule, depth + 1)
                if self._tokens[self._at][1] != ")" or self._kind != "mark":
                    self._fail(at, "this group is not closed")
                rule.pieces.append(")")
            else:
                break
            self._at += 1
            rule.pieces.append(self._times())
        if len(rule.pieces) == begin:
            rule.pieces.append(' ""')

    def _times(self) -> str:
        """Parse the repetition of the last item; empty if there is none."""
        if self._kind != "times":
            return ""
        repetition = re.sub(r"\s", "", self._tokens[self._at][1])
        self._at += 1
        if self._kind == "times":
            self._fail(self._tokens[self._at][2], "one repetition follows another: put the first item into ( )")
        if repetition[0] != "{":
            return repetition
        least, comma, most = repetition[1:-1].partition(",")
        if most and int(most) < int(least):
            self._fail(self._tokens[self._at - 1][2], f"{repetition} repeats from {least} to {most} times")
        return f"{{{least},{most if comma else least}}}"

    def _chars(self, text: str, at: int) -> list[int]:
        """Return code points."""
        codes: list[int] = []
        for each in _CHAR.finditer(text):
            hexadecimal = each[1] or each[2] or each[3]
            if each[4] is not None and each[4] not in _ESCAPES:
                self._fail(at, f"unknown escape \\{each[4]}")
            code = int(hexadecimal, 16) if hexadecimal else ord(_ESCAPES[each[4]] if each[4] else each[5])
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                self._fail(at, f"U+{code:04X} is not a character")
            codes.append(code)
        return codes

    def _set(self, text: str, at: int) -> str:
        """Return a set of characters as a regular expression."""
        inner = text.removeprefix("^")
        codes, parts, i = self._chars(inner, at), [], 0
        # A dash cannot be escaped in GBNF.
        while i < len(codes):
            last = codes[i + 2] if i + 2 < len(codes) and codes[i + 1] == ord("-") else None
            if last is not None and last < codes[i]:
                self._fail(at, f"the range from U+{codes[i]:04X} to U+{last:04X} is empty")
            parts.append(f"\\x{{{codes[i]:x}}}" + ("" if last is None else f"-\\x{{{last:x}}}"))
            i += 1 if last is None else 3
        if not parts:
            self._fail(at, "a set of characters is empty")
        return f"/[{'^' if inner != text else ''}{''.join(parts)}]/"

    def _fail(self, at: int, what: str) -> NoReturn:
        line = self._text.count("\n", 0, at) + 1
        raise SpecError(f"the grammar cannot be enforced: line {line}, at {self._text[at : at + 30]!r}: {what}")
