"""The example of docs/web_format.md runs, and its numbers are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.printed_results import assert_printed, examples
from volumetric.devices.gpu.call_schedule import LISTED_ROWS, NEAR_PAGES, PLACES, SequenceSpan, control_words
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.web.export_network import FORMAT, VERSION
from volumetric.web.variants import ALIGNMENT, VARIANTS
from volumetric.web.weight_pieces import PIECE_BYTES

DOCUMENT = "docs/web_format.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    [(code, shown)] = examples(DOCUMENT)
    exec(compile(code, DOCUMENT, "exec"), {})
    assert_printed(capsys.readouterr().out, shown, DOCUMENT)


def test_names_and_numbers_are_those_of_the_code() -> None:
    page = " ".join((Path(__file__).parents[2] / DOCUMENT).read_text(encoding="utf-8").split())
    assert f'"format": "{FORMAT}", "version": {VERSION}' in page
    assert f"at most {PIECE_BYTES >> 20} MiB a file" in page
    assert f"parts begin at multiples of {ALIGNMENT}" in page
    assert f'"places": {PLACES}' in page
    assert f"`pages` (at most {NEAR_PAGES}), then zeros" in page
    assert f'"owners": {LISTED_ROWS // 2}' in page
    words = control_words([SequenceSpan(1, 5, 9)], CallRows(9, 0, 3, 1), 4)
    assert words[60 + 4 * PLACES + LISTED_ROWS // 2 :][:3].tolist() == [0, 4, 8]
    assert all(f'"{variant.label}"' in page for variant in VARIANTS.values())
