"""The templates of ``volumetric new``: small projects, as files beside this module.

A template is a folder of `templates`: a configuration with comments, sample data or a script that writes it, and a
README with the commands in order and what they print. All files are ready to use as they are. A project of other data
or sizes has the same files with a few lines replaced.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.cli.exits import UsageError

HOME: Final = Path(__file__).parent / "templates"
README: Final = "README.md"
_PRINTED: Final = re.compile(r"^```(?:text|console)\n.*?^```\n\n?", re.DOTALL | re.MULTILINE)
_OTHER_SIZES: Final = "What the commands print below is that of the unchanged template; yours will differ.\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A template.

    Attributes
    ----------
    summary : one line for the list
    begin : the first command of its README
    size : what its size is, for the question of the wizard
    sized : file, and text in front of the size
    config : its configuration file
    data : kind of file that may replace its sample data: a table, a text, or none
    shares : template whose files it has too, apart from the README
    """

    name: str
    summary: str
    begin: str
    config: str
    size: str
    sized: tuple[str, str]
    data: str = ""
    shares: str = ""

    def files(self) -> dict[str, str]:
        """Return file name → text, the README first."""
        folders = [HOME / name for name in (self.name, self.shares) if name]
        paths = {path.name: path for folder in reversed(folders) for path in sorted(folder.iterdir()) if path.is_file()}
        names = sorted(paths, key=lambda name: (name != README, name))
        return {name: paths[name].read_text(encoding="utf-8") for name in names}


_TEMPLATES: Final = (
    Template(
        name="classifier",
        summary="a network that names the class of each row of a CSV file",
        begin="volumetric train classifier.toml",
        config="classifier.toml",
        size="neurons of the hidden layer",
        sized=("classifier.toml", "hidden = ["),
        data="CSV file",
    ),
    Template(
        name="text",
        summary="a recurrent language model that learns to continue a text",
        begin="volumetric train text.toml",
        config="text.toml",
        size="width of the layers",
        sized=("text.toml", "width = "),
        data="text file",
    ),
    Template(
        name="evolution",
        summary="networks that evolve to balance a pole, in an environment of a few lines of NumPy",
        begin="volumetric evolve evolution.toml",
        config="evolution.toml",
        size="networks of a generation",
        sized=("evolution.toml", "population = "),
    ),
    Template(
        name="clocked",
        summary="a 3D grid of layers that runs tick by tick as a machine, with clocks",
        begin="python machine.py",
        config="clocked.toml",
        size="numbers that a layer puts out",
        sized=("machine.py", "LATER, SYMBOLS, WIDTH, SAMPLES, ROWS = 4, 4, "),
    ),
    Template(
        name="fabric",
        summary="a sheet of small recurrent cells that learns to count votes",
        begin="volumetric train fabric.toml",
        config="fabric.toml",
        size="sequences to learn from",
        sized=("fabric.toml", "samples = "),
    ),
    Template(
        name="program",
        summary="regions and edges with conditions that learn to keep a symbol",
        begin="python latch.py",
        config="program.toml",
        size="sequences to learn from",
        sized=("latch.py", "SYMBOLS, SAMPLES, ROWS = 4, "),
    ),
    Template(
        name="server",
        summary="a small model of text behind OpenAI's API, and a client of the standard library",
        begin="volumetric train text.toml",
        config="text.toml",
        size="width of the layers",
        sized=("text.toml", "width = "),
        data="text file",
        shares="text",
    ),
)
TEMPLATES: Final[Mapping[str, Template]] = {template.name: template for template in _TEMPLATES}


def template_named(name: str) -> Template:
    """Return a template. Raises `UsageError` if there is none of this name, with the nearest one."""
    template = TEMPLATES.get(name.lower())
    if template is None:
        near = suggestion(name.lower(), TEMPLATES)
        more = "volumetric new --list describes all"
        raise UsageError(f"there is no template {name!r}", hint=f"{near} {more}" if "?" in near else f"{near}; {more}")
    return template


def replace_line(text: str, start: str, line: str) -> str:
    """Return a configuration in which the line that begins with `start` is `line`.

    Raises
    ------
    SpecError : not exactly one line begins so
    """
    lines = text.splitlines()
    places = [number for number, one in enumerate(lines) if one.startswith(start)]
    if len(places) != 1:
        raise SpecError(f"the template has {len(places)} lines that begin with {start!r}, expected one")
    lines[places[0]] = line
    return "\n".join(lines) + "\n"


def with_device(template: Template, files: Mapping[str, str], device: str) -> dict[str, str]:
    """Return the files with another device in the configuration."""
    return {**files, template.config: replace_line(files[template.config], "device = ", f'device = "{device}"')}


def default_size(template: Template) -> int:
    """Return the size that a template has."""
    file, before = template.sized
    return int(_size_in(template, template.files()[file], before)[1])


def with_size(template: Template, files: Mapping[str, str], size: int) -> dict[str, str]:
    """Return the files with another size, and a README that says so if it has what commands print.

    Raises
    ------
    UsageError : the size is below 1
    """
    if size < 1:
        raise UsageError(f"--size must be 1 or more, got {size}", hint=f"it is the number of {template.size}")
    file, before = template.sized
    place = _size_in(template, files[file], before)
    changed = {**files, file: files[file][: place.start(1)] + str(size) + files[file][place.end(1) :]}
    if not _PRINTED.search(files[README]):
        return changed
    title, _, rest = files[README].partition("\n\n")
    return {**changed, README: f"{title}\n\n{_OTHER_SIZES}{rest}"}


def _size_in(template: Template, text: str, before: str) -> re.Match[str]:
    place = re.search(re.escape(before) + r"(\d+)", text)
    if place is None:
        raise SpecError(f"the template {template.name} has no text {before!r}")
    return place


def with_introduction(readme: str, introduction: str) -> str:
    """Return a README of other data: with another first paragraph, and without what commands print."""
    title, _, rest = _PRINTED.sub("", readme).partition("\n\n")
    rest = rest.partition("\n\n## ")[2]
    return f"{title}\n\n{introduction}\n\n## {rest}"


def check_target(directory: Path) -> None:
    """Check that a project can be written to `directory`.

    Raises
    ------
    UsageError : it is a file, or a directory that is not empty
    """
    if directory.is_dir():
        if any(directory.iterdir()):
            raise UsageError(
                f"the directory {directory} is not empty, and nothing is overwritten",
                hint="name another one: volumetric new TEMPLATE DIRECTORY",
            )
    elif directory.exists() or directory.is_symlink():
        raise UsageError(f"{directory} is a file", hint="name a directory: volumetric new TEMPLATE DIRECTORY")


def write_project(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files of a project, all or none of them.

    A directory that exists stays the same one, since it may be a shell's working directory.

    Raises
    ------
    UsageError : see `check_target`
    OSError : the directory cannot be written; nothing is left
    """
    check_target(directory)
    exists = directory.is_dir()
    token = f".new.{secrets.token_hex(6)}.tmp"
    temporary = directory / token if exists else directory.with_name(token)
    try:
        temporary.mkdir(parents=not exists)
        for name, text in files.items():
            (temporary / name).write_text(text, encoding="utf-8", newline="\n")
        if exists:
            _move_all(temporary, directory)
        else:
            temporary.rename(directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_all(source: Path, target: Path) -> None:
    """Move all files of a directory to another one, or none of them."""
    moved: list[Path] = []
    try:
        for file in sorted(source.iterdir()):
            moved.append(file.rename(target / file.name))  # noqa: PERF401  (those before a failure are needed)
    except BaseException:
        for file in moved:
            file.unlink(missing_ok=True)
        raise
