"""Guesses about training and evolution."""

from __future__ import annotations

from tests.project.guesses.guess import Guess

GUESSES: list[Guess] = []
