"""Supervisor: what a service manager is told of the server, by systemd's protocol of a datagram a message.

Source: sd_notify(3), https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


def tell(message: str) -> None:
    """Send a message to who has started this process and asks for it by NOTIFY_SOCKET; else nothing.

    Nothing that goes wrong here is a reason not to serve.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if address.startswith("@"):  # a name that is in no file system
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(message.encode(), address)
    except OSError:
        return
