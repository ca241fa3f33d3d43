"""Supervisor: notifies a service manager by systemd's protocol, one datagram per message.

Source: sd_notify(3), https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def tell(message: str) -> None:
    """Send a message to the socket in NOTIFY_SOCKET, if it is set.

    Errors are ignored: they do not stop the server.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # a name in Linux' abstract namespace
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(message.encode(), address)
    except OSError:
        return
