"""Chatting: full contexts, messages of several lines, saving, answering again, and Ctrl-C whenever it comes."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import volumetric
from tests.generate.letters import END
from tests.generate.letters import letters as letters_model
from volumetric.cli import chat, console
from volumetric.cli.conversation import LocalConversation
from volumetric.cli.line_input import read_message
from volumetric.cli.stdio import OutputError
from volumetric.loaders.generation_config import GenerationDefaults

ROOT = Path(volumetric.__file__).parents[1]


@pytest.fixture
def talk(run, letters, monkeypatch):
    def call(*lines: str, flags: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))
        return run("chat", letters, "--device", "reference", *flags)

    return call


@pytest.fixture
def conversation():
    console.configure(verbose=False, quiet=False, debug=False)
    model = letters_model(context=32)
    return LocalConversation(model, model.session(), {}, settings={"max_tokens": 4})


def typed(*lines: str) -> str:
    rest = iter(lines)

    def read(sign: str) -> str:
        try:
            return next(rest)
        except StopIteration:
            raise EOFError from None

    return read_message(read)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["  one "], "one"),
        (['"""one', "  two", 'three"""'], "one\n  two\nthree"),
        (['"""', "one", '"""'], "one"),
        (['"""one"""'], "one"),
        (['"""one', "two"], "one\ntwo"),
        (["one\\", "  two\\", "three", "four"], "one\n  two\nthree"),
        (["one\\"], "one"),
        (["/set stop \\\\", "x"], "/set stop \\\nx"),
    ],
)
def test_messages_of_several_lines(lines, message):
    assert typed(*lines) == message


@pytest.mark.thorough
def test_answers_with_a_draft_are_those_without(talk):
    lines = ("abcabc", "de", "/set temperature 1.5", "/set seed 3", "abab")
    flags = ("-n", "12")
    code, out, err = talk(*lines, flags=(*flags, "--draft", "lookup"))
    assert (code, out) == talk(*lines, flags=flags)[:2]
    assert "draft tokens" in err
    assert "cannot be combined" in talk(flags=("--draft", "lookup", "--url", "http://127.0.0.1:9"))[2]


def test_several_lines_are_one_message(talk):
    # Line breaks are no letters: the model reads them as its unknown token.
    assert talk('"""a', 'b"""', flags=("-n", "1"))[1] == "c\n"
    assert talk("a\\", "b", flags=("-n", "1"))[1] == "c\n"
    assert talk('"""', "/reset", 'a"""', flags=("-n", "1"))[1] == "b\n"


def test_a_full_context_forgets_the_oldest_turns_and_keeps_the_system_message(talk):
    turns = ["a" * 9 + "b"] * 6
    code, out, err = talk(*turns, flags=("-n", "4", "--context", "40", "--system", "h"))
    assert (code, out) == (0, "cdef\n" * 6)
    assert "the context of 40 tokens is full: the 4 oldest messages are dropped" in err
    assert "/reset" in err
    assert "--context" in err


def test_the_system_message_outlives_what_is_forgotten(conversation):
    conversation.system("h")
    for _ in range(7):
        conversation.answer("aaaab")
    contents = [message["content"] for message in conversation.messages]
    assert contents[0] == "h"
    assert contents[1:] == ["aaaab", "cdef"] * ((len(contents) - 1) // 2)
    assert sum(map(len, contents)) <= 32
    assert conversation.session.tokens[0] == "abcdefgh.".index("h")


def test_a_message_beyond_the_context_leaves_the_conversation_as_it_was(talk):
    code, out, err = talk("ab", "abc" * 20, "e", flags=("-n", "1", "--context", "40"))
    assert (code, out) == (0, "c\nf\n")
    assert "the prompt has 60 tokens, the context holds 40" in err
    assert "--context 60" in err
    assert "dropped" not in err
    assert "prompt 2 tok (+2 reused)" in err


def test_cut_answers_are_told(talk):
    assert "cut off after 2 tokens" in talk("a", flags=("-n", "2"))[2]
    _, _, err = talk("a" * 12 + "b", flags=("-n", "60", "--context", "16", "--ignore-eos"))
    assert "ended because the context of 16 tokens is full" in err


def test_answering_again_replaces_the_answer(conversation, capsys):
    conversation.answer("ab")
    conversation.change("temp", "50")
    conversation.change("seed", "3")
    conversation.regenerate()
    assert [message["role"] for message in conversation.messages] == ["user", "assistant"]
    again = conversation.messages[-1]["content"]
    assert capsys.readouterr().out == f"cdef\n{again}\n"
    assert again != "cdef"


def test_there_is_nothing_to_answer_again_at_first(talk):
    assert "no message to answer" in talk("/regen")[2]


def test_commands_have_the_names_that_other_programs_use(talk):
    code, out, err = talk("ab", "/clear", "b", "/?", "/set temp", "/save", "/bye", "a", flags=("-n", "1"))
    assert (code, out) == (0, "c\nc\n")
    assert "prompt 1 tok," in err
    assert "/regen" in err
    assert err.count("needs an argument") == 2


def test_saved_conversations_go_on(talk, tmp_path):
    file = tmp_path / "talk.json"
    talk("ab", f"/save {file}", "f", f"/save {file}", flags=("-n", "1"))
    saved = [("user", "ab"), ("assistant", "c"), ("user", "f"), ("assistant", "g")]
    assert [(m["role"], m["content"]) for m in json.loads(file.read_text())] == saved
    code, out, err = talk(f"/load {file}", "b", flags=("-n", "1"))
    assert (code, out) == (0, "c\n")
    assert "prompt 6 tok" in err
    before = file.read_bytes()
    assert "is not overwritten" in talk("a", f"/save {file}")[2]
    assert file.read_bytes() == before


@pytest.mark.thorough
@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"role": "user"}]', '[{"role": "user", "content": 1}]', "[" * 9999]
)
def test_files_without_a_conversation_are_refused(talk, tmp_path, text):
    (tmp_path / "no.json").write_text(text)
    code, out, err = talk("a", f"/load {tmp_path / 'no.json'}", "c", flags=("-n", "1"))
    assert (code, out) == (0, "b\nd\n")
    assert f"error: {tmp_path / 'no.json'}" in err
    assert "No such file" in talk(f"/load {tmp_path / 'none'}")[2]
    assert "cannot write" in talk("a", f"/save {tmp_path / 'none' / 'x'}")[2]


@pytest.mark.parametrize("name", ["~no_such_user/x", "a" * 5000, "a\0b"])
def test_names_that_no_file_can_have_leave_the_conversation_alone(talk, name):
    code, out, err = talk("a", f"/save {name}", f"/load {name}", "c", flags=("-n", "1"))
    assert (code, out) == (0, "b\nd\n")
    assert err.count("hint: choose another name") == 2


def test_a_stdout_that_cannot_be_written_ends_the_chat(talk, monkeypatch):
    def full(text: str) -> None:
        raise OutputError("cannot write to stdout: No space left on device")

    monkeypatch.setattr(console, "write", full)
    code, _, err = talk("a", "b")
    assert code == 1
    assert err.count("No space left") == 1


def test_ctrl_c_just_after_an_answer_keeps_it(conversation, monkeypatch):
    write = console.write

    def interrupted(text: str) -> None:
        write(text)
        if text == "\n":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(console, "write", interrupted)
    conversation.answer("ab")
    assert [message["content"] for message in conversation.messages] == ["ab", "cdef"]


def test_ctrl_c_while_the_prompt_is_read_keeps_what_was_said_before(conversation, monkeypatch, capsys):
    conversation.answer("ab")
    run = conversation.model.executable.run

    def interrupted(*arguments, **keywords):
        signal.raise_signal(signal.SIGINT)
        return run(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(conversation.model.executable, "run", interrupted)
        conversation.answer("b")
    assert [message["content"] for message in conversation.messages] == ["ab", "cdef"]
    assert "before the first word" in capsys.readouterr().err
    conversation.answer("b")
    assert conversation.messages[-1]["content"] == "cdef"


# A shell that runs the tests in the background has its children ignore Ctrl-C.
CHAT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from volumetric.cli import main
sys.exit(main())
"""


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-c", CHAT, "chat", *arguments]
        environment = os.environ | {"TERM": "dumb"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, env=environment, start_new_session=True
        )
        os.close(slave)
        self.shown = ""

    def expect(self, text: str, seconds: float = 60) -> None:
        """Read until `text` appears after what was expected before."""
        assert self.sees(text, seconds), f"{text!r} did not appear in {self.shown!r}"

    def sees(self, text: str, seconds: float) -> bool:
        """Whether `text` appears in time; what comes up to its end has been seen then."""
        end = time.monotonic() + seconds
        while text not in self.shown:
            if not select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0]:
                return False
            self.shown += os.read(self.master, 4096).decode()
        self.shown = self.shown.partition(text)[2]
        return True

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@pytest.mark.thorough
def test_a_chat_on_a_terminal(letters, tmp_path):
    terminal = Terminal(letters, "--device", "reference")
    terminal.expect("> ")
    terminal.type("ab\n")
    terminal.expect("cdefgh")
    terminal.expect("> ")
    terminal.interrupt()
    terminal.expect("the conversation is kept")
    terminal.expect("> ")
    terminal.type("a\\\n")
    terminal.expect("... ")
    terminal.type("b\n")
    terminal.expect("cdefgh")
    terminal.expect("> ")
    terminal.type(f"/save {tmp_path / 'talk.json'}\n")
    terminal.expect("4 messages")
    terminal.expect("> ")
    terminal.interrupt()
    terminal.expect("> ")
    terminal.interrupt()
    assert terminal.process.wait(timeout=60) == 130
    assert len(json.loads((tmp_path / "talk.json").read_text())) == 4
    os.close(terminal.master)


def test_the_model_of_these_tests_ends_its_answers():
    assert letters_model(generation=GenerationDefaults(eos_ids=(END,))).generate("ab").finish_reason == "stop"


def test_ctrl_c_at_the_prompt_keeps_the_conversation_and_a_second_one_leaves(conversation, monkeypatch, capsys):
    typed = iter(["ab", KeyboardInterrupt, "ab", KeyboardInterrupt, KeyboardInterrupt])

    def read() -> str:
        line = next(typed)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(chat, "at_terminal", lambda: True)
    monkeypatch.setattr(chat, "read_message", read)
    with pytest.raises(KeyboardInterrupt):
        chat._converse(conversation)
    assert [message["content"] for message in conversation.messages] == ["ab", "cdef", "ab", "cdef"]
    assert capsys.readouterr().err.count("the conversation is kept") == 2
    assert next(typed, None) is None
