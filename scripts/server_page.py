"""Write the table of fields of other servers into docs/server.md.

python scripts/server_page.py            write it
python scripts/server_page.py --check    exit with 1 if the file is not current
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from scripts.pages import write_or_check  # noqa: E402 (the line above must come first)
from volumetric.serve.fields.foreign_fields import table  # noqa: E402

TARGET = ROOT / "docs" / "server.md"
PLACE = re.compile(r"(<!-- fields of other servers: scripts/server_page.py -->\n).*?(\n<!-- end -->)", re.DOTALL)


def main() -> int:
    """Put the table in its place."""
    text = TARGET.read_text(encoding="utf-8")
    return write_or_check(__doc__, {TARGET: PLACE.sub(lambda found: found[1] + table() + found[2], text)})


if __name__ == "__main__":
    raise SystemExit(main())
