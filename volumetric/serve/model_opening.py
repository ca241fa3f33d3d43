"""Opening models in a daemon thread, for which a server that shuts down does not wait."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volumetric.generate.model import Model


async def open_in_thread(opener: Callable[[], Model]) -> Model:
    """Call `opener` in a thread; return its result, or raise its error.

    If the awaiting task is cancelled, the model is closed again.
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
        except RuntimeError:  # the loop, and thus the server, has ended
            _close(model)

    # At exit the loop would wait for a thread pool: a download may take minutes, during which signals would do nothing.
    threading.Thread(target=work, name="opening", daemon=True).start()
    return await future


def _close(model: Model | None) -> None:
    """Close a model that is no longer needed."""
    if model is not None:
        with contextlib.suppress(Exception):
            model.close()
