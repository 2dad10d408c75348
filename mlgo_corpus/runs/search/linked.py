"""What an object adds to what is linked: its text, in which a function that n plain objects hold counts an n-th.

It is the objective of a search's first round (`mlgo_corpus.runs.search.rounds`), for others that need it. Which objects
hold a function is found out once for a corpus and a compiler, and remembered in the cache.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np

from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.products import linked_groups
from mlgo_corpus.corpus.select import corpus_digest
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.engine.threads import LinkedEvent, results_in_threads
from mlgo_corpus.files.lock import locked
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.footprints import function_footprints, names_by_symbol
from mlgo_corpus.runs.search.module import SearchItem, SearchSettings, SurveyJob
from mlgo_corpus.runs.search.rounds import functions_in, weighted_size, write_counts
from mlgo_corpus.runs.trace.module import TraceSettings

_FOLDER: Final = "linked"
# The version of the remembered files; it changes with their layout.
_VERSION: Final = 4


class LinkedSizes:
    """What objects of a corpus add to what is linked.

    Args:
        corpus: all its modules are compiled plainly, unless that is known.
        settings: of compiles.
        cache: where it is remembered which objects hold a function.

    Raises:
        OSError: the cache cannot be written.
    """

    def __init__(self, corpus: Corpus, settings: TraceSettings, cache: Path) -> None:
        names = tuple(dict.fromkeys(corpus.names))
        identity = [_VERSION, settings.compiler_id, corpus_digest(corpus, names), settings.edits.key()]
        home = cache.absolute() / _FOLDER
        place = home / sha256(json.dumps(identity).encode()).hexdigest()
        self._settings = SearchSettings(
            replace(settings, work=place), start="default", budgets=(1,), time_limit=None, seed=0, linked=True
        )
        self._items = {item.module.name: item for item in _iter_items(corpus, names)}
        self._functions: dict[str, tuple[str, ...]] = {}
        counts = self._settings.counts(0)
        if not counts.exists():
            with locked(home / f"{place.name}.lock", str(place), waiting=lambda: None):
                if not counts.exists():
                    self._survey(counts)

    def size(self, module: str, data: Buffer, text_size: int) -> float:
        """Return what an object of a module adds to what is linked, in bytes.

        Raises:
            FormatError: the object is damaged.
        """
        item = self._items[module]
        if (functions := self._functions.get(module)) is None:  # the same for all objects of a module
            functions = self._functions[module] = functions_in(item.module)
        names = names_by_symbol(data, functions)
        return weighted_size(text_size, function_footprints(data, names), self._settings.weights(item, 0))

    def _survey(self, counts: Path) -> None:
        """Find out which functions the plain objects hold, and count."""
        trace = self._settings.trace
        stop = LinkedEvent(trace.stop or threading.Event())
        job = SurveyJob(replace(self._settings, trace=replace(trace, stop=stop)))
        job.work.mkdir(parents=True, exist_ok=True)
        outcomes = results_in_threads(job.run, tuple(self._items.values()), jobs=available_cpus(), stop=stop)
        write_counts(counts, [np.load(job.work / one.held) for one in outcomes if one.held])


def _iter_items(corpus: Corpus, names: tuple[str, ...]) -> Iterator[SearchItem]:
    linked_with = linked_groups(corpus)
    for number, module in enumerate(corpus.modules(names)):
        yield SearchItem(number, module, linked_with(module.name))
