"""The base class of reports: plain values, in the order of the fields."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mlgo_corpus.runs.report import Report


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    path: Path
    size: int


class Special:
    def as_json(self) -> dict[str, Any]:
        return {"special": True}


@dataclass(frozen=True, slots=True)
class Inner(Report):
    _properties: ClassVar = ("exit_code",)

    output: Path | None

    @property
    def exit_code(self) -> int:
        return 1


@dataclass(slots=True)
class Outer(Report):
    output: Path | str
    inner: Inner | None
    parts: tuple[Part, ...] = ()
    colour: Colour = Colour.RED
    lists: dict[str, list[Path]] | None = None
    pairs: tuple[tuple[str, int], ...] = ()
    special: Special | None = None
    seconds: float = 1.23456


def test_fields_come_in_their_order_and_properties_after_them() -> None:
    assert list(Inner(None).as_json().items()) == [("output", None), ("exit_code", 1)]
    assert list(Outer("s3://a", None).as_json()) == [
        "output", "inner", "parts", "colour", "lists", "pairs", "special", "seconds",
    ]  # fmt: skip


def test_values_are_plain() -> None:
    outer = Outer(
        Path("a"),
        Inner(Path("b")),
        (Part(Path("c"), 1),),
        lists={"d": [Path("e")]},
        pairs=(("f", 2),),
        special=Special(),
    )
    assert outer.as_json() == {
        "output": "a",
        "inner": {"output": "b", "exit_code": 1},
        "parts": ({"path": "c", "size": 1},),
        "colour": "red",
        "lists": {"d": ["e"]},
        "pairs": (("f", 2),),
        "special": {"special": True},
        "seconds": 1.235,
    }


def test_reports_have_slots_and_can_be_pickled() -> None:
    inner = Inner(Path("a"))
    assert not hasattr(inner, "__dict__")
    assert pickle.loads(pickle.dumps(inner)) == inner
    outer = Outer("a", inner)
    outer.output = "b"
    with pytest.raises(AttributeError):
        outer.other = 1  # type: ignore[attr-defined]
