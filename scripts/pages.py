"""What every script that writes documents ends with: pages are written, or with ``--check`` compared with the files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_or_check(description: str | None, pages: Mapping[Path, str]) -> int:
    """Write the files that are not current, or tell which those are; return the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not current; run: make docs", file=sys.stderr)
        else:
            path.write_text(pages[path], encoding="utf-8")
    return int(check and bool(stale))
