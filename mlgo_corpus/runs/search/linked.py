"""What an object adds to what is linked: its text and what a linker adds, an n-th of each function that n objects hold.

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
from mlgo_corpus.corpus.products import LinkedModules
from mlgo_corpus.corpus.select import corpus_digest
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.engine.threads import LinkedEvent, results_in_threads
from mlgo_corpus.files.lock import locked
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.runs.search.module import SearchItem, SearchSettings, SurveyJob
from mlgo_corpus.runs.search.rounds import functions_in, linked_size, write_counts
from mlgo_corpus.runs.trace.module import TraceSettings

_FOLDER: Final = "linked"
# The version of the remembered files; it changes with their layout.
_VERSION: Final = 4
# It is there if no module is missing in the counts.
_WHOLE: Final = "whole"


class LinkedSizes:
    """What objects of a corpus add to what is linked.

    Args:
        corpus: all its modules are compiled plainly, unless that is known. Those that fail count nothing, and are tried
            again the next time: it may have been a busy machine, or a short timeout.
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
        if not (place / _WHOLE).exists():
            with locked(home / f"{place.name}.lock", str(place), waiting=lambda: None):
                if not (place / _WHOLE).exists() and self._survey():
                    (place / _WHOLE).touch()

    def size(self, module: str, data: Buffer, text_size: int) -> float:
        """Return what an object of a module adds to what is linked, in bytes.

        Raises:
            FormatError: the object is damaged.
        """
        item = self._items[module]
        if (functions := self._functions.get(module)) is None:  # the same for all objects of a module
            functions = self._functions[module] = functions_in(item.module)
        return linked_size(data, text_size, functions, self._settings.weights(item, 0), exports=item.exports)

    def _survey(self) -> bool:
        """Find out which functions the plain objects hold, and count; return True if that is known of all of them."""
        trace = self._settings.trace
        stop = LinkedEvent(trace.stop or threading.Event())
        job = SurveyJob(replace(self._settings, trace=replace(trace, stop=stop)))
        job.work.mkdir(parents=True, exist_ok=True)
        unknown = [item for item in self._items.values() if self._held(item) is None]
        results_in_threads(job.run, unknown, jobs=available_cpus(), stop=stop)
        held = [file for item in self._items.values() if (file := self._held(item)) is not None]
        write_counts(self._settings.counts(0), map(np.load, held))
        return len(held) == len(self._items)

    def _held(self, item: SearchItem) -> Path | None:
        return self._settings.held(0, item.module.name, item.linked_with)


def _iter_items(corpus: Corpus, names: tuple[str, ...]) -> Iterator[SearchItem]:
    linked = LinkedModules.read(corpus)
    for number, module in enumerate(corpus.modules(names)):
        yield SearchItem(number, module, linked.group(module.name), linked.exports(module.name))
