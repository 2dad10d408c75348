"""A tracer: a corpus, a compiler and a policy, set up once, and then one module after the other.

What `mlgo_corpus.trace_corpus` does for a whole corpus and a dataset, this does for a trainer that asks for modules as
it goes, and changes its policy between them. It is made to be a shared worker (`mlgo_corpus.SharedWorkers`), works as
well without, and may be used from several threads at once.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from mlgo_corpus.compilers.choose import AUTO, choose_compiler, compiler_identity
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.find import built_toolchains, cache_folder
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.compilers.walls import close_launchers
from mlgo_corpus.corpus.groups import ModuleLabels
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import newest_producer
from mlgo_corpus.dataset.logs import open_log
from mlgo_corpus.dataset.tracetable import TraceRow
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.policy import Policy, try_policy
from mlgo_corpus.runs.trace.module import BASELINES_FOLDER, TraceItem, TraceJob, TraceSettings


@dataclass(frozen=True, slots=True)
class Traced:
    """The outcome for a module: a row as in ``modules.parquet`` of a dataset, and the training log if it was wanted."""

    row: TraceRow
    log: bytes | None = None


class Tracer:
    """Runs a compiler over modules of a corpus.

    Args:
        corpus: its folder; a packed one may be behind a URL.
        compiler: a clang; by default the best one found on this machine.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``.
        policy: who decides: by name (see `mlgo_corpus.policies.policy.make_policy`); or a policy itself, or what makes
            one when it is called without arguments. Each run has its own.
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
        cache = cache_folder() if cache is None else Path(cache)
        name, make = _named(policy)
        if make is None and name != "default":
            try_policy(name, the_task, seed=seed, timeout=timeout)
        toolchain, way = choose_compiler(
            compiler,
            the_task,
            name,
            AUTO,
            producer=newest_producer(self.corpus, tuple(module.name for module in self.corpus)),
            built=built_toolchains(cache),
            cache=cache,
        )
        identity = compiler_identity(toolchain)
        self._numbers = count()
        self._stop = threading.Event()
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

    def trace(self, module: str, *, policy: Any = None, log: bool = False) -> Traced:
        """Compile a module plainly (unless that is known) and with the policy, and tell what came of it.

        Args:
            module: its name in the corpus.
            policy: another one than the tracer's, for this run alone. A tracer by training logs has no other.
            log: whether the training log is wanted, too.

        Raises:
            CorpusError: there is no such module. What else goes wrong with it is told in the row.
            UsageError: there is no such policy.
        """
        settings = self._settings
        if policy is not None:
            name, make = _named(policy)
            settings = replace(settings, policy=name, make=make)
            if settings.via != self._settings.via or (settings.via == "training-log" and name != "default"):
                raise UsageError(
                    "this tracer reads training logs, which are of the default policy", option="policy", value=name
                )
        try:
            found = self.corpus[module]
        except KeyError:
            raise CorpusError("there is no such module in the corpus", module) from None
        number = next(self._numbers)
        traced = TraceJob(settings).run(TraceItem(number, found))
        row = traced.row._replace(project=self._labels.project(module), split=self._labels.side(module))
        if traced.log is None:
            return Traced(row)
        path = self._work / traced.log
        try:
            if not log:
                return Traced(row)
            return Traced(row, _read(path))
        finally:
            path.unlink(missing_ok=True)

    def stop(self) -> None:
        """End the runs of other threads; modules that are traced afterwards fail, too."""
        self._stop.set()

    def close(self) -> None:
        """Remove the folder for runs under way, and end what starts compilers."""
        close_launchers()
        self._scratch.__exit__(None, None, None)

    def __enter__(self) -> Tracer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _read(path: Path) -> bytes:
    buffer, data = bytearray(1 << 20), bytearray()
    with open_log(path) as source:
        while size := source.readinto(memoryview(buffer)):
            data += buffer[:size]
    return bytes(data)


def _named(policy: Any) -> tuple[str, Callable[[], Policy] | None]:
    """Return a policy's name, and what makes it where it cannot be found by that name."""
    if isinstance(policy, str):
        return policy, None
    title = getattr(policy, "__qualname__", type(policy).__qualname__)
    if isinstance(policy, Policy) and not isinstance(policy, type):
        return title, partial(copy.deepcopy, policy)
    if not callable(policy):
        raise UsageError(f"a {title} is neither a name, nor has it methods reset and advise", option="policy")
    return title, policy
