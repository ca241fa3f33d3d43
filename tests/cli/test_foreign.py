"""Command lines of users of llama.cpp, mlx-lm, vLLM and Ollama: honoured, taken with a word, or answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import volumetric
from volumetric.cli import COMMANDS, app, main
from volumetric.cli.exits import UsageError
from volumetric.cli.foreign import translate_flags
from volumetric.cli.foreign_flags import FLAGS
from volumetric.cli.foreign_flags import FOREIGN_COMMANDS as OTHER_VERBS

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


@pytest.fixture(scope="module")
def built():
    return app()


def own_flags(built, verb: str) -> set[str]:
    return {name for argument in built[verb].assemble_argument_collection() for name in argument.names}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("generate m hi -fa", "generate m hi"),
        ("generate m -fa on hi", "generate m hi"),
        ("generate m --flash-attn=off hi", "generate m hi"),
        ("generate m hi --no-mmap --mlock --jinja -b 512 -ub 64 --color --keep -1 --no-warmup", "generate m hi"),
        ("generate m hi -ctk q8_0", "generate m hi --kv-dtype int8"),
        ("generate m hi -ctk f16 -ctv f16", "generate m hi --kv-dtype float16"),
        ("serve m --cache_type_k=q8_0 -np 2", "serve m --kv-dtype int8 -np 2"),
        ("chat m -cnv", "chat m"),
        ("generate m hi -st", "generate m hi --chat"),
        ("generate m hi -no-cnv", "generate m hi --no-chat-template"),
        ("generate m hi -md small", "generate m hi --draft small"),
        ("generate m hi --adapter-path a --adapter-path b", "generate m hi --lora a --lora b"),
        ("serve m --max-model-len 100 --served-model-name x -cb", "serve m --context 100 --alias x"),
        # What is ours, a value, or behind the end of flags, stays as it is.
        ("generate m -p -fa", "generate m -p -fa"),
        ("generate m hi --stop -st", "generate m hi --stop -st"),
        ("generate m hi -n128 -sys be -ngl 9", "generate m hi -n128 -sys be -ngl 9"),
        ("bench m -pg 5,5 -b 2", "bench m -pg 5,5 -b 2"),
        ("generate m -- -fa", "generate m -- -fa"),
        ("generate m hi --temp -0.5", "generate m hi --temp -0.5"),
        ("nothing -fa", "nothing -fa"),
    ],
)
def test_flags_of_others_become_ours_or_go(line, ours, built):
    assert translate_flags(line.split(), built) == ours.split()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("generate m hi -vq", "unknown flag -vq of generate", "write each flag with its own dash"),
        ("generate m hi -temp 1", "unknown flag -temp of generate", "did you mean --temp?"),
        ("train x.toml -fa", "unknown flag -fa of train", "write each flag with its own dash"),
        ("program check x.json -abc", "unknown flag -abc of program", "write each flag with its own dash"),
        ("generate m -cnv", "unknown flag -cnv of generate", "volumetric chat MODEL"),
        ("chat m -st", "unknown flag -st of chat", "volumetric generate MODEL --chat"),
        ("generate m hi -mu https://example.org/x.gguf", "unknown flag -mu", "download the file"),
        ("generate m hi --grammar g", "unknown flag --grammar", "volumetric serve"),
        ("generate m hi -ctk q4_0", "cannot be stored as q4_0", "int8 (q8_0)"),
        ("generate m hi -ctk q8_0 -ctv f16", "-ctv contradicts --kv-dtype int8", None),
        ("generate m hi -ctk", "-ctk requires an argument", None),
        ("generate m hi -sm none", "unknown flag -sm", "gpu:1"),
        ("inspect m -ctk f16", "unknown flag -ctk of inspect", "write each flag with its own dash"),
        ("serve m -to 3", "unknown flag -to of serve", "--request-timeout"),
        ("generate -hf org/name:Q4_K_M hi", "org/name:Q4_K_M", "org/name/FILE.gguf"),
    ],
)
def test_what_cannot_be_done_is_answered(line, message, hint, built):
    with pytest.raises(UsageError) as caught:
        translate_flags(line.split(), built)
    assert message in str(caught.value)
    assert hint is None or hint in (caught.value.hint or "")


def test_a_file_of_a_system_prompt_is_read(built, tmp_path):
    (tmp_path / "system.txt").write_text("Be brief.")
    line = ["generate", "m", "hi", "-sysf", str(tmp_path / "system.txt")]
    assert translate_flags(line, built) == ["generate", "m", "hi", "--system", "Be brief."]


def test_what_has_no_effect_is_told_once_and_not_with_quiet(capsys):
    assert main(["generate", "/no/such/model", "hi", "-fa", "--mlock"]) == 1
    err = capsys.readouterr().err
    assert "-fa has no effect: attention never materialises its scores\n" in err
    assert err.count("--mlock has no effect") == 1
    assert main(["generate", "/no/such/model", "hi", "-fa", "--quiet"]) == 1
    assert "-fa" not in capsys.readouterr().err


def test_a_context_of_0_is_that_of_the_model():
    assert main(["chat", "m", "-c", "-1"]) == 2
    with volumetric.load(TINY / "llama", device="reference", context=0) as model:
        assert model.info.context == model.info.context_length == 256


def test_the_table_is_of_use(built):
    verbs = {verb for flag in FLAGS for verb in flag.commands}
    own = {verb: own_flags(built, verb) for verb in verbs}
    assert verbs <= set(COMMANDS)
    assert not set(OTHER_VERBS) & set(COMMANDS)
    seen: set[tuple[str, str]] = set()
    for flag in FLAGS:
        for name in flag.names:
            at = {(name, verb) for verb in flag.commands if name not in own[verb]}
            assert at - seen, f"{name} is looked up in another row, or is a flag of each of these verbs"
            seen |= at


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["generate", "m", "hi", "--colr"], "unknown flag --colr", "see: volumetric generate --help"),
        (["generate", "m", "hi", "--tmperature", "1"], "unknown flag --tmperature", "did you mean --temperature?"),
        (["stop"], "unknown command 'stop'", "Ctrl-C"),
        (["pull", "a/b"], "unknown command 'pull'", "volumetric inspect ORG/NAME"),
        (["generat", "m"], "unknown command 'generat'", "did you mean generate?"),
        (["run", "m", "hi"], "unexpected argument of run: 'hi'", "volumetric generate MODEL PROMPT"),
        (["generate", "m", "hi", "--device", "CUDA0"], "no device 'CUDA0'", "gpu:0 is what you mean"),
        (["generate", "m", "hi", "--device", "mps"], "no device 'mps'", "gpu is what you mean"),
        (["generate", "m", "hi", "--dtype", "Q4_K_M"], "unknown dtype 'Q4_K_M'", "q4_k for all of them"),
        (["convert", "m", "x", "--dtype", "IQ3_XS"], "unknown dtype 'IQ3_XS'", "convert --bits 3.5"),
        (["generate", "m", "hi", "--dtype", "4bit"], "unknown dtype '4bit'", "hint: weights of 4 bits: int4"),
        (["generate", "m", "hi", "--dtype", "auto"], "unknown dtype 'auto'", "leave it out"),
    ],
)
def test_hints_say_what_is_meant(arguments, message, hint, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert hint in err
