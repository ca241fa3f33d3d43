"""How a network learns: by backprop, through ticks too, or by targets that each layer gets for itself."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, TypeGuard, get_args, get_type_hints

from volumetric.base.errors import SpecError
from volumetric.base.keywords import explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Backprop:
    """Gradients of the loss with respect to all weights.

    Attributes
    ----------
    carry : the sequences of a batch go on from those of the batch before, from the states that these left, as
        constants: truncated backpropagation through time (Williams and Peng 1990). A batch may have ``"resets"`` among
        its inputs, ``[samples, T]``: 1 where a sequence begins anew with a row. Without, all begin with the batch.
        `StreamWindows` makes such batches
    """

    kind: ClassVar[str] = "backprop"

    carry: bool = False


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPropagation:
    """Every layer is told what its output should have been, and learns from that alone.

    Formulas: `volumetric.run.graph.targets`. The update of a layer is that of the optimiser with the rate times
    ``½ + ½ budget``, and none where the budget is below the gate; the budget of a layer is ``(cos(h, ĥ) + 1) / 2``.

    Attributes
    ----------
    method : ``"difference"``: through inverses, without derivatives below the top (Lee et al. 2015, arXiv 1412.7525);
        ``"gradient"``: targets lie along the gradient of the loss, and updates are backprop's
    inverse : of dense layers, in difference mode. ``"learned"``: a layer beside each; ``"transpose"``: the transposed
        weights, each row by its size; ``"pinv"``: their damped pseudo-inverse. Other layers learn theirs, or have an
        exact one
    top : ``"hidden"``: the inputs of the last layers with weights get targets by the gradient of the loss;
        ``"output"``: their outputs alone do
    gradient_scale : how far the targets at the top are from the values, in gradients of a row's loss
    depth_scale : factor from layer to layer downwards; None: 1.1 for gradients, 1 for differences
    gate : budget below which a layer does not learn
    clamp : bound on how far any number may be from its target
    noise, noise_decay : deviation of the noise around what inverses learn, and its factor from update to update
    inverse_steps : updates of the inverses for each of the network
    inverse_rate : their learning rate, before the schedule's factor; None: that of the network
    pinv_every, pinv_damping : updates from one pseudo-inverse to the next; its λ, in means of the diagonal of WᵀW
    ticks_per_row, delay : of clocked networks, as of `Systolic`
    every : of clocked networks: layers learn after each tick of so many
    timing : of clocked networks: targets take a tick from layer to layer, so that they come when a layer has made other
        outputs. ``"aligned"``: layers remember what they read since the output that is meant, so that a target goes
        with it; links that lead back are not crossed. ``"present"``: the target is taken for that of the present
        output, as is right for rows that are held long enough
    window : of clocked networks: ticks that are one program, and one step; the numbers do not depend on it
    """

    kind: ClassVar[str] = "target"

    method: Literal["difference", "gradient"] = "difference"
    inverse: Literal["learned", "transpose", "pinv"] = "learned"
    top: Literal["hidden", "output"] = "hidden"
    gradient_scale: float = 0.1
    depth_scale: float | None = None
    gate: float = 0.2
    clamp: float = 10.0
    noise: float = 0.1
    noise_decay: float = 0.999
    inverse_steps: int = 1
    inverse_rate: float | None = None
    pinv_every: int = 10
    pinv_damping: float = 1e-3
    ticks_per_row: int = 1
    delay: int | Literal["auto"] | Mapping[str, int] = "auto"
    every: int = 1
    timing: Literal["aligned", "present"] = "aligned"
    window: int = 8

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("method", "inverse", "top", "timing"):
            known = get_args(get_type_hints(TargetPropagation)[name])
            if getattr(self, name) not in known:
                raise SpecError(
                    f"target propagation: {name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        for name in ("gradient_scale", "clamp", "depth_scale", "pinv_damping"):
            value = getattr(self, name)
            if value is None and name == "depth_scale":
                continue
            if not (_is_finite(value) and value > 0):
                raise SpecError(f"target propagation: {name} must be above 0, got {value!r}")
        for name in ("gate", "noise", "inverse_rate", "noise_decay"):
            value = getattr(self, name)
            if value is None and name == "inverse_rate":
                continue
            if not (_is_finite(value) and value >= 0):
                raise SpecError(f"target propagation: {name} must be 0 or more, got {value!r}")
        for name in ("inverse_steps", "pinv_every"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"target propagation: {name} must be at least 1, got {value!r}")
        _check_ticks("target propagation", self, ("ticks_per_row", "every", "window"))

    @property
    def growth(self) -> float:
        """Factor from layer to layer downwards."""
        if self.depth_scale is not None:
            return self.depth_scale
        return 1.1 if self.method == "gradient" else 1.0

    def inverse_share(self, rate: float) -> float:
        """Return the rate of inverses as a part of that of the network, `rate`."""
        return 1.0 if self.inverse_rate is None or not rate else self.inverse_rate / rate


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Systolic:
    """Gradients through the ticks of a clocked network (BPTT), cut into windows; each window is an update.

    An output's target for row t of a sequence is compared with what is read after tick ``t · ticks_per_row + delay``;
    where it has ``ticks_per_row`` targets a row, number n is with what is read after tick ``n + delay``. After the last
    row the inputs hold until all that has targets is there. Werbos 1990, "Backpropagation through time"; windows:
    Williams and Peng 1990.

    Attributes
    ----------
    ticks_per_row : ticks that each row gets
    window : ticks through which gradients go back, at most
    delay : ticks from a row to its output, the same for all or by output; ``"auto"``: the latency of the machine, of
        the input that takes longest
    carry : windows of a sequence go on from the states that the one before left, as constants. If not, sequences are
        cut into shorter ones, each of a window with its delay, that begin anew
    checkpoint : ticks from one state that a window remembers to the next; what lies between is computed once more on
        the way back, with the same bits. 0 remembers all
    """

    kind: ClassVar[str] = "systolic"

    ticks_per_row: int = 1
    window: int = 64
    delay: int | Literal["auto"] | Mapping[str, int] = "auto"
    carry: bool = True
    checkpoint: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_ticks("systolic", self, ("ticks_per_row", "window"))
        if isinstance(self.checkpoint, bool) or not isinstance(self.checkpoint, int) or self.checkpoint < 0:
            raise SpecError(f"systolic: checkpoint must be 0 or more ticks, got {self.checkpoint!r}")


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _check_ticks(mode: str, of: Systolic | TargetPropagation, names: Sequence[str]) -> None:
    """Raise `SpecError` where a field that is above 0, or the delay, is no number of ticks."""
    delays = {"delay": of.delay}
    if isinstance(of.delay, Mapping):
        delays = {f"delay of output {name!r}": value for name, value in of.delay.items()}
    elif of.delay == "auto":
        delays = {}
    for name, value in {**{name: getattr(of, name) for name in names}, **delays}.items():
        least = int(name in names)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpecError(f"{mode}: {name} must be {least} or more ticks, got {value!r}")


Mode: TypeAlias = Backprop | TargetPropagation | Systolic
MODES: Final[dict[str, type[Mode]]] = {cls.kind: cls for cls in (Backprop, TargetPropagation, Systolic)}
"""Name → how to learn."""
