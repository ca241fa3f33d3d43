"""The exception tree: every error that volumetric raises on purpose.

A message says what failed, where, what was expected and what was found; ``hint`` says what to do next.
The command line prints the two as ``error: …`` and ``hint: …`` and exits with code 1.
"""

from __future__ import annotations


class VolumetricError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    message : str
        What failed, where, expected against found. One line.
    hint : str, optional
        What the person can do about it. One line.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class SpecError(VolumetricError, ValueError):
    """A layer, grid, network or configuration is ill-formed."""


class ShapeError(VolumetricError, ValueError):
    """An array or tensor has another shape than the place where it is used requires."""


class DTypeError(VolumetricError, ValueError):
    """A numeric type or scheme is unknown, or cannot hold the given values."""


class UnsupportedError(VolumetricError, NotImplementedError):
    """A combination of operation, role, dtype and device has no kernel."""


class DeviceError(VolumetricError, RuntimeError):
    """No such device, a device limit is exceeded, or the device was lost."""


class CheckpointError(VolumetricError, ValueError):
    """A model file is missing, damaged, or does not fit the network."""


class GenerationError(VolumetricError, RuntimeError):
    """Text generation cannot go on: the context is full, a chat template failed, a token is unknown."""
