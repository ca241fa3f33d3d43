"""``python -m volumetric``: the same as the command ``volumetric``."""

from __future__ import annotations

import sys

from volumetric.cli import main

sys.exit(main())
