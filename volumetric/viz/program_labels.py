"""Text in a program's picture: line breaks of clocks, and placement of labels next to arrows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from volumetric.program.layer.edge import Edge
from volumetric.viz.figure import text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE: Final = 0.155
"""Height of a line of text in a box, in inches."""
Spot = tuple[float, float, float, float]
"""Left, top, width and height of a box, in inches."""
_SIZE: Final = 6.0
_MOST: Final = 400
"""Maximum number of labels of arrows."""


def fold_text(text: str, most: int = 34) -> list[str]:
    """Break a clock into lines, after its operators if possible."""
    words, lines = text.split(" "), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > most:
            lines.append("    " + word)
        else:
            lines[-1] += (" " if lines[-1] else "") + word
    return lines


def edge_label(edge: Edge) -> str:
    """Return the label of an arrow: its condition, its lag, and its weight if not 1."""
    parts = ["" if edge.when is None else edge.when, "" if edge.lag is None else f"lag {edge.lag}"]
    parts.append("" if edge.weight == 1 else f"× {edge.weight:.3g}")
    return ", ".join(filter(None, parts))


def label_width(text: str) -> float:
    """Return the width of an arrow's label in inches."""
    return max(text_width(line, _SIZE) for line in _lines(text)) + 0.08


def _lines(text: str) -> list[str]:
    return [part.strip() for part in fold_text(text, 26)]


@dataclass(frozen=True)
class _Label:
    text: str
    at: tuple[float, float]
    colour: str


@dataclass
class Labels:
    """Labels of arrows, placed so that they cover no text and no arrow end, else as a number with a note.

    Attributes
    ----------
    notes : text of each label without room → its number
    left_out : number of labels that are not drawn because there are too many
    """

    notes: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    _placed: list[_Label] = field(default_factory=list)
    _occupied: dict[tuple[int, int], list[Spot]] = field(default_factory=dict)
    """Boxes that must not be covered, by the square inches that they touch."""
    _arrows: dict[tuple[int, int], list[tuple[float, float, int]]] = field(default_factory=dict)
    """Points of arrows with the numbers of the arrows, by the square inch."""

    def reserve(self, spots: Iterable[Spot]) -> None:
        """Mark boxes as occupied."""
        for spot in spots:
            for square in _squares(spot):
                self._occupied.setdefault(square, []).append(spot)

    def pass_by(self, arrow: int, points: Iterable[tuple[float, float]]) -> None:
        """Add the points of an arrow, which labels of other arrows avoid."""
        for x, y in points:
            self._arrows.setdefault((int(x // 1), int(y // 1)), []).append((x, y, arrow))

    def place(self, text: str, arrow: int, places: Sequence[tuple[float, float]], colour: str) -> None:
        """Place a label at the first free position (best first), else place its number.

        A position is free if it hides nothing occupied, and at most one other arrow.
        """
        if len(self._placed) >= _MOST:
            self.left_out += 1
            return
        lines = _lines(text)
        sizes = [("\n".join(lines), label_width(text), 0.125 * len(lines) + 0.05)]
        number = str(self.notes.get(text, len(self.notes) + 1))
        sizes.append((number, text_width(number, _SIZE) + 0.1, 0.15))
        for shown, wide, high in sizes:
            boxes = [(x - wide / 2, y - high / 2, wide, high) for x, y in places]
            hidden = [(self._covered_area(box), self._count_crossings(box, arrow)) for box in boxes]
            best = min(range(len(boxes)), key=hidden.__getitem__)
            if shown != number and hidden[best] > (0, 1):
                continue
            if shown == number:
                self.notes[text] = int(number)
            self.reserve([boxes[best]])
            self._placed.append(_Label(shown, places[best], colour))
            return

    def _covered_area(self, box: Spot) -> float:
        """Return the occupied area of a box."""
        return sum(_common_area(box, other) for square in _squares(box) for other in self._occupied.get(square, ()))

    def _count_crossings(self, box: Spot, arrow: int) -> int:
        """Return the number of other arrows that a box hides partly."""
        x, y, wide, high = box
        return len(
            {
                other
                for square in _squares(box)
                for px, py, other in self._arrows.get(square, ())
                if other != arrow and x <= px <= x + wide and y <= py <= y + high
            }
        )

    def draw(self, axes: Axes) -> None:
        """Draw all labels on top."""
        numbers = {str(number) for number in self.notes.values()}
        for label in self._placed:
            round_one = label.text in numbers
            axes.text(
                *label.at, label.text, fontsize=_SIZE, ha="center", va="center", zorder=6, color=label.colour,
                weight="bold" if round_one else "normal",
                bbox={
                    "boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.9,
                    "edgecolor": label.colour if round_one else "none", "linewidth": 0.5,
                },
            )  # fmt: skip


def _squares(spot: Spot) -> list[tuple[int, int]]:
    x, y, wide, high = spot
    return [
        (i, j)
        for i in range(int(x // 1), int((x + wide) // 1) + 1)
        for j in range(int(y // 1), int((y + high) // 1) + 1)
    ]


def _common_area(a: Spot, b: Spot) -> float:
    """Return the common area of two boxes."""
    wide, high = (min(a[i] + a[i + 2], b[i] + b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    return max(0.0, wide) * max(0.0, high)
