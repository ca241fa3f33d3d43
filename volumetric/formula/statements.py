"""Expressions as statements in a device's language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from volumetric.base.errors import UnsupportedError
from volumetric.formula.elementary import EXPANDED
from volumetric.formula.expression import CONDITIONS, Expression, subexpressions, where


@dataclass(frozen=True, slots=True)
class Language:
    """How a device writes expressions.

    Attributes
    ----------
    constant : text of a constant
    words : operation or function → its text, with ``{0}``, ``{1}``, … for the operands. A language whose conditions are
        no values has ``where_less``, … instead of ``where``; their operands are the two compared numbers and the two to
        choose from
    let : a statement that gives ``{value}`` the name ``{name}``
    """

    constant: Callable[[float], str]
    words: Mapping[str, str]
    let: str = "{name} = {value}"


def write_expressions(
    results: Sequence[Expression], language: Language, names: Mapping[str, str] | None = None, prefix: str = "v"
) -> tuple[list[str], list[str]]:
    """Write expressions; a subexpression used several times gets a name and a statement.

    Parameters
    ----------
    names : variable → its text, if this is not its name
    prefix : prefix of the new names

    Returns
    -------
    The statements, and the text of each result.
    """
    return _StatementWriter(results, language, names or {}, prefix).statements()


class _StatementWriter:
    def __init__(
        self, results: Sequence[Expression], language: Language, names: Mapping[str, str], prefix: str
    ) -> None:
        self._results = [_expand_functions(each, language) for each in results]
        self._language = language
        self._names = names
        self._prefix = prefix
        self._all = [
            each for each in subexpressions(*self._results) if "where" in language.words or each.op not in CONDITIONS
        ]
        self._uses = Counter(arg for each in self._all for arg in _operands(each, language)) + Counter(self._results)

    def statements(self) -> tuple[list[str], list[str]]:
        """Return statements and results."""
        statements: list[str] = []
        texts: dict[Expression, str] = {}
        for each in self._all:
            text = self._text(each, texts)
            if self._uses[each] > 1 and each.op not in ("constant", "variable", *CONDITIONS):
                name = f"{self._prefix}{len(statements)}"
                statements.append(self._language.let.format(name=name, value=text))
                text = name
            texts[each] = text
        return statements, [texts[each] for each in self._results]

    def _text(self, each: Expression, texts: Mapping[Expression, str]) -> str:
        if each.op == "constant":
            return self._language.constant(each.value)
        if each.op == "variable":
            return self._names.get(each.text, each.text)
        words = self._language.words
        word = f"where_{each.args[0].op}" if each.op == "where" and "where" not in words else each.op
        if word not in words:
            raise UnsupportedError(f"the language of the device has no word for {word}")
        return words[word].format(*(texts[arg] for arg in _operands(each, self._language)))


def _operands(of: Expression, language: Language) -> tuple[Expression, ...]:
    """The operands of the text of an expression."""
    if of.op == "where" and "where" not in language.words:
        return (*of.args[0].args, *of.args[1:])
    return of.args


def _expand_functions(of: Expression, language: Language) -> Expression:
    """Return an expression with functions expanded that the language has no word for."""
    spellings: dict[Expression, Expression] = {}
    for each in subexpressions(of):
        new = each.with_args(*(spellings[arg] for arg in each.args))
        if new.op == "where" and "where" not in language.words:
            new = _one_comparison(*new.args)
        expand = EXPANDED.get(each.op) if each.op not in language.words else None
        spellings[each] = new if expand is None else _expand_functions(expand(*new.args), language)
    return spellings[of]


def _one_comparison(condition: Expression, then: Expression, otherwise: Expression) -> Expression:
    """Return a choice split into single comparisons."""
    if condition.op == "either":
        a, b = condition.args
        return _one_comparison(a, then, _one_comparison(b, then, otherwise))
    if condition.op == "both":
        a, b = condition.args
        return _one_comparison(a, _one_comparison(b, then, otherwise), otherwise)
    return where(condition, then, otherwise)


BASIC: Mapping[str, str] = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "neg": "(-{0})",
    "less": "({0} < {1})",
    "at_most": "({0} <= {1})",
    "equal": "({0} == {1})",
}
"""Words that most languages share."""
