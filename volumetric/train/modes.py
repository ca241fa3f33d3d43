"""Training modes: backpropagation, also through ticks, and target propagation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias, TypeGuard, get_args, get_type_hints

from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Backprop:
    """Gradients of the loss with respect to all weights.

    Attributes
    ----------
    carry : the sequences of a batch continue from the final states of the previous batch, as constants: truncated
        backpropagation through time (Williams and Peng 1990). A batch may have ``"resets"`` among its inputs,
        ``[samples, T]``: 1 if a sequence restarts at a row. Without resets all sequences restart at each batch.
        `StreamWindows` creates such batches
    """

    kind: ClassVar[str] = "backprop"

    carry: bool = False


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPropagation:
    """Every layer gets a target for its output and learns only from it.

    Formulas: `volumetric.run.graph.target_graphs`. The update of a layer is that of the optimiser with the rate times
    ``½ + ½ budget``, and none if the budget is below the gate; the budget of a layer is ``(cos(h, ĥ) + 1) / 2``.

    Attributes
    ----------
    method : ``"difference"``: through inverses, without derivatives below the top (Lee et al. 2015, arXiv 1412.7525);
        ``"gradient"``: targets follow the gradient of the loss, and updates equal those of backprop
    inverse : of dense layers, in difference mode. ``"learned"``: an additional layer for each; ``"transpose"``: the
        transposed weights, each row divided by the sum of its absolute values; ``"pinv"``: their damped pseudo-inverse.
        Other layers learn their inverses, or have exact ones
    top : ``"hidden"``: the inputs of the last layers with weights get targets by the gradient of the loss;
        ``"output"``: only their outputs do
    gradient_scale : distance of the targets at the top from the values, in gradients of a row's loss
    depth_scale : factor from layer to layer downwards; None: 1.1 for gradients, 1 for differences
    gate : budget below which a layer does not learn
    clamp : bound on the distance of any value from its target
    noise, noise_decay : deviation of the noise on the values that inverses learn, and its factor for each update
    inverse_steps : updates of the inverses for each update of the network
    inverse_rate : learning rate of the inverses, before the schedule's factor; None: that of the network
    pinv_every, pinv_damping : updates between pseudo-inverses; λ of a pseudo-inverse, in means of the diagonal of WᵀW
    ticks_per_row, delay : for clocked networks, see `Systolic`
    every : for clocked networks: layers learn every this many ticks
    timing : for clocked networks: a target takes a tick from layer to layer and arrives after the layer has computed
        other outputs. ``"aligned"``: layers store their inputs since the output in question, so that a target is
        applied to that output; links that lead back are not crossed. ``"present"``: the target is applied to the
        present output, which is correct for rows that are held long enough
    window : for clocked networks: ticks in one program and one step; results do not depend on it
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
        """Factor on targets from layer to layer downwards."""
        if self.depth_scale is not None:
            return self.depth_scale
        return 1.1 if self.method == "gradient" else 1.0

    def inverse_share(self, rate: float) -> float:
        """Return the learning rate of inverses as a fraction of the network's, `rate`."""
        return 1.0 if self.inverse_rate is None or not rate else self.inverse_rate / rate


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Systolic:
    """Gradients through the ticks of a clocked network (BPTT), split into windows; each window is an update.

    An output's target for row t of a sequence is compared with the output after tick ``t · ticks_per_row + delay``;
    with ``ticks_per_row`` targets for each row, target n is compared with the output after tick ``n + delay``. After
    the last row the inputs hold until all outputs with targets are read. Werbos 1990, "Backpropagation through time";
    windows: Williams and Peng 1990.

    Attributes
    ----------
    ticks_per_row : ticks for each row
    window : maximum ticks through which gradients propagate
    delay : ticks from a row to its output, for all outputs or by output; ``"auto"``: the latency of the clocked network
        from the slowest input
    carry : windows of a sequence continue from the final states of the previous window, as constants. If false,
        sequences are split into shorter ones, each a window with its delay, that start from fresh states
    checkpoint : ticks between the states that a window stores; the backward pass recomputes the ticks in between with
        the same bits. 0 stores all
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
    """Raise `SpecError` if a field or the delay is not a valid number of ticks."""
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
"""Name → training mode."""
