"""Flags of ``bench --suite serve``: which servers, and how much they are asked."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from volumetric.cli.exits import UsageError
from volumetric.errors import SpecError

if TYPE_CHECKING:
    from volumetric.bench.serve import Load, Target

SERVERS = Group("Servers (--suite serve)", sort_key=2)
_REQUESTS = ((1, 4), (4, 12), (16, 32), (64, 64))
"""Up to so many clients, so many requests, unless told otherwise."""


@Parameter(name="*", group=SERVERS)
@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Servers, and how much they are asked.

    Parameters
    ----------
    url : str
        Where the server is, or several servers, separated by commas, which take turns.
    clients : str
        Numbers of clients at once.
    requests : int
        Requests of a load; 4, 12, 32 and 64 for 1, 4, 16 and 64 clients unless given.
    field : list[str]
        Further field of each request, as temperature=0.8; any number of times.
    """

    url: str = "http://127.0.0.1:8080"
    clients: str = "1,4,16"
    requests: int | None = None
    field: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()

    def targets(self) -> list[Target]:
        """Return the servers. Raises `UsageError`."""
        from volumetric.bench.serve import Target

        try:
            return [Target.of(url, os.environ.get("VOLUMETRIC_API_KEY") or "none") for url in self.url.split(",")]
        except SpecError as error:
            raise UsageError(f"--url: {error}", hint=error.hint) from None

    def loads(self, tokens: int) -> list[Load]:
        """Return what is asked for, with answers of so many tokens. Raises `UsageError`."""
        from volumetric.bench.serve import Load

        try:
            counts = [int(count) for count in self.clients.split(",")]
        except ValueError:
            raise UsageError(f"--clients must be whole numbers, got {self.clients!r}", hint="as in 1,4,16") from None
        if min(counts) < 1 or tokens < 1 or (self.requests is not None and self.requests < 1):
            raise UsageError("--clients, --requests and --n-gen must be 1 or more")
        fields = dict(_field(one) for one in self.field)
        return [
            Load(clients=count, requests=max(count, self.requests or _requests(count)), tokens=tokens, fields=fields)
            for count in counts
        ]


def _requests(clients: int) -> int:
    return next((requests for most, requests in _REQUESTS if clients <= most), clients)


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--field {text} is no NAME=VALUE", hint="as in --field temperature=0.8")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
