"""What several files of tests of training share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from volumetric.train.backprop_credit import BackpropCredit


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The updates of each submission of several."""
    sizes: list[int] = []
    updates = BackpropCredit.updates

    def counted(self: BackpropCredit, batches: Sequence[Any], rates: Sequence[float]) -> Any:
        reports = updates(self, batches, rates)
        sizes.append(0 if reports is None else len(reports))
        return reports

    monkeypatch.setattr(BackpropCredit, "updates", counted)
    return sizes
