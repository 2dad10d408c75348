"""Turn real builds into datasets for machine-learning-guided compiler optimisation (MLGO).

The names below are the public API. Each is imported when it is first used, so that
``import mlgo_corpus`` stays as cheap as the smallest thing done with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlgo_corpus.build import BuildReport, build_corpus
    from mlgo_corpus.combine import CombineReport, combine_corpora, combine_in_place
    from mlgo_corpus.compilers.session import InteractiveSession
    from mlgo_corpus.corpus.folder import Module
    from mlgo_corpus.corpus.open import Corpus
    from mlgo_corpus.dataset.loaded import TrainingLog, read_log
    from mlgo_corpus.dataset.logs import LogWriter
    from mlgo_corpus.dedup import DedupReport, dedup_corpus
    from mlgo_corpus.doctor import Diagnosis, diagnose
    from mlgo_corpus.engine.choice import EngineChoice
    from mlgo_corpus.engine.shared.workers import SharedWorkers
    from mlgo_corpus.errors import MlgoCorpusError
    from mlgo_corpus.export import ExportReport, export_tfrecord, read_tfrecord
    from mlgo_corpus.extract import ExtractReport, extract_corpus
    from mlgo_corpus.formats.logs.events import LogReader
    from mlgo_corpus.formats.logs.tensors import TensorSpec
    from mlgo_corpus.ir2native import SizesReport, ir2native_table
    from mlgo_corpus.logs import LogsReport, RestoreReport, convert_logs, restore_logs
    from mlgo_corpus.make import MakeReport, make_corpus
    from mlgo_corpus.pack import PackReport, pack_corpus, unpack_corpus
    from mlgo_corpus.report import ReportSummary, report_page
    from mlgo_corpus.runs.trace.run import TraceReport
    from mlgo_corpus.runs.trace.tracer import Tracer
    from mlgo_corpus.split import SplitReport, split_corpus
    from mlgo_corpus.stats import CorpusStats, corpus_stats
    from mlgo_corpus.toolchain import build_toolchain, list_toolchains
    from mlgo_corpus.trace import trace_corpus
    from mlgo_corpus.verify import VerifyReport, verify_corpus
    from mlgo_corpus.vocab import VocabularyReport, read_vocabulary, write_vocabulary

__version__ = "0.1.0"

__all__ = [
    "BuildReport",
    "CombineReport",
    "Corpus",
    "CorpusStats",
    "DedupReport",
    "Diagnosis",
    "EngineChoice",
    "ExportReport",
    "ExtractReport",
    "InteractiveSession",
    "LogReader",
    "LogWriter",
    "LogsReport",
    "MakeReport",
    "MlgoCorpusError",
    "Module",
    "PackReport",
    "ReportSummary",
    "RestoreReport",
    "SharedWorkers",
    "SizesReport",
    "SplitReport",
    "TensorSpec",
    "TraceReport",
    "Tracer",
    "TrainingLog",
    "VerifyReport",
    "VocabularyReport",
    "__version__",
    "build_corpus",
    "build_toolchain",
    "combine_corpora",
    "combine_in_place",
    "convert_logs",
    "corpus_stats",
    "dedup_corpus",
    "diagnose",
    "export_tfrecord",
    "extract_corpus",
    "ir2native_table",
    "list_toolchains",
    "make_corpus",
    "pack_corpus",
    "read_log",
    "read_tfrecord",
    "read_vocabulary",
    "report_page",
    "restore_logs",
    "split_corpus",
    "trace_corpus",
    "unpack_corpus",
    "verify_corpus",
    "write_vocabulary",
]

_HOME = {
    "BuildReport": "mlgo_corpus.build",
    "CombineReport": "mlgo_corpus.combine",
    "Corpus": "mlgo_corpus.corpus.open",
    "CorpusStats": "mlgo_corpus.stats",
    "DedupReport": "mlgo_corpus.dedup",
    "Diagnosis": "mlgo_corpus.doctor",
    "EngineChoice": "mlgo_corpus.engine.pool",
    "ExportReport": "mlgo_corpus.export",
    "ExtractReport": "mlgo_corpus.extract",
    "InteractiveSession": "mlgo_corpus.compilers.session",
    "LogReader": "mlgo_corpus.formats.logs.events",
    "LogWriter": "mlgo_corpus.dataset.logs",
    "LogsReport": "mlgo_corpus.logs",
    "MakeReport": "mlgo_corpus.make",
    "MlgoCorpusError": "mlgo_corpus.errors",
    "Module": "mlgo_corpus.corpus.folder",
    "PackReport": "mlgo_corpus.pack",
    "ReportSummary": "mlgo_corpus.report",
    "RestoreReport": "mlgo_corpus.logs",
    "SharedWorkers": "mlgo_corpus.engine.shared.workers",
    "SizesReport": "mlgo_corpus.ir2native",
    "SplitReport": "mlgo_corpus.split",
    "TensorSpec": "mlgo_corpus.formats.logs.tensors",
    "TraceReport": "mlgo_corpus.runs.trace.run",
    "Tracer": "mlgo_corpus.runs.trace.tracer",
    "TrainingLog": "mlgo_corpus.dataset.loaded",
    "VerifyReport": "mlgo_corpus.verify",
    "VocabularyReport": "mlgo_corpus.vocab",
    "build_corpus": "mlgo_corpus.build",
    "build_toolchain": "mlgo_corpus.toolchain",
    "combine_corpora": "mlgo_corpus.combine",
    "combine_in_place": "mlgo_corpus.combine",
    "convert_logs": "mlgo_corpus.logs",
    "corpus_stats": "mlgo_corpus.stats",
    "dedup_corpus": "mlgo_corpus.dedup",
    "diagnose": "mlgo_corpus.doctor",
    "export_tfrecord": "mlgo_corpus.export",
    "extract_corpus": "mlgo_corpus.extract",
    "ir2native_table": "mlgo_corpus.ir2native",
    "list_toolchains": "mlgo_corpus.toolchain",
    "make_corpus": "mlgo_corpus.make",
    "pack_corpus": "mlgo_corpus.pack",
    "read_log": "mlgo_corpus.dataset.loaded",
    "read_tfrecord": "mlgo_corpus.export",
    "read_vocabulary": "mlgo_corpus.vocab",
    "report_page": "mlgo_corpus.report",
    "restore_logs": "mlgo_corpus.logs",
    "split_corpus": "mlgo_corpus.split",
    "trace_corpus": "mlgo_corpus.trace",
    "unpack_corpus": "mlgo_corpus.pack",
    "verify_corpus": "mlgo_corpus.verify",
    "write_vocabulary": "mlgo_corpus.vocab",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
