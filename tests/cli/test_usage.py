"""Parsing, exit codes and the purity of stdout, without a model."""

from __future__ import annotations

import dataclasses

import pytest
from cyclopts import App

from volumetric.cli import VERBS, main
from volumetric.cli.options import SamplingOptions
from volumetric.generate.params import ALIASES, SamplingParams

NONE_GIVEN = SamplingOptions()


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_verb(capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_all_its_flags(verb, capsys):
    code, out, err = run(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: volumetric {verb}")
    assert VERBS[verb].split()[0] in out


def test_every_sampling_parameter_has_a_flag_with_help(capsys):
    _, out, _ = run(capsys, "generate", "--help")
    flags = [
        "--" + name.replace("_", "-") for name in (*ALIASES, *(f.name for f in dataclasses.fields(SamplingParams)))
    ]
    assert [flag for flag in flags if flag not in out] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generat"], "generat"),
        (["generate", "--tmperature", "1"], "--tmperature"),
        (["generate", "--top-k", "many"], "many"),
        (["generate", "--compute", "int3"], "int3"),
        (["generate", "model", "extra"], "extra"),
        (["generate", "x", "--trust-remote-code", "-p", "a"], "no code from a model repository"),
        (["generate", "x"], "no prompt"),
        (["generate", "x", "-p", "a", "--file", "b"], "--prompt and --file"),
        (["generate", "x", "--prompt-ids", "1,two"], "1,two"),
        (["generate", "x", "--prompt-ids", "1", "--chat"], "--prompt-ids and --chat"),
        (["generate", "x", "-p", "a", "--chat", "--template-args", "[1]"], "JSON object"),
        (["generate", "x", "-p", "a", "--chat", "--template-args", "{"], "not JSON"),
        (["bench", "x", "-p", "many"], "many"),
        (["bench", "x", "-p", "-5"], "-5"),
        (["bench", "x", "--pg", "5"], "PROMPT,GENERATE"),
        (["convert", "only-a-source"], "target"),
    ],
)
def test_wrong_usage_is_two_lines_and_exit_code_2(arguments, message, capsys):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    first, hint = err.rstrip("\n").split("\n")
    assert first.startswith("error: ")
    assert message.lower() in first.lower()
    assert hint.startswith("hint: ")


def test_a_library_error_is_exit_code_1_and_debug_shows_its_traceback(capsys):
    code, out, err = run(capsys, "generate", "/no/such/model", "-p", "a", "--device", "reference")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err
    with pytest.raises(Exception, match="no/such/model"):
        main(["generate", "/no/such/model", "-p", "a", "--device", "reference", "--debug"])


def test_a_missing_prompt_file_is_explained(tmp_path, capsys):
    code, out, err = run(capsys, "generate", "x", "--file", str(tmp_path / "none.txt"))
    assert (code, out) == (1, "")
    hint = "hint: check the path and its permissions"
    assert err == f"error: {tmp_path / 'none.txt'}: No such file or directory\n{hint}\n"


def test_a_prompt_that_is_no_text_is_explained(tmp_path, capsys):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    code, out, err = run(capsys, "generate", "x", "--file", str(tmp_path / "bytes"))
    assert (code, out) == (1, "")
    assert err.startswith("error: the input is not UTF-8 text")


def test_an_unknown_device_is_explained(capsys):
    code, _, err = run(capsys, "generate", "/no/such/model", "-p", "a", "--device", "gpuu")
    assert code == 1
    assert "gpuu" in err
    assert "did you mean 'gpu'" in err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-n", "3"], {"max_tokens": 3}),
        (["--max-new-tokens", "3"], {"max_tokens": 3}),
        (["--temp", "0.5", "--top-k", "4"], {"temperature": 0.5, "top_k": 4}),
        (["-r", "a", "--stop", "b"], {"stop": ("a", "b")}),
        (["--stop", "-x"], {"stop": ("-x",)}),
        (["--repeat-penalty", "1.1", "--repeat-last-n", "64"], {"repetition_penalty": 1.1, "repetition_window": 64}),
        (["-s", "9", "--ignore-eos"], {"seed": 9, "ignore_eos": True}),
        (["--logit-bias.42", "-2.5", "--stop-ids", "7"], {"logit_bias": {"42": -2.5}, "stop_ids": (7,)}),
        ([], {}),
    ],
)
def test_sampling_flags_say_only_what_was_given(flags, expected):
    def verb(*, sampling: SamplingOptions = NONE_GIVEN) -> dict:
        return sampling.given()

    app = App(result_action="return_value")
    app.default(verb)
    assert app(flags) == expected
