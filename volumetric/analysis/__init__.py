"""Analysis of networks: predictions, deviations, ensembles, adaptation to changing tasks, clustering.

Names are imported when they are first used; see ``__init__.pyi``.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
