"""The budget of a chat template: all that it counts is spent, whoever spends it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from volumetric.base.errors import GenerationError
from volumetric.loaders import chat_budget
from volumetric.loaders.chat_budget import RenderBudget
from volumetric.loaders.chat_operations import test_within as within_budget


def spent(piece: Callable[[], object]) -> None:
    """Spend a piece again and again, far more often than a budget lasts."""
    for _ in range(10**5):
        piece()


@pytest.mark.parametrize("spend", ["work", "turn", "text"])
def test_whatever_is_spent_in_small_pieces_ends(spend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is looked at after some work, so that a template whose time is up cannot go on for ever."""
    monkeypatch.setattr(chat_budget, "MAX_SECONDS", -1.0)
    budget = RenderBudget()
    pieces = {
        "work": lambda: budget.count_work(1),
        "turn": lambda: budget.count_work_and_bytes(1, 0),
        "text": lambda: budget.count_text("a"),
    }
    with pytest.raises(GenerationError):
        spent(pieces[spend])


def test_a_question_about_a_list_costs_the_reading_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of Jinja may compare all of it, as ``x is in y`` does."""
    monkeypatch.setattr(chat_budget, "MAX_SECONDS", -1.0)
    asked = within_budget(lambda item, items: item in items)
    items = list(range(1000))
    with RenderBudget.for_rendering(), pytest.raises(GenerationError):
        spent(lambda: asked(-1, items))
