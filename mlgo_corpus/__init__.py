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
    from mlgo_corpus.dedup import DedupReport, dedup_corpus
    from mlgo_corpus.doctor import Diagnosis, diagnose
    from mlgo_corpus.errors import MlgoCorpusError
    from mlgo_corpus.export import ExportReport, export_tfrecord, read_tfrecord
    from mlgo_corpus.extract import ExtractReport, extract_corpus
    from mlgo_corpus.formats.tensorspec import TensorSpec
    from mlgo_corpus.formats.traininglog import LogReader
    from mlgo_corpus.ir2native import SizesReport, ir2native_table
    from mlgo_corpus.logs import LogsReport, RestoreReport, convert_logs, restore_logs
    from mlgo_corpus.make import MakeReport, make_corpus
    from mlgo_corpus.pack import PackReport, pack_corpus, unpack_corpus
    from mlgo_corpus.run.engine import EngineChoice
    from mlgo_corpus.run.interactive import InteractiveSession
    from mlgo_corpus.run.sharedworkers import SharedWorkers
    from mlgo_corpus.run.tracer import Tracer
    from mlgo_corpus.run.traces import TraceReport
    from mlgo_corpus.split import SplitReport, split_corpus
    from mlgo_corpus.stats import CorpusStats, corpus_stats
    from mlgo_corpus.store.corpus import Corpus, Module
    from mlgo_corpus.store.loadedlog import TrainingLog, read_log
    from mlgo_corpus.store.logfiles import LogWriter
    from mlgo_corpus.toolchain import build_toolchain, list_toolchains
    from mlgo_corpus.trace import trace_corpus
    from mlgo_corpus.verify import VerifyReport, verify_corpus

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
    "RestoreReport",
    "SharedWorkers",
    "SizesReport",
    "SplitReport",
    "TensorSpec",
    "TraceReport",
    "Tracer",
    "TrainingLog",
    "VerifyReport",
    "__version__",
    "build_corpus",
    "build_toolchain",
    "combine_corpora",
    "combine_in_place",
    "convert_logs",
    "corpus_stats",
    "dedup_corpus",
    "export_tfrecord": "mlgo_corpus.export",
