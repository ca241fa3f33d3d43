"""The exception hierarchy: every error that volumetric raises on purpose.

A message says what failed, where, what was expected and what it got; ``hint`` says what to do next.
The command line prints the two as ``error: …`` and ``hint: …`` and exits with code 1; a traceback shows both, too.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import ClassVar


class VolumetricError(Exception):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    message : str
        What failed, where, expected against found. One line.
    hint : str, optional
        What the caller can do about it. One line. If the raising code passes none, it is the general advice for this
        kind of error, if there is any.
    """

    advice: ClassVar[str | None] = None

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint: str | None = hint or self.advice
        if self.hint:
            self.add_note(f"hint: {self.hint}")


class SpecError(VolumetricError, ValueError):
    """A layer, grid, network or configuration is ill-formed."""


class ArgumentError(SpecError, TypeError):
    """A call has arguments that the function or class does not take, or lacks some that it needs."""


class ImmutableError(VolumetricError, FrozenInstanceError):
    """An attempt to change an immutable value in place."""

    advice: ClassVar[str | None] = "dataclasses.replace(value, name=…) returns a changed copy"


class ShapeError(VolumetricError, ValueError):
    """An array or tensor has another shape than its use requires."""

    advice: ClassVar[str | None] = "`volumetric inspect MODEL`, or network.shapes in Python, shows all shapes"


class DTypeError(VolumetricError, ValueError):
    """A numeric type or scheme is unknown, or cannot hold the values."""

    advice: ClassVar[str | None] = "docs/support.md lists the numeric types and schemes"


class PluginError(SpecError, ImportError):
    """A file uses a layer, activation or numeric type of a module that is not imported."""

    advice: ClassVar[str | None] = "import the module before; docs/extending.md"


class UnsupportedError(VolumetricError, NotImplementedError):
    """A combination of operation, role, dtype and device has no kernel."""

    advice: ClassVar[str | None] = "docs/support.md lists what runs on which device"


class DeviceError(VolumetricError, RuntimeError):
    """No such device, a device limit is exceeded, or the device was lost."""

    advice: ClassVar[str | None] = "`volumetric devices` lists the available devices"


class CheckpointError(VolumetricError, ValueError):
    """A model file is missing, damaged, or does not fit the network."""

    advice: ClassVar[str | None] = "the file is incomplete, or of another model: download or export it again"


class UnknownAttributeError(VolumetricError, AttributeError):
    """There is no attribute of that name."""

    advice: ClassVar[str | None] = "dir(…) lists the names"


class UnknownImportError(VolumetricError, ImportError):
    """A package has no name that is imported from it."""

    advice: ClassVar[str | None] = "dir(…) lists the names"


class MissingKeyError(VolumetricError, KeyError):
    """There is no layer or weight under a key."""

    advice: ClassVar[str | None] = "print(network) and print(params) list the keys"

    def __str__(self) -> str:
        return Exception.__str__(self)  # that of KeyError quotes the message


class GenerationError(VolumetricError, RuntimeError):
    """Text generation cannot continue: the context is full, a chat template failed, a token is unknown.

    Attributes
    ----------
    sequence : index of the failing sequence in the call; None for a call of one sequence, or if it is not known
    """

    advice: ClassVar[str | None] = "`volumetric inspect MODEL` shows the limits of the model"
    sequence: int | None = None


class OverloadedError(GenerationError):
    """A scheduler's queue is full.

    Attributes
    ----------
    retry_after : seconds after which to retry, estimated from the queued work
    """

    advice: ClassVar[str | None] = "try again later"

    def __init__(self, message: str, *, retry_after: float = 1.0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class DoesNotFitError(GenerationError):
    """A prompt is longer than the context, or needs more memory for states than there will ever be."""

    advice: ClassVar[str | None] = "shorten the prompt"


class ExpiredError(GenerationError):
    """A job had not ended at its deadline, or got no batch slot in time.

    Attributes
    ----------
    queued : whether the job never got a slot
    """

    advice: ClassVar[str | None] = "allow more time, or try again under less load"

    def __init__(self, message: str, *, queued: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.queued = queued


class ShuttingDownError(GenerationError):
    """A scheduler accepts no more jobs, or ends before a job has."""

    advice: ClassVar[str | None] = "try another server, or later"
