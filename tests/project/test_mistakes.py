"""Beginners' mistakes are answered with place, cause and way out, and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.mistakes import all_mistakes
from tests.project.mistakes.attempt import attempt, prepare
from tests.project.mistakes.mistake import Mistake
from volumetric.base import errors

MISTAKES = all_mistakes()
FORBIDDEN = ("defect", "damaged", "correct the named field", "make the array or the layer fit the other", "is a bug")
GENERIC = {kind.advice for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "advice")} - {
    errors.ImmutableError.advice  # it says what to write
}
LONGEST = 420
"""Characters of a message, and of a hint."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("mistakes")
    prepare(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


def params() -> list[object]:
    marks = [pytest.mark.thorough]
    return [pytest.param(m, id=f"{m.kind}-{m.name}".replace(" ", "_"), marks=marks if m.slow else ()) for m in MISTAKES]


@pytest.mark.parametrize("mistake", params())
def test_a_mistake_is_answered(mistake: Mistake, home: Path) -> None:
    answer = attempt(mistake, home)
    said = f"{answer.message}\n{answer.hint}"
    assert answer.message, "nothing was said"
    assert answer.hint, f"no way out: {said}"
    assert answer.code == 0 if mistake.warns else answer.code in (1, 2), said
    if not mistake.warns:
        assert mistake.started or not answer.written, f"written: {answer.written}"
    assert "Traceback" not in answer.more
    assert mistake.kind != "python" or not answer.more, f"{answer.more}: {said}"
    place, cause, way_out = mistake.answer.split(" | ")
    assert place in answer.message, said
    assert cause in answer.message, said
    assert way_out in answer.hint, said
    assert not [word for word in FORBIDDEN if word in said], said
    assert answer.hint not in GENERIC, said
    assert max(len(answer.message), len(answer.hint)) <= LONGEST, said


def test_the_table_is_large_and_its_names_are_unique() -> None:
    counts = {kind: sum(m.kind in kinds for m in MISTAKES) for kind, kinds in KINDS.items()}
    assert counts["toml"] >= 50
    assert counts["python"] >= 60
    assert counts["command"] >= 40
    assert len({(m.kind, m.name) for m in MISTAKES}) == len(MISTAKES)
    assert all(min(map(len, m.answer.split(" | "))) > 0 for m in MISTAKES)


KINDS = {"toml": ("train", "evolve"), "python": ("python",), "command": ("command",)}
