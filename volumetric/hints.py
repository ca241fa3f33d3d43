"""What stands in the messages of errors: a value cut short, and names that are spelled like an unknown one."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 70
"""Characters of a value in a message, at most."""
_MOST = 24
"""Names that are listed, at most."""


def shown(value: object) -> str:
    """Return a value as it stands in a message: not too long, and no number of thousands of digits."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}…"


def suggestion(
    name: object, known: Iterable[str], otherwise: str | None = None, *, most: int = 1, alike: float = 0.6
) -> str:
    """Return "did you mean …?" with the names that are close to one, or what there is to choose from.

    Parameters
    ----------
    known : the names that there are, in the order in which they are told
    otherwise : what is said where none is close; None: those that are known
    most : how many close names are told
    alike : how much of two names must be the same for them to be close, from 0 to 1
    """
    import difflib  # errors alone ask for it

    names = list(known)
    close = difflib.get_close_matches(name, names, most, alike) if isinstance(name, str) else []
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    if otherwise is not None:
        return otherwise
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return "one of " + ", ".join(names[:_MOST]) + more
