"""Settings that name a numeric type: other spellings are refused with the right one."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.dtypes.type_choice import check_type_choice, known_spelling
from volumetric.run.device import RunOptions
from volumetric.train import LearnerOptions, TrainConfig

KNOWN = ("auto", "float32", "float16", "int8")


@pytest.mark.parametrize("value", ["fp16", "half", "f16", "F16", "torch.float16", np.float16, np.dtype("float16")])
@pytest.mark.parametrize("settings", [RunOptions, TrainConfig, LearnerOptions])
def test_another_spelling_names_the_right_one(settings: type, value: object) -> None:
    with pytest.raises(SpecError, match="compute must be one of .*float16") as caught:
        settings(compute=value)
    assert caught.value.hint == "did you mean 'float16'?"


@pytest.mark.parametrize("value", [None, True, 16, ["float16"], {"a": 1}, "", "flaot16", (), np.array([1.0])])
def test_what_is_no_type_is_refused_with_a_hint(value: object) -> None:
    with pytest.raises(SpecError, match="compute must be one of") as caught:
        check_type_choice("compute", value, KNOWN)
    assert caught.value.hint


def test_known_values_pass() -> None:
    for value in KNOWN:
        check_type_choice("compute", value, KNOWN)
    assert known_spelling("bf16", KNOWN) is None
