"""How far long work on files is, as log records that the command line shows in a line that changes."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def tell(what: str, done: int, total: int) -> None:
    """Tell that `done` of `total` pieces of some work are done; after the last one, that it is over."""
    logger.info("%s: %d of %d", what, done, total, extra={"progress": (done, total) if done < total else None})
