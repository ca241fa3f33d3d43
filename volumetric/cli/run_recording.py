"""Where ``run --record`` and ``scope record`` leave what they have seen: a film, or a recording."""

from __future__ import annotations

from pathlib import Path

from volumetric.cli import console
from volumetric.cli.exits import UsageError
from volumetric.observe.activity import Recorder
from volumetric.observe.recording import SUFFIX

FILMS = (".html", ".gif")


def check_recording(path: Path) -> None:
    """Raise `UsageError` unless a path is that of a film or a recording."""
    if path.suffix not in (*FILMS, SUFFIX):
        raise UsageError(f"--record {path} ends in none of {', '.join((*FILMS, SUFFIX))}")


def keep(recorder: Recorder, name: str, path: Path, *, per_row: int = 1, device: str = "") -> None:
    """Write what was recorded, and say how much."""
    told = recorder.recording(title=f"{name}: {len(recorder.frames):,} ticks", device=device, per_row=per_row)
    if path.suffix == SUFFIX:
        told.save(path)
    else:
        from volumetric.viz.activity import save_film

        save_film(told, path)
    rest = f"; {told.meta.missed} more are not: it is full" if told.meta.missed else ""
    console.note(f"{len(told)} ticks drawn in {path}{rest}")
