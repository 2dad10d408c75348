"""What flips are expected to save, by their features, so that a search tries first what saves most.

Of a hundred flips three help. Boosted trees (``worth.npz``) tell which are likely to: they learned from the effects of
the flips in searches of ten projects (``scripts/make_worth.py``). A score is the logarithm of a number of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from mlgo_corpus.compilers.session import record_dtype
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.policies.models import Model, Trees, model_of

MODEL: Final = Path(__file__).with_name("worth.npz")
"""The trees, as ``numpy.savez`` writes their arrays."""

FEATURES: Final = (
    "cost_estimate",
    "callee_users",
    "callsite_height",
    "caller_basic_block_count",
    "callee_conditionally_executed_blocks",
    "simplified_instructions",
    "last_call_to_static_bonus",
    "inlining_default",
    "unsimplified_common_instructions",
)
"""What the trees compare, besides the decision at the call, which is their last input.

More features make no better order. A callee's count of blocks is left out, which some compilers do not send.
"""


def expected_savings(header: LogHeader, tensors: Sequence[bytes], decided: Sequence[int]) -> list[float]:
    """Return what the other decision at each call is expected to save, in bytes of text.

    Args:
        header: of the observations.
        tensors: each one's features, as the compiler sent them.
        decided: the decision at each.

    Returns:
        As many numbers, all of them above 0; 1 each if the compiler does not send what the trees compare.
    """
    if not {*FEATURES} <= {spec.name for spec in header.features if spec.is_scalar}:
        return [1.0] * len(decided)
    records = np.frombuffer(b"".join(tensors), record_dtype(header))
    inputs = np.stack([*(records[name] for name in FEATURES), np.asarray(decided)], axis=1, dtype=np.float64)
    return [float(saved) for saved in np.exp(_trees().scores(inputs))]


@cache
def _trees() -> Model:
    with np.load(MODEL) as arrays:
        return model_of(Trees.kind, dict(arrays), len(FEATURES) + 1)
