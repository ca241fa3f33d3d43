"""OpenedTemplate: a template with the GGUF file that its weights are taken from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import SpecError
from volumetric.loaders.gguf import open_gguf
from volumetric.loaders.gguf_types import GGUF_TYPES
from volumetric.web.filled_buffers import filled
from volumetric.web.gguf_facts import CHAT_TEMPLATE, TEMPLATE_COMMAND, check_facts
from volumetric.web.moved_bits import MovedBits


class OpenedTemplate:
    """The contents of the buffers of a template.

    Parameters
    ----------
    template : entry of network.json
    path : the file

    Raises
    ------
    CheckpointError : the file is damaged, or not one that the template is for; the message has the first difference
    """

    def __init__(self, template: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
        self._file = open_gguf(Path(path))
        check_facts(template, self._file, str(path))
        self._fills = template["fills"]
        self._types = {
            GGUF_TYPES[int(number)].name: MovedBits.of(described) for number, described in template["types"].items()
        }
        self._ends: Mapping[str, int] = template["ends"]

    def contents(self, fill: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the contents of a buffer of so many bytes."""
        return filled(self._fills[fill], nbytes, self._file, self._types)

    def language(self, language: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry ``language`` with the chat template of the file, and the tokens that end its turns."""
        source = self._file.metadata.get(CHAT_TEMPLATE)
        text = source if isinstance(source, str) else None
        ends = {id for token, id in self._ends.items() if text is not None and token in text}
        return {**language, "chat_template": text, "eos": sorted({*language["eos"], *ends})}


def opened_template(manifest: Mapping[str, Any], path: str | os.PathLike[str] | None) -> OpenedTemplate | None:
    """Return the template that network.json is, with its file; None for an export with its own weights.

    Raises
    ------
    CheckpointError : see `OpenedTemplate`
    SpecError : there is a template without a file, or a file without a template
    """
    template = manifest.get("template")
    if template is None and path is not None:
        raise SpecError(f"{manifest['title']} has its own weights", hint=f"a template reads a file: {TEMPLATE_COMMAND}")
    if template is not None and path is None:
        raise SpecError(
            f"{manifest['title']} is a template, without weights", hint="pass gguf=…, the file that has them"
        )
    return None if template is None or path is None else OpenedTemplate(template, path)
