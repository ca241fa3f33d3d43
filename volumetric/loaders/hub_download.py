"""Files of a Hugging Face hub model, in its cache: texts before weights, so a snapshot with weights is complete."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from volumetric.base.errors import CheckpointError
from volumetric.base.progress import WorkMeter
from volumetric.loaders.json_file import read_json

TEXTS: Final = ["*.json", "*.jinja", "*.txt", "tokenizer.model"]
WEIGHTS: Final = ["*.safetensors"]
TORCH_WEIGHTS: Final = ["pytorch_model*.bin"]
"""Files of torch.save, which are fetched if a repository has no safetensors."""
_IGNORED: Final = ["*/*.safetensors", "consolidated*", "*/*.json", "*.bin"]
MODULES: Final = "modules.json"
"""File in which sentence-transformers lists further directories of the model."""


def snapshot(repo: str, revision: str | None, file: str | None, *, local: bool) -> Path | None:
    """Return the directory of a snapshot; None if `local` is true and it is not in the cache.

    Ctrl-C ends a download at its next chunk. A file gets its name when it is complete; a partial file stays next to it
    in the hub's cache, and the next download resumes it.

    Parameters
    ----------
    repo : ``org/name``
    revision : branch, tag or commit; None: the main branch
    file : the requested file, with all parts if it is split; None: a whole model
    local : whether to use only the cache

    Raises
    ------
    CheckpointError
        The hub does not have it, or it cannot be downloaded.
    """
    if file:
        return _download(repo, revision, [re.sub(r"\d{5}(-of-\d{5}\.gguf)$", r"*\1", file)], _IGNORED, local=local)
    if local:
        return _download(repo, revision, TEXTS + WEIGHTS, _IGNORED, local=True)
    home = _download(repo, revision, TEXTS, _IGNORED, local=False)
    if home is None:
        return None
    modules = [f"{name}/{kind}" for name in _modules(home / MODULES) for kind in ("config.json", "model.safetensors")]
    if modules:
        _download(repo, home.name, modules, [], local=False)
    whole = _download(repo, home.name, WEIGHTS, _IGNORED, local=False)
    if whole is not None and not any(whole.glob("*.safetensors")):
        return _download(repo, home.name, TORCH_WEIGHTS, ["*/*"], local=False)
    return whole


def _modules(path: Path) -> list[str]:
    """Directories of the modules after the first, if their names are plain."""
    listed = read_json(path) if path.is_file() else []
    names = [module.get("path") for module in listed if isinstance(module, dict)] if isinstance(listed, list) else []
    return [name for name in names[:16] if isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name)]


def _download(repo: str, revision: str | None, patterns: list[str], ignored: list[str], *, local: bool) -> Path | None:
    """Download the files of a repository that match `patterns` and return their directory.

    With `local` only the cache is read, and the result is None if it lacks them. Errors of the hub become
    `CheckpointError`.
    """
    import huggingface_hub as hub
    from huggingface_hub import errors

    def fetch(bar: type[Any] | None) -> str:
        return hub.snapshot_download(
            repo,
            revision=revision,
            allow_patterns=patterns,
            ignore_patterns=ignored,
            local_files_only=local,
            tqdm_class=bar,
        )

    try:
        return Path(fetch(None) if local else _interruptible(repo, fetch))
    except errors.LocalEntryNotFoundError as error:
        if local:
            return None
        raise CheckpointError(
            f"there is no file or directory {repo!r} here, and it cannot be downloaded: {_first_line_of(error)}",
            hint="check the path, or the network",
        ) from error
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{repo} is gated", hint="accept its terms on huggingface.co, then `hf auth login`"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{repo} is neither a local path nor a model of the hub",
            hint="check the spelling; private models need `hf auth login`",
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(
            f"{repo} has no revision {revision!r}", hint="give a branch, a tag or a commit"
        ) from error
    except (OSError, ValueError, errors.HfHubHTTPError) as error:
        raise CheckpointError(
            f"there is no file or directory {repo!r} here, and it cannot be downloaded: {_first_line_of(error)}",
            hint="check the path, or the network and the disk",
        ) from error


def _interruptible(repo: str, fetch: Callable[[type[Any]], str]) -> str:
    """Download in another thread, which stops at the next chunk when this one is interrupted.

    The hub's client waits for all started files before it handles an interrupt.
    """
    stop = threading.Event()
    with WorkMeter(f"downloading {repo}", 0) as meter, ThreadPoolExecutor(1) as pool:
        future = pool.submit(fetch, _bar(meter, stop))
        try:
            return future.result()
        except BaseException:
            stop.set()
            raise


def _bar(meter: WorkMeter, stop: threading.Event) -> type[Any]:
    """Class of progress bars without output, whose counts go to `meter`."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **settings: Any) -> None:
            # Two bars count bytes; the one for transfers counts compressed bytes.
            self._counts = settings.get("unit") == "B" and not str(settings.get("name")).endswith("transfer")
            super().__init__(*args, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            if self._counts:
                meter.nbytes = int(self.total or 0)
                meter.step(int(n or 0), pieces=0)

    return Bar


def _first_line_of(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
