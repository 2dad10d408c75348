"""A search over a corpus, from a request to a report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import INTERACTIVE, choose_compiler
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import MOST_COMPILES, Limits, check_count
from mlgo_corpus.compilers.native.extended import headers_of
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.groups import languages_of
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import LinkedModules
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, MadeOtherwiseError, refuse_difference
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.text import counted, printable
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.conversation import says_more
from mlgo_corpus.policies.policy import policy_digest, policy_folder, policy_name, try_policy
from mlgo_corpus.runs.functions.copies import copies_for
from mlgo_corpus.runs.search.module import SearchSettings
from mlgo_corpus.runs.search.rounds import MEASURE, round_budgets
from mlgo_corpus.runs.search.run import FOLDED, LINKED, OBJECTIVES, TEXT, Search, SearchReport
from mlgo_corpus.runs.trace.baseline import BASELINES_FOLDER
from mlgo_corpus.runs.trace.module import TraceSettings, clashing_copies, remove_unfinished
from mlgo_corpus.runs.trace.places import make_places

_FOUND = "search"
_GO_ON: Final = "and a search into another folder goes on from it with `start`"

ALSO: Final[tuple[str, ...]] = ("default", "inlining-1.0")
"""The policies whose decisions a search tries, too, wherever it does not begin with them.

Measured on searches that begin with a learned policy's, of objects, products, and products with gc and folding: with
LLVM's own decisions, snappy with 100 compiles is 9.6, 21.9 and 21.8 % smaller instead of 8.3, 17.6 and 17.5 %, tinyxml2
2.1, 1.8 and -0.2 % instead of 2.1, 1.7 and -0.3 %; ninja with 25 compiles 19.2, 11.8 and 5.1 % instead of 19.1, 12.1
and 4.7 %.
"""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What to search, and how; parameters are those of `mlgo_corpus.search_corpus`."""

    budget: int = 100
    time_limit: float | None = None
    objective: str | None = None
    start: str = "default"
    also: Sequence[str] = ALSO
    compiler: str | None = None
    seed: int = 0
    choice: ModuleChoice = field(default_factory=ModuleChoice)
    edits: CommandEdits = field(default_factory=CommandEdits)
    limits: Limits = field(default_factory=Limits)
    keep_objects: Path | None = None

    def check(self) -> SearchRequest:
        """Check the request; return it with the whole paths of policies' folders: workers may run in other folders.

        Of the policies to try, the one that the search begins with is left out.

        Raises:
            UsageError: it cannot be carried out.
        """
        self.limits.check()
        check_count("budget", self.budget, most=MOST_COMPILES)
        if self.time_limit is not None and not self.time_limit > 0:
            raise UsageError("expected more than 0 seconds", option="time_limit", value=self.time_limit)
        if self.objective not in (None, *OBJECTIVES):
            raise UsageError(f"expected one of {', '.join(OBJECTIVES)}", option="objective", value=self.objective)
        policies = [one if (home := policy_folder(one)) is None else str(home) for one in (self.start, *self.also)]
        start, *also = dict.fromkeys(policies)
        for option, policy in (("start", start), *(("also", one) for one in also)):
            if policy == "default":
                continue
            try:
                try_policy(policy, find_task(INLINING), seed=self.seed, timeout=self.limits.timeout)
            except UsageError as error:
                if error.option == "policy":  # as most verbs call it
                    error.option = option
                raise
        self.edits.check()
        return replace(self, start=start, also=tuple(also))


def run_search(
    corpus: Path | str,
    output: Path,
    request: SearchRequest,
    *,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> SearchReport:
    """Search a corpus, as `mlgo_corpus.search_corpus` does.

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be compiled and optimised, or the dataset cannot be written.
    """
    started = time.perf_counter()
    cache = cache_folder(cache)
    check_count("jobs", jobs)
    request = request.check()
    edits, limits, start, seed = request.edits, request.limits, request.start, request.seed
    keep_objects = request.keep_objects
    opened = open_corpus(engine.place(corpus))
    chosen = request.choice.select(opened)
    linked = LinkedModules() if request.objective == TEXT else LinkedModules.read(opened)
    objective = request.objective or (LINKED if linked.products else TEXT)
    toolchain, _ = choose_compiler(
        request.compiler,
        find_task(INLINING),
        _FOUND,
        INTERACTIVE,
        producer=newest_producer(opened, chosen),
        cache=cache,
        jobs=jobs or available_cpus(),
        says_more=any(map(says_more, (start, *request.also))),
        copies=copies_for((start, *request.also), opened, jobs=jobs or available_cpus()),
    )
    identity = toolchain.identity
    key = {
        "version": __version__,
        "stage": "search",
        "budget": request.budget,
        "time_limit": request.time_limit,
        "objective": objective,
        "measure": MEASURE,
        "start": policy_name(start),
        "start_code": policy_digest(start),
        "also": [[policy_name(one), policy_digest(one)] for one in request.also],
        "seed": seed,
        "compiler": {"version": toolchain.version, "sha256": identity},
        **edits.key(),
        **choice_key(opened, chosen),
    }
    if DatasetPaths.of(output).single:
        raise UsageError(f"{output}: a search is a folder: name one without .parquet")
    if not force:
        refuse_difference(DatasetPaths.of(output), key, _GO_ON)
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
            keep_objects=None if keep_objects is None else keep_objects.absolute(),
            copy_names=clashing_copies(opened.names) if keep_objects else {},
        ),
        start=start,
        budgets=round_budgets(request.budget, linked=objective != TEXT),
        time_limit=request.time_limit,
        seed=seed,
        linked=objective != TEXT,
        folded=objective == FOLDED,
        also=tuple(request.also),
    )
    search = Search(folder, settings, objective, toolchain, opened, linked, chosen, jobs, engine, progress)
    try:
        if folder.is_whole:
            try:
                search.read(iter_trace_rows(folder.paths.modules))
            except CorpusError as error:
                raise MadeOtherwiseError(f"{error}; `force` replaces it") from None
        else:
            search.run()
    finally:
        remove_unfinished(settings.trace)
        folder.close()
    hints = (
        *edits.without_effect(opened.modules(chosen), toolchain.cc1),
        *_no_room(request),
        *_untold(request, toolchain, opened, chosen),
        *_unlinked(linked, objective, chosen),
    )
    return search.searched(hints, time.perf_counter() - started)


def _no_room(request: SearchRequest) -> Iterator[str]:
    """Yield which policies a module's compiles cannot be enough for: at most half try one, and one confirms."""
    room = max(0, min(request.budget // 2, request.budget - 2))
    if left := [policy_name(one) for one in request.also[room:]]:
        yield f"a budget of {counted(request.budget, 'compile')} of each module leaves no room to try {', '.join(left)}"


def _untold(request: SearchRequest, toolchain: Toolchain, corpus: Corpus, chosen: Sequence[str]) -> Iterator[str]:
    """Yield that no policy was tried that knows who is called, where one decides and LLVM's headers are there.

    It is not tried by itself: what a search finds should not depend on what else is installed.
    """
    if any(map(says_more, (request.start, *request.also))) or "C++" not in languages_of(corpus, chosen):
        return
    if headers_of(toolchain) is not None:
        yield "LLVM's headers are installed: a search that also tries inlining-3.0 usually finds more in C++"


def _unlinked(linked: LinkedModules, objective: str, chosen: Sequence[str]) -> Iterator[str]:
    """Yield that some modules are in nothing that was linked, as those of libtool's static libraries."""
    left = [name for name in chosen if name not in linked.products]
    if objective != TEXT and linked.products and left:
        yield (
            f"{len(left)} of {counted(len(chosen), 'module')} are in no program or shared library of the build, such "
            f"as {printable(left[0])}, and count all the same: `module_filter` or `modules_file` leaves them out"
        )
