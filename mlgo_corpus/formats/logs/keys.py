"""Keys that name decisions of inlining from one compile of a module to the next.

A decision's number is no name: after the first decision that differs, the compiler asks other questions. Its features
are one, without those that change with every decision elsewhere (`_UNSTABLE`). Of decisions with equal features, the
first of a compile is number 0, and so on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from typing import Final

from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tensors import TensorSpec

Key = tuple[bytes, int]
"""The stable features' bytes, and the number among equals."""

_UNSTABLE: Final = frozenset(
    {
        *("node_count", "edge_count", "caller_users", "inlining_default"),
        *("callee_address_taken", "calls_in_caller", "callee_asked", "callee_inlined"),  # an extended clang's
    }
)
"""Features that change without a change of the functions that the decision is about."""


def stable_features(header: LogHeader) -> tuple[TensorSpec, ...]:
    """Return the features that keys are made of; a training log's decision is none of them."""
    features = header.features if header.advice is not None else header.features[:-1]
    return tuple(spec for spec in features if spec.name not in _UNSTABLE)


def stable_part(header: LogHeader, features: Collection[TensorSpec] | None = None) -> Callable[[bytes], bytes]:
    """Return a function that cuts the stable features out of an observation's tensors.

    Args:
        header: the log's.
        features: cut these out instead, in the order of the header.
    """
    stable = set(stable_features(header) if features is None else features)
    parts: list[tuple[int, int]] = []
    for spec, start in zip(header.features, header.offsets, strict=True):
        if spec not in stable:
            continue
        if parts and parts[-1][1] == start:
            parts[-1] = (parts[-1][0], start + spec.nbytes)
        else:
            parts.append((start, start + spec.nbytes))
    # One call takes all parts: this runs twice for each decision of a search.
    ends = (0, *(after for _, after in parts))
    cut = struct.Struct(
        "=" + "".join(f"{first - end}x{after - first}s" for (first, after), end in zip(parts, ends, strict=False))
    )
    take, join = cut.unpack_from, b"".join
    return lambda tensors: join(take(tensors))


def key_maker(header: LogHeader, features: Collection[TensorSpec] | None = None) -> Callable[[bytes], Key]:
    """Return a function that returns the keys of one compile's decisions, one after the other, from their tensors.

    Args:
        header: the log's.
        features: make the keys of these, instead of all stable ones.
    """
    part = stable_part(header, features)
    counts: dict[bytes, int] = {}

    def key(tensors: bytes) -> Key:
        found = part(tensors)
        number = counts.get(found, 0)
        counts[found] = number + 1
        return found, number

    return key
