"""Whole numbers of the command line: what is one, and that a fraction is never rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import pytest
from cyclopts import App, CoercionError, Parameter

from volumetric.cli import COMMANDS, app, main
from volumetric.cli.whole_numbers import refuse_fractions

NUMBERS = {
    "7": 7,
    "-7": -7,
    "+7": 7,
    "2.0": 2,
    "2.": 2,
    "-0.0": 0,
    "1_000": 1000,
    "0x3e8": 1000,
    "0b11": 3,
    "0o17": 15,
    "999999999999999.0": 10**15 - 1,
    "9007199254740993": 2**53 + 1,
}
NONE = (
    *("2.7", "-0.5", "2.5", ".5", "2.7_0", "0x1.8", "1e3", "1.5e3", "0.1e1", "1.0e999999999"),
    *(".", "1.0.0", "nan", "inf.", "1,5"),
    "9007199254740993.0",  # more digits than a float holds
)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags in a class."""

    optional: Annotated[int | None, Parameter(name=["--optional", "-o"])] = None


def read(
    number: int = 0,
    *numbers: int,
    several: list[int] | None = None,
    pair: tuple[int, float] = (0, 0.0),
    named: dict[str, int] | None = None,
    either: int | str = 0,
    other: str | int = 0,
    share: float = 0.0,
    bits: Literal[4, 8] = 4,
    text: str = "",
    options: Options | None = None,
) -> dict[str, Any]:
    """Return the values."""
    return locals()


def line(*tokens: str) -> dict[str, Any]:
    """Return the values of `read` for a command line."""
    built = App(config=refuse_fractions, result_action="return_value", exit_on_error=False, print_error=False)
    built.default(read)
    return built(tokens)


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_a_whole_number_is_exact(text: str, value: int) -> None:
    values = line(f"--number={text}", "--several", "1", f"--several={text}", "--pair", text, "0.5", f"--named.a={text}")
    assert values["number"] == values["several"][1] == values["pair"][0] == values["named"]["a"] == value
    assert line(f"--optional={text}")["options"].optional == value
    bound = app().parse_args(["generate", "x", "a", f"--context={text}" if value >= 0 else f"--seed={text}"])[1]
    assert value in [getattr(of, name, None) for of in bound.arguments.values() for name in ("context", "seed")]


@pytest.mark.parametrize("text", NONE)
def test_a_fraction_or_another_text_is_refused(text: str) -> None:
    for tokens in (
        [f"--number={text}"],
        ["1", "2", text],
        [f"--optional={text}"],
        ["--several=1", f"--several={text}"],
        ["--pair", text, "0.5"],
        [f"--named.a={text}"],
    ):
        with pytest.raises(CoercionError) as caught:
            line(*(["--", *tokens] if not tokens[0].startswith("--") else tokens))
        assert text in str(caught.value)


def test_types_that_may_be_more_than_whole_numbers() -> None:
    assert line("--pair", "2.0", "2.7", "--share", "2.7", "--text", "2.7", "--other", "2.7") == read(
        pair=(2, 2.7), share=2.7, text="2.7", other="2.7"
    )
    assert line("--several", "[1, 2]", "--optional", "none") == read(several=[1, 2], options=Options())
    assert line("--either", "2.0", "--bits", "8.0") == read(either=2, bits=8)
    for tokens in (["--several", "[1, 2.7]"], ["--several", "12.7", "--several", "2.7"]):
        with pytest.raises(CoercionError, match=r'"(12|2)\.7"'):
            line(*tokens)
    for tokens in (["--either", "2.7"], ["--bits", "8.3"]):  # int comes first: it would be 3, and 8
        with pytest.raises(CoercionError, match=tokens[1]):
            line(*tokens)


@pytest.mark.parametrize(
    "tokens",
    [
        ["generate", "x", "a", "-n", "2.7"],
        ["generate", "x", "a", "--seed=-0.5"],
        ["generate", "x", "a", "--n-predict", "2.7"],
        ["chat", "x", "-c", "1.5e3"],
        ["serve", "x", "--port", "8080.5"],
        ["tasks", "list", "--steps", "1e3"],
    ],
    ids=lambda tokens: tokens[0] + tokens[-1],
)
def test_commands_refuse_a_fraction_in_a_sentence(tokens: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tokens) == 2
    value = tokens[-1].rpartition("=")[2]
    first, hint = capsys.readouterr().err.rstrip("\n").split("\n")
    assert first.startswith("error: ")
    assert first.endswith(f" of {tokens[0]} must be a whole number, got '{value}'")
    assert hint.startswith("hint: for example ")


@pytest.mark.thorough
@pytest.mark.parametrize("verb", COMMANDS)
def test_no_flag_of_a_command_rounds(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = app()[verb].assemble_argument_collection()
    flags = [of.name for of in arguments if int in (of.hint, *get_args(of.hint))]
    for flag in flags:
        assert main([verb, f"{flag}=2.7"]) == 2
        assert f"{flag} of {verb} must be a whole number, got '2.7'" in capsys.readouterr().err
