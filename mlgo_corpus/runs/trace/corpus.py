"""A trace of a corpus, from a request to a report: what the stages do that have a compiler decide."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import AUTO, TRAINING_LOG, WAYS, choose_compiler
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.compiled import cached_library
from mlgo_corpus.policies.conversation import says_more
from mlgo_corpus.policies.embedded import vector_model
from mlgo_corpus.policies.learned import find_policy
from mlgo_corpus.policies.policy import policy_digest, policy_folder, policy_name, try_policy
from mlgo_corpus.runs.functions.copies import copies_for
from mlgo_corpus.runs.trace.baseline import BASELINES_FOLDER
from mlgo_corpus.runs.trace.module import TraceSettings, clashing_copies, remove_unfinished
from mlgo_corpus.runs.trace.places import make_places
from mlgo_corpus.runs.trace.run import Trace, TraceReport


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """What to trace, and how; parameters are those of `mlgo_corpus.trace_corpus`."""

    task: str = INLINING
    via: str = "auto"
    policy: str = "default"
    compiler: str | None = None
    seed: int = 0
    names: bool = True
    choice: ModuleChoice = field(default_factory=ModuleChoice)
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=Limits)
    keep_logs: Path | None = None
    keep_objects: Path | None = None
    ir2native_model: str | None = None

    def check(self) -> TraceRequest:
        """Check the request; return it with the whole path of a policy's folder: workers may run in other folders.

        Raises:
            UsageError: it cannot be carried out.
        """
        task = find_task(self.task)
        if self.via not in WAYS:
            raise UsageError(f"expected one of {', '.join(WAYS)}", option="via", value=self.via)
        self.limits.check()
        policy = self.policy if (home := policy_folder(self.policy)) is None else str(home)
        if policy != "default":  # which is every task's own, where a training log shows it
            try_policy(policy, task, seed=self.seed, timeout=self.limits.timeout)
        self.edits.check()
        if self.ir2native_model is None:
            return replace(self, policy=policy)
        if self.task != INLINING:
            raise UsageError(f"a model of native size is for {INLINING}", option="ir2native_model")
        if self.via not in (AUTO, TRAINING_LOG):
            raise UsageError("a model of native size needs a training log", option="via", value=self.via)
        model = vector_model(self.ir2native_model)
        with suppress(OSError):  # a cache that cannot be written, which each module's run will say
            cached_library(model)
        return replace(
            self, policy=policy, via=TRAINING_LOG, ir2native_model=str(Path(self.ir2native_model).absolute())
        )


def run_trace(
    corpus: Path | str,
    output: Path,
    request: TraceRequest,
    *,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> TraceReport:
    """Trace a corpus, as `mlgo_corpus.trace_corpus` does.

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be traced, or the dataset cannot be written.
    """
    started = time.perf_counter()
    cache = cache_folder(cache)
    check_count("jobs", jobs)
    request = request.check()
    edits, policy = request.edits, request.policy
    opened = open_corpus(engine.place(corpus))
    chosen = request.choice.select(opened)
    toolchain, way = choose_compiler(
        request.compiler,
        find_task(request.task),
        policy,
        request.via,
        learned=find_policy(policy) is not None,
        producer=newest_producer(opened, chosen),
        cache=cache,
        jobs=jobs or available_cpus(),
        says_more=says_more(policy),
        copies=copies_for((policy,), opened, jobs=jobs or available_cpus()),
    )
    identity = toolchain.identity
    key: dict[str, Any] = {
        "version": __version__,
        "task": request.task,
        "via": way,
        "policy": policy_name(policy),
        "policy_code": policy_digest(policy),
        "seed": request.seed if policy.partition(":")[0] == "random" else None,
        "compiler": {"version": toolchain.version, "sha256": identity},
        "names": request.names,
        "ir2native_model": _scored_by(request),
        **edits.key(),
        **choice_key(opened, chosen),
    }
    if DatasetPaths.of(output).single:
        raise UsageError(f"{output}: a trace is a folder: name one without .parquet")
    if not force:
        refuse_difference(DatasetPaths.of(output), key)
    folder = DatasetFolder(output, key, force=force)
    logs, objects = request.keep_logs, request.keep_objects
    make_places({"keep_logs": logs, "keep_objects": objects}, output, opened, make=not folder.is_whole)
    settings = TraceSettings(
        cc1=toolchain.cc1,
        compiler_id=identity,
        major=toolchain.major or 0,
        task=request.task,
        via=way,
        policy=policy,
        seed=request.seed,
        work=folder.paths.work.absolute(),
        baselines=(cache / BASELINES_FOLDER).absolute(),
        edits=edits,
        limits=request.limits,
        names=request.names,
        ir2native_model=request.ir2native_model,
        keep_logs=None if logs is None else logs.absolute(),
        keep_objects=None if objects is None else objects.absolute(),
        copy_names=clashing_copies(opened.names) if logs or objects else {},
    )
    trace = Trace(folder, settings, toolchain, opened, chosen, jobs, engine, progress)
    try:
        if folder.is_whole:
            trace.read(iter_trace_rows(folder.paths.modules))
        else:
            trace.run()
    finally:
        remove_unfinished(settings)
        folder.close()
    hints = tuple(edits.without_effect(opened.modules(chosen), toolchain.cc1))
    return trace.report(hints, time.perf_counter() - started)


def _scored_by(request: TraceRequest) -> str | None:
    """Return the digest of the model that scores decisions; None without one."""
    return None if request.ir2native_model is None else vector_model(request.ir2native_model).digest
