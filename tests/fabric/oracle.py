"""A fabric node by node and edge by edge, from its equations alone, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from volumetric.fabric.layer.fabric_layer import Fabric

A = np.ndarray


def sigmoid(x: A) -> A:
    return 1 / (1 + np.exp(-x))


def softmax(x: A) -> A:
    e = np.exp(x - x.max())
    return e / e.sum()


class Stream:
    """One stream of a fabric: what every node shows and keeps, by its id."""

    def __init__(self, spec: Fabric, p: Mapping[str, A]) -> None:
        self.spec, self.p, self.facts = spec, p, spec.facts
        self.ids = self.facts.order.tolist()
        self.edges: dict[int, list[tuple[int, float, int]]] = {r: [] for r in self.ids}
        readers = self.facts.order[self.facts.inputs :]
        for r, s, far, late in zip(
            self.facts.receivers, self.facts.senders, self.facts.distance, self.facts.delay, strict=True
        ):
            self.edges[int(readers[r])].append((self.ids[s], float(far), int(late)))
        self.slots = dict(zip(self.ids, spec.places() + p["slot"], strict=True))
        self.group = dict(zip(self.ids, self.facts.groups.tolist(), strict=False))
        cells = self.ids[self.facts.inputs : self.facts.senders_count]
        self.cells = {
            cells[n]: (of, int(share))
            for of in spec.populations
            for n, share in zip(
                range(*self.facts.populations[of.name].indices(len(cells))), self.facts.shares[of.name], strict=True
            )
        }
        self.reset()

    def reset(self) -> None:
        self.shown = {node: np.zeros(self.spec.hidden) for node in self.ids[: self.facts.senders_count]}
        self.kept: dict[int, dict[str, A]] = {node: {} for node in self.cells}
        self.past: list[dict[int, A]] = []

    def nodes_of(self, port: str, start: int) -> list[int]:
        own = self.facts.ports[port]
        return self.ids[start + own.start : start + own.stop]

    def read(self, r: int, at: Mapping[int, Mapping[int, A]]) -> A:
        """What a node makes of its senders; `at` has what they show for each delay."""
        p, h, d = self.p, self.spec.heads, self.spec.head_dim
        if self.spec.query == "state" and r in self.cells:
            q = p["state_query.weight"] @ self.shown[r]
        else:
            q = p["query.weight"] @ self.slots[r]
        keys, values, fars = [], [], []
        for s, far, late in self.edges[r]:
            kv = p["kv.weight"][self.group[s]] @ (p["public.weight"] @ at[late][s])
            keys.append(kv[: h * d])
            values.append(kv[h * d :])
            fars.append(far)
        e = self.spec.values // h
        message = np.zeros(h * e)
        for head in range(h) if keys else ():
            cost = np.log1p(np.exp(p["distance"][head])) if self.spec.learn_distance else 0.5
            own = slice(head * d, (head + 1) * d)
            a = softmax(np.array([q[own] @ k[own] / d**0.5 - cost * far for k, far in zip(keys, fars, strict=True)]))
            message[head * e : (head + 1) * e] = sum(
                w * v[head * e : (head + 1) * e] for w, v in zip(a, values, strict=True)
            )
        return p["message.weight"] @ message

    def row(self, x: A) -> A:
        p, spec = self.p, self.spec
        for port in spec.inputs:
            nodes = self.nodes_of(port.name, 0)
            first, last = spec.ports("inputs")[port.name]
            every = p[f"ports.{port.name}.weight"] @ x[first:last] + p[f"ports.{port.name}.bias"]
            self.shown |= dict(zip(nodes, np.split(every, len(nodes)), strict=True))
        began = dict(self.shown)
        silent = {node: np.zeros(spec.hidden) for node in began}
        history = [began, *self.past, *[silent] * 9]
        for _ in range(spec.inner_steps):
            at = {late: history[late - 1] for late in range(2, 9)} | {1: dict(self.shown)}
            inputs = {
                r: p["cell_input.weight"] @ self.read(r, at) + p["slot_bias.weight"] @ self.slots[r] for r in self.cells
            }
            for r, (of, share) in self.cells.items():
                own = {n.removeprefix(f"cells.{of.name}."): v[share] for n, v in p.items() if f"cells.{of.name}." in n}
                self.shown[r] = step(of.cell, own, inputs[r], self.shown[r], self.kept[r])
        ended = [dict(self.shown), *history]
        made = [self.port(port, {late: ended[late - 1] for late in range(1, 9)}) for port in spec.outputs]
        self.past = history[:8]
        return np.concatenate(made)

    def port(self, port: Any, at: Mapping[int, Mapping[int, A]]) -> A:
        p, own = self.p, self.facts.ports[port.name]
        nodes = self.nodes_of(port.name, self.facts.senders_count)
        o = [
            p["readout.weight"][n] @ self.read(node, at) + p["readout.bias"][n]
            for n, node in zip(range(own.start, own.stop), nodes, strict=True)
        ]
        if port.aggregate == "mean":
            read = np.mean(o, 0)
        elif port.aggregate == "flatten":
            read = np.concatenate(o)
        else:
            ask = p[f"ports.{port.name}.query"]
            weights = [softmax(np.array([q @ one / len(q) ** 0.5 for one in o])) for q in ask]
            read = np.concatenate([sum(w * one for w, one in zip(a, o, strict=True)) for a in weights])
        return p[f"ports.{port.name}.weight"] @ read + p[f"ports.{port.name}.bias"]


def step(cell: Any, p: Mapping[str, A], x: A, shown: A, kept: dict[str, A]) -> A:
    """One cell; `kept` is replaced."""
    kind, h = type(cell).__name__, cell.hidden
    if kind == "Axon":
        c1, c2 = (kept.get(name, np.zeros(cell.pairs)) for name in ("c1", "c2"))
        r, angle = np.exp(-np.exp(p["nu"])), np.exp(p["theta"])
        x = np.sqrt(1 - r * r) * (p["input.weight"] @ x)
        turned = r * np.exp(1j * angle) * (c1 + 1j * c2) + p["w1"] * x + 1j * p["w2"] * x
        kept |= {"c1": turned.real, "c2": turned.imag}
        read = np.concatenate([turned.real, turned.imag])
        return p["out.weight"] @ (read * sigmoid(read)) + p["out.bias"]
    if kind == "SLSTM":
        return slstm(cell, p, x, kept)
    a, b = p["ih.weight"] @ x + p["ih.bias"], p["hh.weight"] @ shown + p["hh.bias"]
    if kind == "RNN":
        return np.tanh(a + b) if cell.nonlinearity == "tanh" else np.maximum(a + b, 0)
    if kind == "LSTM":
        i, f, g, o = np.split(a + b, 4)
        kept["c"] = sigmoid(f) * kept.get("c", np.zeros(h)) + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(kept["c"])
    (ar, az, an), (br, bz, bn) = np.split(a, 3), np.split(b, 3)
    r, z = sigmoid(ar + br), sigmoid(az + bz)
    return (1 - z) * np.tanh(an + r * bn) + z * shown


def slstm(cell: Any, p: Mapping[str, A], x: A, kept: dict[str, A]) -> A:
    h, heads = cell.hidden, cell.heads
    y, c, n, m = (kept.get(name, np.zeros(h)) for name in "ycnm")
    back = [np.concatenate([p["r.weight"][g, k] @ y.reshape(heads, -1)[k] for k in range(heads)]) for g in range(4)]
    i, f, z, o = np.split(p["ih.weight"] @ x, 4) + np.array(back) + p["bias"]
    passed = m - np.log1p(np.exp(-f))
    top = np.where(n == 0, i, np.maximum(i, passed))
    i, f = np.minimum(np.exp(i - top), 1), np.minimum(np.exp(passed - top), 1)
    c, n = f * c + i * np.tanh(z), f * n + i
    y = sigmoid(o) * c / (n + 1e-6)
    kept |= {"y": y, "c": c, "n": n, "m": top}
    parts = y.reshape(heads, -1)
    normal = (parts - parts.mean(1, keepdims=True)) / np.sqrt(parts.var(1, keepdims=True) + 1e-5)
    return normal.reshape(-1) * p["norm.weight"]
