"""Divide the rows of a table about functions: as the corpus is divided, or else by the functions' bodies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.groups import ModuleLabels
from mlgo_corpus.corpus.split.sides import SIDES, assign_sides, check_fractions
from mlgo_corpus.errors import UsageError

_DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)


@dataclass(frozen=True, slots=True)
class RowDivision:
    """How rows are divided.

    Attributes:
        modules: the side of each module of a corpus that has a split, by name; None if it has none.
        fractions: without ``modules``, the fractions of the bodies that each side gets.
        seed: without ``modules``, another seed divides the bodies in another way.
    """

    modules: dict[str, str] | None
    fractions: tuple[float, float, float]
    seed: int

    @classmethod
    def of(cls, corpus: Corpus, fractions: Sequence[float] | None, seed: int) -> RowDivision:
        """Return the division for a corpus: its split decides if it has one.

        Raises:
            UsageError: the fractions are not valid, or are given for a corpus that has a split.
            CorpusError: the corpus's table is damaged.
        """
        wanted = _DEFAULT_FRACTIONS
        if fractions is not None:
            wanted = check_fractions(fractions)
        labelled = ModuleLabels.read(corpus).sides
        modules = {name: side for name, side in labelled.items() if side in SIDES} or None
        if modules is not None and fractions is not None:
            raise UsageError(
                f"{corpus.location}: has a split, which decides for its tables too; leave `fractions` out, or divide "
                "the corpus anew"
            )
        return cls(modules, wanted, seed)

    @property
    def by(self) -> str:
        """What decides: ``module`` or ``body``."""
        return "body" if self.modules is None else "module"

    @property
    def key(self) -> Any:
        """The division as JSON, to compare two runs."""
        if self.modules is None:
            return list(self.fractions)
        return f"of the split {sha256(repr(sorted(self.modules.items())).encode()).hexdigest()[:8]}"

    def sides(self, modules: Sequence[str], digests: NDArray[np.uint64]) -> list[str | None]:
        """Return the side of each row, from its module's name and 64 bits of its body's digest; None for no side."""
        if self.modules is not None:
            return [self.modules.get(name) for name in modules]
        return [SIDES[side] for side in assign_sides(digests, self.fractions, self.seed).tolist()]
