"""Servers of OpenAI's API by their URLs, as people write them: with ``/v1`` or without it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from volumetric.errors import SpecError

_HOST: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9a-f]*:[0-9a-f:.]*(%[\w.-]+)?", re.IGNORECASE | re.ASCII)
"""A name, or an address of either kind."""
_PATH: Final = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class Target:
    """A server, by the URL under which its ``/chat/completions`` is.

    Attributes
    ----------
    url : as told
    secure : whether it is asked by TLS
    host, port, path : its parts, ``/v1`` at the end of the last one
    key : what the server wants to be shown
    """

    url: str
    secure: bool
    host: str
    port: int
    path: str
    key: str

    @classmethod
    def of(cls, url: str, key: str = "none") -> Target:
        """Return the target of a URL, with or without ``/v1``.

        Raises
        ------
        SpecError : it is no URL of a server, or no header can hold the key
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SpecError(f"{url!r} is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(f"{url!r} is no URL of a server", hint="as in http://127.0.0.1:8080")
        if not _HOST.fullmatch(parts.hostname) or not _PATH.fullmatch(parts.path):
            raise SpecError(f"{url!r} is no URL of a server", hint="letters of its own are written with % there")
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise SpecError("the key has characters that no header can hold", hint="check VOLUMETRIC_API_KEY")
        secure, path = parts.scheme == "https", parts.path.rstrip("/")
        path = path if path.endswith("/v1") else f"{path}/v1"
        return cls(url, secure, parts.hostname, port or (443 if secure else 80), path, key)

    @property
    def base(self) -> str:
        """The URL with ``/v1`` at its end."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port, as the header ``Host`` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
