"""A tracer: a corpus, a compiler and a policy, set up once, and then one module after the other.

What `mlgo_corpus.trace_corpus` does for a whole corpus and a dataset, this does for a trainer that asks for modules as
it goes, and changes its policy between them. It is made to be a shared worker (`mlgo_corpus.SharedWorkers`), works as
well without, and may be used from several threads at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlgo_corpus.compilers.choose import AUTO, choose_compiler, ways_of
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.compilers.walls import close_launchers
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.groups import ModuleLabels
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import newest_producer
from mlgo_corpus.dataset.calls import with_calls
from mlgo_corpus.dataset.loaded import read_log
from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.dataset.tracetable import TraceRow
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.engine.threads import LinkedEvent, result_of
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.tables import read_batch
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.conversation import says_more
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.overtime import Overtime, end_after
from mlgo_corpus.policies.policy import Policy, decides, named_object, policy_folder, try_policy
from mlgo_corpus.runs.functions.copies import copies_for
from mlgo_corpus.runs.trace.baseline import BASELINES_FOLDER
from mlgo_corpus.runs.trace.module import TraceItem, TraceJob, TraceSettings, calls_of

if TYPE_CHECKING:
    import pyarrow as pa

# How many modules for each thread may be done before the first of them is asked for.
_AHEAD = 100


@dataclass(frozen=True, slots=True)
class Traced:
    """The outcome for a module.

    Attributes:
        row: as in ``modules.parquet`` of a dataset; also of a module that failed.
        log: the training log, if it was asked for and there is one.
        traceback: of the policy, if it raised an exception; else empty.
        calls: the calls that the decisions of inlining are about, if the log was asked for: the columns of
            `mlgo_corpus.dataset.calls`, which ``observations`` has too.
    """

    row: TraceRow
    log: bytes | None = None
    traceback: str = ""
    calls: pa.RecordBatch | None = None

    @property
    def observations(self) -> pa.RecordBatch | None:
        """The decisions, a row for each, with the columns of a dataset's observations; None if there is no log.

        Raises:
            UsageError: there are some, and the log was not asked for.
        """
        if self.log is not None:
            batch = read_log(self.log, module=self.row.module).to_batch()
            return batch if self.calls is None else with_calls(batch, self.calls)
        if self.row.observations:
            raise UsageError("the observations are in the log, which was not asked for: trace with log=True")
        return None


class Tracer:
    """Runs a compiler over modules of a corpus.

    Args:
        corpus: its folder; a packed one may be behind a URL.
        compiler: a clang; by default the best one found on this machine.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``.
        policy: who decides: a name (see `mlgo_corpus.policies.policy.make_policy`), a function of an observation, an
            object with a method ``advise``, or a class or function that makes one without arguments. Runs of several
            threads call a function at the same time, and make a policy each; they ask an object in turns. It is the
            object itself that is asked, so it may collect what it sees; in another process, as with
            `mlgo_corpus.SharedWorkers`, it is a copy.
        seed: of random policies.
        timeout: seconds that one compile may take, the policy's own included. A policy that computes for longer is
            ended; in a thread that is not the main one, a call that never returns is not.
        memory_limit: bytes of address space that one compile may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        work: the folder for runs under way, by default one in the system's folder for temporary files.
        cache: where plain compiles are remembered; the user's cache by default.

    Raises:
        UsageError: there is no such compiler, task or policy.
        CorpusError: there is no corpus.
    """

    def __init__(
        self,
        corpus: Path | str,
        compiler: str | None = None,
        *,
        task: str = INLINING,
        policy: Any = "default",
        seed: int = 0,
        timeout: float = 60.0,
        memory_limit: int | None = None,
        trust_corpus: bool = False,
        work: Path | str | None = None,
        cache: Path | str | None = None,
    ) -> None:
        the_task = find_task(task)
        limits = Limits(timeout, memory_limit)
        limits.check()
        self.corpus = open_corpus(corpus)
        self._labels = ModuleLabels.of(self.corpus)
        cache = cache_folder(cache)
        name, make, self._one = _named(policy)
        if make is None and name != "default":
            try_policy(name, the_task, seed=seed, timeout=timeout)
        wanted = _learned(policy) or (name if make is None else None)
        toolchain, way = choose_compiler(
            compiler,
            the_task,
            name,
            AUTO,
            producer=newest_producer(self.corpus, tuple(module.name for module in self.corpus)),
            cache=cache,
            says_more=wanted is not None and says_more(wanted),
            copies=copies_for(() if wanted is None else (wanted,), self.corpus, jobs=available_cpus()),
        )
        identity = toolchain.identity
        self._toolchain = toolchain
        self._numbers = count()
        self._stop = threading.Event()
        self._turns = threading.Condition()
        self._asked: set[int] = set()
        self._tried = {name}
        self._is_closed = False
        self._scratch = scratch_folder(None if work is None else Path(work))
        self._work = self._scratch.__enter__()
        self._settings = TraceSettings(
            cc1=toolchain.cc1,
            compiler_id=identity,
            major=toolchain.major or 0,
            task=task,
            via=way,
            policy=name,
            make=make,
            made=_learned(policy),
            stop=self._stop,
            seed=seed,
            work=self._work,
            baselines=(cache / BASELINES_FOLDER).absolute(),
            edits=CommandEdits(trusted=trust_corpus),
            limits=limits,
        )

    def names(self) -> tuple[str, ...]:
        """List the corpus's modules."""
        return tuple(module.name for module in self.corpus)

    def trace(self, module: Module | str, *, policy: Any = None, log: bool = False) -> Traced:
        """Compile a module plainly (unless that is known) and with the policy, and tell what came of it.

        Args:
            module: it, or its name in the corpus.
            policy: another one than the tracer's, for this run alone.
            log: whether the training log is wanted, too.

        Raises:
            CorpusError: there is no such module. What else goes wrong with it is told in the row.
            UsageError: there is no such policy, or the tracer is closed.
        """
        self._check_open()
        return self._trace(module, *self._with(policy), log=log)

    def map(
        self,
        names: Iterable[Module | str] | Module | str,
        policy: Any = None,
        *,
        jobs: int | None = None,
        log: bool = False,
    ) -> Iterator[Traced]:
        """Trace several modules at a time, in threads; yield their outcomes in the order of the names.

        What ends early, by ``break`` or by an exception, ends its compilers.

        Args:
            names: modules of the corpus, or their names; a single one will do.
            policy: another one than the tracer's; a policy object is asked by one run after the other.
            jobs: compilers at a time; by default the CPUs this process may use.
            log: whether the training logs are wanted, too.

        Raises:
            CorpusError: there is no such module.
            UsageError: there is no such policy, or the tracer is closed.
        """
        self._check_open()
        check_count("jobs", jobs)
        settings, one = self._with(policy)
        stop = LinkedEvent(self._stop)
        settings = replace(settings, stop=stop)

        def outcomes() -> Iterator[Traced]:
            threads = jobs or available_cpus()
            pool = ThreadPoolExecutor(threads, "tracer")
            begun: deque[Future[Traced]] = deque()
            try:
                for name in [names] if isinstance(names, Module | str) else names:
                    begun.append(pool.submit(self._trace, name, settings, one, log=log))
                    if len(begun) > _AHEAD * threads:
                        yield result_of(begun.popleft())
                        self._check_open()
                while begun:
                    yield result_of(begun.popleft())
                    self._check_open()
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)

        return outcomes()

    def _check_open(self) -> None:
        """Raise if the tracer is closed.

        Raises:
            UsageError: it is.
        """
        if self._is_closed:
            raise UsageError("the tracer is closed")

    def _with(self, policy: Any) -> tuple[TraceSettings, object]:
        """Return the settings for a policy, by default the tracer's own, and the policy if it is one object."""
        if policy is None:
            return self._settings, self._one
        name, make, one = _named(policy)
        if make is None and name != "default" and name not in self._tried:
            try_policy(name, self._settings.the_task, seed=self._settings.seed, timeout=self._settings.limits.timeout)
            self._tried.add(name)
        ways = ways_of(self._toolchain, self._settings.the_task, name)
        if not ways:
            raise UsageError("the tracer's compiler cannot show its decisions", option="policy", value=name)
        return replace(self._settings, policy=name, make=make, made=_learned(policy), via=ways[0]), one

    def _trace(self, module: Module | str, settings: TraceSettings, one: object, *, log: bool) -> Traced:
        try:
            found = self.corpus[module]
        except KeyError as error:
            raise CorpusError("there is no such module in the corpus", error.args[0]) from None
        number = next(self._numbers)
        with self._turn_of(_named_one(settings) if one is None else one):
            traced = TraceJob(replace(settings, names=log)).run(TraceItem(number, found))
        row = traced.row._replace(project=self._labels.project(found.name), split=self._labels.side(found.name))
        if traced.log is None:
            return Traced(row, traceback=traced.traceback)
        path = self._work / traced.log
        calls = calls_of(self._work, traced.log)
        try:
            return Traced(row, _read(path) if log else None, calls=read_batch(calls) if calls.exists() else None)
        finally:
            path.unlink(missing_ok=True)
            calls.unlink(missing_ok=True)

    def _turn_of(self, one: object) -> AbstractContextManager[None]:
        """Wait until no other run asks a policy object; without one there is nothing to wait for."""
        return nullcontext() if one is None else self._alone(id(one))

    @contextmanager
    def _alone(self, identity: int) -> Iterator[None]:
        with self._turns:
            self._turns.wait_for(lambda: identity not in self._asked)
            self._asked.add(identity)
        try:
            yield
        finally:
            with self._turns:
                self._asked.remove(identity)
                self._turns.notify_all()

    def stop(self) -> None:
        """End the runs of other threads; modules that are traced afterwards fail, too."""
        self._stop.set()

    def close(self) -> None:
        """Remove the folder for runs under way, and end what starts compilers."""
        self._is_closed = True
        close_launchers()
        self._scratch.__exit__(None, None, None)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def settings_of(tracer: Tracer) -> TraceSettings:
    """Return the settings of a tracer's runs."""
    return tracer._settings


def _read(path: Path) -> bytes:
    buffer, data = bytearray(1 << 20), bytearray()
    with open_log(path) as source:
        while size := source.readinto(memoryview(buffer)):
            data += buffer[:size]
    return bytes(data)


def _named_one(settings: TraceSettings) -> object:
    """Return the policy object that the settings name, if they name one, which each run of this process asks."""
    if settings.make is not None or ":" not in settings.policy:
        return None
    with suppress(Overtime):  # then the run, too, takes too long
        return end_after(time.monotonic() + settings.limits.timeout, lambda: named_object(settings.policy))
    return None


def _learned(policy: Any) -> LearnedPolicy | None:
    """Return a policy that is a learned one's object."""
    return policy if isinstance(policy, LearnedPolicy) else None


def _named(policy: Any) -> tuple[str, Callable[[], Any] | None, object]:
    """Return a policy's name; what makes it where it cannot be found by that name; and itself if it is one object."""
    if isinstance(policy, str | Path):  # its folder is read again for each run, wherever this process is by then
        return str(policy_folder(str(policy)) or policy), None, None
    title = getattr(policy, "__qualname__", type(policy).__qualname__)
    if decides(policy):
        return title, lambda: policy, policy if isinstance(policy, Policy) else None
    if not callable(policy):
        message = f"expected a name, a function, or an object with a method advise; found a {title}"
        raise UsageError(message, option="policy")
    return title, policy, None
