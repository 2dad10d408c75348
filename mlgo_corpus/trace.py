"""Run a compiler over a corpus, and make a dataset of its decisions and of the native sizes they led to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import WAYS, choose_compiler, compiler_identity
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.find import built_toolchains, cache_folder
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.keyed import may_grow
from mlgo_corpus.policies.learned import find_policy
from mlgo_corpus.policies.policy import policy_digest, policy_folder, try_policy
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.trace.module import BASELINES_FOLDER, TraceSettings, clashing_copies
from mlgo_corpus.runs.trace.places import make_places
from mlgo_corpus.runs.trace.run import Trace, TraceReport


@to_urls
def trace_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    task: str = INLINING,
    via: str = "auto",
    policy: str = "default",
    compiler: str | None = None,
    seed: int = 0,
    add_flags: Sequence[str] = (),
    delete_flags: Sequence[str] = (),
    replace_flags: Sequence[str] = (),
    trust_corpus: bool = False,
    timeout: float = 60.0,
    memory_limit: int | None = None,
    retries: int = 0,
    names: bool = True,
    sample: str | None = None,
    module_filter: str | None = None,
    modules_file: Path | None = None,
    keep_logs: Path | None = None,
    keep_objects: Path | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | None = None,
    engine: EngineChoice = HERE,
    choice: ModuleChoice | None = None,
    edits: CommandEdits | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> TraceReport:
    """Run a compiler over the modules of a corpus and make a dataset of what it decides.

    Called again after an interruption, it goes on: modules that are done are not run again.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: the dataset's folder, or an ``s3://`` or ``gs://`` URL: then it is made in the cache, and uploaded.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``.
        via: ``training-log``, ``interactive``, or ``auto``: what the compiler can do.
        policy: who decides: see `mlgo_corpus.policies.policy.make_policy`.
        compiler: a clang; by default the best one found on this machine.
        seed: of random policies and of the sample.
        add_flags: options to add to each command; see `mlgo_corpus.formats.commands.edit` for how they are named.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        retries: how often a compile is tried again that crashed or took too long.
        names: record which call each decision of inlining was about: `mlgo_corpus.dataset.calls`.
        sample: trace only so many modules, or this fraction of them, of all sizes.
        module_filter: trace only modules in whose names this regular expression is found.
        modules_file: trace only the modules whose names are in this file.
        keep_logs: a folder for copies of the training logs, ``MODULE.log``.
        keep_objects: a folder for copies of the objects, ``MODULE``; where another module is below that name, as
            ``a/b`` is below ``a``, ``MODULE.o``.
        jobs: compilers at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace a dataset that was made otherwise.
        cache: where plain compiles are remembered; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        choice: which modules, instead of ``sample``, ``module_filter`` and ``modules_file``.
        edits: how commands are changed, instead of the three ``flags`` and ``trust_corpus``.
        limits: what a compile may take, instead of ``timeout``, ``memory_limit`` and ``retries``.
        progress: is told (modules done, of them failed, decisions, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be traced, or the dataset cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    cache = cache_folder() if cache is None else cache
    the_task = find_task(task)
    if via not in WAYS:
        raise UsageError(f"expected one of {', '.join(WAYS)}", option="via", value=via)
    choice = choice or ModuleChoice(sample, module_filter, modules_file, seed)
    edits = edits or CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus)
    limits = limits or Limits(timeout, memory_limit, retries)
    limits.check()
    check_count("jobs", jobs)
    if (home := policy_folder(policy)) is not None:  # workers may run in other folders
        policy = str(home)
    if policy != "default":  # which is every task's own, where a training log shows it
        try_policy(policy, the_task, seed=seed, timeout=limits.timeout)
    edits.check()
    opened = open_corpus(engine.place(corpus))
    chosen = choice.select(opened)
    toolchain, way = choose_compiler(
        compiler,
        the_task,
        policy,
        via,
        learned=find_policy(policy) is not None,
        producer=newest_producer(opened, chosen),
        built=built_toolchains(cache),
        cache=cache,
        jobs=jobs or available_cpus(),
    )
    identity = compiler_identity(toolchain)
    key = {
        "version": __version__,
        "task": task,
        "via": way,
        "policy": policy if home is None else home.name,
        "policy_code": policy_digest(policy),
        "seed": seed if policy.partition(":")[0] == "random" else None,
        "compiler": {"version": toolchain.version, "sha256": identity},
        "names": names,
        **edits.key(),
        **choice_key(opened, chosen),
    }
    if DatasetPaths.of(output).single:
        raise UsageError(f"{output}: a trace is a folder: name one without .parquet")
    if not force:
        refuse_difference(DatasetPaths.of(output), key)
    folder = DatasetFolder(output, key, force=force)
    make_places({"keep_logs": keep_logs, "keep_objects": keep_objects}, output, opened, make=not folder.is_whole)
    settings = TraceSettings(
        cc1=toolchain.cc1,
        compiler_id=identity,
        major=toolchain.major or 0,
        task=task,
        via=way,
        policy=policy,
        seed=seed,
        work=folder.paths.work.absolute(),
        baselines=(cache / BASELINES_FOLDER).absolute(),
        edits=edits,
        limits=limits,
        names=names,
        may_grow=may_grow(policy),
        keep_logs=None if keep_logs is None else keep_logs.absolute(),
        keep_objects=None if keep_objects is None else keep_objects.absolute(),
        copy_names=clashing_copies(opened.names) if keep_logs or keep_objects else {},
    )
    trace = Trace(folder, settings, toolchain, opened, chosen, jobs, engine, progress)
    try:
        if folder.is_whole:
            trace.read(iter_trace_rows(folder.paths.modules))
        else:
            trace.run()
    finally:
        folder.close()
    hints = tuple(edits.without_effect(opened.modules(chosen), toolchain.cc1))
    return trace.report(hints, time.perf_counter() - started)
