"""The train stage: a policy learned from the decisions of searches, or from real compiles."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import INTERACTIVE, choose_compiler
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import MOST_COMPILES, Limits, check_count, check_once, real_number, whole_number
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.dataset.folder import DatasetPaths, MadeOtherwiseError, read_key
from mlgo_corpus.dataset.tracetable import iter_trace_rows
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import CorpusError, FormatError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import check_folder
from mlgo_corpus.files.names import distinct_names
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import counted, human_seconds, several
from mlgo_corpus.formats.commands.languages import LANGUAGES
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, find_task
from mlgo_corpus.learn.boosting import LEAST_IN_LEAF, BoostingOptions, Fitted, fit_trees, need_lightgbm
from mlgo_corpus.learn.card import imitation_card, practised_card
from mlgo_corpus.learn.evolution import need_cma
from mlgo_corpus.learn.examples import (
    DataFacts,
    Examples,
    has_decisions,
    need_plugin,
    open_datasets,
    read_examples,
)
from mlgo_corpus.learn.portrait import differences_of, importance_of, read_states
from mlgo_corpus.learn.practice import (
    EVOLUTION,
    GRADIENT,
    CurvePoint,
    Listener,
    PracticeOptions,
    Practised,
    practise,
)
from mlgo_corpus.learn.tuning import CANDIDATES, Tried, best_of, threshold_of, tune
from mlgo_corpus.policies.artefact import POLICY_FILES, check_name
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.seen import MOST_BITCODE, SEEN_KEY, Seen
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.rollouts.run import RolloutRequest
from mlgo_corpus.runs.search.corpus import SearchRequest, run_search
from mlgo_corpus.runs.search.run import SearchReport
from mlgo_corpus.runs.trace.corpus import TraceRequest

# An output that is called so gives its policy the name.
_VERSIONED: Final = re.compile(r"[A-Za-z][\w.+-]*-\d+\.\d+", re.ASCII)
_IMITATION: Final = "imitation"
_ALGORITHMS: Final = (_IMITATION, EVOLUTION, GRADIENT)
"""How to learn: ``imitation`` of the best decisions found, evolution strategies, or policy gradients."""

_USUAL_BUDGETS: Final = {_IMITATION: 25, EVOLUTION: 200, GRADIENT: 200}
_USUAL_NEURONS: Final = {(INLINING, EVOLUTION): 4, (INLINING, GRADIENT): 16, (EVICTION, EVOLUTION): 0}
_MOST_NEURONS: Final = 1024

_USUAL_PROBABILITY: Final = 0.5


@dataclass(frozen=True, slots=True)
class TrainReport(Report):
    """The outcome of training.

    Attributes:
        output: the policy's folder.
        name: the policy's name; ``digest`` is that of all that it decides by.
        algorithm: how it was learned.
        data: what each dataset gave.
        decisions: what was learned from, in all.
        languages: in whose modules it decides; in all if empty.
        features: what it decides by.
        model: its size in words; ``bytes`` on the disk.
        probability: above which a call is inlined.
        task: whose decisions it makes.
        curve: of ``es`` and ``pg``: what the policy made of the validation corpora, or of the corpora, as it learned.
        compiles: of ``es`` and ``pg``: of the corpora's modules.
        measure: what the changes are of: ``objects and products``, on average, or ``objects``, or ``weighed objects``.
        validation: what thresholds made of the validation corpora, in the order in which they were tried.
        importance: of each feature, the share of the loss that its splits save.
        hints: advice for the user.
        seconds: how long it took.
    """

    output: Path
    name: str
    digest: str
    algorithm: str
    data: tuple[DataFacts, ...]
    decisions: int
    languages: tuple[str, ...]
    features: tuple[str, ...]
    model: str
    bytes: int
    probability: float
    validation: tuple[Tried, ...]
    importance: dict[str, float]
    hints: tuple[str, ...]
    seconds: float
    task: str = INLINING
    curve: tuple[CurvePoint, ...] = ()
    compiles: int = 0
    measure: str = "objects and products"


class _Imitation(NamedTuple):
    """How to imitate; parameters are those of `train_policy`, and ``probability`` is the threshold if none is tuned."""

    rounds: int
    budget: int
    boosting: BoostingOptions
    probability: float
    languages: Sequence[str]


def train_policy(
    data: Sequence[Path | str] | Path | str,
    output: Path | str,
    *,
    task: str = INLINING,
    algorithm: str = _IMITATION,
    corpora: Sequence[Path | str] | Path | str = (),
    rounds: int = 1,
    budget: int | None = None,
    validation: Sequence[Path | str] | Path | str = (),
    threshold: float | None = None,
    languages: Sequence[str] | str = (),
    name: str | None = None,
    trees: int = 120,
    leaves: int = 15,
    neurons: int | None = None,
    seed: int = 0,
    compiler: Path | str | None = None,
    trust_corpus: bool = False,
    timeout: float = 60.0,
    memory_limit: int | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    progress: Callable[[str, int, int, str], None] | None = None,
    announce: Callable[[str], None] | None = None,
) -> TrainReport:
    """Learn a policy for inlining from what searches found, or from real compiles, and write it as a folder.

    The same data, corpora, options and library give the same policy, byte for byte, whatever ``jobs`` and ``engine``.

    Args:
        data: the datasets of searches, each of a project of its own; traces serve, too: then their decisions are
            imitated. ``es`` and ``pg`` begin with a clone of them, or of LLVM's own decisions if there are none.
        output: the policy's folder, see `mlgo_corpus.policies.learned`.
        task: whose decisions the policy makes: ``inlining``; or ``regalloc-eviction``, by ``es``.
        algorithm: ``imitation``: boosted trees that tell the best decisions found, weighted by what these are worth.
            ``es``: evolution strategies, and ``pg``: policy gradients, both on the real sizes of ``corpora``
            (`mlgo_corpus.learn.practice`).
        corpora: of ``es`` and ``pg``: corpora to compile. Else corpora to search further, from the policy's own
            decisions: what it does wrong, it learns then. A dataset of the same corpus among ``data`` is not used any
            more then. What was done is kept beside the policy's folder, in ``OUTPUT.searches``; a call after an
            interruption goes on with it.
        rounds: how often each of ``corpora`` is searched, each time from a policy that learned from all before.
        budget: how often a module is compiled in a round at most (25); by ``es`` and ``pg``, how often each is on
            average (200).
        validation: corpora to tune the threshold on, or to draw the curve and to stop by; none of them should be what
            the data is of.
        threshold: the probability above which a call is inlined, instead of a tuned one.
        languages: learn from modules of these only, and decide in no others: ``C++``, ``C``, ...; by default those that
            ``data`` has.
        name: the policy's name; by default that of ``output`` if it ends with a version, such as ``small-1.0``, else
            the task's, with ``-0.1``.
        trees: how many trees the model has.
        leaves: how many leaves each of them has at most.
        neurons: of ``es`` and ``pg``: the size of a network's hidden layer; 0 for a rule (4 for ``es``, 16 for
            ``pg``, 0 for eviction).
        seed: of the examples and features that each tree may use, and of all that ``es`` and ``pg`` draw.
        compiler: the clang that compiles the corpora; by default the best one found on this machine.
        trust_corpus: the corpora are one's own: run any command, without walls.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have.
        jobs: compilers at a time; by default the CPUs this process may use, or the cluster's.
        force: replace a policy that is there, and searches in ``OUTPUT.searches`` that were made otherwise.
        cache: where plain compiles are remembered; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        progress: called with (what is done, how much of it, how much in all, what is known of it).
        announce: called with lines: how long it will take, and the curve of ``es`` and ``pg``.

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: a dataset or corpus cannot be read.
        MlgoCorpusError: a validation corpus cannot be compiled, or the policy cannot be written.
    """
    started = time.perf_counter()
    output = output_here(output, "a policy", "a folder")
    data, corpora, validation = several(data), several(corpora), several(validation)
    languages = several(languages)
    rounds, budget, neurons = (
        whole_number("rounds", rounds),
        whole_number("budget", budget),
        whole_number("neurons", neurons),
    )
    trees, leaves, seed = whole_number("trees", trees), whole_number("leaves", leaves), whole_number("seed", seed)
    threshold = real_number("threshold", threshold)
    compiler = None if compiler is None else str(compiler)
    if algorithm not in _ALGORITHMS:
        raise UsageError(f"expected one of {', '.join(_ALGORITHMS)}", option="algorithm", value=algorithm)
    if task not in (INLINING, EVICTION):
        raise UsageError(f"expected {INLINING} or {EVICTION}", option="task", value=task)
    if task == EVICTION and (algorithm != EVOLUTION or data):
        raise UsageError(f"{EVICTION} is learned by {EVOLUTION} alone, without data", option="task", value=task)
    if name is None:
        name = output.name if _VERSIONED.fullmatch(output.name) else f"{task}-0.1"
    try:
        check_name(name)
    except FormatError as error:
        raise UsageError(str(error).removeprefix("name: "), option="name") from None
    check_once("data", data, "a dataset")
    check_once("corpus", corpora, "a corpus")
    check_once("validation", validation, "a corpus")
    if not data and algorithm == _IMITATION:
        raise UsageError("expected at least one dataset", option="data")
    if not corpora and algorithm != _IMITATION:
        raise UsageError(f"{algorithm} needs a corpus to compile", option="corpus")
    if threshold is not None and algorithm != _IMITATION:
        raise UsageError(f"{algorithm} has no threshold of probability", option="threshold")
    check_count("jobs", jobs)
    check_count("rounds", rounds)
    check_count("budget", budget, most=MOST_COMPILES)
    check_count("neurons", neurons, least=0, most=_MOST_NEURONS)
    if budget is not None and not corpora:
        raise UsageError("expected a corpus to compile, too", option="budget", value=budget)
    budget = _USUAL_BUDGETS[algorithm] if budget is None else budget
    check_count("trees", trees, most=10_000)
    check_count("leaves", leaves, least=2, most=1024)
    check_count("seed", seed, least=0, most=2**31 - 1)
    if unknown := [language for language in languages if language not in LANGUAGES]:
        raise UsageError(f"expected one of {', '.join(LANGUAGES)}", option="language", value=unknown[0])
    if languages and algorithm != _IMITATION:
        raise UsageError("is for imitation: others learn what the modules of the corpora are", option="language")
    if threshold is not None and validation:
        raise UsageError("expected a threshold or corpora to tune it on, found both", option="threshold")
    probability = _USUAL_PROBABILITY if threshold is None else threshold
    threshold_of(probability)
    check_folder(output, known=POLICY_FILES, force=force)
    limits = Limits(timeout, memory_limit)
    limits.check()
    request = RolloutRequest(compiler, CommandEdits(trusted=trust_corpus), limits, task)
    listener = Listener(progress or (lambda *_: None), announce or (lambda _: None))
    idle = {str(path): None for path in map(Path, data) if not has_decisions(path)}
    datasets = [path for path in map(Path, data) if str(path) not in idle]
    how: dict[str, Any] = {"jobs": jobs, "cache": cache_folder(cache), "engine": engine}
    if algorithm == _IMITATION:
        imitation = _Imitation(rounds, budget, BoostingOptions.of(trees, leaves, seed), probability, languages)
        report = _imitate(
            name,
            datasets,
            corpora,
            validation,
            imitation,
            request,
            output,
            listener,
            idle,
            force=force,
            started=started,
            **how,
        )
    else:
        if algorithm == EVOLUTION:
            need_cma()
        options = PracticeOptions(
            task, algorithm, _USUAL_NEURONS[task, algorithm] if neurons is None else neurons, budget, seed
        )
        work = output.with_name(f"{output.name}.searches") / algorithm
        practised = practise(name, datasets, corpora, validation, options, request, work, listener, **how)
        shown, searched = distinct_names(validation), distinct_names(corpora)
        report = _save_practised(practised, options, output, searched, shown, force=force, started=started)
    return replace(report, hints=(*report.hints, *(f"{one}: LLVM had nothing to decide in it" for one in idle)))


def _imitate(
    name: str,
    datasets: Sequence[Path],
    corpora: Sequence[Path | str],
    validation: Sequence[Path | str],
    options: _Imitation,
    request: RolloutRequest,
    output: Path,
    listener: Listener,
    idle: dict[str, None],
    *,
    force: bool,
    started: float,
    jobs: int | None,
    cache: Path,
    engine: EngineChoice,
) -> TrainReport:
    """Learn from datasets, search corpora from what that taught and learn again, tune the threshold, and write it all.

    Corpora in which there is nothing to decide are added to ``idle``, where the datasets are that have no decisions.
    """
    need_lightgbm()
    watched, ground = ([open_corpus(engine.place(one)) for one in some] for some in (validation, corpora))
    if watched or ground:  # say at once if there is no compiler for what comes after the first fit
        choose_compiler(
            request.compiler,
            find_task(INLINING),
            "never",
            INTERACTIVE,
            producer=None,
            cache=cache,
            jobs=jobs or available_cpus(),
            says_more=need_plugin(datasets),
        )
    if compiles := options.rounds * options.budget * sum(map(len, ground)) + len(CANDIDATES) * sum(map(len, watched)):
        listener.announce(_foretold((*datasets, *idle), compiles, jobs or available_cpus()))
    shown, searched = distinct_names(validation), distinct_names(corpora)
    how: dict[str, Any] = {"jobs": jobs, "cache": cache, "engine": engine}

    def learned(datasets: Sequence[Path]) -> tuple[LearnedPolicy, Examples, Fitted]:
        examples = read_examples(datasets, jobs=jobs or available_cpus(), languages=options.languages)
        fitted = fit_trees(examples, options.boosting, partial(listener.progress, "fitting"))
        used = {
            "trees": options.boosting.trees,
            "leaves": options.boosting.leaves,
            "rate": options.boosting.rate,
            "least_in_leaf": LEAST_IN_LEAF,
            "seed": options.boosting.seed,
        }
        made = LearnedPolicy(
            name,
            INLINING,
            examples.features,
            fitted.trees,
            threshold=threshold_of(options.probability),
            languages=examples.languages,
            training=_training_of(_IMITATION, fitted.library, used, examples.data, examples.seen),
        )
        return made, examples, fitted

    policy, examples, fitted = learned(datasets)
    for number in range(1, options.rounds + 1) if corpora else ():
        place = output.with_name(f"{output.name}.searches") / f"round-{number}"
        policy.save(place / "policy", force=True)
        search = SearchRequest(
            budget=options.budget,
            start=str(place / "policy"),
            also=("default",),  # what it learns is its own
            compiler=request.compiler,
            seed=options.boosting.seed,
            edits=request.edits,
            limits=request.limits,
        )
        for at, (corpus, corpus_name) in enumerate(zip(corpora, searched, strict=True), 1):
            show = partial(listener.progress, f"round {number}, {corpus_name}")
            dataset = place / f"{at}-{ground[at - 1].name}"
            found = _search(
                corpus,
                dataset,
                search,
                force=force,
                progress=lambda done, _failed, saved, total, show=show: show(done, total, f"{saved} bytes saved"),
                **how,
            )
            if not found.decisions:
                idle[str(corpus)] = None
                continue
            # The latest search of a corpus replaces earlier ones: it was made at the states that this policy reaches.
            datasets = [one for one in datasets if _corpus_of(one) != _corpus_of(dataset)] + [dataset]
        policy, examples, fitted = learned(datasets)
    probability = options.probability
    tried: tuple[Tried, ...] = ()
    known: tuple[str, ...] = ()
    if validation:
        trace = TraceRequest(compiler=request.compiler, names=False, edits=request.edits, limits=request.limits)
        with writing(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            with scratch_folder(output.parent) as work:
                tried, known = tune(policy, validation, trace, work, partial(listener.progress, "tuning"), **how)
        probability = best_of(tried).probability
    policy = replace(policy, threshold=threshold_of(probability))
    states = read_states(
        open_datasets(datasets, options.languages), (spec.name for spec in policy.features), examples.linkages
    )
    metrics = {
        "importance": fitted.importance,
        "differences": differences_of(policy, states),
        "probability": probability,
        "validation": {"corpora": shown, "tried": [one.as_json() for one in tried]},
    }
    policy = replace(
        policy,
        metrics=metrics,
        card=imitation_card(policy, examples, fitted, probability, shown, tried),
    )
    return _saved(
        policy,
        output,
        force=force,
        started=started,
        algorithm=_IMITATION,
        data=examples.data,
        decisions=len(examples.decisions),
        model=fitted.trees.described(),
        probability=probability,
        validation=tried,
        importance=fitted.importance,
        hints=(*_hints(examples, tried), *known),
    )


def _search(*of: Any, force: bool, **how: Any) -> SearchReport:
    """Search, or go on with an interrupted search; one that was made otherwise is replaced if `force` says so."""
    try:
        return run_search(*of, **how)
    except MadeOtherwiseError:
        if not force:
            raise
        return run_search(*of, force=True, **how)


def _save_practised(
    practised: Practised,
    options: PracticeOptions,
    output: Path,
    corpora: Sequence[str],
    watched: Sequence[str],
    *,
    force: bool,
    started: float,
) -> TrainReport:
    """Write a policy that was trained on real compiles, with all that is told of it."""
    importance = importance_of(practised.policy, practised.states)
    policy = replace(
        practised.policy,
        training=_training_of(
            options.algorithm,
            practised.library,
            {"neurons": options.neurons, "budget": options.budget, "seed": options.seed},
            practised.data,
            practised.seen,
            corpora=list(corpora),
        ),
        metrics={
            "importance": importance,
            "differences": differences_of(practised.policy, practised.states),
            "curve": {
                "corpora": list(watched or corpora),
                "validation": bool(watched),
                "measure": practised.measure,
                "points": [one.as_json() for one in practised.curve],
                "best": practised.best,
            },
            "worst": practised.worst,
        },
        card=practised_card(practised, options, corpora, watched, importance),
    )
    return _saved(
        policy,
        output,
        force=force,
        started=started,
        algorithm=options.algorithm,
        data=practised.data,
        decisions=practised.decisions,
        model=f"{policy.kind}, {policy.model.described()}",
        probability=_USUAL_PROBABILITY,
        validation=(),
        importance=importance,
        hints=practised.hints,
        task=options.task,
        curve=practised.curve,
        compiles=practised.compiles,
        measure=practised.measure,
    )


def _saved(policy: LearnedPolicy, output: Path, *, force: bool, started: float, **how: Any) -> TrainReport:
    """Write a policy, and return the report of it; ``how`` is what the policy itself does not tell."""
    policy.save(output, force=force)
    return TrainReport(
        output=output,
        name=policy.name,
        digest=policy.digest,
        languages=policy.languages,
        features=tuple(spec.name for spec in policy.features),
        bytes=sum(path.stat().st_size for path in output.iterdir()),
        seconds=time.perf_counter() - started,
        **how,
    )


def _foretold(data: Sequence[Path | str], compiles: int, jobs: int) -> str:
    """Return in words how long the compiles will take, by the times of those in the datasets."""
    seconds: list[float] = []
    for one in data:
        with suppress(CorpusError):  # training logs that were not of a trace have no times
            seconds += [row.wall_s for row in iter_trace_rows(DatasetPaths.of(Path(one)).modules) if row.wall_s]
    said = f"up to {counted(compiles, 'compile')} after fitting"
    if not seconds:
        return said
    return f"{said}: about {human_seconds(compiles * sum(seconds) / len(seconds) / jobs)}, {jobs} at a time"


def _corpus_of(dataset: Path) -> Any:
    """Return the digest of the modules that a dataset is of; the dataset itself if that is unknown."""
    key = read_key(DatasetPaths.of(dataset))
    return key.get("corpus", dataset) if isinstance(key, dict) else dataset


def _training_of(
    algorithm: str, library: str, options: Mapping[str, Any], data: Sequence[DataFacts], seen: Seen, **more: Any
) -> Mapping[str, Any]:
    return {
        "tool": "mlgo-corpus",
        "version": __version__,
        "algorithm": algorithm,
        "library": library,
        "options": options,
        "data": [
            {"corpus": one.name, "sha256": one.digest, "modules": one.modules, "decisions": one.decisions}
            for one in data
        ],
        **more,
        SEEN_KEY: seen.as_json(),
    }


def _hints(examples: Examples, tried: Sequence[Tried]) -> list[str]:
    hints = []
    if not any(one.flips for one in examples.data):
        hints.append("no dataset has flips, so that all decisions count alike: a search tells what each is worth")
    unknown = sum(one.modules - one.bodies_known for one in examples.data)
    if unknown:
        hints.append(
            f"the bitcode of {counted(unknown, 'module')} is not where the dataset says that it was: an evaluation can "
            "recognise only exact copies of it"
            + (f", and of {MOST_BITCODE} modules at most" if len(examples.seen.bitcode) == MOST_BITCODE else "")
        )
    best = best_of(tried) if tried else None
    if best is None:
        hints.append(f"the threshold is {_USUAL_PROBABILITY:g} or as given: `validation` tunes it on a corpus")
    elif any(change > 0 for change in best.changes):
        hints.append("a validation corpus grows: more data of its kind would help")
    return hints
