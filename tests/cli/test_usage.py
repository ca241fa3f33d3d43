"""Parsing, exit codes and the purity of stdout, without a model."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from cyclopts import App

from volumetric.cli import COMMANDS, main
from volumetric.cli.flags import as_flags
from volumetric.cli.sampling import SamplingOptions
from volumetric.generate.params import ALIASES, SamplingParams

NONE_GIVEN = SamplingOptions()


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_verb(capsys):
    code, out, err = run(capsys, "--help")
    assert (code, err) == (0, "")
    assert all(verb in out for verb in COMMANDS)


@pytest.mark.thorough
@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_explains_itself_and_all_its_flags(verb, capsys):
    code, out, err = run(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: volumetric {verb}")
    assert COMMANDS[verb].split()[0] in out


def test_every_sampling_parameter_has_a_flag_with_help(capsys):
    _, out, _ = run(capsys, "generate", "--help")
    flags = [
        "--" + name.replace("_", "-") for name in (*ALIASES, *(f.name for f in dataclasses.fields(SamplingParams)))
    ]
    assert [flag for flag in flags if flag not in out] == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generat"], "generat"),
        (["generate", "--tmperature", "1"], "--tmperature"),
        (["generate", "--top-k", "many"], "many"),
        (["generate", "--compute", "int3"], "int3"),
        (["generate", "--compute", "fp16"], "fp16"),
        (["generate", "model", "prompt", "extra"], "extra"),
        (["generate", "model", "prompt", "-p", "a"], "PROMPT and --prompt"),
        (["generate", "x", "a", "-ngl", "99"], "-ngl"),
        (["generate", "x", "a", "--temp", "-1"], "temperature"),
        (["generate", "x", "a", "--seed", "-2"], "seed"),
        (["generate", "x", "a", "--top-p", "1.5"], "top_p"),
        (["generate", "x", "a", "--stop-ids", "5", "six"], "six"),
        (["generate", "x", "a", "--logit-bias", "42"], "ID=NUMBER"),
        (["generate", "x", "a", "--logit-bias", "a=1"], "ID=NUMBER"),
        (["generate", "x", "a", "--logit-bias", "42=inf"], "logit_bias"),
        (["generate", "x", "a", "--dtype", "q7_0"], "q7_0"),
        (["convert", "x", "y", "--dtype", "q7_0"], "q7_0"),
        (["generate", "x", "a", "--context", "-1"], "--context"),
        (["chat", "x", "--threads", "-1"], "--threads"),
        (["chat", "x", "--temp", "-1"], "temperature"),
        (["generate", "x", "--trust-remote-code", "-p", "a"], "no code from a model repository"),
        (["generate", "x"], "no prompt"),
        (["generate", "x", "-p", "a", "--file", "b"], "--prompt and --file"),
        (["generate", "x", "--prompt-ids", "1,two"], "1,two"),
        (["generate", "x", "--prompt-ids", "1", "--chat"], "--prompt-ids and --chat"),
        (["generate", "x", "-p", "a", "--chat", "--template-args", "[1]"], "JSON object"),
        (["generate", "x", "-p", "a", "--chat", "--template-args", "{"], "not JSON"),
        (["generate", "x", "-p", "a", "--chat", "--template-args", "[" * 100_000], "not JSON"),
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


@pytest.mark.parametrize(
    ("verb", "flag", "key"),
    [
        ("train", "--epochs", "train.epochs"),
        ("train", "--batch-size", "data.batch_size"),
        ("train", "--seed", "seed"),
        ("evolve", "--population", "population"),
        ("evolve", "--target", "species.target"),
    ],
)
def test_a_key_of_a_file_that_is_given_as_a_flag_is_told_how_to_set(verb, flag, key, capsys):
    code, out, err = run(capsys, verb, "x.toml", flag, "5")
    assert (code, out) == (2, "")
    assert err == f"error: unknown flag {flag} of {verb}\nhint: it is a key of the file: use --set {key}=…\n"


@pytest.mark.parametrize(
    ("text", "verb", "told"),
    [
        ("open the model with context=90 or more", "chat", "open the model with --context 90 or more"),
        ("strict=False loads what fits", "inspect", "--no-strict loads what fits"),
        ("try dtype='float32' or device='reference'", "generate", "try --dtype float32 or --device reference"),
        ("kv_dtype=float16, network=3", "bench", "--kv-dtype float16, network=3"),
        ("device='cpu' in the file", "train", "device='cpu' in the file"),
    ],
)
def test_keywords_of_python_are_told_as_flags(text, verb, told):
    assert as_flags(text, verb) == told


def test_a_missing_prompt_file_is_explained(tmp_path, capsys):
    code, out, err = run(capsys, "generate", "x", "--file", str(tmp_path / "none.txt"))
    assert (code, out) == (1, "")
    hint = f"hint: there is no 'none.txt' in {tmp_path}"
    assert err == f"error: {tmp_path / 'none.txt'}: No such file or directory\n{hint}\n"


def test_a_prompt_that_is_no_text_is_explained(tmp_path, capsys):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    code, out, err = run(capsys, "generate", "x", "--file", str(tmp_path / "bytes"))
    assert (code, out) == (1, "")
    assert err.startswith("error: the input is not UTF-8 text")


def test_an_unknown_device_is_explained(capsys):
    code, _, err = run(capsys, "generate", "/no/such/model", "-p", "a", "--device", "gpuu")
    assert code == 2
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
        (["--logit-bias", "42=-2.5", "--stop-ids", "7"], {"logit_bias": {42: -2.5}, "stop_ids": (7,)}),
        (["--logit-bias", "4+1", "--logit-bias", "5-inf"], {"logit_bias": {4: 1.0, 5: -np.inf}}),
        (["--stop-ids", "5", "6", "-n", "1"], {"stop_ids": (5, 6), "max_tokens": 1}),
        (["--stop-ids", "5,6", "--stop-ids", "7"], {"stop_ids": (5, 6, 7)}),
        (["--stop", r"a\n", "--stop", r"\\n\d"], {"stop": ("a\n", r"\n\d")}),
        (["--seed", "-1"], {"seed": -1}),
        ([], {}),
    ],
)
def test_sampling_flags_say_only_what_was_given(flags, expected):
    def verb(*, sampling: SamplingOptions = NONE_GIVEN) -> dict:
        return sampling.set_values()

    app = App(result_action="return_value")
    app.default(verb)
    assert app(flags) == expected
