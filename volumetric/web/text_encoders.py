"""Text encoders: hidden states of one text, and the layers behind the pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from volumetric.devices.gpu.row_limits import CallLimits
from volumetric.generate.hidden_states import HIDDEN, with_hidden
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.loaders.sentence_modules import PooledHead, SentenceEncoding
from volumetric.network import INPUT, OUTPUT
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.web.call_recording import CallRecording
from volumetric.web.row_networks import recording_device
from volumetric.web.variant_writer import VariantWriter

TOGETHER: Final = 1024
"""Rows of a call of several texts."""


@dataclass(frozen=True)
class TextEncoderModel:
    """A network that reads the tokens of a text, each with those after it: a `RecordedKind`.

    Attributes
    ----------
    tokens : most tokens of a text
    rows : rows of the calls for which there are programs
    """

    model: LoadedModel
    tokens: int
    rows: Sequence[int]
    title: str
    origin: Mapping[str, str | None]
    files: Mapping[str, bytes]
    kind: str = "encoder"

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record calls of whole texts; see `RecordedKind.record`."""
        loaded = self.model
        most = max(self.tokens, TOGETHER)
        device = recording_device(writer, CallLimits(most, most))
        executable = device.compile(
            lower(with_hidden(loaded), self.tokens), loaded.params, RunOptions(context=self.tokens)
        )
        recording = CallRecording(writer, executable)
        output = OUTPUT if loaded.hidden is None else HIDDEN
        counts = sorted({min(count, recording.most_rows) for count in (*self.rows, self.tokens)})
        programs = [recording.program(f"rows {count}", count, outputs=[output]) for count in counts]
        several = [recording.program(f"rows {most}", most, outputs=[output])] if executable.can_pool else []
        inputs, outputs = recording.ports()
        sentences = loaded.sentences or SentenceEncoding()
        heads = {"dense": sentences.dense, "classify": loaded.head}
        return {
            "inputs": {"tokens": inputs.pop(INPUT), **inputs},
            "outputs": {"hidden": outputs[output]},
            "calls": {
                "programs": programs,
                "control": recording.control(),
                "positions": executable.most_positions,
                "independent": False,
                "whole": executable.recordings.whole,
            },
            "states": recording.states(),
            "encoder": {
                "tokens": counts[-1],
                "together": several[0] if several else None,
                "tokenizer": "tokenizer.json" if "tokenizer.json" in self.files else None,
                "pooling": list(sentences.pooling),
                "normalise": sentences.normalise,
                "lower_case": sentences.lower_case,
                "include_prompt": sentences.include_prompt,
                "prompts": dict(sentences.prompts),
                "default_prompt": sentences.default_prompt,
                "heads": {name: self._head(writer, name, head) for name, head in heads.items() if head is not None},
            },
        }

    def _head(self, writer: VariantWriter, name: str, head: PooledHead) -> dict[str, Any]:
        """Record a network that reads one pooled row."""
        loaded = self.model
        device = recording_device(writer, CallLimits(1, 1))
        executable = device.compile(lower(head.network), head.params, RunOptions(context=1))
        recording = CallRecording(writer, executable, f"{name} ")
        program, (inputs, outputs) = recording.program("rows 1", 1), recording.ports()
        if loaded.classes and name == "classify":
            outputs[OUTPUT]["names"] = list(loaded.classes)
        several = loaded.config.get("problem_type") == "multi_label_classification"
        sigmoid = several or outputs[OUTPUT]["shape"] == [1]
        return {
            "program": program["program"],
            "activation": None if name != "classify" else "sigmoid" if sigmoid else "softmax",
            "control": recording.control(),
            "pooling": head.pooling,
            "input": inputs[INPUT],
            "output": outputs[OUTPUT],
        }
