"""What a policy is like: which features it goes by, and where it decides otherwise than LLVM.

It is kept in ``metrics.json`` of the policy, where a page finds it (`mlgo_corpus.view.policy`)::

    "importance": {FEATURE: SHARE, ...},
    "differences": {
      "decisions": N, "llvm": SHARE, "policy": SHARE,
      "by": {FEATURE: [{"low": V, "high": V, "decisions": N, "llvm": SHARE, "policy": SHARE, "differ": SHARE}, ...]}
    }

and of what is no number, such as ``callee_linkage``, with ``"value": TEXT`` instead of ``low`` and ``high``.

Shares are of the decisions that are to inline, or differ. Both are of states that training came to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.dataset.rows import DatasetRows, column_values
from mlgo_corpus.formats.logs.tasks import INLINING_DEFAULT
from mlgo_corpus.learn.examples import Linkages, call_columns
from mlgo_corpus.policies.learned import LearnedPolicy

_BY: Final = (
    "callee_basic_block_count",
    "cost_estimate",
    "callee_users",
    "caller_users",
    "callsite_height",
    "is_callee_avail_external",
)
_LINKAGE: Final = "callee_linkage"
LINKAGE_TEXT: Final = "callee_linkage as text"
"""Among states, the linkages by name: an extended clang has a feature ``callee_linkage`` of numbers."""

_RANGES: Final = 8
_MOST: Final = 1 << 18

_States = Mapping[str, NDArray[Any]]


def read_states(
    datasets: Sequence[DatasetRows], features: Iterable[str], linkages: Sequence[Linkages] = ()
) -> dict[str, NDArray[Any]]:
    """Return the features of the decisions of datasets, and LLVM's own decision, as far as all datasets have them.

    With the linkages of the functions of each dataset, also the callees', as text: empty where one is not known.

    Raises:
        CorpusError: a dataset cannot be read.
    """
    wanted = dict.fromkeys((*features, *_BY, INLINING_DEFAULT))
    names = [
        name
        for name in wanted
        if all(any(spec.name == name and spec.is_scalar for spec in rows.header.features) for rows in datasets)
    ]
    found: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    callees = []
    for rows, known in zip(datasets, linkages or [{}] * len(datasets), strict=True):
        calls = ("module", "callee") if known and "callee" in call_columns(rows) else ()
        for batch in _first_batches(rows, [*names, *calls]):
            for name in names:
                found[name].append(column_values(batch, name, 1)[:, 0])
            of = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in calls]
            pairs = zip(*of, strict=True) if of else [("", "")] * batch.num_rows
            callees += [known.get(module, {}).get(callee, "") for module, callee in pairs]
    states = {name: np.concatenate([np.zeros(0), *parts]) for name, parts in found.items()}
    return {**states, LINKAGE_TEXT: np.array(callees)} if any(callees) else states


def _first_batches(rows: DatasetRows, names: Sequence[str]) -> Iterator[Any]:
    """Yield these columns of the first rows of the chosen modules."""
    left = _MOST
    for first, after in rows.ranges():
        after = min(after, first + left)
        left -= after - first
        for _, batch in rows.iter_batches(names, first, after):
            yield batch


def importance_of(policy: LearnedPolicy, states: _States) -> dict[str, float]:
    """Return each feature's share: how much the scores change if it always has its mean; most first."""
    inputs = np.column_stack([np.asarray(states[spec.name], np.float64) for spec in policy.features])
    plain = policy.model.scores(inputs)
    changes = {}
    for number, spec in enumerate(policy.features):
        other = inputs.copy()
        other[:, number] = inputs[:, number].mean()
        changes[spec.name] = float(np.abs(policy.model.scores(other) - plain).mean())
    total = sum(changes.values()) or 1.0
    ranked = sorted(changes.items(), key=lambda item: (-item[1], item[0]))
    return {name: round(change / total, 4) for name, change in ranked if change > 0}


def differences_of(policy: LearnedPolicy, states: _States) -> dict[str, Any]:
    """Return where a policy decides otherwise than LLVM, in ranges of features; nothing if LLVM's is not known."""
    if INLINING_DEFAULT not in states or not len(states[INLINING_DEFAULT]):
        return {}
    llvm = np.asarray(states[INLINING_DEFAULT]) != 0
    decided = policy.decide({spec.name: np.asarray(states[spec.name], spec.dtype) for spec in policy.features}) != 0
    by = {}
    for name in _BY:
        if name in states and (states[name] != states[name][0]).any():
            by[name] = _ranges(np.asarray(states[name], np.float64), llvm, decided)
    if LINKAGE_TEXT in states:
        by[_LINKAGE] = []
        for value in filter(None, np.unique(states[LINKAGE_TEXT]).tolist()):
            chosen = states[LINKAGE_TEXT] == value
            by[_LINKAGE].append({"value": value, **_shares(llvm[chosen], decided[chosen])})
    return {**_shares(llvm, decided), "by": by}


def _ranges(values: NDArray[np.float64], llvm: NDArray[np.bool_], decided: NDArray[np.bool_]) -> list[dict[str, Any]]:
    """Return the shares in ranges of values that hold about as many decisions each."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _RANGES + 1)[1:-1], method="inverted_cdf"))
    places = np.searchsorted(edges, values, side="left")
    found = []
    for place in np.unique(places):
        chosen = places == place
        ends = {"low": float(values[chosen].min()), "high": float(values[chosen].max())}
        found.append({**ends, **_shares(llvm[chosen], decided[chosen])})
    return found


def _shares(llvm: NDArray[np.bool_], decided: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        "decisions": len(llvm),
        "llvm": round(float(llvm.mean()), 4),
        "policy": round(float(decided.mean()), 4),
        "differ": round(float((llvm != decided).mean()), 4),
    }
