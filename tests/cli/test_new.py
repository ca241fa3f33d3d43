"""Projects from templates: their files, own data, questions, and every command of their READMEs as printed."""

from __future__ import annotations

import os
import pty
import re
import runpy
import select
import shlex
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.project.pages import shell_lines
from volumetric.cli import main
from volumetric.cli.exits import UsageError
from volumetric.cli.project_templates import TEMPLATES, default_size
from volumetric.cli.project_wizard import ask_all

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(sh|text|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
PORT = "8080"
"""The port that the README of the server names, in whose place tests use a free one."""


def test_results_on_the_page_are_those_of_the_readmes():
    readmes = "".join(template.files()["README.md"] for template in TEMPLATES.values())
    page = (ROOT / "docs/new.md").read_text(encoding="utf-8")
    shown = [line for kind, text in blocks(page) if kind == "text" for line in text.splitlines()]
    assert len(shown) >= 10
    assert not [line for line in shown if f"\n{line}\n" not in readmes]
    assert all(f"**{name}**" in page for name in TEMPLATES)


def blocks(readme: str) -> list[tuple[str, str]]:
    """Shell blocks and what they print, in order."""
    return [(match[1], match[2]) for match in BLOCK.finditer(readme)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_writes_what_its_readme_needs(name, run):
    code, out, err = run("new", name)
    assert (code, err) == (0, "")
    assert TEMPLATES[name].begin in out
    readme = Path(name, "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# ")
    assert all(len(line) <= 120 for line in readme.splitlines())
    assert TEMPLATES[name].begin in readme
    for path in Path(name).iterdir():
        if path.suffix == ".toml":
            assert tomllib.loads(path.read_text(encoding="utf-8"))
            assert path.name in readme
        if path.suffix == ".py":
            compile(path.read_text(encoding="utf-8"), str(path), "exec")
            assert path.name in readme


def test_an_empty_working_directory_stays_the_same_one(run):
    home = Path.cwd()
    (home / "empty").mkdir()
    os.chdir("empty")
    code, out, err = run("new", "classifier", ".")
    assert (code, err) == (0, "")
    assert "cd " not in out
    assert sorted(path.name for path in Path().iterdir()) == ["README.md", "classifier.toml", "fruit.csv", "new.csv"]
    assert Path().stat().st_ino == (home / "empty").stat().st_ino


def test_the_first_commands_can_be_pasted(run):
    code, out, _ = run("new", "classifier", "new pröject/a b")
    assert code == 0
    assert "cd 'new pröject/a b'" in out


def test_a_table_with_semicolons_and_decimal_commas_becomes_a_project(run):
    rows = "".join(f"{i},5;{-i},25;{('oak', 'elm')[i % 2]}\n" for i in range(20))
    Path("trees.csv").write_text("a;b;kind\n" + rows, "utf-8")
    code, _, err = run("new", "classifier", "trees", "--data", "trees.csv")
    assert (code, err) == (0, "")
    assert Path("trees/new.csv").read_text("utf-8").startswith("a;b\n0,5;0,25\n1,5;-1,25\n")


@pytest.mark.parametrize("name", TEMPLATES)
def test_size_and_device_are_written_where_the_template_has_them(name, run):
    assert run("new", name, "as-it-is")[0] == 0
    assert run("new", name, "other", "--size", "7", "--device", "reference")[0] == 0
    file, before = TEMPLATES[name].sized
    assert f"{before}{default_size(TEMPLATES[name])}" in Path("as-it-is", file).read_text(encoding="utf-8")
    assert f"{before}7" in Path("other", file).read_text(encoding="utf-8")
    config = tomllib.loads(Path("other", TEMPLATES[name].config).read_text(encoding="utf-8"))
    assert config["device"] == "reference"
    assert "yours will differ" in Path("other", "README.md").read_text(encoding="utf-8")


def test_the_fastest_template_runs(run, monkeypatch):
    assert run("new", "classifier", "fruit")[0] == 0
    monkeypatch.chdir("fruit")
    code, out, _ = run("train", "classifier.toml", "--device", "reference")
    assert code == 0
    accuracy = re.search(r"accuracy ([\d.]+)", out)
    assert accuracy is not None
    assert float(accuracy[1]) > 85
    code, out, _ = run("run", "classifier/model", "--in", "new.csv", "--device", "reference")
    assert re.findall(r'"class": "(\w+)"', out) == ["apple", "pear", "plum"]


def test_nothing_is_overwritten(run):
    Path("mine").mkdir()
    Path("mine", "notes").write_text("x")
    Path("file").write_text("y")
    code, out, err = run("new", "text", "mine")
    assert (code, out) == (2, "")
    assert "the directory mine is not empty" in err
    code, out, err = run("new", "text", "file")
    assert (code, out) == (2, "")
    assert "file is a file" in err
    assert [path.name for path in Path("mine").iterdir()] == ["notes"]
    Path("empty").mkdir()
    assert run("new", "text", "empty")[0] == 0
    assert run("new", "text", "deep/er/text")[0] == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["deep", "empty", "file", "mine"]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ([], "no template was named", "classifier, text"),
        (["clasifier"], "there is no template 'clasifier'", "did you mean 'classifier'?"),
        (["evolution", "x", "--data", "y.csv"], "evolution takes no --data", "classifier takes a CSV file"),
        (["classifier", "x", "--target", "kind"], "--target is a column", "--data FILE"),
        (["classifier", "x", "--data", "no.csv"], "cannot read no.csv", "no.csv"),
        (["text", "x", "--data", "no.txt"], "cannot read no.txt", "no.txt"),
        (["text", "x", "--size", "0"], "--size must be 1 or more", "width"),
        (["text", "x", "--device", "cuda"], "there is no device 'cuda'", "gpu"),
    ],
)
def test_slips_are_answered(arguments, message, hint, run):
    code, out, err = run("new", *arguments)
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert message in first
    assert hint in second
    assert not list(Path.cwd().iterdir())


def test_the_list_names_all(run):
    code, out, _ = run("new", "--list")
    assert code == 0
    assert all(name in out for name in TEMPLATES)


def table(path: str, *, header: str = "", answer: str = "yes no") -> None:
    words = answer.split()
    lines = [f"{i},{(i * 7) % 5}.5,{words[i % len(words)]}\n" for i in range(40)]
    Path(path).write_text(header + "".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("header", "answer", "options", "data"),
    [
        ("a,b,kind\n", "yes no", [], {"columns": ["kind"], "header": True, "classes": True}),
        ("", "yes no", [], {"columns": ["2"], "header": False, "classes": True}),
        ("a,b,kind\n", "0 1", [], {"columns": ["kind"], "header": True, "classes": True}),
        ("a,b,size\n", "0.25 1.5", [], {"columns": ["size"], "header": True, "classes": False}),
        ("a,b,c\n", "3 4", ["--target", "b"], {"columns": ["b"], "header": True, "classes": False}),
    ],
)
def test_a_table_of_the_user_is_looked_at(header, answer, options, data, run, monkeypatch):
    table("mine.csv", header=header, answer=answer)
    assert run("new", "classifier", "p", "--data", "mine.csv", "--size", "4", *options)[0] == 0
    monkeypatch.chdir("p")
    config = tomllib.loads(Path("classifier.toml").read_text(encoding="utf-8"))
    assert config["data"].items() >= {"csv": "../mine.csv", "standardise": True, **data}.items()
    assert not Path("fruit.csv").exists()
    readme = Path("README.md").read_text(encoding="utf-8")
    assert "`../mine.csv` has 40 samples with 2 numbers each" in readme
    assert "```text" not in readme
    assert "yours will differ" not in readme
    assert ("accuracy" in readme) == data["classes"]
    assert run("train", "classifier.toml", "--set", "train.epochs=1", "--device", "reference")[0] == 0
    code, out, _ = run("run", "classifier/model", "--in", "new.csv", "--device", "reference")
    assert (code, len(out.splitlines())) == (0, 3)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,x\n", [], "2 columns and 1 rows"),
        ("a b\n" + "1 2\n" * 20, [], "1 columns and 20 rows"),
        ("town,a,kind\n" + "Rome,1,x\nOslo,2,y\n" * 10, [], "the column 'town' holds 'Rome'"),
        ("a,kind\n" + "1,x\n" * 20, [], "holds 'x' in all rows"),
        ("a,kind\n" + "1,x\n2,y\n" * 10, ["--target", "kin"], "has no column 'kin'"),
    ],
)
def test_tables_that_cannot_be_learned_are_refused(text, options, message, run):
    Path("mine.csv").write_text(text, encoding="utf-8")
    code, out, err = run("new", "classifier", "p", "--data", "mine.csv", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("p").exists()


def test_a_text_of_the_user_is_referred_to(run):
    Path("mine.txt").write_text("a short story. " * 200, encoding="utf-8")
    assert run("new", "server", "p", "--data", "mine.txt")[0] == 0
    assert tomllib.loads(Path("p", "text.toml").read_text(encoding="utf-8"))["data"]["text"] == "../mine.txt"
    assert not Path("p", "text.txt").exists()
    Path("short.txt").write_text("a short story. ", encoding="utf-8")
    assert "too few to learn from" in run("new", "text", "q", "--data", "short.txt")[2]


def answers(*lines: str):
    rest = iter(lines)

    def ask(prompt: str) -> str:
        try:
            return next(rest)
        except StopIteration:
            raise EOFError from None

    return ask


def test_questions_about_a_table(capsys):
    table("mine.csv", header="a,b,kind\n")
    chosen = ask_all(answers("one", "1", "", "no.csv", "mine.csv", "9", "b", "none", "32", "cuda", "cpu"))
    assert (chosen.template, chosen.directory, chosen.data) == ("classifier", Path("classifier"), Path("mine.csv"))
    assert (chosen.target, chosen.size, chosen.device) == ("b", 32, "cpu")
    shown = capsys.readouterr().out
    for text in ("40 rows, 3 columns, with a line of names", "text: yes, no", "there is no template 'one'", "no.csv"):
        assert text in shown
    for text in ("there is no column '9'", "a whole number of 1 or more", "there is no device 'cuda'"):
        assert text in shown


def test_questions_without_changes():
    chosen = ask_all(answers("text", "", "", "", ""))
    assert (chosen.template, chosen.directory) == ("text", Path("text"))
    assert (chosen.data, chosen.target, chosen.size, chosen.device) == (None, None, None, None)
    with pytest.raises(UsageError, match="nothing was written"):
        ask_all(answers("text"))


@pytest.mark.thorough
def test_questions_on_a_terminal():
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "volumetric", "new"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        for prompt, answer in (("template", "evolution"), ("Directory", "poles"), ("Size", "40"), ("Device", "")):
            read_until(leader, prompt)
            os.write(leader, f"{answer}\n".encode())
        read_until(leader, "volumetric evolve evolution.toml")
        assert process.wait(60) == 0
    os.close(leader)
    assert tomllib.loads(Path("poles/evolution.toml").read_text(encoding="utf-8"))["population"] == 40


def read_until(descriptor: int, text: str) -> None:
    seen = ""
    while text not in seen:
        assert select.select([descriptor], [], [], 60)[0], seen
        seen += os.read(descriptor, 4096).decode(errors="replace")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_commands_of_a_readme_print_what_it_says(name, run, monkeypatch, capsys):
    assert run("new", name)[0] == 0
    monkeypatch.chdir(name)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delenv("VOLUMETRIC_DEVICE", raising=False)
    free = free_port()
    printed, servers = "", []
    try:
        for kind, text in blocks(Path("README.md").read_text(encoding="utf-8")):
            if kind == "text":
                assert_alike(printed, text)
            elif kind == "console":
                assert len(printed) >= len(text) / 2
            else:
                printed = ""
                for line in shell_lines(text.replace(PORT, free)):
                    if line.why.startswith("runs until"):
                        servers.append(subprocess.Popen([sys.executable, "-m", *shlex.split(line.text)], cwd=Path.cwd(),
                                                        env={**os.environ, "PYTHONPATH": str(ROOT)}))  # fmt: skip
                        wait_for(f"http://127.0.0.1:{free}/health", servers[-1])
                    else:
                        printed += printed_by(line.text, monkeypatch, capsys)
    finally:
        for server in servers:
            server.terminate()
            server.wait(60)


def printed_by(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line; return what it writes to stdout."""
    match shlex.split(command):
        case ["volumetric", *arguments]:
            assert main(arguments) == 0, command
        case ["python", *arguments]:
            monkeypatch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
        case _:
            raise AssertionError(f"not a command of a README: {command}")
    return capsys.readouterr().out


def assert_alike(printed: str, promised: str) -> None:
    """Lines have the same words; numbers are near, or both so small that only rounding differs."""
    lines = printed.splitlines()
    for line in promised.splitlines():
        words = NUMBER.sub("#", line)
        alike = [one for one in lines if NUMBER.sub("#", one) == words]
        assert alike, (line, lines)
        assert any(near(one, line) for one in alike), (line, alike)


def near(printed: str, promised: str) -> bool:
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(promised), strict=True)
    numbers = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= 0.1 * abs(b) + 0.01 for a, b in numbers)


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def wait_for(address: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server has ended"
        try:
            with urlopen(address):
                return
        except (URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(f"no answer from {address}")
