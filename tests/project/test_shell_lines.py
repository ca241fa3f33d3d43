"""Every line of a shell that README and docs show is run by a test, in an empty folder, or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.pages import DOCUMENTS, ROOT, documents_blocks, follow, shell_lines

RUN_BY = {
    "docs/activity.md": "test_activity_document.py",
    "docs/clocked.md": "test_network_document.py",
    "docs/coming_from.md": "test_coming_from_document.py",
    "docs/data.md": "test_data_document.py",
    "docs/embeddings.md": "test_embeddings_document.py",
    "docs/onnx_read.md": "test_onnx_read_document.py",
    "docs/programs.md": "test_programs_document.py",
    "docs/scope.md": "test_scope_document.py",
    "docs/stacks.md": "test_stacks_document.py",
    "docs/web.md": "test_web_document.py",
}
"""Documents whose tests look closer at what their lines leave."""


def lines_to_run(document: str) -> list[str]:
    blocks = [text for language, text in documents_blocks(document) if language == "sh"]
    return [line.text for text in blocks for line in shell_lines(text) if not line.why]


RUN_HERE = [document for document in DOCUMENTS if document not in RUN_BY and lines_to_run(document)]


def test_lines_are_taken_apart_as_a_reader_does() -> None:
    block = """volumetric a "b # c" | d  # why
volumetric e \\
    --f  # takes minutes
# needs a network: g
volumetric g
cat > h <<END
i
END
# plain
cat > j <<END
# k
END
volumetric l MODEL
volumetric MODELS
"""
    found = [(line.text, line.why, line.below) for line in shell_lines(block)]
    assert found == [
        ('volumetric a "b # c" | d', "", ""),
        ("volumetric e      --f", "takes minutes", ""),
        ("volumetric g", "needs a network: g", ""),
        ("cat > h <<END", "needs a network: g", "i\n"),
        ("cat > j <<END", "", "# k\n"),
        ("volumetric l MODEL", "names of the reader", ""),
        ("volumetric MODELS", "", ""),
    ]


@pytest.mark.parametrize("document", RUN_BY)
def test_the_tests_that_look_closer_run_their_document(document: str) -> None:
    assert lines_to_run(document)
    assert f'follow("{document}"' in (Path(__file__).parent / RUN_BY[document]).read_text(encoding="utf-8")


@pytest.mark.thorough
@pytest.mark.parametrize("document", RUN_HERE)
def test_the_lines_of_a_document_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (ROOT / "examples").iterdir()}
    follow(document, monkeypatch, replace={}, python=False)
    assert {path: path.stat().st_mtime_ns for path in (ROOT / "examples").iterdir()} == before
