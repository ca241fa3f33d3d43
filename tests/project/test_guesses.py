"""What users of other packages type first works here, or the error says what to type instead."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.project.guesses import networks, training
from tests.project.guesses.guess import Guess
from volumetric.base.errors import VolumetricError
from volumetric.base.peer_names import PEER_NAMES

GUESSES: list[Guess] = [*networks.GUESSES, *training.GUESSES]


def _ids() -> list[str]:
    modules = {"networks": networks.GUESSES, "training": training.GUESSES}
    return [f"{name}-{i}-{guess.peer}" for name, guesses in modules.items() for i, guess in enumerate(guesses)]


@pytest.mark.parametrize("guess", GUESSES, ids=_ids())
def test_a_guess_holds(guess: Guess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {
        "np": np,
        "volumetric": volumetric,
        "x": np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32),
    }

    def error(text: str, **more: object) -> str:
        """Return message and hint of an expression that must fail."""
        with pytest.raises(VolumetricError) as caught:
            eval(text, {**names, **more})
        return f"{caught.value} | {caught.value.hint}"

    names["error"] = error
    exec(compile(guess.code, f"guess of {guess.peer}", "exec"), names)


def test_there_are_guesses_of_many_peers() -> None:
    assert len(GUESSES) >= 40
    assert len({guess.peer for guess in GUESSES}) >= 6
    assert all("assert " in guess.code.splitlines()[-1] for guess in GUESSES if guess.code.strip())


def test_answers_about_names_of_other_packages_are_of_names_that_are_missing() -> None:
    for package, names in PEER_NAMES.items():
        of = importlib.import_module(package)
        for name, answer in names.items():
            with pytest.raises(VolumetricError, match=f"no attribute '{name}'") as caught:
                getattr(of, name)
            assert caught.value.hint == answer
