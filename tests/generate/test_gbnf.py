"""GBNF in Lark: the same texts fit, by llguidance's own reading of both; and it takes time by its length alone."""

from __future__ import annotations

import json

import llguidance
import pytest
from llguidance.gbnf_to_lark import gbnf_to_lark

from tests.generate.byte_tokens import byte_tokens
from volumetric.base.errors import SpecError
from volumetric.generate.gbnf import lark_of
from volumetric.generate.grammar_source import token_table

JSON = r"""
root   ::= object   # of llama.cpp's json.gbnf
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
CHESS = r"""
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?
"""
ODD = r"""
root ::= my-Rule my-rule{2} | "/" .
my-Rule ::= [^/\\\]"]
my-rule ::= "\u00e9" | [ac-]
"""


@pytest.fixture(scope="module")
def table():
    tokens = byte_tokens()
    return token_table(tokens.tokenizer, tokens.width, tokens.ends)


def fits(table: llguidance.LLTokenizer, lark: str, text: str) -> bool:
    matcher = llguidance.LLMatcher(table, lark, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = table.tokenize_str(text)
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("grammar", "texts"),
    [
        (JSON, ['{"a":[1,-2.5e+1,null]}', "{}", '{"\\u00e4":"x\\n"} ', '{"a":01}', "[1]", '{"a":}', '{"a":"\x01"}']),
        (CHESS, ["1. e4 e5\n2. Nf3 Nc6\n", "1. e4 e5\n", "1. O-O-O exd8=Q+\n10. O-O Ra1#\n", "1. e9 e5\n2. a a\n"]),
        (
            'root ::= "a"{2,3} ("b" | "c"){2} "d"{1,} | x\nx ::= "x" x | ""',
            ["aabcd", "aaacbdd", "abcd", "xxx", "", "y"],
        ),
    ],
)
def test_the_same_texts_fit_as_by_llguidance_s_own_converter(
    table: llguidance.LLTokenizer, grammar: str, texts: list[str]
):
    found = [fits(table, lark_of(grammar, 100), text) for text in texts]
    assert found == [fits(table, gbnf_to_lark(grammar), text) for text in texts]
    assert True in found
    assert False in found


def test_what_that_converter_gets_wrong(table: llguidance.LLTokenizer):
    """Names that differ by case or a dash alone, code points with zeros before them, and a dot that is a newline."""
    lark = lark_of(ODD, 100)
    for text, right in (("/\n", True), ("aéé", True), ("]éc", False), ("/é", True), ("xé-", True), ("xéb", False)):
        assert fits(table, lark, text) == right, text


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("", "no rule 'root'"),
        ('start ::= "a"', "no rule 'root'"),
        ("root ::= a", "refers to 'a', which it does not define"),
        ('root ::= "a"\nroot ::= "b"', "line 2, at 'root.*: the rule 'root' is defined twice"),
        ('root ::= "a', "line 1, at '\"a': this is not GBNF"),
        ('root ::= "a" )', r"line 1, at '\)': expected a rule"),
        ('root ::= ("a"', "this group is not closed"),
        ('root ::= "a"*+', "one repetition follows another"),
        ('root ::= "a"{3,2}', "repeats from 3 to 2 times"),
        ("root ::= [z-a]", "the range from U.007A to U.0061 is empty"),
        ("root ::= [^]", "a set of characters is empty"),
        (r'root ::= "\q"', r"unknown escape \\q"),
        (r'root ::= "\ud800"', "U.D800 is not a character"),
        (f"root ::= {'(' * 5000}", "nested more than 100 deep"),
        ("\n".join(f'{"root" if not i else f"r{i}"} ::= "a"' for i in range(51)), "more than 50 rules"),
    ],
)
def test_what_is_no_gbnf_is_told_with_its_place(grammar: str, message: str):
    with pytest.raises(SpecError, match=message):
        lark_of(grammar, 50)


@pytest.mark.thorough
def test_rules_are_terminals_unless_they_go_through_themselves():
    chain = "\n".join(f'r{i} ::= "a" r{i + 1}' for i in range(20_000))
    lines = lark_of(f'root ::= r0 loop\n{chain}\nr20000 ::= "b"\nloop ::= "c" loop?', 30_000).splitlines()
    assert lines[1:3] == ["start: R0 loop", 'R0: "a" R1']
    assert lines[-1] == 'loop: "c" loop?'


def test_texts_are_written_as_json():
    text = 'A"\\\n\U0001f600'
    lark = lark_of(r'root ::= "\x41\"\\\n\U0001F600"', 1)
    assert lark.endswith(f"start: {json.dumps(text, ensure_ascii=False)}")
