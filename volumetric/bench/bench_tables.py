"""Rows of a benchmark as a Markdown table, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from volumetric.base.errors import SpecError


def render_table(
    rows: Sequence[Mapping[str, object]], head: str, cells: Sequence[Sequence[str]], form: str, *, left: int
) -> str:
    """Format rows, with a final newline.

    Parameters
    ----------
    rows : fields of each row, for all formats but Markdown
    head, cells : column names of a Markdown table, ``"a | b"``, and the cells of each row
    form : md, csv, json, jsonl
    left : number of left-aligned columns, from the first

    Raises
    ------
    SpecError : the format is unknown
    """
    if form == "json":
        return json.dumps(rows, indent=2) + "\n"
    if form == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    if form == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()
    if form != "md":
        raise SpecError(f"unknown output format {form!r}", hint="use one of: md, csv, json, jsonl")
    names = head.split(" | ")
    aligned = ["---"] * left + ["---:"] * (len(names) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, aligned, *cells)) + "\n"
