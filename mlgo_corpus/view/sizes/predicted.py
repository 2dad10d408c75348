"""The part of a page that shows where a model of native size and the truth part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.view import words
from mlgo_corpus.view.blocks import Block, Heading, Table
from mlgo_corpus.view.sizes.facts import SizesFacts, find_names

_CLASSES: Final = (0, 16, 64, 256, 1024)
_SHOWN: Final = 15


def predicted_blocks(facts: SizesFacts, name: str) -> Iterator[Block]:
    """Yield the blocks about a model's predictions; nothing without them, or without sizes."""
    known = _known(facts)
    if not known.any():
        return
    yield Heading(f"{name}-predicted", "Prediction and truth")
    sizes, predicted = facts.labels[known], facts.predicted[known]
    ends = (*_CLASSES[1:], np.inf)
    rows = [
        (_class(first, end), sizes[chosen], predicted[chosen])
        for first, end in zip(_CLASSES, ends, strict=True)
        if (chosen := (sizes >= first) & (sizes < end)).any()
    ]
    yield Table(
        "Errors of the model by size; some of these functions may be what it was trained on",
        ("bytes", "functions", "median error", "predicted in all", "in all"),
        tuple(
            (
                which,
                words.count(len(true)),
                words.percent(_median(guess, true)),
                words.size(guess.sum()),
                words.size(true.sum()),
            )
            for which, true, guess in (*rows, ("all", sizes, predicted))
        ),
    )
    yield Table(
        "Where prediction and truth part: the functions with the largest errors",
        ("function", "module", "bytes", "predicted"),
        tuple(_worst(facts, known)),
        left=2,
    )


def predicted_data(facts: SizesFacts) -> dict[str, Any] | None:
    """Return the numbers about predictions as plain values; None without any."""
    known = _known(facts)
    if not known.any():
        return None
    sizes, predicted = facts.labels[known], facts.predicted[known]
    return {
        "functions": int(known.sum()),
        "median_error": _median(predicted, sizes),
        "covered": facts.covered,
        "bytes": float(sizes.sum()),
        "predicted_bytes": float(predicted.sum()),
    }


def _known(facts: SizesFacts) -> NDArray[np.bool_]:
    if len(facts.predicted) != len(facts.labels):
        return np.zeros(0, np.bool_)
    return np.isfinite(facts.labels) & np.isfinite(facts.predicted)


def _median(predicted: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(predicted - sizes) / np.maximum(sizes, 1.0)))


def _class(first: int, end: float) -> str:
    return f"{first} and more" if end == np.inf else f"{first} to {end - 1:g}"


def _worst(facts: SizesFacts, known: NDArray[np.bool_]) -> Iterator[tuple[str, ...]]:
    away = np.where(known, np.abs(np.nan_to_num(facts.predicted) - np.nan_to_num(facts.labels)), -1.0)
    order = [at for at in np.argsort(-away, kind="stable")[:_SHOWN].tolist() if away[at] > 0]
    names = find_names(facts, facts.keys[order])
    for at in order:
        module, function = names.get(int(facts.keys[at]), ("", ""))
        sizes = words.count(float(facts.labels[at])), words.count(float(facts.predicted[at]))
        yield words.shown(function, 80), words.shown(module), *sizes
