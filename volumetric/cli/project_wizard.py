"""Questions of ``volumetric new`` on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from volumetric.base.errors import DeviceError
from volumetric.base.hints import suggestion
from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.cli.project_data import Table, read_table
from volumetric.cli.project_templates import TEMPLATES, check_target, default_size, template_named
from volumetric.devices.named_devices import check_name

T = TypeVar("T")
Ask = Callable[[str], str]
"""Returns the line that is typed after a prompt; raises EOFError at the end of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a project is to be; None: as in the template."""

    template: str
    directory: Path
    data: Path | None = None
    target: str | None = None
    size: int | None = None
    device: str | None = None


def ask_all(ask: Ask) -> Answers:
    """Ask for template, directory, data, size and device; a wrong answer is explained, and the question repeated.

    Raises
    ------
    UsageError : the input ended before all questions were answered
    """
    try:
        names = list(TEMPLATES)
        console.write("".join(f"  {n}  {one.name:<11} {one.summary}\n" for n, one in enumerate(TEMPLATES.values(), 1)))
        template = _ask(
            ask, "Which template, by name or number", names[0], lambda text: template_named(_name(text, names))
        )
        directory = _ask(ask, "Directory to write", template.name, _directory)
        data = target = None
        if template.data:
            source = f"Path of your own {template.data} (Enter: the sample)"
            if template.data.startswith("CSV"):
                table = _ask(ask, source, "", lambda text: read_table(Path(text).expanduser()) if text else None)
                data, target = (table.path, _target(ask, table)) if table else (None, None)
            else:
                data = _ask(ask, source, "", lambda text: _file(text) if text else None)
        usual = default_size(template)
        size = _ask(ask, f"Size: {template.size}", str(usual), _size)
        device = _ask(ask, "Device: auto, cpu, gpu, reference (Enter: as in the template)", "", _device)
    except EOFError:
        raise UsageError(
            "the input ended before all questions were answered; nothing was written",
            hint="volumetric new TEMPLATE DIRECTORY asks nothing",
        ) from None
    return Answers(
        template=template.name,
        directory=directory,
        data=data,
        target=target,
        size=None if size == usual else size,
        device=device or None,
    )


def _ask(ask: Ask, question: str, default: str, parse: Callable[[str], T]) -> T:
    """Ask until `parse` takes the answer."""
    while True:
        text = ask(f"{question} [{default}]: " if default else f"{question}: ").strip() or default
        try:
            return parse(text)
        except (UsageError, DeviceError) as error:
            console.write(f"{error}\n" + (f"{error.hint}\n" if error.hint else ""))


def _name(text: str, names: Sequence[str]) -> str:
    return names[int(text) - 1] if text.isdecimal() and 1 <= int(text) <= len(names) else text


def _directory(text: str) -> Path:
    directory = Path(text).expanduser()
    check_target(directory)
    return directory


def _file(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    return path


def _target(ask: Ask, table: Table) -> str:
    """Show the columns of a table, and ask for the one with the answer."""
    columns = table.cells.columns
    header = "with" if table.cells.header else "without"
    size = f"{console.plural(len(table.cells.rows), 'row')}, {console.plural(len(columns), 'column')}"
    console.write(f"{size}, {header} a line of names\n")
    for number, name in enumerate(columns, 1):
        values = table.values(name)
        kind = "text" if name in table.texts else "numbers"
        few = ", ".join(dict.fromkeys(values[:20]))
        console.write(f"  {number}  {name:<16} {kind}: {few[:60]}{'…' if len(few) > 60 else ''}\n")

    def parse(text: str) -> str:
        if text in columns:
            return text
        chosen = _name(text, columns)
        if chosen not in columns:
            raise UsageError(f"there is no column {text!r}", hint=suggestion(text, columns))
        return chosen

    return _ask(ask, "Column with the answer, by name or number", table.likely_target, parse)


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"a whole number of 1 or more is needed, got {text!r}")
    return int(text)


def _device(text: str) -> str:
    if text:
        check_name(text)
    return text
