"""Errors of requests, in the format and with the codes of OpenAI's API."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from volumetric.base.errors import (
    CheckpointError,
    DeviceError,
    DoesNotFitError,
    ExpiredError,
    GenerationError,
    OverloadedError,
    ShuttingDownError,
    SpecError,
    UnsupportedError,
    VolumetricError,
)

logger: logging.Logger = logging.getLogger(__name__)

INVALID = "invalid_request_error"
_COMMANDS: Final = (GenerationError.advice, DeviceError.advice, CheckpointError.advice)
"""Hints for local users that clients of a server cannot follow."""
_DIRECTORIES: Final = re.compile(
    r"""
    (?:^[^\s/\\:]*(?:[/\\][^/\\:\n]+)*        # a path that an error begins with, from the root or not
      |(?<![\w.~:/\\-])(?:[A-Za-z]:|~|\.\.?)?  # or one within it, from the root, from home or from where it began
       (?:[/\\][^\s/\\:][^/\\:'"\n]*)*)
    [/\\](?=[^\s/\\:'"])                      # up to the name of the file
    """,
    re.VERBOSE,
)
LAST: Final = MappingProxyType({"connection": "close"})
"""Headers of a response that is sent before the whole body has arrived: the rest of it is not a new request."""


class RequestError(Exception):
    """An error that is sent to the client.

    Parameters
    ----------
    status : HTTP status
    message : what failed, what was expected, and what to do
    kind, code : ``type`` and ``code`` of the error object
    param : place in the body, as ``messages[0].role``
    retry_after : seconds after which the client may retry
    headers : headers of the response, in addition to its type and length
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.headers: dict[str, str] = dict(headers)
        if retry_after is not None:
            self.headers["retry-after"] = str(math.ceil(retry_after))

    @property
    def detail(self) -> dict[str, Any]:
        """The body of the response."""
        fields = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": fields}

    @property
    def encoded(self) -> bytes:
        """The body of the response as JSON."""
        return msgspec.json.encode(self.detail)


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> RequestError:
    """Return the error for an invalid request (status 400)."""
    return RequestError(400, message, param=param, code=code)


def without_directories(text: str) -> str:
    """Return a text with each path of this machine reduced to its file name."""
    return _DIRECTORIES.sub("", text)


def problem_of(error: Exception, *, param: str | None = None) -> RequestError:
    """Convert an error of the engine to one for the client. Unexpected errors reveal no details.

    Errors that the request did not cause are logged with their traceback.
    """
    if isinstance(error, RequestError):
        return error
    if not isinstance(error, VolumetricError):
        logger.error("%s", error, exc_info=error)
        return RequestError(
            500, "the server failed; see its log for the reason", kind="server_error", code="internal_error"
        )
    message = f"{error}; {error.hint}" if error.hint and error.hint not in _COMMANDS else str(error)
    if isinstance(error, OverloadedError):
        return RequestError(429, message, kind="rate_limit_error", code="queue_full", retry_after=error.retry_after)
    if isinstance(error, DoesNotFitError):
        # litellm recognises this error by its first words, langchain by the code in the text.
        text = f"this model's maximum context length is exceeded (context_length_exceeded): {message}"
        return RequestError(400, text, code="context_length_exceeded", param=param)
    if isinstance(error, ShuttingDownError):
        return RequestError(503, message, kind="unavailable_error", code="server_shutdown", retry_after=1)
    if isinstance(error, ExpiredError):
        code = "queue_timeout" if error.queued else "deadline_exceeded"
        return RequestError(503, message, kind="unavailable_error", code=code, retry_after=1)
    if isinstance(error, (SpecError, UnsupportedError)):
        return RequestError(400, message, param=param, code="invalid_value")
    if isinstance(error, GenerationError):
        return RequestError(400, message, param=param)
    # A failed device fails all running requests: their tracebacks would be the same.
    logger.error("%s", message, exc_info=None if isinstance(error, DeviceError) else error)
    code = "model_error" if isinstance(error, CheckpointError) else "device_error"
    return RequestError(500, without_directories(message), kind="server_error", code=code)
