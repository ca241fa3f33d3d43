"""Every error of the package can say what to do next."""

from __future__ import annotations

import traceback

import pytest

from volumetric import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.VolumetricError)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not errors.VolumetricError])
def test_an_error_without_a_hint_of_its_own_gives_general_advice(kind: type[errors.VolumetricError]) -> None:
    assert kind("it failed").hint == kind.advice
    assert kind.advice
    assert kind("it failed", hint="mend it").hint == "mend it"


def test_a_traceback_shows_the_hint() -> None:
    error = errors.VolumetricError("it failed", hint="mend it")
    assert traceback.format_exception(error)[-2:] == [
        "volumetric.errors.VolumetricError: it failed\n",
        "hint: mend it\n",
    ]
