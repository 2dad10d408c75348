"""Run a compiler over a corpus, and make a dataset of its decisions and of the native sizes they led to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import WAYS, choose_compiler, compiler_identity
from mlgo_corpus.compilers.find import built_toolchains, cache_folder
from mlgo_corpus.compilers.limits import check_count, check_memory_limit, check_timeout
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import corpus_digest, newest_producer, select_modules
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.tracetable import (
    read_trace_rows,
)
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.commands.edit import edit_command
from mlgo_corpus.formats.logs.tasks import INLINING, TASKS, Task
from mlgo_corpus.policies.policy import policy_digest, try_policy
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.trace.module import TraceSettings, clashing_copies
from mlgo_corpus.runs.trace.run import Trace, TraceReport

BASELINES_FOLDER: Final = "baselines"

_MOST_RETRIES = 100


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
    sample: str | None = None,
    module_filter: str | None = None,
    modules_file: Path | None = None,
    keep_logs: Path | None = None,
    keep_objects: Path | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | None = None,
    engine: EngineChoice = HERE,
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
        progress: is told (modules done, of them failed, decisions, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be traced, or the dataset cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    cache = cache_folder() if cache is None else cache
    the_task = _find_task(task)
    _check(via=via, timeout=timeout, memory_limit=memory_limit, retries=retries, jobs=jobs)
    if policy != "default":  # which is every task's own, where a training log shows it
        try_policy(policy, the_task, seed=seed, timeout=timeout)
    _check_edits(add=add_flags, delete=delete_flags, replace=replace_flags)
    opened = open_corpus(engine.place(corpus))
    names = select_modules(opened, name_regex=module_filter, modules_file=modules_file, sample=sample, seed=seed)
    toolchain, way = choose_compiler(
        compiler,
        the_task,
        policy,
        via,
        producer=newest_producer(opened, names),
        built=built_toolchains(cache),
        cache=cache,
        jobs=jobs or available_cpus(),
    )
    identity = compiler_identity(toolchain)
    key = {
        "version": __version__,
        "task": task,
        "via": way,
        "policy": policy,
        "policy_code": policy_digest(policy),
        "seed": seed if policy.partition(":")[0] == "random" else None,
        "compiler": {"version": toolchain.version, "sha256": identity},
        "add_flags": list(add_flags),
        "delete_flags": list(delete_flags),
        "replace_flags": list(replace_flags),
        "trust_corpus": trust_corpus,
        "corpus": corpus_digest(opened, names),
    }
    if DatasetPaths.of(output).single:
        raise UsageError(f"{output}: a trace is a folder: name one without .parquet")
    if not force:
        refuse_difference(DatasetPaths.of(output), key)
    folder = DatasetFolder(output, key, force=force)
    _make_places({"--keep-logs": keep_logs, "--keep-objects": keep_objects}, output, opened, make=not folder.is_whole)
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
        add=tuple(add_flags),
        delete=tuple(delete_flags),
        replace=tuple(replace_flags),
        trusted=trust_corpus,
        timeout=timeout,
        memory_limit=memory_limit,
        retries=retries,
        keep_logs=None if keep_logs is None else keep_logs.absolute(),
        keep_objects=None if keep_objects is None else keep_objects.absolute(),
        copy_names=clashing_copies(opened.names) if keep_logs or keep_objects else {},
    )
    trace = Trace(folder, settings, toolchain, opened, names, jobs, engine, progress)
    try:
        rows = read_trace_rows(folder.paths.modules) if folder.is_whole else trace.run()
    finally:
        folder.close()
    hints = tuple(_without_effect(opened, names, delete_flags, replace_flags))
    return trace.report(rows, hints, time.perf_counter() - started)


def _find_task(name: str) -> Task:
    found = next((task for task in TASKS if task.name == name), None)
    if found is None:
        names = ", ".join(task.name for task in TASKS)
        raise UsageError(f"--task {name}: expected one of {names}")
    return found


def _check(*, via: str, timeout: float, memory_limit: int | None, retries: int, jobs: int | None) -> None:
    if via not in WAYS:
        raise UsageError(f"--via {via}: expected one of {', '.join(WAYS)}")
    check_timeout(timeout)
    check_memory_limit(memory_limit)
    check_count("retries", retries, least=0, most=_MOST_RETRIES)
    check_count("jobs", jobs)


def _check_edits(**edits: Sequence[str]) -> None:
    """Raise for an edit that is no option, with the name of the flag that gave it."""
    for kind, texts in edits.items():
        for text in texts:
            try:
                edit_command(("-cc1",), **{kind: (text,)})
            except UsageError as error:
                raise UsageError(f"--{kind}-flag {text}: {error}") from error


def _make_places(places: Mapping[str, Path | None], output: Path, corpus: Corpus, *, make: bool) -> None:
    """Check the folders for copies, all of them, and then make them."""
    wanted = {option: place for option, place in places.items() if place is not None}
    for option, place in wanted.items():
        try:
            for whose, folder in (("dataset's", output), ("corpus's", corpus.path)):
                if place.resolve().is_relative_to(folder.resolve()):
                    raise UsageError(f"{option} {place}: is in the {whose} folder; name another one")
            if place.exists() and not place.is_dir():
                raise UsageError(f"{option} {place}: expected a folder, found a file")
        except OSError as error:
            raise UsageError(f"{option} {place}: {os_reason(error)}") from error
    for option, place in wanted.items() if make else ():
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{option} {place}: {os_reason(error)}") from error


def _without_effect(
    corpus: Corpus, names: Sequence[str], delete: Sequence[str], replace: Sequence[str]
) -> Iterator[str]:
    """Tell of deletions and replacements that no module's command answers to; most are met in the first one."""
    left = {"delete": tuple(delete), "replace": tuple(replace)}
    for name in names:
        if not any(left.values()):
            return
        with suppress(CorpusError, UsageError):  # a row of the module's tells of it
            command = corpus[name].command()
            command = command if command[:1] == ("-cc1",) else ("-cc1", *command)
            left = {kind: edit_command(command, **{kind: texts}).unmatched for kind, texts in left.items()}
    yield from (
        f"--{kind}-flag={text}: no command has this option, nothing was changed"
        for kind, texts in left.items()
        for text in texts
    )
