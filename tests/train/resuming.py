"""Runs that are broken off and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.train.test_checkpoint import After, InterruptError


def whole_and_resumed(run: Callable[..., Any], home: Path, after: int) -> tuple[Any, Any]:
    """Return a run, and the same one broken off after so many updates and resumed; their weights have equal bits."""
    whole = run(home / "whole")
    with pytest.raises(InterruptError):
        run(home / "parts", After(after))
    again = run(home / "parts", resume=True)
    for key, store in whole.params.items():
        np.testing.assert_array_equal(again.params[key].values(), store.values(), err_msg=key)
    return whole, again
