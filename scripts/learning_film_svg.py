"""A network that learns, as an SVG that moves: its grid, the map of its answers, and its loss.

Everything moves by CSS, so that the picture runs inside ``<img>``. Colours follow the reader's light or dark scheme,
and who asked for less motion sees the end of the film.
"""

from __future__ import annotations

from typing import Final

from scripts.learning_film import LearningFilm, digits, keyframes
from scripts.learning_film_cells import draw_cells
from scripts.learning_film_plane import draw_plane, place_on_plane

_WIDTH, _HEIGHT = 960, 400
_COLUMN, _CURVE_TOP, _CURVE_WIDTH, _CURVE_HEIGHT = 814.0, 250.0, 122.0, 90.0
_STYLE: Final = """
:root{--card:#fcfcff;--rim:#e2e4ee;--ink:#23263a;--soft:#737890;--wire:#c9cdde;--top:#f1f2f8;--front:#e8eaf3;\
--side:#dfe2ee;--edge:#c6cadb;--a:#f08c00;--b:#0794b4;--c:#c026d3;--halo:.035}
@media (prefers-color-scheme:dark){:root{--card:#0f1220;--rim:#2a2f48;--ink:#eef0fa;--soft:#959cb8;--wire:#333a5a;\
--top:#2b3153;--front:#20253f;--side:#191d34;--edge:#3c4369;--a:#ffb224;--b:#35d3f0;--c:#f07bff;--halo:.055}}
text{font:13px ui-sans-serif,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;fill:var(--soft)}
.big,.mid{fill:var(--ink);font-variant-numeric:tabular-nums}
.big{font-size:40px;font-weight:650;letter-spacing:-1px}.mid{font-size:20px;font-weight:600}
#box{stroke:var(--edge);stroke-width:.7;stroke-linejoin:round}
.top{fill:var(--top)}.front{fill:var(--front)}.side{fill:var(--side)}.halo{opacity:var(--halo)}
.w{stroke:var(--wire);fill:none}.rim,.dot{stroke-linecap:round}.rim{stroke:var(--card);stroke-width:6.4}.dot{stroke-width:4.4}
.hue,.lit,.seen,.map,#spot,#past,#head{animation:hue %ss ease-in-out infinite}
.seen{animation-name:seen;animation-timing-function:step-end}.map{animation-name:map;animation-timing-function:linear}
#spot{animation-name:spot}#past{animation-name:past}#head{animation-name:head}
#past,#head{animation-timing-function:linear}
@media (prefers-reduced-motion:reduce){*{animation:none!important}}
"""


def film_svg(film: LearningFilm) -> str:
    """Return the picture, 960 × 400."""
    grid, last = film.network.grid, film.moments[-1]
    label = (
        f"A grid of {grid.depth} × {grid.rows} × {grid.cols} layers learns in {last.epoch} epochs on which arm of a "
        f"spiral a point lies. It is right for {last.accuracy:.0%} of points that it has not seen."
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">\n'
        f"<style>{_STYLE % digits(film.seconds)}{_times(film)}</style>\n"
        f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="14" fill="var(--card)" '
        'stroke="var(--rim)"/>\n'
        f"{draw_cells(film)}\n{draw_plane(film)}\n{_draw_counters(film)}\n</svg>\n"
    )


def _times(film: LearningFilm) -> str:
    """Return the keyframes of all but the cells."""
    one, rest = film.percent, film.percent * (film.hold + 1)
    head, past = [], []
    for epoch in range(1, len(film.losses) + 1):
        at = f"{digits(film.time_of(epoch))}%" + ",100%" * (epoch == len(film.losses))
        x, y = _on_curve(film, epoch)
        head.append(f"{at}{{transform:translate({digits(x)}px,{digits(y)}px)}}")
        past.append(f"{at}{{transform:scaleX({x / _CURVE_WIDTH:.4f})}}")
    spots = [place_on_plane(film, moment.probe) for moment in film.moments]
    return "\n".join(
        [
            keyframes("hue", [moment.hue for moment in film.moments]),
            keyframes("spot", [f"transform:translate({digits(x)}px,{digits(y)}px)" for x, y in spots]),
            f"@keyframes head{{{''.join(head)}}}",
            f"@keyframes past{{{''.join(past)}}}",
            _shown("seen", one),
            _shown("end", rest),
            _faded("map", one * 0.6, one),
            _faded("trained", one * 0.6, rest),
        ]
    )


def _shown(name: str, share: float) -> str:
    """Return keyframes of what is seen for a share of the film."""
    return f"@keyframes {name}{{0%{{opacity:1}}{digits(share)}%,100%{{opacity:0}}}}"


def _faded(name: str, fade: float, share: float) -> str:
    """Return keyframes of what fades in, and goes when what follows has faded in."""
    gone = share + fade
    return (
        f"@keyframes {name}{{0%{{opacity:0}}{digits(fade)}%,{digits(gone)}%{{opacity:1}}"
        f"{digits(gone + 0.01)}%,100%{{opacity:0}}}}"
    )


def _on_curve(film: LearningFilm, epoch: int) -> tuple[float, float]:
    across = (epoch - 1) / max(len(film.losses) - 1, 1)
    return _CURVE_WIDTH * across, _CURVE_HEIGHT * (1 - film.losses[epoch - 1] / max(film.losses))


def _draw_counters(film: LearningFilm) -> str:
    """Return epoch, accuracy and loss in numbers, and the curve of the loss."""
    x = digits(_COLUMN)
    names = {58: "epoch", 136: "right, new points", 200: "loss"}
    out = [f'<text x="{x}" y="{y}">{name}</text>' for y, name in names.items()]
    for i, moment in enumerate(film.learning):
        rest = "animation-name:end" if moment is film.learning[-1] else "opacity:0"
        out.append(
            f'<g class="seen" style="{film.starts_at(i)};{rest}"><text class="big" x="{x}" y="97">{moment.epoch}</text>'
            f'<text class="mid" x="{x}" y="161">{moment.accuracy:.0%}</text>'
            f'<text class="mid" x="{x}" y="225">{film.losses[moment.epoch - 1]:.3f}</text></g>'
        )
    curve = [_on_curve(film, epoch) for epoch in range(1, len(film.losses) + 1)]
    line = "L".join(f"{digits(px)} {digits(py)}" for px, py in curve)
    out.append(
        f'<g transform="translate({x} {digits(_CURVE_TOP)})">'
        f'<path class="w" d="M0 {digits(_CURVE_HEIGHT)}h{digits(_CURVE_WIDTH)}"/>'
        f'<clipPath id="until"><rect id="past" y="-6" width="{digits(_CURVE_WIDTH)}" '
        f'height="{digits(_CURVE_HEIGHT + 12)}"/></clipPath>'
        f'<path clip-path="url(#until)" d="M{line}" fill="none" stroke="var(--ink)" stroke-width="1.8" '
        'stroke-linejoin="round"/>'
        f'<circle id="head" r="3.6" fill="var(--ink)" '
        f'style="transform:translate({digits(curve[-1][0])}px,{digits(curve[-1][1])}px)"/></g>'
    )
    return "".join(out)
