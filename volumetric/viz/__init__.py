"""Pictures: heat maps as web pages, and everything else through matplotlib (the extra ``viz``).

Names are imported at first use; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
