"""Values of programs: what they refuse, and that nothing is lost on the way to JSON and back."""

from __future__ import annotations

import copy
import json
import pickle
import re
from typing import Any

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.layers.clock import Event, Every, On
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits, Full, Rects, Tile, mask_of
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.name_checks import Named
from volumetric.program.layer.ports import In, Level, Out, Signal
from volumetric.program.layer.program_declaration import Autowire, Program
from volumetric.program.layer.region import Canvas, Identity, Region
from volumetric.program.layer.region_learning import Constraints, Learning, Semantic

EYE = Region(((0, 4), (0, 4)), family="observation")
BELIEF = Region(((0, 4), (4, 8)), carrier="filter")


WHOLE = ((0, 8), (0, 8))


def canvas(**regions: Region) -> Canvas:
    return Canvas(frames=1, shape=(8, 8), width=8, regions=regions or {"eye": EYE, "belief": BELIEF})


def program(**fields: Any) -> Program:
    return Program(canvas(), **{"edges": [Edge(reads="eye", writes="belief")], **fields})


EVERYTHING = Program(
    Canvas(
        frames=3,
        shape=(4, 4),
        width=12,
        current=1,
        regions={
            "eye": Region(((0, 3), (0, 4), (0, 2)), family="observation", period=2, rule="linear_attention"),
            "arms[0].state": Region(
                ((0, 4), (2, 4)),
                carrier="memory",
                tags=("belief", "größe"),
                clock="every(4)  ||err.prediction >0.5",
                residual=False,
                slots=5,
                learning=Learning(mode="retrieval", losses={"write_utility": 0.5}, keep="export"),
                keep="freeze",
                identity=Identity(capacity=3, mode="ephemeral", births=True),
                constraints=Constraints(
                    equivariance="permutation", conservation="energy", causal="acyclic", monotone="non_decreasing"
                ),
                loss_weight=0.25,
                output=False,
                semantic=Semantic(type="arm", vector=(0.5, -1.0), model="words"),
            ),
            "err": Region(((1, 2), (0, 1), (0, 1)), family="residual", carrier="residual"),
            "mind": Region(((0, 1), (0, 1)), family="dream", carrier="diffusive"),
        },
    ),
    edges=[
        Edge(reads="eye", writes="err", mask=Rects([(0, 1, 0, 4)]), lag=-1, fill="lerp", order=2, heads=2),
        Edge(reads="eye", writes="err", rule="sparse", operator="bind", write="gate", weight=0.5, options={"k": 3.0}),
        Edge(reads="err", writes="mind", when="err.prediction > 0.25", mask=Tile((2, 2)), name="wake"),
        Edge(reads="err", writes="err", mask=Bits(np.ones((1, 1), bool))),
        Edge(reads="mind", writes="mind", mask=Full()),
    ],
    ports={"x": In("eye", 3, write="add"), "level": Level("mind"), "end": Signal(), "y": Out("err", 2, pool="flatten")},
    meters=[Meter("err", kinds=("peak", "prediction"), reduce="rms", decay=0.5, corrected=True, signed=True)],
    time="window",
    heads=3,
    share="rule",
    parity=True,
    metadata={"author": "me"},
)


def test_everything_survives_json() -> None:
    text = EVERYTHING.to_json()
    again = Program.from_json(text)
    assert again == EVERYTHING
    assert again.to_json() == text == Program.from_json(text.encode()).to_json()
    assert hash(again) == hash(EVERYTHING)
    data = json.loads(text)
    assert (data["format"], data["version"]) == ("volumetric.program", 1)


def test_every_field_is_set_in_everything() -> None:
    """So that a field which is added and lost in JSON is noticed."""
    kinds = {"canvas": Canvas, "region": Region, "edge": Edge, "program": Program, "learning": Learning}
    text = EVERYTHING.to_json()
    fields = {f"{kind}.{name}": name for kind, cls in kinds.items() for name in cls.__struct_fields__}
    missing = {place for place, name in fields.items() if f'"{name}"' not in text}
    assert not missing


def test_defaults_are_left_out_and_equal_values_have_equal_text() -> None:
    assert '"weight"' not in program().to_json()
    one, other = (program(edges=[Edge(reads="eye", writes="belief", weight=w)]) for w in (2, float(np.float32(2))))
    assert one == other
    assert one.to_json() == other.to_json()
    assert program(edges=[Edge(reads="eye", writes="belief", options={"k": 8.0})]) == program(
        edges=[Edge(reads="eye", writes="belief", options={"k": 8})]
    )
    minus = Region(((0, 4), (4, 8)), loss_weight=-0.0)
    assert Program(canvas(a=minus)).to_json() == Program(canvas(a=Region(((0, 4), (4, 8)), loss_weight=0))).to_json()


def test_clocks_are_given_as_values_or_as_text_and_kept_as_one_text() -> None:
    by_value = Region(WHOLE, clock=Every(4) | Event("err.prediction", above=0.5))
    by_text = Region(WHOLE, clock="( every( 4 )||err.prediction>.5 )")
    assert by_value == by_text
    assert by_value.clock == "every(4) || err.prediction > 0.5"
    assert by_value.fires == Every(4) | Event("err.prediction", above=0.5)
    edge = Edge(reads="a", writes="b", when=~On("end"))
    assert edge == Edge(reads="a", writes="b", when="!(on(end))")
    assert edge.holds == ~On("end")
    assert Region(WHOLE).fires is None
    assert Edge(reads="a", writes="b").holds is None


def test_values_do_not_change() -> None:
    value = program()
    with pytest.raises(AttributeError):
        value.heads = 2  # pyright: ignore[reportAttributeAccessIssue]  (what is refused)
    with pytest.raises(TypeError, match="are immutable"):
        value.canvas.regions["eye"] = BELIEF  # pyright: ignore[reportIndexIssue]  (what is refused)
    for name in ("clear", "popitem"):
        with pytest.raises(TypeError, match="are immutable"):
            getattr(value.canvas.regions, name)()
    assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == copy.copy(value) == value


def test_order_of_names_counts() -> None:
    ab, ba = Named({"a": 1, "b": 2}), Named({"b": 2, "a": 1})
    assert ab != ba
    assert ab == {"a": 1, "b": 2}
    assert (ab | {"c": 3}) == {"a": 1, "b": 2, "c": 3}


def test_edges_have_names_of_their_own() -> None:
    edges = [Edge(reads="eye", writes="belief") for _ in range(3)]
    edges.insert(1, Edge(reads="belief", writes="eye", name="belief<eye#1"))
    assert [edge.name for edge in program(edges=edges).edges] == [
        "belief<eye#0",
        "belief<eye#1",
        "belief<eye#2",
        "belief<eye#3",
    ]


def test_autowire_takes_families_and_leaves_joined_pairs_alone() -> None:
    regions = {
        "eye": EYE,
        "belief": BELIEF,
        "store": Region(((4, 8), (0, 4)), family="memory"),
        "act": Region(((4, 8), (4, 8)), family="action"),
        "song": Region(((4, 8), (4, 8)), family="music"),
    }
    given = Edge(reads="store", writes="belief", when="eye.prediction > 1")
    wired = Program(canvas(**regions), edges=[Autowire(), given]).edges
    found = {(edge.reads, edge.writes): edge.operator for edge in wired}
    assert len(found) == len(wired)
    assert found == {
        ("eye", "eye"): "attend",
        ("belief", "eye"): "predict",
        ("eye", "belief"): "observe",
        ("belief", "belief"): "integrate",
        ("act", "belief"): "intervene",
        ("belief", "store"): "write",
        ("store", "store"): "attend",
        ("belief", "act"): "act",
        ("act", "act"): "attend",
        ("song", "song"): "attend",
        ("store", "belief"): "attend",
    }
    assert wired[-1].when == given.when
    assert not any(e.reads == e.writes for e in Program(canvas(**regions), edges=[Autowire(loops=False)]).edges)


def test_masks_of_positions() -> None:
    at = np.stack(np.meshgrid([0], range(4), range(4), indexing="ij"), -1).reshape(-1, 3)
    tiles = mask_of(Tile((2, 2)), at, at[:8], "e")
    assert tiles is not None
    for i, j in np.ndindex(16, 8):
        assert tiles[i, j] == (tuple(at[i, 1:] // 2) == tuple(at[j, 1:] // 2))
    columns = mask_of(Tile((4,)), at, at, "e")  # sides that are not given are 1
    assert columns is not None
    assert columns.sum() == 16 * 4
    rects = mask_of(Rects([(0, 2, 1, 3), (1, 3, 0, 2)]), at[:4], at[:3], "e")
    assert rects is not None
    assert rects.astype(int).tolist() == [[0, 1, 1], [1, 1, 1], [1, 1, 0], [0, 0, 0]]
    bits = Bits([[0, 1], [1, 0]])
    assert bits.rows == ("01", "10")
    assert bits.array.tolist() == [[False, True], [True, False]]
    assert mask_of(Full(), at, at, "e") is mask_of(None, at, at, "e") is mask_of(Tile((9, 9)), at, at, "e") is None
    with pytest.raises(SpecError, match=r"e: mask must be \[16, 8\] \[written, read\], got \[2, 2\]"):
        mask_of(bits, at, at[:8], "e")
    with pytest.raises(SpecError, match="exceeds the mask"):
        mask_of(Rects([(0, 17, 0, 1)]), at, at, "e")


BAD: dict[str, tuple[Any, str]] = {
    "family": (lambda: Region(((0, 1),), family="a b"), "family cannot be 'a b'"),
    "carrier": (lambda: Region(((0, 1),), carrier="filtre"), "did you mean 'filter'"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "empty box": (lambda: Region(((2, 2),)), "from 2 to 2 is empty"),
    "box of text": (lambda: Region("ab"), "box must be a list"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "box of one": (lambda: Region(((1,),)), r"must be \(low, high\), got \(1,\)"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "box of truths": (lambda: Region(((False, True),)), "low end of its box must be a whole number"),
    "box outside": (lambda: canvas(a=Region(((0, 9), (0, 1)))), "from 0 to 9 exceeds the 8 of spatial axis 0"),
    "box of four axes": (lambda: canvas(a=Region(((0, 1),) * 4)), "a box of 4 axes on a canvas of 3"),
    "period": (lambda: Region(((0, 1),), period=0), "period must be a whole number from 1"),
    "huge period": (lambda: Region(((0, 1),), period=10**5000), "more than 60 digits"),
    "slots": (lambda: Region(((0, 1),), slots=2), "slots need carrier 'memory'"),
    "odd clock": (lambda: Edge(reads="a", writes="b", when="a.b >"), "edge b<a: when: "),
    "inner when": (
        lambda: Edge(reads="a", writes="b", when="inner(every(2), 3)"),
        "a condition cannot have inner steps",
    ),
    "empty clock": (lambda: Region(((0, 1),), clock=" "), "clock: "),
    "loss weight": (lambda: Region(((0, 1),), loss_weight=float("nan")), "loss_weight must be a finite number"),
    "surrogate": (lambda: Region(((0, 1),), tags=("\ud800",)), "half of a surrogate"),
    "learning": (lambda: Region(((0, 1),), learning=3), "learning must be Learning"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "loss": (lambda: Learning(losses=["next_stp"]), "did you mean 'next_step'"),  # pyright: ignore[reportArgumentType]  (a list is read)
    "rule": (lambda: Edge(reads="a", writes="b", rule="mambo"), "did you mean 'mamba'"),
    "operator": (lambda: Edge(reads="a", writes="b", operator="obsrve"), "did you mean 'observe'"),
    "weight": (lambda: Edge(reads="a", writes="b", weight=-1), "weight must be a finite number from 0"),
    "option": (lambda: Edge(reads="a", writes="b", options={"k": float("inf")}), "option 'k'"),
    "mask": (lambda: Edge(reads="a", writes="b", mask=[[1]]), "mask must be Full, Tile"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "rects": (lambda: Rects([(0, 0, 0, 1)]), "is no block"),
    "bits": (lambda: Bits([[1, 2]]), "array .* of 0 and 1"),  # pyright: ignore[reportArgumentType]  (what is refused)
    "ragged bits": (lambda: Bits(("01", "1")), "several lengths"),
    "tile": (lambda: Tile(()), "needs at least one side"),
    "capacity": (lambda: Identity(capacity=0), "capacity"),
    "decay": (lambda: Meter("err", decay=1), "below 1"),
    "kinds": (lambda: Meter("err", kinds=("a", "a")), "unique names"),
    "name": (lambda: canvas(**{"a/b": EYE}), "cannot be called 'a/b'"),
    "no regions": (lambda: Canvas(frames=1, shape=(2,), width=4, regions={}), "no regions"),
    "large": (lambda: Canvas(frames=1, shape=(2**20, 2**10), width=64, regions={"a": EYE}), "would take 256.0 GiB"),
    "wide": (lambda: Canvas(1, (2**20, 4), 2048, {"a": EYE}), "would take 32.0 GiB"),
    "many axes": (lambda: Canvas(1, (1,) * 40, 8, {"a": EYE}), "shape has 40 sides"),
    "unknown region": (lambda: program(edges=[Edge(reads="eye", writes="beleif")]), "did you mean 'belief'"),
    "two of a name": (
        lambda: program(edges=[Edge(reads="eye", writes="eye", name="e")] * 2),
        "two edges are called",
    ),
    "heads": (lambda: program(heads=3), "3 heads do not divide a width of 8"),
    "ahead": (lambda: program(edges=[Edge(reads="eye", writes="eye", lag=-1)]), "reads future rows"),
    "port": (lambda: program(ports={"x": In("eyes", 3)}), "did you mean 'eye'"),
    "level": (lambda: program(ports={"x": Level("eye")}), "not 'diffusive'"),
    "ports": (lambda: program(ports={"x": 3}), "'x' must be In or Level or Signal or Out"),
    "meters": (lambda: program(meters=[Meter("eye"), Meter("eye")]), "two meters"),
    "stream": (lambda: Program(Canvas(frames=2, shape=(8, 8), width=8, regions={"a": EYE}), time="stream"), "1 frame"),
    "version": (lambda: program(version=2), "version 2 is unknown"),
}


@pytest.mark.parametrize("case", BAD)
def test_refuses(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(SpecError) as caught:
        make()
    assert re.search(message, f"{caught.value} {caught.value.hint}"), (str(caught.value), caught.value.hint)
