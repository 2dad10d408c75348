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
    from mlgo_corpus.formats.tensorspec import TensorSpec
    from mlgo_corpus.formats.traininglog import LogReader
    from mlgo_corpus.logs import LogsReport, RestoreReport, convert_logs, restore_logs
    from mlgo_corpus.store.corpus import Corpus, Module
    from mlgo_corpus.store.loadedlog import TrainingLog, read_log
    from mlgo_corpus.store.logfiles import LogWriter

__version__ = "0.1.0"

__all__ = [
    "Corpus",
    "ExtractReport",
    "LogReader",
    "LogWriter",
    "LogsReport",
    "MlgoCorpusError",
    "Module",
    "RestoreReport",
    "TensorSpec",
    "TrainingLog",
    "__version__",
    "convert_logs",
    "extract_corpus",
    "read_log",
    "restore_logs",
]

_HOME = {
    "Corpus": "mlgo_corpus.store.corpus",
    "ExtractReport": "mlgo_corpus.extract",
    "LogReader": "mlgo_corpus.formats.traininglog",
    "LogWriter": "mlgo_corpus.store.logfiles",
    "LogsReport": "mlgo_corpus.logs",
    "MlgoCorpusError": "mlgo_corpus.errors",
    "Module": "mlgo_corpus.store.corpus",
    "RestoreReport": "mlgo_corpus.logs",
    "TensorSpec": "mlgo_corpus.formats.tensorspec",
    "TrainingLog": "mlgo_corpus.store.loadedlog",
    "convert_logs": "mlgo_corpus.logs",
    "extract_corpus": "mlgo_corpus.extract",
    "read_log": "mlgo_corpus.store.loadedlog",
    "restore_logs": "mlgo_corpus.logs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
