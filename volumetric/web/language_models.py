"""Language models: prompts in parts, tokens one by one, greedy or drawn, as on an open GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.draw_plans import AHEAD, Ways
from volumetric.devices.gpu.kernels import token_draw
from volumetric.devices.gpu.kernels.dispatch import power_of_two
from volumetric.devices.gpu.row_limits import CallLimits
from volumetric.loaders.loaded_model import LoadedModel
from volumetric.network import INPUT, OUTPUT
from volumetric.run.device import RunOptions
from volumetric.run.lower import lower
from volumetric.web.call_recording import CallRecording
from volumetric.web.row_networks import recording_device
from volumetric.web.variant_writer import VariantWriter

PROMPT_ROWS: Final = (16, 128)
CHANGES: Final = 4096
"""Scores that penalties and biases may change at a time."""
_PICKS: Final[Mapping[str, Ways | None]] = {
    "greedy": None,
    "greedy adjusted": (False, False, True),
    "draw": (False, False, False),
    "draw top_p": (True, False, False),
    "draw top_k": (False, True, False),
    "draw adjusted": (False, False, True),
    "draw top_p adjusted": (True, False, True),
    "draw top_k adjusted": (False, True, True),
}
"""Way to pick a token → its launches."""


@dataclass(frozen=True)
class LanguageModel:
    """A network that reads tokens and predicts the next one: a `RecordedKind`.

    Attributes
    ----------
    context : most tokens of a conversation; keys and values have room for it
    prompt_rows : rows of the calls that prompts are split into
    """

    model: LoadedModel
    context: int
    title: str
    origin: Mapping[str, str | None]
    files: Mapping[str, bytes]
    prompt_rows: Sequence[int] = PROMPT_ROWS
    kind: str = "language"

    def record(self, writer: VariantWriter) -> dict[str, Any]:
        """Record tokens, parts of prompts and picks; see `RecordedKind.record`."""
        rows = sorted({min(count, self.context) for count in self.prompt_rows})
        device = recording_device(writer, CallLimits(rows[-1], 1))
        plan = lower(self.model.network, self.context)
        executable = device.compile(plan, self.model.params, RunOptions(context=self.context))
        if executable.recordings.whole:
            raise UnsupportedError(f"{self.title} reads later tokens: it cannot predict the next one")
        recording = CallRecording(writer, executable)
        rows = sorted({min(count, executable.scratch.rows, executable.most_positions or count) for count in rows})
        token = recording.program("rows 1", 1, outputs=[OUTPUT])
        bodies = [recording.program(f"body {count}", count, "body") for count in rows if count > 1]
        inputs, outputs = recording.ports()
        return {
            "inputs": {"tokens": inputs.pop(INPUT), **inputs},
            "outputs": {"logits": outputs[OUTPUT]},
            "calls": {
                "programs": [token],
                "control": recording.control(),
                "positions": executable.most_positions,
                "independent": False,
                "whole": False,
            },
            "states": recording.states(),
            "language": {
                "vocabulary": executable.recordings.graph.tensors[executable.recordings.output].width,
                "context": self.context,
                "token": token["program"],
                "rewinds": not executable.pool.fixed.buffers,
                "body": bodies,
                **_sampling(recording),
                **self._text(),
            },
        }

    def _text(self) -> dict[str, Any]:
        tokenizer, template, defaults = self.model.tokenizer, self.model.chat_template, self.model.generation
        fields = dataclasses.asdict(defaults)
        eos, bos, pad = fields.pop("eos_ids"), fields.pop("bos_id"), fields.pop("pad_id")
        return {
            "eos": sorted(eos),
            "bos": bos,
            "pad": pad,
            "tokenizer": "tokenizer.json" if "tokenizer.json" in self.files else None,
            "chat_template": None if template is None else template.source,
            "special": {} if tokenizer is None else dict(tokenizer.special_tokens),
            "defaults": {name: value for name, value in fields.items() if value is not None},
        }


def _sampling(recording: CallRecording) -> dict[str, Any]:
    """Record the picks, and describe what their rows are written to."""
    recordings, writer = recording.executable.recordings, recording.writer
    drawing = recordings.drawing
    changes = min(CHANGES, power_of_two(recordings.graph.tensors[recordings.output].width))
    drawing.make(1, changes)
    steps: dict[Ways | None, str] = {}
    picks: dict[str, str] = {}
    for name, ways in _PICKS.items():
        if ways not in steps:
            steps[ways] = writer.program(f"pick {name}", [writer.dispatches(recordings.pick_calls(ways))])
        picks[name] = steps[ways]
    return {
        "picks": picks,
        "draw": {
            **{name: writer.name(drawing.buffers[name], name) for name in ("plans", "changes", "doubtful")},
            "table_words": token_draw.TABLE_WORDS,
            "numbers": token_draw.NUMBERS,
            "ahead": AHEAD,
            "most_changes": drawing.changes,
            "most_top_k": token_draw.MOST_TOP_K,
        },
    }
