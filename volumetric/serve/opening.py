"""Opening: models are opened beside the event loop, by a thread that a server which ends does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volumetric.generate.model import Model


async def opened(opener: Callable[[], Model]) -> Model:
    """Return what `opener` returns, and raise what it raises.

    A model that nobody waits for any more is closed again.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Model] = loop.create_future()

    def settle(model: Model | None, error: BaseException | None) -> None:
        if future.done():
            _close(model)
        elif model is not None:
            future.set_result(model)
        elif error is not None:
            future.set_exception(error)

    def work() -> None:
        model, failure = None, None
        try:
            model = opener()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, model, failure)
        except RuntimeError:  # the loop has ended, and the server with it
            _close(model)

    # A pool would be waited for at the end of the loop: a download may take minutes, and signals would do nothing.
    threading.Thread(target=work, name="opening", daemon=True).start()
    return await future


def _close(model: Model | None) -> None:
    """Close a model that was opened for nobody."""
    if model is not None:
        with contextlib.suppress(Exception):
            model.close()
