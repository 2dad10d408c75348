"""Damage by chance: bits, bytes, fields of numbers, pieces cut out, doubled or of another input."""

from __future__ import annotations

import random
from collections.abc import Sequence

from mlgo_corpus.errors import MlgoCorpusError

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1)
# Where formats have most of their numbers: at the beginning and at the end.
_EDGE = 512


def mutate(data: bytes, others: Sequence[bytes], rng: random.Random, most: int = 4) -> bytes:
    """Damage the data up to ``most`` times."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, most)):
        rng.choice((_flip, _set, _number, _number, _truncate, _remove, _double, _splice))(damaged, others, rng)
    return bytes(damaged)


def _place(data: bytearray, rng: random.Random) -> int:
    size = len(data)
    where = rng.random()
    if where < 0.4:
        return rng.randrange(min(size, _EDGE) or 1)
    if where < 0.7:
        return size - 1 - rng.randrange(min(size, _EDGE)) if size else 0
    return rng.randrange(size or 1)


def _flip(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _set(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] = rng.choice((0, 0x0A, 0x20, 0x22, 0x2E, 0x2F, 0x30, 0x7F, 0x80, 0xC0, 0xFF))


def _number(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    """Set a field of 2, 4 or 8 bytes to a number that is hard to bear."""
    width = rng.choice((2, 4, 8))
    at = _place(data, rng) // width * width
    near = len(data) - rng.randint(-2, 2)
    value = rng.choice((*_EXTREMES, near, near - at, rng.getrandbits(8 * width))) % (1 << 8 * width)
    if at + width <= len(data):
        data[at : at + width] = value.to_bytes(width, rng.choice(("little", "little", "big")))


def _truncate(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _remove(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 4, 8, 64))]


def _double(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    at = _place(data, rng)
    data[at:at] = data[at : at + rng.choice((1, 4, 64, 4096))]


def _splice(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    """Put a piece of another input over this one's bytes, or between them."""
    other = rng.choice(others) if others else b""
    start = rng.randrange(len(other) or 1)
    piece = other[start : start + rng.choice((4, 16, 256, 4096))]
    at = _place(data, rng)
    data[at : at + rng.choice((0, len(piece)))] = piece


def check_one_line(error: MlgoCorpusError) -> None:
    text = str(error)
    assert text, type(error)
    assert "\n" not in text, text
    assert len(text) < 2000, text
