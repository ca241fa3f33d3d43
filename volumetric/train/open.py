"""Learners by the name of a device. The module of a device is imported only when it is asked for."""

from __future__ import annotations

from volumetric.errors import UnsupportedError
from volumetric.train.learner import OpenLearner
from volumetric.train.reference import ReferenceLearner


def open_learner(device: str = "reference") -> OpenLearner:
    """Return what makes a learner on `device`.

    Raises
    ------
    UnsupportedError
        Nothing trains there.
    """
    if device == "reference":
        return ReferenceLearner
    raise UnsupportedError(f"device {device!r} does not train", hint="train on: reference")
