"""The command ``new``: a small project from a template."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.options import OutputOptions, check_device
from volumetric.cli.project_templates import (
    TEMPLATES,
    check_target,
    template_named,
    with_device,
    with_size,
    write_project,
)
from volumetric.cli.project_wizard import Answers, ask_all


def new(
    template: str | None = None,
    directory: Path | None = None,
    *,
    data: Path | None = None,
    target: str | None = None,
    size: int | None = None,
    device: Annotated[str | None, Parameter(name=["--device", "-dev"])] = None,
    list_: Annotated[bool, Parameter(name="--list", negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Write a small project to start from: a commented configuration, sample data, and a README.

    The README has the commands in order and what they print; all of them run on a CPU in seconds. Without a template,
    on a terminal, questions are asked. Nothing is overwritten.

    Parameters
    ----------
    template : str
        classifier, text, evolution, clocked, fabric, program, or server; --list describes them.
    directory : path
        Directory to write; default: named after the template.
    data : path
        Your own data in place of the sample: a CSV file for classifier, a text file for text and server.
    target : str
        Column of the CSV file with the answer; default: the only column of text, or else the last one.
    size : int
        Another size; the questions and the configuration say of what.
    device : str
        Device in the configuration: auto, cpu, gpu, or reference.
    list_ : bool
        List the templates.
    """
    output.apply()
    if list_:
        console.table(("template", "what it is"), [[one.name, one.summary] for one in TEMPLATES.values()])
        return exits.OK
    if template is None:
        answers = _questions()
    else:
        name = template_named(template).name
        answers = Answers(
            template=name, directory=directory or Path(name), data=data, target=target, size=size, device=device
        )
    _create(answers)
    return exits.OK


def _questions() -> Answers:
    """Ask on a terminal. Raises `UsageError` elsewhere."""
    from volumetric.cli.line_input import at_terminal, read_typed

    if not (at_terminal() and sys.stdout.isatty()):
        raise UsageError(
            "no template was named",
            hint=f"volumetric new TEMPLATE [DIRECTORY], with one of {', '.join(TEMPLATES)}; --list describes them",
        )
    return ask_all(read_typed)


def _create(answers: Answers) -> None:
    """Write a project and say how to go on."""
    template, directory = template_named(answers.template), answers.directory
    check_target(directory)
    if answers.device is not None:
        check_device(answers.device)
    files = template.files()
    if answers.target is not None and not (answers.data and template.data.startswith("CSV")):
        raise UsageError("--target is a column of a CSV file", hint="volumetric new classifier DIRECTORY --data FILE")
    if answers.data is not None:
        from volumetric.cli.project_data import read_table, with_table, with_text

        if not template.data:
            raise UsageError(f"{template.name} takes no --data", hint="classifier takes a CSV file, text a text file")
        if template.data.startswith("CSV"):
            table = read_table(answers.data)
            files = with_table(template, files, directory, table, answers.target or table.likely_target)
        else:
            files = with_text(template, files, directory, answers.data)
    if answers.size is not None:
        files = with_size(template, files, answers.size)
    if answers.device is not None:
        files = with_device(template, files, answers.device)
    write_project(directory, files)
    console.write(f"{directory}: {', '.join(files)}\n")
    go = f"  cd {shlex.quote(str(directory))}\n" if directory.resolve() != Path.cwd() else ""
    console.write(f"README.md has all commands; the first ones:\n{go}  {template.begin}\n")
