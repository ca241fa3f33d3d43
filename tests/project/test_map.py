"""The documents about the inside name files that exist, stay short, and are all listed in docs/index.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from volumetric.graph.operations.names import DECLARED

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
CHAPTERS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "design").glob("*.md"))
INSIDE = ["ARCHITECTURE.md", "docs/index.md", "docs/map.md", *CHAPTERS]
"""Documents whose paths and lines are checked."""
PATH = re.compile(r"(?<![\w./])((?:volumetric|tests|docs|benchmarks|scripts|examples|\.ci)/[\w./-]*\w)")
BARE = re.compile(r"`([\w-]+\.(?:py|pyi|wgsl|md))`")
"""A file without its folder: a search and replace would not find it."""
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
MERMAID = re.compile(r"^```mermaid\n(.*?)^```", re.DOTALL | re.MULTILINE)
DIAGRAMS = {"flowchart", "graph", "sequenceDiagram", "stateDiagram-v2", "classDiagram"}
RESERVED = {"graph", "end", "class", "click", "style", "subgraph", "default"}
"""Words that Mermaid does not take as the name of a box."""


def text_of(document: str) -> str:
    """The text of a document."""
    return (ROOT / document).read_text(encoding="utf-8")


def anchors(document: str) -> set[str]:
    """What links to headings of a document end with, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", text_of(document), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(document: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return text_of(document).split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_page_has_its_line_in_the_index() -> None:
    linked = [target for line in text_of("docs/index.md").splitlines() for target, _ in LINK.findall(line)[:1]]
    listed = [(ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix() for target in linked]
    pages = {*PAGES, *CHAPTERS, "docs/layers/README.md"} - {"docs/index.md"}
    assert not pages - set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("document", INSIDE)
def test_paths_exist_and_are_whole(document: str) -> None:
    text = text_of(document)
    assert not {path for path in PATH.findall(text) if not (ROOT / path).exists()}
    assert not {name for name in BARE.findall(text) if not (ROOT / name).exists()}


@pytest.mark.parametrize("document", INSIDE)
def test_links_lead_somewhere(document: str) -> None:
    for target, anchor in LINK.findall(text_of(document)):
        path = ((ROOT / document).parent / target).resolve() if target else ROOT / document
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.relative_to(ROOT).as_posix()), f"{target}#{anchor}"


@pytest.mark.parametrize("document", INSIDE)
def test_lines_are_short(document: str) -> None:
    assert not [line for line in text_of(document).splitlines() if len(line) > 120]


def test_the_architecture_is_short() -> None:
    assert len(text_of("ARCHITECTURE.md").splitlines()) <= 200


@pytest.mark.parametrize("document", CHAPTERS)
def test_a_chapter_begins_with_what_it_is_for(document: str) -> None:
    """Its first sentence says so, and it is reached from the list of chapters."""
    assert re.match(r"# .+\n\nAfter this chapter you ", text_of(document))
    assert f"({document})" in text_of("ARCHITECTURE.md")


def test_the_glossary_is_short_and_in_order() -> None:
    words = re.findall(r"^\| (?!word|---)([^|]+?) \|", section("docs/map.md", "Glossary"), re.MULTILINE)
    assert 20 <= len(words) <= 40
    assert words == sorted(words, key=lambda word: word.lower())


def test_answers_lead_to_functions_in_three_hops() -> None:
    """A link, a file, and what is defined in it."""
    answers = re.split(r"^\*\*(?=.*\?\*\*)", section("docs/map.md", "Where is …?"), flags=re.MULTILINE)[1:]
    assert len(answers) >= 12
    for answer in answers:
        hops = re.search(r"\?\*\* \[.+?\]\(\S+\) →\s+`(\S+)` →\s+`([\w.]+)`", answer)
        assert hops is not None, answer
        assert re.search(rf"^ *(?:async )?(?:def|class) {hops[2].split('.')[-1]}\b", text_of(hops[1]), re.MULTILINE), (
            answer
        )


@pytest.mark.parametrize("document", INSIDE)
def test_pictures_are_diagrams_that_mermaid_knows(document: str) -> None:
    text = text_of(document)
    blocks = MERMAID.findall(text)
    assert len(blocks) == text.count("```mermaid")
    for block in blocks:
        kind, *boxes = block.splitlines()
        assert kind.split()[0] in DIAGRAMS
        assert not RESERVED.intersection(
            re.findall(r"(?:^|[>|]) *(\w+)(?=\[|\(|\{| *-|$)", "\n".join(boxes), re.MULTILINE)
        )


def test_a_chapter_about_operations_counts_them() -> None:
    count = sum(len(names.split()) for names in DECLARED.values())
    assert f"There are {count}." in text_of("docs/design/operations.md")
    assert f"{count} operations" in text_of("docs/design/decisions.md")
    named = set(re.findall(r"`(\w+)`", text_of("docs/design/operations.md")))
    missing = {name for names in DECLARED.values() for name in names.split()} - named
    assert not {name for name in missing if not name.endswith("_grad")}
