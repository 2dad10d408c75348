"""One module's run: the plain compile, the compile whose decisions are seen, and what became of them.

The plain compile is the baseline: the module's own command on its own bitcode, by the same compiler. The other one is
the same command, and either writes a training log or asks a policy over two FIFOs. Both leave a log of the same form.

Everything is written in a folder of the run's own, and the log and the row are moved out of it when they are whole:
first the log, then the row, so that a row is never without its log.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple, NoReturn, TypeVar

from mlgo_corpus.compilers.choose import TRAINING_LOG
from mlgo_corpus.compilers.command import (
    CORPUS_FOLDER,
    bitcode_path,
    compiler_environment,
    module_command,
    module_confinement,
    module_options,
    on_disk,
    row_name,
)
from mlgo_corpus.compilers.failures import RunFailure, classify, without_quotes
from mlgo_corpus.compilers.process import ToolResult, run_tool
from mlgo_corpus.compilers.session import InteractiveSession
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.logs import LOG_SUFFIX, open_log
from mlgo_corpus.dataset.tracetable import TraceReason, TraceRow, reward, status_of, stderr_tail
from mlgo_corpus.errors import CorpusError, FormatError, ProtocolError, ToolError, Usage, UsageError
from mlgo_corpus.files.atomic import write_atomically
from mlgo_corpus.files.regular import MAX_MODULE_BYTES, MAX_NOTE_BYTES, read_file, read_regular
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.bitcode.headers import is_bitcode
from mlgo_corpus.formats.commands.replay import required_files
from mlgo_corpus.formats.logs.blocks import BlockReader, Rows
from mlgo_corpus.formats.logs.tasks import INLINING, TASKS, Task, for_clang, task_name
from mlgo_corpus.formats.objects.objfile import measure_object
from mlgo_corpus.policies.conversation import converse, repair_of
from mlgo_corpus.policies.overtime import Overtime, end_after
from mlgo_corpus.policies.policy import Policy, checked_policy, make_policy

_GROWTH_LIMIT: Final = "-ml-advisor-size-increase-threshold"
OBJECT_NAME: Final = "module.o"
LOG_NAME: Final = "training.log"
CHANNEL_NAME: Final = "channel"

# A compiler that is too slow is to be told from a policy that is: the session notices the former by itself.
_POLICY_GRACE_S = 0.5
# Of a log, what compressing saves is more than what it costs from here on.
_COMPRESS_FROM = 64 << 10
_LONGEST_DETAIL = 500
# Of a row, what tells how a compile ended and what it took.
_OF_A_COMPILE = ("exit_code", "signal", "stderr_tail", "wall_s", "cpu_s", "max_rss_bytes")

_Done = TypeVar("_Done")


class CopyNames(NamedTuple):
    """The paths of a module's log and object in the folders for copies."""

    log: str
    object: str


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """What all runs of a trace have in common.

    Attributes:
        cc1: the words of the compiler to put before ``-cc1``.
        compiler_id: what tells it from every other compiler.
        major: LLVM's major version.
        task: the task's name.
        via: `TRAINING_LOG` or `INTERACTIVE`.
        policy: how the policy is named; for training logs it is ``default``.
        stop: ends runs when another thread sets it.
        make: makes a policy that has no name by which it could be found; ``policy`` is what it is called, then.
        seed: of a random policy.
        add, delete, replace: edits of each command, see `edit_command`.
        trusted: run commands that could do harm.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one may have.
        retries: how often a run is tried again that crashed, or took too long.
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
    add: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    trusted: bool = False
    timeout: float = 60.0
    memory_limit: int | None = None
    retries: int = 0
    keep_logs: Path | None = None
    keep_objects: Path | None = None
    copy_names: Mapping[str, CopyNames] = field(default_factory=dict)
    stop: threading.Event | None = None
    make: Callable[[], Policy] | None = None

    @property
    def the_task(self) -> Task:
        """The task itself."""
        return next(task for task in TASKS if task.name == self.task)


class TraceItem(NamedTuple):
    """One module to run, and its number among those of this trace."""

    number: int
    module: Module


class TracedModule(NamedTuple):
    """What came of one run; ``log`` is the name of its log in the work folder, None where it has none."""

    row: TraceRow
    log: str | None
    decisions: int


class _Compiled(NamedTuple):
    """What is known of a compile: its object's sizes and digest, and what it took."""

    text_size: int
    code_size: int
    sha256: str
    usage: Usage


class _Decided(NamedTuple):
    """What a compile whose decisions are seen left: how many they are, what it took, and whether there is a log."""

    observations: int
    usage: Usage
    has_log: bool


def trace_module(settings: TraceSettings, item: TraceItem) -> TracedModule:
    """Run the compiler over one module, keep its log and its row in the work folder, and give the row.

    What goes wrong with the module is told in the row.

    Raises:
        OSError: the work folder, or a folder for copies, cannot be written.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"tmp-{item.number:07d}-", dir=settings.work))
    try:
        run = _Run(settings, item.module, folder)
        row = run.row()
        log = None
        size = None
        if row.status == STATUS_OK:
            run.keep_copies()
            if run.log is not None:
                log = _keep_log(run.log, settings.work / f"run-{item.number:07d}.log")
                size = (settings.work / log).stat().st_size
        traced = TracedModule(row, log, run.decisions)
        write_atomically(settings.work / row_name(item.number), json.dumps((*traced, size)).encode())
        return traced
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_traced(settings: TraceSettings, number: int, module: str) -> TracedModule | None:
    """Give what an earlier call with the same settings kept of a run; None if there is none, or not all of it."""
    try:
        row, log, decisions, size = json.loads(read_regular(settings.work / row_name(number), MAX_NOTE_BYTES))
        row = TraceRow(*row)
        traced = TracedModule(row._replace(argv=None if row.argv is None else tuple(row.argv)), log, decisions)
        whole = row.module == module and (log is None or (settings.work / log).stat().st_size == size)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    if whole and row.status == STATUS_OK:
        whole = all(place.is_file() for place in _copies(settings, module, has_log=log is not None).values())
    return traced if whole else None


def has_copies(settings: TraceSettings, row: TraceRow) -> bool:
    """Tell whether what is wanted of a run's files is where copies are kept."""
    return all(place.is_file() for place in _copies(settings, row.module, has_log=row.header is not None).values())


def _copies(settings: TraceSettings, module: str, *, has_log: bool) -> dict[str, Path]:
    """Say of which of a run's files copies are wanted, and where. A module's name has been checked: it stays inside."""
    names = settings.copy_names.get(module) or CopyNames(f"{module}{LOG_SUFFIX}", module)
    places = {}
    if settings.keep_logs is not None and has_log:
        places[LOG_NAME] = settings.keep_logs / names.log
    if settings.keep_objects is not None:
        places[OBJECT_NAME] = settings.keep_objects / names.object
    return places


def clashing_copies(modules: Iterable[str]) -> dict[str, CopyNames]:
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
            names[paths[path]] = CopyNames(log, obj)
    return names


def _free(name: str, suffix: str, taken: Container[str]) -> str:
    while name in taken:
        name += suffix
    return name


def _keep_log(log: Path, place: Path) -> str:
    """Move a log to its place, compressed if it is large; give its name there."""
    if log.stat().st_size < _COMPRESS_FROM:
        log.replace(place)
        return place.name
    import pyarrow as pa

    packed = log.with_name(f"{log.name}.zst")
    with log.open("rb") as source, pa.CompressedOutputStream(str(packed), "zstd") as target:
        shutil.copyfileobj(source, target, 1 << 20)
    place = place.with_name(f"{place.name}.zst")
    packed.replace(place)
    return place.name


class _Run:
    """One module's run, in a folder of its own."""

    def __init__(self, settings: TraceSettings, module: Module, folder: Path) -> None:
        self.settings = settings
        self.module = module
        self.folder = folder
        self.log: Path | None = None
        self.decisions = 0
        self._known: dict[str, Any] = {}
        self._env = compiler_environment(folder)
        self._shown: Callable[[str], str] = str

    def row(self) -> TraceRow:
        """Run, and tell of it."""
        try:
            self.module, self._shown = on_disk(self.module, self.folder)
            self._trace()
            return self._row(TraceReason.OK, "")
        except RunFailure as failure:
            return self._row(TraceReason(failure.reason.value), failure.detail)
        except OSError as error:
            reason, detail = classify(error)
            if reason is TraceReason.DISK_FULL:  # for the other modules, too
                raise
            return self._row(reason, detail)

    def keep_copies(self) -> None:
        """Copy the log and the object to where the user wants them."""
        for source, place in _copies(self.settings, self.module.name, has_log=self.log is not None).items():
            part = place.with_name(f".{place.name[:60]}.{os.getpid()}.tmp")
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.folder / source, part)
                part.replace(place)
            except OSError as error:  # which may name no file
                raise OSError(error.errno, os_reason(error), str(place)) from error
            finally:
                with suppress(OSError):
                    part.unlink()

    def _row(self, reason: TraceReason, detail: str) -> TraceRow:
        # What a compiler says may be meant for a terminal, and a path in it may have a megabyte.
        detail = stderr_tail(" ".join(detail.split())[:_LONGEST_DETAIL].encode("utf-8", "surrogateescape"))
        row = TraceRow(self.module.name, status_of(reason), reason.value, detail)._replace(**self._known)
        if row.argv is not None:
            row = row._replace(argv=tuple(map(self._shown, row.argv)))
        return row if reason is TraceReason.OK else row.failed(reason, detail)

    def _trace(self) -> None:
        digest = self._read_bitcode()
        options = self._options()
        self._confinement = module_confinement(
            self.module, options, self.settings, self.folder, (self.settings.cc1[0],)
        )
        command = self._command(options)
        baseline = self._tried(partial(self._baseline, command, digest))
        self._know("baseline_", baseline)
        decided = self._tried(partial(self._decide, options))
        self.decisions = decided.observations
        compiled = self._measure(decided.usage)
        self._know("", compiled)
        self._known |= {
            "observations": decided.observations,
            "reward": reward(compiled.text_size, baseline.text_size),
            "faithful": compiled.sha256 == baseline.sha256,
        }
        self.log = self.folder / LOG_NAME if decided.has_log else None

    def _tried(self, compile_it: Callable[[], _Done]) -> _Done:
        """Compile, and again if that may help, as often as the settings allow."""
        for _ in range(self.settings.retries):
            try:
                return compile_it()
            except RunFailure as failure:
                if not failure.may_pass:
                    raise
        return compile_it()

    def _read_bitcode(self) -> str:
        try:
            data = self.module.bitcode()
        except CorpusError as error:
            raise RunFailure(TraceReason.MISSING_FILE, error.message) from None
        digest = sha256(data).hexdigest()
        self._known |= {"bitcode_bytes": len(data), "bitcode_sha256": digest}
        if not is_bitcode(data):
            raise RunFailure(TraceReason.UNREADABLE_BITCODE, f"expected bitcode, found {len(data)} bytes of other data")
        return digest

    def _options(self) -> tuple[str, ...]:
        return module_options(self.module, self.settings, self.folder)

    def _command(self, options: tuple[str, ...], *extra: str) -> tuple[str, ...]:
        return module_command(
            self.module,
            options,
            bitcode=bitcode_path(self.module),
            output=OBJECT_NAME,
            extra=extra,
            trusted=self.settings.trusted,
        )

    def _baseline(self, command: tuple[str, ...], digest: str) -> _Compiled:
        """Compile without a policy, or remember what came of it."""
        index = self.module.thinlto_index_path
        identity = [
            self.settings.compiler_id,
            self._command_without_paths(command),
            digest,
            None if index is None else sha256(read_regular(index, MAX_MODULE_BYTES)).hexdigest(),
            [_stamp(self.folder / path) for _, path in required_files(command)],
        ]
        key = sha256(json.dumps(identity).encode()).hexdigest()
        place = self.settings.baselines / key[:2] / f"{key[2:]}.json"
        try:
            text_size, code_size, object_sha256, (wall_s, cpu_s, peak) = json.loads(read_regular(place, MAX_NOTE_BYTES))
            usage = Usage(float(wall_s), float(cpu_s), None if peak is None else int(peak))
            return _Compiled(int(text_size), int(code_size), str(object_sha256), usage)
        except (OSError, ValueError, TypeError, RecursionError):
            pass
        self._known["argv"] = argv = (*self.settings.cc1, *command)
        try:
            usage = self._run(argv).usage
            compiled = self._measure(usage)
        except RunFailure as failure:
            detail = f"the plain compile: {failure.detail}"
            raise RunFailure(failure.reason, detail, may_pass=failure.may_pass) from None
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            kept = (*compiled[:3], (usage.wall_s, usage.cpu_s, usage.max_rss_bytes))
            write_atomically(place, json.dumps(kept).encode())
        except OSError:
            pass  # the next trace compiles it again
        return compiled

    def _command_without_paths(self, command: tuple[str, ...]) -> list[str]:
        own = {bitcode_path(self.module): "BITCODE"}
        if (index := self.module.thinlto_index_path) is not None:
            own[f"-fthinlto-index={index.absolute()}"] = "INDEX"
        return [own.get(word, word) for word in command]

    def _empty_folder(self) -> None:
        """Remove what an earlier compile left: nothing of it may be taken for this one's."""
        for entry in os.scandir(self.folder):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != CORPUS_FOLDER:
                    shutil.rmtree(entry, ignore_errors=True)
            else:
                os.unlink(entry)

    def _run(self, argv: tuple[str, ...]) -> ToolResult:
        self._empty_folder()
        try:
            done = run_tool(
                argv,
                cwd=self.folder,
                env=self._env,
                timeout=self.settings.timeout,
                stop=self.settings.stop,
                **self._confinement.keywords(),
            )
        except ToolError as error:
            self._fail(error)
        self._ended(0, self._kept(argv, done.stderr), done.usage)
        return done

    def _kept(self, argv: Sequence[str], stderr: str) -> str:
        return without_quotes(stderr, argv[len(self.settings.cc1) :], trusted=self.settings.trusted)

    def _ended(self, code: int | None, stderr: str, usage: Usage | None) -> None:
        """Put into the row how a compile ended, and what it took and said; without a usage it could not be started."""
        for name in _OF_A_COMPILE:  # so far, the plain compile's or those of a try that failed
            self._known.pop(name, None)
        if usage is None:
            return
        self._known |= {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "stderr_tail": stderr_tail(self._shown(stderr).encode()),
            "wall_s": usage.wall_s,
            "cpu_s": usage.cpu_s,
            "max_rss_bytes": usage.max_rss_bytes,
        }

    def _fail(self, error: ToolError | ProtocolError) -> NoReturn:
        """Make a compile that failed into the row's reason."""
        limited = self._confinement.memory_limit is not None
        kept = self._kept(error.argv, error.stderr)
        self._ended(getattr(error, "returncode", None), kept, error.usage)
        reason, detail = classify(error, limited=limited, timeout=self.settings.timeout, kept=kept)
        # The folder is called otherwise each time.
        raise RunFailure(reason, self._shown(detail).replace(f"{self.folder}{os.sep}", "")) from None

    def _measure(self, usage: Usage) -> _Compiled:
        try:
            data = read_file(str(self.folder / OBJECT_NAME))
            sizes = measure_object(data)
        except OSError as error:
            raise RunFailure(TraceReason.NO_OBJECT, f"the compiler left no object: {os_reason(error)}") from None
        except FormatError as error:
            raise RunFailure(TraceReason.NO_OBJECT, f"the compiler left no object: {error}") from None
        return _Compiled(sizes.text_size, sizes.code_size, sha256(data).hexdigest(), usage)

    def _know(self, prefix: str, compiled: _Compiled) -> None:
        usage = compiled.usage
        self._known |= {
            f"{prefix}text_size": compiled.text_size,
            f"{prefix}code_size": compiled.code_size,
            f"{prefix}object_sha256": compiled.sha256,
            f"{prefix}wall_s": usage.wall_s,
            f"{prefix}cpu_s": usage.cpu_s,
            f"{prefix}max_rss_bytes": usage.max_rss_bytes,
        }

    def _decide(self, options: tuple[str, ...]) -> _Decided:
        self._ended(None, "", None)
        if self.settings.via == TRAINING_LOG:
            return self._decide_by_log(options)
        return self._decide_live(options)

    def _without_a_limit(self, options: tuple[str, ...]) -> tuple[str, ...]:
        """Let the default policy decide everything, as the heuristic does.

        MLInlineAdvisor asks no more, and inlines nothing, once a module is twice as large as it was.
        """
        is_default = self.settings.task == INLINING and self.settings.policy == "default"
        if not is_default or any(_GROWTH_LIMIT in option for option in options):
            return ()
        return (f"{_GROWTH_LIMIT}=1e9",)

    def _decide_by_log(self, options: tuple[str, ...]) -> _Decided:
        extra = for_clang((*self.settings.the_task.log_options(LOG_NAME), *self._without_a_limit(options)))
        self._known["argv"] = argv = (*self.settings.cc1, *self._command(options, *extra))
        done = self._run(argv)
        log = self.folder / LOG_NAME
        if not log.is_file():
            raise RunFailure(TraceReason.NO_LOG, "the compiler wrote no training log")
        try:
            rows = 0
            with open_log(log) as source:
                reader = BlockReader(source)
                if (other := task_name(reader.header)) not in (None, self.settings.task):
                    raise RunFailure(TraceReason.OTHER_HEADER, f"expected a log of {self.settings.task}, found {other}")
                for block in reader:
                    rows += len(block.tensors) if isinstance(block, Rows) else 0
        except FormatError as error:
            self._known["log_bytes"] = log.stat().st_size
            raise RunFailure(TraceReason.UNREADABLE_LOG, str(error.at(None))) from None
        return _Decided(rows, done.usage, has_log=True)

    def _decide_live(self, options: tuple[str, ...]) -> _Decided:
        settings = self.settings
        extra = for_clang((*settings.the_task.channel_options(CHANNEL_NAME), *self._without_a_limit(options)))
        self._known["argv"] = argv = (*settings.cc1, *self._command(options, *extra))
        self._empty_folder()
        session = InteractiveSession(
            argv,
            self.folder / CHANNEL_NAME,
            timeout=settings.timeout,
            stop=settings.stop,
            cwd=self.folder,
            env=self._env,
            **self._confinement.keywords(),
            repair=partial(repair_of, settings.the_task, settings.major),
        )
        with (self.folder / LOG_NAME).open("wb", buffering=1 << 18) as log:
            try:
                with session:
                    count = self._converse(session, log)
            except (ToolError, ProtocolError) as error:
                self._fail(error)
        done = session.result
        self._ended(0, self._kept(argv, done.stderr), done.usage)
        return _Decided(count, done.usage, has_log=session.header is not None)

    def _policy(self) -> Policy:
        settings = self.settings
        if settings.make is None:
            return make_policy(settings.policy, settings.the_task, seed=settings.seed)
        return checked_policy(settings.make, settings.policy)

    def _converse(self, session: InteractiveSession, log: IO[bytes]) -> int:
        timeout = self.settings.timeout
        try:
            return end_after(
                time.monotonic() + timeout + _POLICY_GRACE_S,
                lambda: converse(session, self._policy(), self.module.name, log),
            )
        except UsageError as error:  # the policy fails, or cannot work with this compiler
            raise RunFailure(TraceReason.POLICY_ERROR, str(error)) from None
        except Overtime:
            raise RunFailure(TraceReason.TIMEOUT, f"the policy did not decide within {timeout:g} seconds") from None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
