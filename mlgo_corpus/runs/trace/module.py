"""One module's run: the plain compile, the compile whose decisions are seen, and what became of them.

The plain compile is the baseline: the module's own command on its own bitcode, by the same compiler. The other one is
the same command, and either writes a training log or asks a policy over two FIFOs. Both leave a log of the same form.

Everything is written in a folder of the run's own, and the log and the row are moved out of it when they are whole:
first the log, then the row, so that a row is never without its log.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.choose import TRAINING_LOG
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.compile import OBJECT_NAME, Compiled, ModuleCompiles, check_bitcode, row_detail, run_folder
from mlgo_corpus.compilers.failures import RunFailure, module_failure
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.calls import call_batch
from mlgo_corpus.dataset.logs import LOG_SUFFIX, HeaderReader, open_log
from mlgo_corpus.dataset.reasons import RunReason, run_status
from mlgo_corpus.dataset.tracetable import TraceRow, reward
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.errors import FormatError, ProtocolError, ToolError, Usage, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.regular import MAX_MODULE_BYTES, MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.tables import write_batch
from mlgo_corpus.files.text import counted, os_reason
from mlgo_corpus.formats.commands.embedded import facts_of_words
from mlgo_corpus.formats.commands.languages import language_of_command
from mlgo_corpus.formats.logs.blocks import BlockReader, Rows
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.formats.logs.remarks import (
    REMARK_OPTIONS,
    DecidedCall,
    UnfaithfulBecause,
    decision_options,
    iter_calls,
    iter_decided_calls,
    why_unfaithful,
)
from mlgo_corpus.formats.logs.tasks import INLINING, SIZE_MODEL, Task, find_task, for_clang, task_name
from mlgo_corpus.policies.conversation import asks_default, converse, decides_in, learned_policy, repair_of
from mlgo_corpus.policies.embedded import place_model, place_size_model
from mlgo_corpus.policies.keyed import KeyedPolicy, find_dataset, growth_options
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.overtime import Overtime, end_after
from mlgo_corpus.policies.own.blame import traceback_of
from mlgo_corpus.policies.policy import Policy, checked_policy, make_policy
from mlgo_corpus.runs.over import lost_reason
from mlgo_corpus.runs.trace.baseline import PlainCompile

if TYPE_CHECKING:
    import pyarrow as pa

_LOG_NAME: Final = "training.log"
_NONE: Final = np.empty(0, np.int64)
_CHANNEL_NAME: Final = "channel"
_REMARKS_NAME: Final = "remarks"
_CALLS_NAME: Final = "calls.arrow"
_MODEL_NAME: Final = "model"
_SIZE_MODEL_NAME: Final = "size-model"

# Wait this much longer than the compile's own limit, so that the session reports a slow compiler, and we a slow policy.
_POLICY_GRACE_S = 0.5
# Logs of this size and more are worth compressing.
_COMPRESS_FROM = 64 << 10


class _CopyNames(NamedTuple):
    """The paths of a module's log and object in the folders for copies."""

    log: str
    object: str


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The settings of all runs of a trace.

    Attributes:
        cc1: the words of the compiler to put before ``-cc1``.
        compiler_id: what tells it from every other compiler.
        major: LLVM's major version.
        task: the task's name.
        via: `TRAINING_LOG` or `INTERACTIVE`.
        policy: how the policy is named; for training logs it is ``default``.
        stop: ends runs when another thread sets it.
        make: makes a policy that has no name by which it could be found; ``policy`` is what it is called, then.
        made: that policy, if it is a learned one.
        seed: of a random policy.
        edits: how each command is changed, and whether it may be any command.
        limits: what each compile may take.
        names: whether it is recorded which call each decision of inlining was about.
        ir2native_model: the folder of a model of native size, which scores the decisions of a training log.
        work: the folder for runs under way and for their logs and rows.
        baselines: the folder of what is known of plain compiles.
        keep_logs, keep_objects: folders for copies, named after the modules.
        copy_names: how copies are called of modules whose names would clash there, see `clashing_copies`.
    """

    cc1: tuple[str, ...]
    compiler_id: str
    major: int
    task: str
    via: str
    policy: str
    seed: int
    work: Path
    baselines: Path
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=Limits)
    names: bool = True
    ir2native_model: str | None = None
    keep_logs: Path | None = None
    keep_objects: Path | None = None
    copy_names: Mapping[str, _CopyNames] = field(default_factory=dict)
    stop: threading.Event | None = None
    make: Callable[[], Policy] | None = None
    made: LearnedPolicy | None = None

    @property
    def the_task(self) -> Task:
        """The task itself."""
        return find_task(self.task)

    @property
    def learned(self) -> LearnedPolicy | None:
        """The policy, if it is a learned one."""
        return learned_policy(self.policy) if self.make is None else self.made

    @property
    def with_calls(self) -> bool:
        """Whether the dataset has the columns of `mlgo_corpus.dataset.calls`."""
        return self.names and self.task == INLINING


class TraceItem(NamedTuple):
    """One module to run, and its number among those of this trace."""

    number: int
    module: Module


class TracedModule(NamedTuple):
    """The outcome of one run.

    ``log`` is the name of its log in the work folder, of ``log_size`` bytes, None where it has none; ``header`` names
    the log's header, see `header_of`; ``traceback`` is the policy's, where it has failed. The calls of its decisions
    are beside the log, see `calls_of`. ``more`` is what a stage that traces adds.
    """

    row: TraceRow
    log: str | None = None
    decisions: int = 0
    log_size: int = 0
    header: str | None = None
    traceback: str = ""
    more: Any = None


class _Decided(NamedTuple):
    """The outcome of a compile whose decisions are seen: each, its cost, and whether it left a log."""

    decisions: NDArray[Any]
    usage: Usage
    has_log: bool


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A trace of one module, as `mlgo_corpus.runs.over` does it to every module."""

    settings: TraceSettings

    @property
    def work(self) -> Path:
        """The folder for work under way."""
        return self.settings.work

    @property
    def limit_s(self) -> float:
        """Seconds that the compiles of one module may take together."""
        limits = self.settings.limits
        explained = self.settings.policy == "default"  # by two compiles more
        return 2 * limits.timeout * (limits.retries + 1 + explained)

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler."""
        return self.settings.cc1[:1]

    @property
    def trusted(self) -> bool:
        """Whether it runs without walls."""
        return self.settings.edits.trusted

    def run(self, item: TraceItem) -> TracedModule:
        """Run the compiler over one module, and keep its log in the work folder.

        What goes wrong with the module is in the row.

        Raises:
            OSError: the work folder, or a folder for copies, cannot be written.
        """
        settings = self.settings
        with run_folder(settings.work) as folder:
            run = _Run(settings, item.module, folder)
            row = run.row()
            if row.status != STATUS_OK:
                return TracedModule(row, decisions=run.decisions, traceback=run.traceback)
            run.keep_copies()
            if not run.has_log:
                return TracedModule(row, decisions=run.decisions)
            header = _keep_header(settings.work, HeaderReader().read(str(folder / _LOG_NAME)))
            place = settings.work / f"run-{item.number:07d}.log"
            if run.calls is not None:
                write_batch(folder / _CALLS_NAME, run.calls)
                (folder / _CALLS_NAME).replace(calls_of(settings.work, place.name))
            log, size = _keep_log(folder / _LOG_NAME, place)
            return TracedModule(row, log, run.decisions, size, header)

    def lost(self, item: TraceItem, lost: Lost) -> TracedModule:
        """Return the outcome for a module whose worker died."""
        reason = lost_reason(lost)
        return TracedModule(TraceRow(item.module.name, run_status(reason), reason.value, lost.detail))

    def outcome(self, record: Any) -> TracedModule:
        """Return the outcome that JSON held."""
        values, *others = record
        row = TraceRow(*values)
        return TracedModule(row._replace(argv=None if row.argv is None else tuple(row.argv)), *others)

    def is_whole(self, item: TraceItem, outcome: TracedModule) -> bool:
        """Return True if the run went well, and its log and its copies are there.

        A failure is tried again: it may be over by now, as a full disk or a busy machine is.
        """
        row, log = outcome.row, outcome.log
        if row.module != item.module.name or row.status != STATUS_OK:
            return False
        if log is not None and (self.work / log).stat().st_size != outcome.log_size:
            return False
        if log is not None and self.settings.with_calls and not calls_of(self.work, log).is_file():
            return False
        return _are_there(_copies(self.settings, row.module, has_log=log is not None))


def _keep_header(work: Path, header: LogHeader) -> str:
    """Keep a header's line in the work folder; return its name there."""
    name = f"header-{sha256(header.line).hexdigest()[:32]}"
    if not (work / name).exists():
        write_atomically(work / name, header.line)
    return name


def header_of(work: Path, name: str) -> LogHeader:
    """Return the header that a `TracedModule` names.

    Raises:
        OSError: it cannot be read.
        FormatError: it is none.
    """
    return parse_header(read_regular(work / name, MAX_NOTE_BYTES))


def calls_of(work: Path, log: str) -> Path:
    """Return the place of the calls of a run's decisions, which is beside its log."""
    return work / f"{log.partition('.')[0]}.calls"


def has_copies(settings: TraceSettings, row: TraceRow) -> bool:
    """Return True if the wanted copies of a run's files are there."""
    return _are_there(_copies(settings, row.module, has_log=row.header is not None))


def _are_there(copies: Mapping[str, tuple[Path, str]]) -> bool:
    return all((folder / name).is_file() for folder, name in copies.values())


def _unfinished(folder: Path, work: Path) -> Path:
    """Return the place, in a folder for copies, of those that a run has begun: a worker may be killed meanwhile."""
    return folder / f".mlgo-corpus-{sha256(os.fsencode(work)).hexdigest()[:16]}"


def remove_unfinished(settings: TraceSettings) -> None:
    """Remove the copies that a run has begun; its workers have ended, and so has an earlier one that was killed."""
    for folder in (settings.keep_logs, settings.keep_objects):
        if folder is not None:
            shutil.rmtree(_unfinished(folder, settings.work), ignore_errors=True)


def _copies(settings: TraceSettings, module: str, *, has_log: bool) -> dict[str, tuple[Path, str]]:
    """Return the folders and names of the wanted copies by the files' names.

    A module's name was checked: its copy stays inside.
    """
    names = settings.copy_names.get(module) or _CopyNames(f"{module}{LOG_SUFFIX}", module)
    places = {}
    if settings.keep_logs is not None and has_log:
        places[_LOG_NAME] = settings.keep_logs, names.log
    if settings.keep_objects is not None:
        places[OBJECT_NAME] = settings.keep_objects, names.object
    return places


def clashing_copies(modules: Iterable[str]) -> dict[str, _CopyNames]:
    """Name the copies that cannot be called ``MODULE.log`` and ``MODULE``; all others are.

    Where that is a folder of another module's copy, ``.log`` or ``.o`` is added until the name is free; likewise to
    an object that would be called as another module's log, for both may be kept in one folder.

    Args:
        modules: all modules of the corpus, whichever are traced: names do not depend on the choice.
    """
    paths = {os.path.normpath(module): module for module in modules}
    folders = {str(folder) for path in paths for folder in PurePosixPath(path).parents}
    taken = folders | paths.keys() | {f"{path}{LOG_SUFFIX}" for path in paths}
    names = {}
    for path in sorted(paths):
        log, obj = f"{path}{LOG_SUFFIX}", path
        if log in folders:
            log = _free(log, LOG_SUFFIX, taken)
        if obj in folders or (obj.endswith(LOG_SUFFIX) and obj.removesuffix(LOG_SUFFIX) in paths):
            obj = _free(obj, ".o", taken)
        if (log, obj) != (f"{path}{LOG_SUFFIX}", path):
            taken |= {log, obj}
            names[paths[path]] = _CopyNames(log, obj)
    return names


def _free(name: str, suffix: str, taken: Container[str]) -> str:
    while name in taken:
        name += suffix
    return name


def _keep_log(log: Path, place: Path) -> tuple[str, int]:
    """Move a log to its place, compressed if it is large; return its name there, and its size."""
    if (size := log.stat().st_size) < _COMPRESS_FROM:
        log.replace(place)
        return place.name, size
    import pyarrow as pa

    packed = log.with_name(f"{log.name}.zst")
    with log.open("rb") as source, packed.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    place = place.with_name(f"{place.name}.zst")
    size = packed.stat().st_size
    packed.replace(place)
    return place.name, size


def _decisions(header: LogHeader, rows: Rows) -> NDArray[Any]:
    """Return the decisions of some observations: the last feature, which is one number."""
    decision = header.features[-1]
    return rows.tensors.getfield(decision.dtype, header.tensor_bytes - decision.nbytes).copy()


def size_model_options(model: str, folder: Path) -> tuple[str, ...]:
    """Place a model of native size in the folder of a run; return the option by which the compiler loads it.

    Raises:
        RunFailure: it cannot be placed.
    """
    try:
        place_size_model(model, folder / _SIZE_MODEL_NAME)
    except UsageError as error:
        raise RunFailure(RunReason.POLICY_ERROR, str(error)) from None
    return (f"{SIZE_MODEL}={_SIZE_MODEL_NAME}",)


def read_calls(remarks: Path, inlined: Sequence[bool]) -> list[DecidedCall]:
    """Return the calls that a compiler's remarks name, one for each of these decisions of inlining.

    Raises:
        RunFailure: there are no such remarks.
    """
    try:
        calls = list(iter_decided_calls(read_regular(remarks, MAX_MODULE_BYTES)))
    except OSError as error:
        raise RunFailure(RunReason.NO_NAMES, f"the compiler left no remarks: {os_reason(error)}") from None
    except FormatError as error:
        raise RunFailure(RunReason.NO_NAMES, f"the compiler's remarks: {error}") from None
    if len(calls) != len(inlined):
        detail = f"the compiler named the calls of {len(calls)} decisions, there were {len(inlined)}"
        raise RunFailure(RunReason.NO_NAMES, detail)
    for number, (call, decision) in enumerate(zip(calls, inlined, strict=True)):
        if call.inlined != decision:
            detail = f"the compiler named another decision than was made, at observation {number}"
            raise RunFailure(RunReason.NO_NAMES, detail)
    return calls


class _Run:
    """One module's run, in a folder of its own."""

    def __init__(self, settings: TraceSettings, module: Module, folder: Path) -> None:
        self.settings = settings
        self.name = module.name
        self.folder = folder
        self.compiles = ModuleCompiles(module, folder, settings.edits, settings.limits, stop=settings.stop)
        self.has_log = False
        self.calls: pa.RecordBatch | None = None
        self.decisions = 0
        self.traceback = ""
        self._unmet: list[int] | None = None
        self._known: dict[str, Any] = {}

    def row(self) -> TraceRow:
        """Run, and return the row."""
        try:
            self.compiles.place()
            self._trace()
            return self._row(RunReason.OK, self._unmet_detail())
        except RunFailure as error:
            failure = error
        except OSError as error:
            failure = module_failure(error)
        return self._row(failure.reason, failure.detail)

    def _unmet_detail(self) -> str:
        """Name the first decision that a policy that is a dataset does not have."""
        if not self._unmet:
            return ""
        first = f"observation {self._unmet[0]}"
        if self.calls is not None:
            caller, callee = (self.calls.column(name)[self._unmet[0]].as_py() for name in ("caller", "callee"))
            first = f"the call of {callee} in {caller}"
        return f"{counted(len(self._unmet), 'decision')} not in the policy's dataset, first {first}"

    def keep_copies(self) -> None:
        """Copy the log and the object to where the user wants them."""
        for source, (folder, name) in _copies(self.settings, self.name, has_log=self.has_log).items():
            place = folder / name
            part = _unfinished(folder, self.settings.work) / self.folder.name
            try:
                for one in (part, place):
                    one.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / source, part)
                part.replace(place)
            except OSError as error:  # which may name no file
                raise OSError(error.errno, os_reason(error), str(place)) from error

    def _row(self, reason: RunReason, detail: str) -> TraceRow:
        detail = row_detail(detail)
        known = {**self._known, **self.compiles.ended}
        row = TraceRow(self.name, run_status(reason), reason.value, detail)._replace(**known)
        if row.argv is not None:
            row = row._replace(argv=tuple(map(self.compiles.shown, row.argv)))
        return row if reason is RunReason.OK else row.failed(reason, detail)

    def _trace(self) -> None:
        data = self.compiles.read_bitcode()
        digest = sha256(data).hexdigest()
        self._known |= {"bitcode_bytes": len(data), "bitcode_sha256": digest}
        check_bitcode(data)
        options = self.compiles.options(self.settings.cc1)
        self._known["opt_level"] = facts_of_words(options).opt_level or "0"
        command = self.compiles.command(options)
        baseline = self.compiles.tried(partial(self._baseline, command, digest))
        self._know("baseline_", *baseline)
        decided = self.compiles.tried(partial(self._decide, options))
        self.decisions = len(decided.decisions)
        compiled = self.compiles.measure(self.compiles.read_object())
        self._know("", compiled, decided.usage)
        self._known |= {
            "observations": self.decisions,
            "reward": reward(compiled.text_size, baseline[0].text_size),
            "faithful": compiled.sha256 == baseline[0].sha256,
        }
        self._known["unmet"] = None if self._unmet is None else len(self._unmet)
        self.has_log = decided.has_log
        if self.has_log and self.settings.with_calls:
            self.calls = call_batch(read_calls(self.folder / _REMARKS_NAME, (decided.decisions != 0).tolist()))
        if not self._known["faithful"] and self.settings.policy == "default":
            self._known["unfaithful_because"] = self._why_unfaithful(options).value

    def _baseline(self, command: tuple[str, ...], digest: str) -> tuple[Compiled, Usage]:
        """Compile without a policy, or remember what came of it."""
        settings = self.settings
        plain = PlainCompile(self.compiles, settings.cc1, command, digest, settings.compiler_id, settings.baselines)
        if (remembered := plain.remembered()) is not None:
            return remembered
        self._known["argv"] = plain.argv
        return plain.run()

    def _know(self, prefix: str, compiled: Compiled, usage: Usage) -> None:
        self._known |= {
            f"{prefix}text_size": compiled.text_size,
            f"{prefix}code_size": compiled.code_size,
            f"{prefix}object_sha256": compiled.sha256,
            f"{prefix}wall_s": usage.wall_s,
            f"{prefix}cpu_s": usage.cpu_s,
            f"{prefix}max_rss_bytes": usage.max_rss_bytes,
        }

    def _decide(self, options: tuple[str, ...]) -> _Decided:
        self.compiles.ended = {}  # so far, the plain compile's or that of a try that failed
        if not decides_in(self.settings.learned, language_of_command(options)):
            return self._decide_nothing(options)
        if self.settings.via == TRAINING_LOG:
            return self._decide_by_log(options)
        return self._decide_live(options)

    def _growth_options(self, options: tuple[str, ...]) -> tuple[str, ...]:
        if self.settings.task != INLINING:
            return ()
        return growth_options(options, find_dataset(self.settings.policy) if self.settings.make is None else None)

    def _remark_options(self) -> tuple[str, ...]:
        return (*decision_options(self.settings.major), _REMARKS_NAME) if self.settings.with_calls else ()

    def _decide_nothing(self, options: tuple[str, ...]) -> _Decided:
        """Compile plainly a module of a language in which the policy does not decide."""
        self._known["argv"] = argv = (*self.settings.cc1, *self.compiles.command(options))
        self.compiles.empty()
        return _Decided(_NONE, self.compiles.run(argv).usage, has_log=False)

    def _decide_by_log(self, options: tuple[str, ...]) -> _Decided:
        task = self.settings.the_task
        self.compiles.empty()
        model = self.settings.ir2native_model
        sized = () if model is None else size_model_options(model, self.folder)
        models = (*self._model_options(), *sized)
        extra = for_clang((*task.log_options(_LOG_NAME), *models, *self._growth_options(options)))
        extra = (*extra, *self._remark_options())
        self._known["argv"] = argv = (*self.settings.cc1, *self.compiles.command(options, *extra))
        usage = self.compiles.run(argv).usage
        log = self.folder / _LOG_NAME
        if not log.is_file():
            raise RunFailure(RunReason.NO_LOG, "the compiler wrote no training log")
        try:
            decided = [_NONE]
            with open_log(log) as source:
                reader = BlockReader(source)
                if (other := task_name(reader.header)) not in (None, self.settings.task):
                    raise RunFailure(RunReason.OTHER_HEADER, f"expected a log of {self.settings.task}, found {other}")
                decided += [_decisions(reader.header, block) for block in reader if isinstance(block, Rows)]
        except FormatError as error:
            self._known["log_bytes"] = log.stat().st_size
            raise RunFailure(RunReason.UNREADABLE_LOG, str(error.at(None))) from None
        return _Decided(np.concatenate(decided), usage, has_log=True)

    def _model_options(self) -> tuple[str, ...]:
        """Return the option by which the compiler loads a learned policy; none for LLVM's own heuristic."""
        if self.settings.policy == "default":
            return ()
        try:
            place_model(self.settings.policy, self.folder / _MODEL_NAME)
        except UsageError as error:
            raise RunFailure(RunReason.POLICY_ERROR, str(error)) from None
        return self.settings.the_task.model_options(_MODEL_NAME)

    def _channel_options(self, name: str) -> tuple[str, ...]:
        settings = self.settings
        default = asks_default(settings.learned, settings.the_task, settings.major)
        return settings.the_task.channel_options(name, default=default)

    def _decide_live(self, options: tuple[str, ...]) -> _Decided:
        settings = self.settings
        extra = for_clang((*self._channel_options(_CHANNEL_NAME), *self._growth_options(options)))
        extra = (*extra, *self._remark_options())
        self._known["argv"] = argv = (*settings.cc1, *self.compiles.command(options, *extra))
        self.compiles.empty()
        session = self._session(argv, _CHANNEL_NAME)
        with (self.folder / _LOG_NAME).open("wb", buffering=1 << 18) as log:
            try:
                with session:
                    advised = self._converse(session, log)
            except (ToolError, ProtocolError) as error:
                self.compiles.fail(error)
        done = session.result
        self.compiles.succeed(done, argv)
        header = session.header
        advice = None if header is None else header.advice
        decisions = _NONE if advice is None else np.frombuffer(advised, advice.dtype)[:: advice.element_count]
        return _Decided(decisions, done.usage, has_log=header is not None)

    def _why_unfaithful(self, options: tuple[str, ...]) -> UnfaithfulBecause:
        """Compile twice more, with remarks about what was inlined; what the run left, and its numbers, stay."""
        if self.settings.task != INLINING:
            return UnfaithfulBecause.UNKNOWN
        ended = self.compiles.ended
        try:
            self.compiles.run(self._argv_with_remarks(options, "plain"))
            self._decide_again(options)
            with (
                (self.folder / "plain.yaml").open(encoding="utf-8", errors="replace") as plain,
                (self.folder / "again.yaml").open(encoding="utf-8", errors="replace") as again,
            ):
                return why_unfaithful(iter_calls(plain), iter_calls(again))
        except (RunFailure, ToolError, ProtocolError, OSError):
            return UnfaithfulBecause.UNKNOWN
        finally:
            self.compiles.ended = ended

    def _decide_again(self, options: tuple[str, ...]) -> None:
        settings, limit = self.settings, self._growth_options(options)
        if settings.via == TRAINING_LOG:
            extra = for_clang((*settings.the_task.log_options("again.log"), *limit))
            self.compiles.run(self._argv_with_remarks(options, "again", *extra))
            return
        extra = for_clang((*self._channel_options("again"), *limit))
        session = self._session(self._argv_with_remarks(options, "again", *extra), "again")
        with open(os.devnull, "wb") as log, session:
            self._converse(session, log)

    def _argv_with_remarks(self, options: tuple[str, ...], name: str, *extra: str) -> tuple[str, ...]:
        remarks = (*REMARK_OPTIONS, f"{name}.yaml")
        return (*self.settings.cc1, *self.compiles.command(options, *extra, *remarks, output=f"{name}.o"))

    def _session(self, argv: tuple[str, ...], channel: str) -> InteractiveSession:
        return InteractiveSession(
            argv,
            self.folder / channel,
            **self.compiles.keywords(),
            repair=partial(repair_of, self.settings.the_task, self.settings.major),
        )

    def _policy(self) -> Policy:
        settings = self.settings
        if settings.make is None:
            return make_policy(settings.policy, settings.the_task, seed=settings.seed)
        return checked_policy(settings.make, settings.policy)

    def _converse(self, session: InteractiveSession, log: IO[bytes]) -> bytes:
        timeout = self.settings.limits.timeout
        try:
            return end_after(
                time.monotonic() + timeout + _POLICY_GRACE_S, lambda: self._talk(session, self._policy(), log)
            )
        except UsageError as error:  # the policy fails, or cannot work with this compiler
            self.traceback = traceback_of(error)
            raise RunFailure(RunReason.POLICY_ERROR, str(error)) from None
        except Overtime:
            raise RunFailure(RunReason.TIMEOUT, f"the policy did not decide within {timeout:g} seconds") from None

    def _talk(self, session: InteractiveSession, policy: Policy, log: IO[bytes]) -> bytes:
        advised = converse(session, policy, self.name, log)
        self._unmet = policy.unmet if isinstance(policy, KeyedPolicy) else None
        return advised
