"""Search for better inlining decisions than the compiler's, module by module, and make a dataset of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import INTERACTIVE, choose_compiler, compiler_identity
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.find import built_toolchains, cache_folder
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import products_of
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.policy import policy_digest, policy_folder, try_policy
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.search.module import SearchSettings
from mlgo_corpus.runs.search.rounds import round_budgets
from mlgo_corpus.runs.search.run import LINKED, OBJECTIVES, TEXT, Search, SearchReport
from mlgo_corpus.runs.trace.module import BASELINES_FOLDER, TraceSettings, clashing_copies
from mlgo_corpus.runs.trace.places import make_places

_FOUND = "search"


@to_urls
def search_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    budget: int = 100,
    time_limit: float | None = None,
    objective: str | None = None,
    start: str = "default",
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
    keep_objects: Path | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | None = None,
    engine: EngineChoice = HERE,
    choice: ModuleChoice | None = None,
    edits: CommandEdits | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> SearchReport:
    """Search for inlining decisions that make the modules of a corpus smaller.

    Called again after an interruption, it goes on: modules that are done are not searched again. The same seed finds
    the same, whatever ``jobs`` and ``engine``; a time limit may end a search earlier or later.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: the dataset's folder, or an ``s3://`` or ``gs://`` URL: then it is made in the cache, and uploaded.
        budget: how often a module is compiled at most.
        time_limit: seconds that one module's search may take; the best so far is kept.
        objective: ``text``, each object's text, or ``linked``: a function that several objects of a project hold counts
            once among them. By default ``linked`` where the corpus tells that its objects are linked.
        start: the policy whose decisions the search begins with, see `mlgo_corpus.policies.policy.make_policy`; also
            the dataset of another search, to go on from.
        compiler: a clang; by default the best one found on this machine.
        seed: of the search's choices, and of the sample.
        add_flags: as of `mlgo_corpus.trace_corpus`, and so the following ones.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have.
        retries: how often the compiles of a trace are tried again.
        sample: search only so many modules, or this fraction of them, of all sizes.
        module_filter: search only modules in whose names this regular expression is found.
        modules_file: search only the modules whose names are in this file.
        keep_objects: a folder for copies of the best objects, ``MODULE``.
        jobs: compilers at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace a dataset that was made otherwise.
        cache: where plain compiles are remembered; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        choice: which modules, instead of ``sample``, ``module_filter`` and ``modules_file``.
        edits: how commands are changed, instead of the three ``flags`` and ``trust_corpus``.
        limits: what a compile may take, instead of ``timeout``, ``memory_limit`` and ``retries``.
        progress: is told (modules done, of them failed, bytes of text saved, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: in not one module there was something to decide, or the dataset cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    cache = cache_folder() if cache is None else cache
    choice = choice or ModuleChoice(sample, module_filter, modules_file, seed)
    edits = edits or CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus)
    limits = limits or Limits(timeout, memory_limit, retries)
    limits.check()
    check_count("jobs", jobs)
    check_count("budget", budget)
    if time_limit is not None and not time_limit > 0:
        raise UsageError("expected more than 0 seconds", option="time_limit", value=time_limit)
    if objective not in (None, *OBJECTIVES):
        raise UsageError(f"expected one of {', '.join(OBJECTIVES)}", option="objective", value=objective)
    if (home := policy_folder(start)) is not None:
        start = str(home)
    if start != "default":
        try_policy(start, find_task(INLINING), seed=seed, timeout=limits.timeout)
    edits.check()
    opened = open_corpus(engine.place(corpus))
    chosen = choice.select(opened)
    objective = objective or _objective_of(opened)
    toolchain, _ = choose_compiler(
        compiler,
        find_task(INLINING),
        _FOUND,
        INTERACTIVE,
        producer=newest_producer(opened, chosen),
        built=built_toolchains(cache),
        cache=cache,
        jobs=jobs or available_cpus(),
    )
    identity = compiler_identity(toolchain)
    key = {
        "version": __version__,
        "stage": "search",
        "budget": budget,
        "time_limit": time_limit,
        "objective": objective,
        "start": start if home is None else home.name,
        "start_code": policy_digest(start),
        "seed": seed,
        "compiler": {"version": toolchain.version, "sha256": identity},
        **edits.key(),
        **choice_key(opened, chosen),
    }
    if DatasetPaths.of(output).single:
        raise UsageError(f"{output}: a search is a folder: name one without .parquet")
    if not force:
        refuse_difference(DatasetPaths.of(output), key)
    folder = DatasetFolder(output, key, force=force)
    make_places({"keep_objects": keep_objects}, output, opened, make=not folder.is_whole)
    work = folder.paths.work.absolute()
    settings = SearchSettings(
        trace=TraceSettings(
            cc1=toolchain.cc1,
            compiler_id=identity,
            major=toolchain.major or 0,
            task=INLINING,
            via=INTERACTIVE,
            policy=_FOUND,
            seed=seed,
            work=work,
            baselines=(cache / BASELINES_FOLDER).absolute(),
            edits=edits,
            limits=limits,
            may_grow=True,
            keep_objects=None if keep_objects is None else keep_objects.absolute(),
            copy_names=clashing_copies(opened.names) if keep_objects else {},
        ),
        start=start,
        budgets=round_budgets(budget) if objective == LINKED else (budget,),
        time_limit=time_limit,
        seed=seed,
        linked=objective == LINKED,
    )
    search = Search(folder, settings, objective, toolchain, opened, chosen, jobs, engine, progress)
    try:
        if folder.is_whole:
            search.read(iter_trace_rows(folder.paths.modules))
        else:
            search.run()
    finally:
        folder.close()
    hints = tuple(edits.without_effect(opened.modules(chosen), toolchain.cc1))
    return search.searched(hints, time.perf_counter() - started)


def _objective_of(corpus: Corpus) -> str:
    """Return the objective for a corpus: what is linked, where it has the links of its build."""
    with suppress(CorpusError):
        if products_of(corpus):
            return LINKED
    return TEXT
