"""save_web: write any network as a page that runs it in browsers; see docs/web.md."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from volumetric.base.atomic import write_atomic
from volumetric.base.errors import SpecError
from volumetric.base.notebook_html import ShowsFields
from volumetric.loaders.directory import new_directory
from volumetric.network import Params
from volumetric.train import TrainConfig
from volumetric.web.evolved_task import ACTIONS, CARTPOLE, EvolvedTask, champion_of, in_environment, task_beside
from volumetric.web.export_network import MANIFEST, export_network
from volumetric.web.learner_network import LearnerNetwork, learner_of_actions
from volumetric.web.page_files import page_files, single_page
from volumetric.web.page_hints import genome_drawing, page_hints
from volumetric.web.sources import recorded_kind

_GENOME: Final = "genome.json"
_MOST_DRAWN: Final = 100
"""Genomes of a population that have a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage(ShowsFields):
    """What `save_web` wrote.

    Attributes
    ----------
    path : the folder, or the HTML file
    kind : as in network.json
    view : name of the view that the page shows
    title : of the page
    bytes : of all files
    """

    path: Path
    kind: str
    view: str
    title: str
    bytes: int


def save_web(
    source: Any,
    out: str | os.PathLike[str],
    *,
    single_file: bool = False,
    params: Params | None = None,
    title: str | None = None,
    licence: str | None = None,
    author: str | None = None,
    description: str | None = None,
    image: tuple[int, int] | None = None,
    rows: Sequence[int] = (1, 64),
    context: int | None = None,
    dtype: str | None = None,
    variants: tuple[str, ...] | None = None,
    learn: TrainConfig | bool = False,
    template: bool = False,
    environment: str | None = None,
) -> WebPage:
    """Write `source` as a page that runs it on the GPU of whoever opens it. Needs no GPU.

    Parameters
    ----------
    source : path, hub id or ``pkg:module`` of a model, or the directory of a run of evolution; a model of
        `volumetric.load`; the result of `volumetric.evolve`; a `Genome`, or several of one interface; a `Network` or
        `Clocked` with `params`; a `LearnerNetwork` or a `NeatPopulation`
    out : folder to write, or with `single_file` one HTML file; it appears whole or not at all
    single_file : put everything into one HTML file, which opens without a server
    params : weights of a network
    title : heading of the page; None: the source's name
    licence : licence of the weights, which the page shows; None: what the source's files say
    author : who made the network, which the page shows
    description : a sentence on what it does, under the title
    image : height and width of the image that the network's input is; None: by its shape
    rows, context, dtype, variants, learn, template : as for `volumetric.web.export_network`
    environment : ``"CartPole-v1"``: the network acts in it, or with `learn` learns from a visitor who does; None: that
        of the run of evolution, if any

    Raises
    ------
    CheckpointError : the source cannot be read, or the page cannot be written
    UnsupportedError : the network has no form on GPUs, or exceeds what every browser has
    SpecError : an argument is out of range, or one file would be larger than 32 MiB
    """
    if template and single_file:
        raise SpecError("a template is a folder: its page reads a GGUF file", hint="leave single_file or template out")
    task = task_beside(source) if isinstance(source, str | os.PathLike) else None
    named = title or (_title_of(source, task) if isinstance(source, str | os.PathLike) else None)
    task = task if environment is None else in_environment(task, environment)
    options: dict[str, Any] = {
        "params": params, "title": named, "rows": rows, "context": context, "dtype": dtype, "learn": learn,
    }  # fmt: skip

    def export(folder: Path) -> dict[str, Any]:
        """Write network.json with the page's hints, and weights; return the former."""
        plain = _plain(source)
        if learn is True and task is not None and task.environment == CARTPOLE and not template:
            export_network(_learner_of_pushes(plain, options), folder, variants=variants)
        else:
            export_network(plain, folder, variants=variants, template=template, **options)
        network = json.loads((folder / MANIFEST).read_text("utf-8"))
        stated = {"licence": licence, "author": author}
        network["origin"] |= {name: text for name, text in stated.items() if text is not None}
        network["ui"] = _hints(network, folder, source, task, image)
        if environment is not None and network["ui"]["view"] not in ("cartpole", "learn_cartpole"):
            raise SpecError(
                f"{environment} is played by networks of 4 inputs and 2 outputs or 1", hint="leave the environment out"
            )
        if description is not None:
            network["ui"]["description"] = description
        (folder / MANIFEST).write_text(json.dumps(network, ensure_ascii=False, separators=(",", ":")), "utf-8")
        return network

    target = Path(out)
    if single_file:
        with tempfile.TemporaryDirectory(prefix="volumetric-web-") as place:
            network = export(Path(place) / "export")
            write_atomic(target, _one_page(network, Path(place) / "export").encode())
        size = target.stat().st_size
    else:
        with new_directory(target, MANIFEST) as home:
            inner = home / ".export"
            network = export(inner)
            for file in inner.iterdir():
                file.rename(home / file.name)
            inner.rmdir()
            for name, text in page_files(network).items():
                place = home / name
                place.parent.mkdir(exist_ok=True)
                place.write_text(text, "utf-8")
        size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    return WebPage(path=target, kind=network["kind"], view=network["ui"]["view"], title=network["title"], bytes=size)


def _plain(source: Any) -> Any:
    """Return what `export_network` reads: the files of a loaded model, the champion of a run."""
    if isinstance(source, str | os.PathLike):
        return champion_of(source) if Path(source).is_dir() else source
    for name in ("loaded", "champion"):
        if hasattr(source, name):
            return getattr(source, name)
    return source


def _learner_of_pushes(source: Any, options: Mapping[str, Any]) -> LearnerNetwork:
    """Return a network that learns to push CartPole's cart as a visitor does."""
    kind = recorded_kind(source, **options)
    assert isinstance(kind, LearnerNetwork)  # of learn=True
    return learner_of_actions(kind, ACTIONS)


def _title_of(source: str | os.PathLike[str], task: EvolvedTask | None) -> str | None:
    """Return the name of a run for what it has written; None: the source has a name of its own."""
    path = Path(source).absolute()
    if task is not None:
        run = path if (path / "origin.json").is_file() else path.parent
        return f"{run.name}, evolved"
    return path.parent.name if path.name == "model" and path.is_dir() else None


def _hints(
    network: Mapping[str, Any], folder: Path, source: Any, task: EvolvedTask | None, image: tuple[int, int] | None
) -> dict[str, Any]:
    hints = page_hints(network, task, image=image)
    if (folder / _GENOME).is_file():
        from volumetric.evolution.genome import Genome

        hints["genome"] = genome_drawing(Genome.load(folder / _GENOME), task)
    elif hints["view"] == "genomes":
        hints["genomes"] = [genome_drawing(genome) for genome in source[:_MOST_DRAWN]]
    return hints


def _one_page(network: Mapping[str, Any], folder: Path) -> str:
    names = {piece["file"] for piece in network["pieces"]}
    pieces = [(folder / piece["file"]).read_bytes() for piece in network["pieces"]]
    others = [file for file in folder.iterdir() if file.name not in {*names, MANIFEST, _GENOME}]
    return single_page(network, pieces, {file.name: file.read_bytes() for file in sorted(others)})
