"""Arguments of benchmarks."""

from __future__ import annotations

import argparse


def argument_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a module's docstring, as it stands."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def numbers(text: str) -> list[int]:
    """Return whole numbers that commas separate; none of an empty text."""
    return [int(part) for part in text.split(",") if part]
