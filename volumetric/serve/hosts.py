"""Hosts: the names under which a server may be asked for.

A web page may let its own name point to this machine, and then asks here as if it were of the same origin; but the
browser tells that name (https://en.wikipedia.org/wiki/DNS_rebinding). An address in the place of a name points to
nothing else, so no page can have it as its own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final

_PORT: Final = re.compile(r":\d*\Z")


def host_of(header: str) -> str:
    """Return the name in a ``Host`` header: without a port and brackets, in small letters."""
    name = _PORT.sub("", header) if header.endswith("]") or header.count(":") < 2 or "]" in header else header
    return name.removeprefix("[").removesuffix("]").removesuffix(".").lower()


def is_known(name: str, hosts: Collection[str], *, addresses: bool) -> bool:
    """Whether a server answers to a name.

    Parameters
    ----------
    hosts : the names that it has, in small letters
    addresses : it answers to any address, too
    """
    return name in hosts or (addresses and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
