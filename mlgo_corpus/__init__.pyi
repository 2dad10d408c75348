"""The public names and their modules, one name per line.

Type checkers read this file. ``__init__.py`` reads the same lines when it is imported.
"""

from mlgo_corpus.build import BuildReport as BuildReport
from mlgo_corpus.build import build_corpus as build_corpus
from mlgo_corpus.combine import CombineReport as CombineReport
from mlgo_corpus.combine import combine_corpora as combine_corpora
from mlgo_corpus.combine import combine_in_place as combine_in_place
from mlgo_corpus.compilers.command import CommandEdits as CommandEdits
from mlgo_corpus.compilers.limits import Limits as Limits
from mlgo_corpus.compilers.session import InteractiveSession as InteractiveSession
from mlgo_corpus.compilers.session import temporary_channel as temporary_channel
from mlgo_corpus.corpus.folder import Module as Module
from mlgo_corpus.corpus.open import Corpus as Corpus
from mlgo_corpus.corpus.products import products_of as products_of
from mlgo_corpus.corpus.select import ModuleChoice as ModuleChoice
from mlgo_corpus.dataset.loaded import TrainingLog as TrainingLog
from mlgo_corpus.dataset.loaded import read_log as read_log
from mlgo_corpus.dataset.logs import LogWriter as LogWriter
from mlgo_corpus.dedup import DedupReport as DedupReport
from mlgo_corpus.dedup import dedup_corpus as dedup_corpus
from mlgo_corpus.doctor import Diagnosis as Diagnosis
from mlgo_corpus.doctor import diagnose as diagnose
from mlgo_corpus.engine.choice import EngineChoice as EngineChoice
from mlgo_corpus.engine.shared.workers import SharedWorker as SharedWorker
from mlgo_corpus.engine.shared.workers import SharedWorkers as SharedWorkers
from mlgo_corpus.errors import MlgoCorpusError as MlgoCorpusError
from mlgo_corpus.evaluate import evaluate_corpus as evaluate_corpus
from mlgo_corpus.export import ExportReport as ExportReport
from mlgo_corpus.export import export_tfrecord as export_tfrecord
from mlgo_corpus.export import read_tfrecord as read_tfrecord
from mlgo_corpus.extract import ExtractReport as ExtractReport
from mlgo_corpus.extract import extract_corpus as extract_corpus
from mlgo_corpus.formats.logs.events import LogReader as LogReader
from mlgo_corpus.formats.logs.tensors import TensorSpec as TensorSpec
from mlgo_corpus.ir2native import ir2native_table as ir2native_table
from mlgo_corpus.logs import LogsReport as LogsReport
from mlgo_corpus.logs import RestoreReport as RestoreReport
from mlgo_corpus.logs import convert_logs as convert_logs
from mlgo_corpus.logs import restore_logs as restore_logs
from mlgo_corpus.make import MakeReport as MakeReport
from mlgo_corpus.make import make_corpus as make_corpus
from mlgo_corpus.pack import PackReport as PackReport
from mlgo_corpus.pack import pack_corpus as pack_corpus
from mlgo_corpus.pack import unpack_corpus as unpack_corpus
from mlgo_corpus.policies.boosting import trees_of_lightgbm as trees_of_lightgbm
from mlgo_corpus.policies.learned import LearnedPolicy as LearnedPolicy
from mlgo_corpus.policies.learned import load_policy as load_policy
from mlgo_corpus.relink import relink_corpus as relink_corpus
from mlgo_corpus.report import ReportSummary as ReportSummary
from mlgo_corpus.report import report_page as report_page
from mlgo_corpus.runs.evaluate.sums import EvaluationReport as EvaluationReport
from mlgo_corpus.runs.links.run import RelinkReport as RelinkReport
from mlgo_corpus.runs.search.run import SearchReport as SearchReport
from mlgo_corpus.runs.sizes.run import SizesReport as SizesReport
from mlgo_corpus.runs.trace.run import TraceReport as TraceReport
from mlgo_corpus.runs.trace.tracer import Traced as Traced
from mlgo_corpus.runs.trace.tracer import Tracer as Tracer
from mlgo_corpus.search import search_corpus as search_corpus
from mlgo_corpus.split import SplitReport as SplitReport
from mlgo_corpus.split import split_corpus as split_corpus
from mlgo_corpus.stats import CorpusStats as CorpusStats
from mlgo_corpus.stats import corpus_stats as corpus_stats
from mlgo_corpus.toolchain import build_toolchain as build_toolchain
from mlgo_corpus.toolchain import list_toolchains as list_toolchains
from mlgo_corpus.toolchain import list_wrapped as list_wrapped
from mlgo_corpus.toolchain import wrap_toolchain as wrap_toolchain
from mlgo_corpus.trace import trace_corpus as trace_corpus
from mlgo_corpus.verify import VerifyReport as VerifyReport
from mlgo_corpus.verify import verify_corpus as verify_corpus
from mlgo_corpus.vocab import FeatureVocabulary as FeatureVocabulary
from mlgo_corpus.vocab import VocabularyReport as VocabularyReport
from mlgo_corpus.vocab import read_vocabulary as read_vocabulary
from mlgo_corpus.vocab import write_vocabulary as write_vocabulary

__version__: str
