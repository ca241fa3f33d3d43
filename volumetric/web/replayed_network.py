"""ReplayedNetwork: calls, ticks and tokens of an exported folder, by the descriptions in it."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, ShapeError, UnsupportedError
from volumetric.devices.gpu.call_schedule import SequenceSpan, control_words, count_rows
from volumetric.devices.gpu.draw_plans import UNCERTAIN, DrawnRow
from volumetric.devices.gpu.kernels import token_draw
from volumetric.devices.gpu.kernels.dispatch import CallRows
from volumetric.devices.gpu.token_loop import UNUSABLE
from volumetric.run.logits import unusable_logits_error
from volumetric.web.native_replay import NativeReplay

if TYPE_CHECKING:
    from volumetric.devices.gpu.open_gpu import OpenGpu
    from volumetric.run.device import TokenSampler

_HEADER: Final = 60
"""Words of the control block before the list of rows."""


class ReplayedNetwork:
    """One sequence through an exported network on a GPU of this machine.

    Attributes
    ----------
    replay : buffers and programs
    position : rows of the sequence so far
    """

    def __init__(
        self, folder: str | os.PathLike[str], context: OpenGpu, subgroup_sizes: tuple[int, int] = (0, 0)
    ) -> None:
        self.replay: NativeReplay = NativeReplay(folder, context, subgroup_sizes)
        self.manifest: dict[str, Any] = self.replay.manifest
        self.position: int = 0

    def reset(self) -> None:
        """Begin a new sequence."""
        self.position = 0
        for name in self.manifest["states"] if self.manifest["kind"] == "ticks" else ():
            self.replay.restore(name)

    def call(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, F32Array]:
        """Append rows by the name of inputs, in as many calls as are needed, and return their outputs."""
        calls, count = self.manifest["calls"], len(next(iter(rows.values())))
        outputs: list[dict[str, F32Array]] = []
        at = 0
        while at < count:
            one = self._program(calls, count - at)
            taken = min(one["rows"], count - at)
            position = 0 if calls["independent"] or calls["whole"] else self.position
            part = {name: value[at : at + taken] for name, value in rows.items()}
            if one["exact"] and taken < one["rows"]:
                part = {
                    n: np.concatenate([v, np.zeros((one["rows"] - taken, *v.shape[1:]), v.dtype)])
                    for n, v in part.items()
                }
            self._run(one["program"], part, position)
            outputs.append({name: self._read(port, taken) for name, port in self.manifest["outputs"].items()})
            self.position += taken
            at += taken
        return {name: np.concatenate([one[name] for one in outputs]) for name in outputs[0]}

    def call_together(self, texts: Sequence[Mapping[str, NDArray[Any]]]) -> list[dict[str, F32Array]]:
        """Return the outputs of several whole texts, all in one call, of an encoder that has such a call."""
        control, lengths = self.manifest["calls"]["control"], [len(next(iter(text.values()))) for text in texts]
        spans = [SequenceSpan(control["line"], 0, length) for length in lengths]
        counted = count_rows(spans, control["block"], singles=control["singles"])
        for name, port in self.manifest["inputs"].items():
            self._write(port, np.concatenate([text[name] for text in texts]))
        self.replay.write(control["buffer"], control_words(spans, counted, control["block"]))
        self.replay.submit([self.manifest["encoder"]["together"]["program"]], counted)
        ends = np.cumsum(lengths)[:-1]
        outputs = {name: self._read(port, sum(lengths)) for name, port in self.manifest["outputs"].items()}
        parts = {name: np.split(values, ends) for name, values in outputs.items()}
        return [{name: part[i] for name, part in parts.items()} for i in range(len(texts))]

    def tick(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, F32Array]:
        """Run a tick at which one row of some inputs arrives, and return the outputs."""
        programs = {frozenset(one["fed"]): one["program"] for one in self.manifest["ticks"]["programs"]}
        for name, value in rows.items():
            self._write(self.manifest["inputs"][name], value[None])
        self.replay.submit([programs[frozenset(rows)]])
        return {name: self._read(port, 1)[0] for name, port in self.manifest["outputs"].items()}

    def feed(self, tokens: Sequence[int] | NDArray[np.integer]) -> None:
        """Append tokens of a prompt, without logits."""
        language, at = self.manifest["language"], 0
        ids = np.array(tokens, np.int32)
        while at < len(ids):
            left = len(ids) - at
            bodies = [one for one in language["body"] if not one["exact"] or one["rows"] <= left]
            fitting = [one for one in bodies if one["rows"] >= left] or bodies[-1:]
            name, most = (fitting[0]["program"], fitting[0]["rows"]) if left > 1 and fitting else (language["token"], 1)
            taken = min(most, left)
            self._run(name, {"tokens": ids[at : at + taken]}, self.position)
            self.position += taken
            at += taken

    def logits(self, token: int) -> F32Array:
        """Append a token, and return the logits after it."""
        self._run(self.manifest["language"]["token"], {"tokens": np.array([token], np.int32)}, self.position)
        self.position += 1
        return self._read(self.manifest["outputs"]["logits"], 1)[0]

    def picked(self, token: int, pick: str = "greedy", row: DrawnRow | None = None) -> Iterator[int]:
        """Append a token and yield the next one, append that one, and so on, without end.

        Parameters
        ----------
        pick : one of the manifest's
        row : how tokens are drawn, and their random numbers; None for ``"greedy"``
        """
        language, calls = self.manifest["language"], self.manifest["calls"]
        port = self.manifest["inputs"]["tokens"]
        programs = [language["token"], language["picks"][pick]]
        submitted: deque[Any] = deque()
        begun, written = False, 0
        while True:
            left = 2 if calls["positions"] is None else calls["positions"] - self.position
            if not left:
                raise GenerationError(f"the context of {calls['positions']} tokens is full")
            if not begun:
                self._write(port, np.array([token], np.int32))
                self._place(self.position, 1)
                submitted.clear()
            if row is not None and (not begun or self.position - written >= language["draw"]["ahead"]):
                self._write_draws(row)
                written = self.position
            begun = True
            while len(submitted) < min(2, left):  # the GPU begins the next token while this one is read
                submitted.append(self.replay.submit_with_copy(programs, port["buffer"], 4, self._rows(1)))
            token = int(np.frombuffer(self.replay.collect(submitted.popleft()), np.uint32)[0])
            self.position += 1
            if token == UNCERTAIN and row is not None and row.chooser is not None:
                token, begun = row.chooser.choose(self._doubtful()), False
            elif token in UNUSABLE:
                raise unusable_logits_error(UNUSABLE[token])
            elif row is not None and row.chooser is not None:
                row.chooser.record_token(token)
            yield token

    def draws(self, token: int, chooser: TokenSampler) -> Iterator[int]:
        """Like `picked`, with the tokens that a sampler draws. Raises `UnsupportedError` if only the host can."""
        plan = token_draw.plan(
            temperature=chooser.temperature,
            top_k=chooser.top_k,
            top_p=chooser.top_p,
            min_p=chooser.min_p,
            width=self.manifest["language"]["vocabulary"],
        )
        if plan is None or chooser.adjusted:
            raise UnsupportedError("the GPU cannot sample with these parameters", hint="sample on the host from logits")
        pick = "draw top_k" if plan[4] else "draw top_p" if plan[0] & token_draw.BY_WEIGHT else "draw"
        return self.picked(token, pick, DrawnRow(plan, chooser))

    def _write_draws(self, row: DrawnRow) -> None:
        draw = self.manifest["language"]["draw"]
        row.write_randoms(self.position)
        words = np.concatenate([row.plan, row.ring.reshape(-1)])
        self.replay.write(draw["plans"], words, 4 * draw["table_words"])

    def _doubtful(self) -> F32Array:
        language = self.manifest["language"]
        data = self.replay.read(language["draw"]["doubtful"], 4 * language["vocabulary"])
        return data.view(np.float32)

    def close(self) -> None:
        """Free the buffers."""
        self.replay.close()

    def _program(self, calls: Mapping[str, Any], left: int) -> Mapping[str, Any]:
        programs = calls["programs"]
        if calls["independent"] or not any(one["exact"] for one in programs):
            fitting = [one for one in programs if one["rows"] >= left]
        else:
            fitting = [one for one in programs if one["rows"] == left]
        if not fitting and calls["whole"]:
            raise ShapeError(f"the export has no call of {left} rows", hint="export it with rows=…")
        return fitting[0] if fitting else programs[0] if programs[0]["exact"] else programs[-1]

    def _run(self, program: str, rows: Mapping[str, NDArray[Any]], position: int) -> None:
        count = len(next(iter(rows.values())))
        for name, value in rows.items():
            self._write(self.manifest["inputs"][name], value)
        self._place(position, count)
        self.replay.submit([program], self._rows(count))

    def _rows(self, count: int) -> CallRows:
        control = self.manifest["calls"]["control"]
        if count == 1 and control["singles"]:
            return CallRows(1, 1, 0, 1)
        return CallRows(count, 0, -(-count // control["block"]), 1)

    def _place(self, position: int, count: int) -> None:
        control, rows = self.manifest["calls"]["control"], self._rows(count)
        starts = control["block"] * np.arange(rows.blocks)
        first = _HEADER + 4 * control["places"] + control["owners"]
        words = np.zeros(first + len(starts), np.uint32)
        words[:4] = rows[:4]
        words[_HEADER : _HEADER + 4] = position, control["line"], count, 0
        if rows.singles:
            words[4 : 4 + len(control["pages"])] = control["pages"]
        words[first:] = starts
        self.replay.write(control["buffer"], words)

    def _write(self, port: Mapping[str, Any], rows: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(rows, port["dtype"]).reshape(len(rows), -1)
        padded = np.pad(flat, ((0, 0), (0, port["stride"] // 4 - flat.shape[1])))
        self.replay.write(port["buffer"], padded)

    def _read(self, port: Mapping[str, Any], rows: int) -> F32Array:
        values = self.replay.read(port["buffer"], rows * port["stride"]).view(np.float32).reshape(rows, -1)
        shape = tuple(port["shape"])
        return values[:, : int(np.prod(shape))].reshape(rows, *shape).copy()
