"""What a policy was trained on, so that it can be told from what it has never seen.

``policy.json`` has it in ``training``, under ``seen``::

    {"bodies": BASE64, "least_instructions": 8, "below": NUMBER, "modules": BASE64, "bitcode": BASE64}

``bodies`` are hashes of the bodies of functions that the training modules of one project have, and those of no other:
what several have is a library's, and no sign of a project's code. A hash has six bytes (the highest of the 64 bits,
little-endian, ascending), and only those less than ``below`` are kept: hashes are as good as random, so that of many
bodies a known part is kept, and the size of the file is bounded. ``modules`` are the first six bytes of the SHA-256 of
the hashes of all bodies of a module, ascending, little-endian (its bitcode has the path of its source, too); of modules
with a body that counts, the least of them. ``bitcode``, which may be missing, are the same of the bitcode of modules
whose bodies are not known: of all of them, since nothing else tells these, up to what the file can hold.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError

SEEN_KEY: Final = "seen"
"""The key in a policy's ``training``."""

TRAINED_SHARE: Final = 0.5
"""The share of a module that training has seen from which the policy counts as trained on it."""

MOST_BITCODE: Final = 1 << 16
"""How many modules are known by their bitcode at most: half a megabyte of ``policy.json``, which may have one."""

_BYTES: Final = 6
_BITS: Final = 8 * _BYTES
_ALL: Final = 1 << _BITS
_MOST_BODIES: Final = 4096
_MOST_MODULES: Final = 1024
# Two corpora are of one project if they share at least this part of the smaller one's bodies.
_KIN: Final = 0.75

_Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a policy was trained on.

    Attributes:
        bodies: the hashes of functions' bodies, shortened to 48 bits, ascending.
        below: only hashes less than this are kept.
        least_instructions: bodies of fewer instructions do not count: unrelated programs have them, too.
        modules: digests of modules, shortened to 48 bits, ascending.
        bitcode: digests of the bitcode of modules whose bodies are not known, likewise.
    """

    bodies: _Hashes
    below: int
    least_instructions: int
    modules: _Hashes
    bitcode: _Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def of(
        cls,
        hashes: Iterable[int],
        modules: Iterable[_Hashes],
        least_instructions: int,
        bitcode: Iterable[str] = (),
    ) -> Seen:
        """Return what training has seen.

        Args:
            hashes: of bodies that have at least ``least_instructions`` instructions, 64 bits each.
            modules: the hashes of all bodies of each module that has such a body.
            least_instructions: what the hashes are of.
            bitcode: the SHA-256 of the bitcode of modules whose bodies are not known, in hexadecimal digits.
        """
        bodies = np.unique(np.fromiter(hashes, np.uint64) >> np.uint64(64 - _BITS))
        below = int(bodies[_MOST_BODIES]) if len(bodies) > _MOST_BODIES else _ALL
        digests = np.unique(np.array([_digest(one) for one in modules], np.uint64))
        exact = np.unique(np.array([_short(one) for one in bitcode], np.uint64))
        return cls(bodies[:_MOST_BODIES], below, least_instructions, digests[:_MOST_MODULES], exact[:MOST_BITCODE])

    @classmethod
    def of_training(cls, training: Mapping[str, Any]) -> Seen | None:
        """Return what a policy's ``training`` says; None if it says nothing.

        Raises:
            FormatError: it is not as this module's docstring says.
        """
        value = training.get(SEEN_KEY)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise FormatError("training: seen: expected an object")
        below, least = value.get("below"), value.get("least_instructions")
        for name, number, most in (("below", below, _ALL), ("least_instructions", least, 1 << 30)):
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
                raise FormatError(f"training: seen: {name}: expected a number from 0 to {most}")
        bodies, modules, bitcode = (_decoded(value, name) for name in ("bodies", "modules", "bitcode"))
        return cls(bodies, int(below or 0), int(least or 0), modules, bitcode)

    def as_json(self) -> dict[str, Any]:
        """Return it as ``training`` holds it."""
        return {
            "bodies": _encoded(self.bodies),
            "least_instructions": self.least_instructions,
            "below": self.below,
            "modules": _encoded(self.modules),
            **({"bitcode": _encoded(self.bitcode)} if len(self.bitcode) else {}),
        }

    def joined(self, other: Seen) -> Seen:
        """Return what was seen in this training or another one.

        Raises:
            ValueError: the two are of bodies of other sizes.
        """
        if self.least_instructions != other.least_instructions:
            raise ValueError("what was seen is of bodies of other sizes")
        below = min(self.below, other.below)
        bodies = np.union1d(self.bodies, other.bodies)
        bodies = bodies[bodies < np.uint64(below)]
        below = int(bodies[_MOST_BODIES]) if len(bodies) > _MOST_BODIES else below
        modules, bitcode = np.union1d(self.modules, other.modules), np.union1d(self.bitcode, other.bitcode)
        least = self.least_instructions
        return Seen(bodies[:_MOST_BODIES], below, least, modules[:_MOST_MODULES], bitcode[:MOST_BITCODE])

    def share(self, hashes: _Hashes, instructions: NDArray[np.integer[Any]], bitcode: str | None = None) -> float:
        """Return how much of a module training has seen, from 0 to 1: by instructions of its functions' bodies.

        Args:
            hashes: of its functions' bodies, 64 bits each.
            instructions: how many these bodies have.
            bitcode: the SHA-256 of its bitcode, in hexadecimal digits, if it is known.
        """
        if bitcode and _short(bitcode) in self.bitcode:
            return 1.0
        if (instructions >= self.least_instructions).any() and _digest(hashes) in self.modules:
            return 1.0
        short = hashes >> np.uint64(64 - _BITS)
        counts = (instructions >= self.least_instructions) & (short < np.uint64(self.below))
        weights = instructions[counts].astype(np.float64)
        if not weights.sum():
            return 0.0
        return float(weights[np.isin(short[counts], self.bodies)].sum() / weights.sum())


def own_bodies(corpora: Iterable[Collection[int]]) -> set[int]:
    """Return the bodies that one project alone has; what several have belongs to a library that any program may use.

    Two corpora are of one project if they share most of the bodies of the smaller one: its versions, its copies, or a
    corpus that others were combined into. Those of different projects share up to a half: they are built with the same
    standard library, and the smaller they are, the more of them it is.

    Args:
        corpora: the hashes of the bodies of each corpus.
    """
    projects: list[set[int]] = []
    for bodies in sorted(map(set[int], corpora), key=len, reverse=True):
        kin = [one for one in projects if len(one & bodies) >= _KIN * len(bodies)] if bodies else []
        projects = [one for one in projects if all(one is not other for other in kin)]
        projects.append(bodies.union(*kin))
    counts = Counter(body for bodies in projects for body in bodies)
    return {body for body, count in counts.items() if count == 1}


def _short(digest: str) -> int:
    return int(digest[: 2 * _BYTES], 16)


def _digest(hashes: _Hashes) -> int:
    """Return the digest of a module by the hashes of all its bodies."""
    return int.from_bytes(sha256(np.sort(hashes).astype("<u8").tobytes()).digest()[:_BYTES], "big")


def _encoded(values: _Hashes) -> str:
    data = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :_BYTES]
    return base64.b64encode(data.tobytes()).decode()


def _decoded(value: Mapping[str, Any], name: str) -> _Hashes:
    try:
        data = base64.b64decode(value.get(name, ""), validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise FormatError(f"training: seen: {name}: expected base64") from None
    if len(data) % _BYTES:
        raise FormatError(f"training: seen: {name}: expected {_BYTES} bytes for each, found {len(data)} bytes")
    wide = np.zeros((len(data) // _BYTES, 8), np.uint8)
    wide[:, :_BYTES] = np.frombuffer(data, np.uint8).reshape(-1, _BYTES)
    return wide.view("<u8").reshape(-1).astype(np.uint64)
