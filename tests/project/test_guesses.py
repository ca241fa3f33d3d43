"""What people who know other packages type first works, or is answered with what to write."""

from __future__ import annotations

import ast
import importlib
import pkgutil

import pytest

import tests.project.guesses as package
from tests.project.guesses.guess import Guess

GUESSES = [
    pytest.param(guess, id=f"{module.name}-{number}-{guess.peer}")
    for module in pkgutil.iter_modules(package.__path__)
    if module.name != "guess"
    for number, guess in enumerate(importlib.import_module(f"{package.__name__}.{module.name}").GUESSES)
]


@pytest.mark.parametrize("guess", GUESSES)
def test_a_guess_holds(guess: Guess) -> None:
    assert isinstance(ast.parse(guess.code).body[-1], ast.Assert)
    exec(compile(guess.code, guess.peer, "exec"), {"__name__": "guess"})
