"""Turn real builds into datasets for machine-learning-guided compiler optimisation (MLGO).

The names below are the public API. Each is imported when it is first used, so that
``import mlgo_corpus`` stays as cheap as the smallest thing done with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgo_corpus.errors import MlgoCorpusError
    from mlgo_corpus.extract import ExtractReport, extract_corpus
    from mlgo_corpus.store.corpus import Corpus, Module

__version__ = "0.1.0"

__all__ = ["Corpus", "ExtractReport", "MlgoCorpusError", "Module", "__version__", "extract_corpus"]

_HOME = {
    "Corpus": "mlgo_corpus.store.corpus",
    "ExtractReport": "mlgo_corpus.extract",
    "MlgoCorpusError": "mlgo_corpus.errors",
    "Module": "mlgo_corpus.store.corpus",
    "extract_corpus": "mlgo_corpus.extract",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
