"""Search for better inlining decisions than the compiler's, module by module, and make a dataset of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, given_once, real_number, whole_number
from mlgo_corpus.corpus.select import ModuleChoice
from mlgo_corpus.engine.choice import HERE, EngineChoice
from mlgo_corpus.files.text import several
from mlgo_corpus.policies.policy import policy_text
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.search.corpus import ALSO, SearchRequest, run_search
from mlgo_corpus.runs.search.run import SearchReport


@to_urls
def search_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    budget: int = 100,
    time_limit: float | None = None,
    objective: str | None = None,
    start: Path | str = "default",
    also: Sequence[Path | str] | Path | str = ALSO,
    compiler: Path | str | None = None,
    seed: int = 0,
    add_flags: Sequence[str] | str = (),
    delete_flags: Sequence[str] | str = (),
    replace_flags: Sequence[str] | str = (),
    trust_corpus: bool = False,
    timeout: float = 60.0,
    memory_limit: int | None = None,
    retries: int = 0,
    sample: str | float | None = None,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    keep_objects: Path | str | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
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
            once among them, with its entries in tables of what is linked; ``folded``: for a linker that keeps one of
            all functions that are alike, too. By default ``linked`` where the corpus tells that its objects are linked.
        start: the policy whose decisions the search begins with, see `mlgo_corpus.policies.policy.make_policy`; also
            the dataset of another search, to go on from.
        also: policies whose decisions are tried, too, each in one compile: where a part of a module gets smaller, they
            are kept; learned ones, and a learned ``start``, with other thresholds, too. ``("default",)`` for LLVM's
            own only, an empty sequence for none.
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
        MlgoCorpusError: not one module could be compiled and optimised, or the dataset cannot be written.
    """
    seed = whole_number("seed", seed)
    request = SearchRequest(
        budget=whole_number("budget", budget),
        time_limit=real_number("time_limit", time_limit),
        objective=objective,
        start=policy_text(start, "start"),
        also=[policy_text(one, "also") for one in several(also)],
        compiler=None if compiler is None else str(compiler),
        seed=seed,
        choice=given_once("choice", choice, ModuleChoice(sample, module_filter, modules_file, seed), seed=seed),
        edits=given_once("edits", edits, CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus)),
        limits=given_once("limits", limits, Limits(timeout, memory_limit, retries)),
        keep_objects=None if keep_objects is None else Path(keep_objects),
    )
    return run_search(
        corpus, Path(output), request, jobs=jobs, force=force, cache=cache, engine=engine, progress=progress
    )
