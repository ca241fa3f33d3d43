"""The flag ``--plugin`` of all commands: modules are imported before any other flag is read, which may name a part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_FLAG = "--plugin"


def import_flagged(tokens: Sequence[str]) -> None:
    """Import the modules that a command line names.

    Raises
    ------
    SpecError : a module does not exist, or cannot be imported
    """
    names = list(_named(tokens))
    if names:
        from volumetric.base.import_by_name import import_plugins

        import_plugins(names, where=_FLAG)


def _named(tokens: Sequence[str]) -> Iterator[str]:
    for i, token in enumerate(tokens):
        if token == "--":
            return
        if token == _FLAG and i + 1 < len(tokens):
            yield tokens[i + 1]
        elif token.startswith(f"{_FLAG}="):
            yield token.partition("=")[2]
