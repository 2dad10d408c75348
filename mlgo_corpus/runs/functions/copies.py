"""How many modules of a project define each function: what a clang is told that is extended for the project.

A linker keeps one of the copies of an inline function, so that a byte of it counts the less, the more modules have it;
and no module tells how many others do.

The table is an array of words of 64 bits of this machine: how many functions it has, and of each one the hash of its
name (`name_hash`) and its copies, sorted by hash. A function that is not in it has one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import LinkedModules
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.text import name_hash
from mlgo_corpus.policies.conversation import knows_project
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.runs.functions.run import iter_corpus_functions

# The linkages of definitions that no other module's replaces: of a name that others may have too, for another function,
# as each program of a project has its own ``main``.
_OWN: Final = frozenset({"external", "internal", "private", "available_externally"})


def copies_for(policies: Iterable[str | LearnedPolicy], corpus: Corpus, *, jobs: int) -> Callable[[], bytes] | None:
    """Return a function that returns `project_copies`, if one of the policies decides by them; else None.

    Raises:
        UsageError: a policy cannot be read.
    """
    return partial(project_copies, corpus, jobs=jobs) if any(map(knows_project, policies)) else None


def project_copies(corpus: Corpus, *, jobs: int) -> bytes:
    """Return the table of the functions that several modules define, of those that are linked with each other.

    If there are several such groups of modules, the copies in the one with the most of them. Names that are not UTF-8
    are not found again.

    Args:
        corpus: the project's, or one side of its split, which counts as the whole.
        jobs: processes that read modules.

    Raises:
        CorpusError: not one module can be read.
        MlgoCorpusError: the corpus's table of functions cannot be written, or is damaged.
    """
    with suppress(CorpusError):  # a side's folder may have no other manifest
        corpus = open_corpus(str(corpus.place))
    linked = LinkedModules.read(corpus)
    held = Counter[tuple[str, str]]()
    for made in iter_corpus_functions(corpus, jobs=jobs):
        linked_with, defined = linked.group(made.module), zip(made.names, made.linkages, strict=True)
        held.update((linked_with, name) for name, linkage in defined if linkage not in _OWN)
    most: dict[int, int] = {}
    for (_, name), copies in held.items():
        if copies > 1:
            key = name_hash(name)
            most[key] = max(copies, most.get(key, 0))
    return np.array([len(most), *(word for row in sorted(most.items()) for word in row)], np.uint64).tobytes()
