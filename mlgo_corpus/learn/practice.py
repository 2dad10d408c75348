"""Training on real compiles: by evolution or by gradients, step by step, with a curve, until it does not get better.

The model begins as a clone of what datasets have decided, or of LLVM's own decisions. Now and then, the policy so far
compiles the validation corpora (or, without any, all training modules); the best one of these points is the result.

What was done is kept in a folder: the compiles of the step under way (`mlgo_corpus.runs.over`), ``step-NNNNN.json``
with what each step taught, and ``point-NNNNN.json`` with each point of the curve. Called again, training goes on from
there, and comes to the same policy: whatever is drawn depends on the seed and the step alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from mlgo_corpus import __version__
from mlgo_corpus.corpus.groups import languages_of
from mlgo_corpus.corpus.split.components import MIN_INSTRUCTIONS
from mlgo_corpus.engine.choice import EngineChoice
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.atomic import write_atomically, writing
from mlgo_corpus.files.folder import read_note, work_folder
from mlgo_corpus.files.names import distinct_names
from mlgo_corpus.files.text import counted, human_seconds
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, find_task
from mlgo_corpus.learn.evolution import Evolution
from mlgo_corpus.learn.examples import DataFacts, Examples, languages_known, learnable, read_examples
from mlgo_corpus.learn.gradient import Episode, Gradient
from mlgo_corpus.learn.shapes import clone, informative, shape_for
from mlgo_corpus.learn.tuning import score_of
from mlgo_corpus.policies.keyed import dataset_digest
from mlgo_corpus.policies.learned import MASK, LearnedPolicy
from mlgo_corpus.policies.models import Doubles
from mlgo_corpus.policies.seen import TRAINED_SHARE, Seen, own_bodies
from mlgo_corpus.runs.functions.run import read_corpus_functions
from mlgo_corpus.runs.report import Report
from mlgo_corpus.runs.rollouts.module import Rollout
from mlgo_corpus.runs.rollouts.run import SURVEY, Attempt, RolloutRequest, Rollouts

EVOLUTION: Final = "es"
GRADIENT: Final = "pg"

_EVICTED: Final = find_task(EVICTION).decision
# Points of the curve, and how many of them in a row may be no better than the best.
_POINTS: Final = 10
_PATIENCE: Final = 5
# The probability with which the first model decides otherwise than it learned. A rule needs a smaller one to come near
# LLVM's decisions.
_DOUBT: Final = 0.15
_DOUBT_OF_RULE: Final = 0.01
# A module that cannot be compiled by a policy counts as if it had grown so much.
_FAILED: Final = 2.0
_WORST: Final = 10


@dataclass(frozen=True, slots=True)
class PracticeOptions:
    """How to train.

    Attributes:
        task: whose decisions it learns: ``inlining``, or ``regalloc-eviction`` by ``es``.
        algorithm: ``es`` or ``pg``.
        neurons: in the hidden layer; 0 for a rule.
        budget: compiles of each training module, on average.
        seed: of all that is drawn.
    """

    task: str
    algorithm: str
    neurons: int
    budget: int
    seed: int


@dataclass(frozen=True, slots=True)
class CurvePoint(Report):
    """What the policy made of the corpora that training watches, after so many compiles.

    Attributes:
        compiles: of the training modules, so far.
        changes: of each watched corpus, see `Practised.measure`, against LLVM's own decisions: -0.1 for a tenth less.
    """

    _properties: ClassVar = ("score",)

    compiles: int
    changes: tuple[float, ...]

    @property
    def score(self) -> float:
        """The mean of the changes, in which growth counts several times; less is better."""
        return score_of(self.changes)


@dataclass(frozen=True, slots=True, eq=False)
class Practised:
    """A trained policy.

    Attributes:
        policy: the policy, without what is told of it.
        seen: what it was trained on.
        data: what each dataset and corpus gave.
        decisions: that the first model was fitted to.
        curve: the points, in order; ``best`` is the number of the one that the policy is of.
        measure: the changes are of the text of these: ``objects``, or ``weighed objects`` in which a function that
            several hold counts less, as when they are linked, and with what a linker adds of each function.
        compiles: of the training modules, up to the end.
        worst: the watched modules that grew most, as (module, bytes, bytes by LLVM's own decisions).
        library: what moved the numbers.
        states: LLVM's own decisions on the training modules: an array for each feature.
        hints: advice for the user.
    """

    policy: LearnedPolicy
    seen: Seen
    data: tuple[DataFacts, ...]
    decisions: int
    curve: tuple[CurvePoint, ...]
    best: int
    measure: str
    compiles: int
    worst: tuple[tuple[str, int, int], ...]
    library: str
    states: dict[str, Any]
    hints: tuple[str, ...]


class Listener(NamedTuple):
    """Who is told how training goes.

    Attributes:
        progress: called with (what is done, how much of it, how much in all, what is known of it).
        announce: called with lines that are worth keeping on the screen.
    """

    progress: Callable[[str, int, int, str], None]
    announce: Callable[[str], None]

    def of(self, what: str, note: str = "") -> Callable[[int, int], None]:
        """Return a function to call with (how much is done, how much in all)."""
        return lambda done, total: self.progress(what, done, total, note)


def practise(
    name: str,
    data: Sequence[Path],
    corpora: Sequence[Path | str],
    validation: Sequence[Path | str],
    options: PracticeOptions,
    request: RolloutRequest,
    work: Path,
    listener: Listener,
    *,
    jobs: int | None,
    cache: Path,
    engine: EngineChoice,
) -> Practised:
    """Train a policy on real compiles.

    A policy for eviction begins by evicting the first candidate: no compiler tells in a live session what LLVM would.

    Args:
        name: of the policy.
        data: datasets that the first model is a clone of; without any, of LLVM's own decisions.
        corpora: whose modules are compiled.
        validation: corpora that are watched instead of these.
        options: how to train.
        request: how to compile.
        work: the folder of what was done.
        listener: who is told.
        jobs: compilers at a time.
        cache: where plain compiles are remembered.
        engine: where the compilers run.

    Raises:
        UsageError: there is nothing to learn, or a library is missing.
        CorpusError: a dataset or corpus cannot be read.
        MlgoCorpusError: the work folder cannot be written.
    """
    how: dict[str, Any] = {"jobs": jobs, "cache": cache, "engine": engine}
    training = Rollouts(corpora, request, work / "training", linked=True, **how)
    watched = Rollouts(validation, request, work / "validation", linked=False, **how) if validation else training
    key = {
        "version": __version__,
        "stage": "train",
        "options": [options.task, options.algorithm, options.neurons, options.budget, options.seed],
        "data": [dataset_digest(path) for path in data],
        "training": training.key(),
        "validation": watched.key() if validation else None,
    }
    ours = [path for path in (work, work.parent) if not path.exists()]
    with writing(work), work_folder(work, key, f"{work}: another mlgo-corpus is training there"):
        try:
            return _Practice(name, data, training, watched, options, work, listener, jobs).run()
        except UsageError:  # some are known only once each module was compiled
            if ours:
                shutil.rmtree(work, ignore_errors=True)
                with suppress(OSError):  # others work there, too
                    ours[-1].rmdir()
            raise


class _Ground:
    """Modules that can be compiled, with what LLVM's own decisions make of them."""

    def __init__(self, rollouts: Rollouts, told: Callable[[int, int], None]) -> None:
        self.rollouts = rollouts
        self.plain = rollouts.survey(told)
        self.failed = [place for place, one in enumerate(self.plain) if not one.is_ok]
        self.places = [place for place, one in enumerate(self.plain) if one.is_ok and one.decisions and one.objective]
        self.seconds = sum(self.plain[place].wall_s for place in self.places) / max(1, len(self.places))

    def of_corpus(self, number: int) -> list[int]:
        """Return the places of the modules of a corpus."""
        return [place for place in self.places if self.rollouts.places[place].corpus == number]

    def change(self, place: int, outcome: Rollout) -> float:
        """Return the change of a module's objective."""
        return outcome.objective / self.plain[place].objective - 1 if outcome.is_ok else _FAILED - 1

    def sum(self, places: Sequence[int], outcomes: Sequence[Rollout]) -> float:
        """Return the change of the sum of the objectives of modules."""
        before = sum(self.plain[place].objective for place in places)
        after = sum(
            (1 + self.change(place, one)) * self.plain[place].objective
            for place, one in zip(places, outcomes, strict=True)
        )
        return after / before - 1


class _Practice:
    """Training under way."""

    def __init__(
        self,
        name: str,
        data: Sequence[Path],
        training: Rollouts,
        watched: Rollouts,
        options: PracticeOptions,
        work: Path,
        listener: Listener,
        jobs: int | None,
    ) -> None:
        self._name = name
        self._data = data
        self._options = options
        self._work = work
        self._listener = listener
        self._jobs = jobs
        self._ground = _Ground(training, listener.of("LLVM's own decisions"))
        self._watched = self._ground if watched is training else _Ground(watched, listener.of("validation"))
        if not self._ground.places:
            raise UsageError("in not one module of the corpora there is something to decide", option="corpus")
        for number, corpus in enumerate(self._watched.rollouts.corpora):
            if not self._watched.of_corpus(number):
                raise UsageError("there is nothing to decide in it", option="validation", value=corpus.shown)
        self._decision = find_task(options.task).decision
        self._compiles = options.budget * len(self._ground.places)
        self._done = 0
        self._curve: list[CurvePoint] = []
        self._worst: list[list[Any]] = []
        self._best_numbers: Doubles = np.zeros(0)

    def run(self) -> Practised:
        """Train."""
        options, ground = self._options, self._ground
        examples = self._examples
        kept = set(informative(examples.inputs).tolist())
        if not kept:
            raise UsageError("all that is decided in it is alike: there is nothing to learn", option="corpus")
        places = [place for place, spec in enumerate(examples.features) if place in kept or spec.name == MASK]
        self._features = tuple(examples.features[place] for place in places)
        inputs = examples.inputs[:, places]
        self._shape = shape_for(inputs, options.neurons)
        prepared = self._shape.prepared(inputs)
        first = self._shape.first(np.random.default_rng(options.seed))
        if options.task == INLINING:
            doubt = _DOUBT if options.neurons else _DOUBT_OF_RULE
            first = clone(self._shape, inputs, examples.decisions, examples.weights, doubt, options.seed)
        learner: Evolution | Gradient
        if options.algorithm == EVOLUTION:
            learner = Evolution(self._shape, first, prepared, len(ground.places), self._compiles, options.seed)
            library, steps = learner.library, self._evolve(learner)
        else:
            learner = Gradient(self._shape, first, len(ground.places), options.seed)
            library, steps = f"numpy {np.__version__}", self._climb(learner)
        if (step := learner.compiles_of_step) > self._compiles:
            least = -(-step // len(ground.places))
            raise UsageError(
                f"is less than one step takes: expected at least {least}", option="budget", value=options.budget
            )
        self._announce()
        self._point(0, first)
        for number, (numbers, taken) in enumerate(steps, 1):
            self._done += taken
            last = self._done + taken > self._compiles
            if last or self._done * _POINTS // self._compiles > (self._done - taken) * _POINTS // self._compiles:
                self._point(number, numbers)
            if last or self._gets_no_better():
                break
        return Practised(
            policy=self._limited(self._best_numbers),
            seen=self._all_seen,
            data=examples.data,
            decisions=sum(one.decisions for one in examples.data),
            curve=tuple(self._curve),
            best=self._best,
            measure="weighed objects" if self._watched.rollouts.linked else "objects",
            compiles=self._done,
            worst=tuple((str(module), int(size), int(before)) for module, size, before in self._worst),
            library=library,
            states=self._states if options.task == INLINING else self._inputs,
            hints=tuple(self._hints()),
        )

    # The data.

    @cached_property
    def _states(self) -> dict[str, Any]:
        """LLVM's own decisions on the training modules: an array for each feature that all of them have."""
        rollouts = self._ground.rollouts
        found = list(rollouts.decisions(SURVEY, [self._ground.plain[place] for place in self._ground.places]))
        names = [name for name in found[0] if all(name in one for one in found)]
        return {name: np.concatenate([one[name] for one in found]) for name in names}

    @cached_property
    def _inputs(self) -> dict[str, Doubles]:
        """What was known of each candidate for eviction that might be chosen.

        A feature that is infinite somewhere, as the weight of what cannot be spilled, would decide alone: it is left
        out.
        """
        states = self._states
        allowed = states[MASK] != 0
        found = {}
        for name, values in states.items():
            wide = values if values.shape == allowed.shape else values.reshape(len(allowed), -1)
            if name != _EVICTED and wide.shape[1] in (1, allowed.shape[1]):
                found[name] = np.broadcast_to(wide, allowed.shape)[allowed].astype(np.float64)
        return {name: values for name, values in found.items() if np.isfinite(values).all()}

    @cached_property
    def _examples(self) -> Examples:
        """What the first model is a clone of."""
        rollouts, plain = self._ground.rollouts, self._ground.plain
        header = rollouts.header(SURVEY, plain)
        if header is None:
            raise AssertionError("a module with decisions has a log")
        if self._options.task != INLINING:
            features = tuple(spec for spec in header.features[:-1] if spec.name in self._inputs)
            inputs = np.column_stack([self._inputs[spec.name] for spec in features])
            nothing = np.zeros(len(inputs))
            return Examples(features, inputs, nothing.astype(np.int64), nothing, self._facts, self._seen)
        there = learnable(header)
        if self._data:
            examples = read_examples(self._data, jobs=self._jobs or rollouts.jobs)
            kept = [number for number, spec in enumerate(examples.features) if spec.name in there]
            if not kept:
                raise UsageError("the datasets and this compiler have no features in common", option="data")
            features = tuple(examples.features[number] for number in kept)
            return Examples(
                features, examples.inputs[:, kept], examples.decisions, examples.weights, examples.data, examples.seen
            )
        states = self._states
        features = tuple(spec for name, spec in there.items() if name in states)
        decisions = states[self._decision].astype(np.int64)
        inputs = np.column_stack([states[spec.name].astype(np.float64) for spec in features])
        return Examples(features, inputs, decisions, np.ones(len(decisions)), self._facts, self._seen)

    @cached_property
    def _facts(self) -> tuple[DataFacts, ...]:
        """What is told of the corpora."""
        return tuple(self._iter_facts())

    def _iter_facts(self) -> Iterator[DataFacts]:
        ground = self._ground
        names = distinct_names([corpus.shown for corpus in ground.rollouts.corpora])
        for number, corpus in enumerate(ground.rollouts.corpora):
            own = ground.of_corpus(number)
            found = ground.rollouts.decisions(SURVEY, [ground.plain[place] for place in own])
            decisions = np.concatenate([np.zeros(0, np.int64), *(one[self._decision] for one in found)])
            yield DataFacts(
                name=names[number],
                digest=str(ground.rollouts.key()["corpora"][number]["corpus"]),
                modules=len(own),
                decisions=len(decisions),
                flips=0,
                known=0.0,
                inlined=float((decisions != 0).mean()) if len(decisions) else 0.0,
                bodies_known=len(own),
                languages=languages_of(corpus, [ground.rollouts.places[place].module.name for place in own]),
            )

    @cached_property
    def _languages(self) -> tuple[str, ...]:
        """Return the languages in which the policy decides; () if it is not known which it has learned."""
        if self._options.task != INLINING:
            return ()
        return languages_known((*self._facts, *self._examples.data))

    @cached_property
    def _seen(self) -> Seen:
        """What the corpora are made of."""
        ground, bodies, modules = self._ground, list[list[int]](), list[Any]()
        for number, corpus in enumerate(ground.rollouts.corpora):
            names = [one.module.name for one in ground.rollouts.places if one.corpus == number]
            functions, _ = read_corpus_functions(corpus, names, jobs=ground.rollouts.jobs)
            bodies.append(functions.of_at_least(MIN_INSTRUCTIONS).hashes.tolist())
            own = functions.by_module(len(names))
            modules += [one.hashes for one in own if (one.instructions >= MIN_INSTRUCTIONS).any()]
        return Seen.of(own_bodies(bodies), modules, MIN_INSTRUCTIONS)

    @cached_property
    def _all_seen(self) -> Seen:
        return self._seen.joined(self._examples.seen) if self._data else self._seen

    # The steps.

    def _evolve(self, learner: Evolution) -> Iterator[tuple[Doubles, int]]:
        """Yield the numbers after each generation, and the compiles that it took."""
        ground = self._ground
        for step in count(1):
            candidates, chosen = learner.ask()
            if (changes := self._taught(step)) is None:
                places = [ground.places[number] for number in chosen]
                policies = [self._policy(numbers) for numbers in candidates]
                outcomes = self._compile(step, [Attempt(place, policy) for policy in policies for place in places])
                size = len(places)
                changes = [ground.sum(places, outcomes[at : at + size]) for at in range(0, len(outcomes), size)]
                self._keep(step, changes)
            learner.tell(changes)
            yield learner.numbers, learner.compiles_of_step

    def _climb(self, learner: Gradient) -> Iterator[tuple[Doubles, int]]:
        """Yield the numbers after each step along the gradient, and the compiles that it took."""
        ground = self._ground
        for step in count(1):
            asked = learner.ask(step)
            if (state := self._taught(step)) is None:
                policy = self._policy(learner.numbers)
                attempts = [Attempt(ground.places[number], policy, drawn) for number, drawn in asked]
                outcomes = self._compile(step, attempts, logs=True)
                logs = ground.rollouts.decisions(_folder_of(step), outcomes)
                episodes = [
                    self._episode(number, ground.change(ground.places[number], outcome), next(logs))
                    for (number, _), outcome in zip(asked, outcomes, strict=True)
                    if outcome.log is not None
                ]
                learner.tell(episodes)
                state = learner.state
                self._keep(step, state)
            learner.restore(state)
            yield learner.numbers, learner.compiles_of_step

    def _episode(self, module: int, change: float, states: dict[str, Any]) -> Episode:
        inputs = np.column_stack([states[spec.name].astype(np.float64) for spec in self._features])
        return Episode(module, change, self._shape.prepared(inputs), states[self._decision].astype(np.int64))

    def _compile(self, step: int, attempts: Sequence[Attempt], *, logs: bool = False) -> list[Rollout]:
        def progress(done: int, _: int) -> None:
            self._listener.progress(self._options.algorithm, self._done + done, self._compiles, self._so_far())

        return self._ground.rollouts.step(_folder_of(step), attempts, logs=logs, progress=progress)

    def _taught(self, step: int) -> Any:
        """Return what a step taught before; None if it was not done."""
        return read_note(self._step_path(step))

    def _keep(self, step: int, taught: Any) -> None:
        """Keep what a step taught; its compiles are forgotten then."""
        write_atomically(self._step_path(step), json.dumps(taught).encode())
        self._ground.rollouts.forget(_folder_of(step))

    def _step_path(self, step: int) -> Path:
        return self._work / f"step-{step:05d}.json"

    # The curve.

    @property
    def _best(self) -> int:
        """The place of the best point."""
        return min(range(len(self._curve)), key=lambda at: self._curve[at].score)

    def _gets_no_better(self) -> bool:
        """Whether training should stop: a policy that decides as at first may still be on its way."""
        moved = any(point.changes != self._curve[0].changes for point in self._curve)
        return moved and len(self._curve) - 1 - self._best >= _PATIENCE

    def _point(self, number: int, numbers: Doubles) -> None:
        """Compile the watched modules by the policy so far, and add what comes of it to the curve."""
        watched = self._watched
        path = self._work / f"point-{number:05d}.json"
        if (known := read_note(path)) is None:
            attempts = [Attempt(place, self._limited(numbers)) for place in watched.places]
            name = f"point-{number}"
            outcomes = watched.rollouts.step(name, attempts, progress=self._listener.of("watching", self._so_far()))
            known = self._measured(outcomes)
            write_atomically(path, json.dumps(known).encode())
            watched.rollouts.forget(name)
        changes, worst = known
        self._curve.append(CurvePoint(self._done, tuple(changes)))
        if self._best == len(self._curve) - 1:
            self._worst, self._best_numbers = worst, numbers
        shown = ", ".join(f"{100 * change:+.2f} %" for change in changes)
        self._listener.announce(f"after {counted(self._done, 'compile')}: {shown}")

    def _measured(self, outcomes: Sequence[Rollout]) -> tuple[list[float], list[tuple[str, int, int]]]:
        """Return the change of each watched corpus, and the modules that grew most."""
        watched, rollouts = self._watched, self._watched.rollouts
        found = dict(zip(watched.places, outcomes, strict=True))
        changes = []
        for number in range(len(rollouts.corpora)):
            places = watched.of_corpus(number)
            changes.append(watched.sum(places, [found[place] for place in places]))
        sizes = [
            (rollouts.name_of(place), one.text_size, watched.plain[place].baseline_text_size)
            for place, one in found.items()
            if one.is_ok and one.text_size > watched.plain[place].baseline_text_size
        ]
        return changes, sorted(sizes, key=lambda item: (-item[1] / max(1, item[2]), item[0]))[:_WORST]

    def _so_far(self) -> str:
        means = [sum(point.changes) / len(point.changes) for point in self._curve[-3:]]
        return ", ".join(f"{100 * mean:+.2f} %" for mean in means)

    # Messages.

    def _announce(self) -> None:
        """Announce the number of compiles, and how long they take, estimated from those that were measured."""
        ground, watched = self._ground, self._watched
        jobs = ground.rollouts.jobs
        compiles, points = self._compiles, (_POINTS + 1) * len(watched.places)
        seconds = (compiles * ground.seconds + points * watched.seconds) / jobs
        what = "validation modules" if watched is not ground else "training modules"
        self._listener.announce(
            f"up to {compiles} compiles of {counted(len(ground.places), 'module')}, and {points} of "
            f"{len(watched.places)} {what} for the curve: about {human_seconds(seconds)}, {jobs} at a time"
        )

    def _hints(self) -> Iterator[str]:
        ground = self._ground
        if ground.failed:
            first = ground.failed[0]
            what = f"{ground.rollouts.name_of(first)}: {ground.plain[first].detail}"
            yield f"{counted(len(ground.failed), 'module')} cannot be compiled, first {what}"
        if not self._best:
            yield "no step did better than the policy that training began with, which is the result: raise `budget`"
        if self._watched is self._ground:
            yield "the curve is of the modules that it learns from: `validation` watches others"
            return
        for number, corpus in enumerate(self._watched.rollouts.corpora):
            if not any(point.changes[number] for point in self._curve):
                yield f"{corpus.shown}: the policy changes nothing in it: watch a project in {self._spoken()}"
            known, count = self._known(number)
            if known:
                what = f"{known} of {counted(count, 'module')}" if known < count else "all that it has"
                yield f"{corpus.shown}: {what} is what it learns from: watch a project that the policy does not know"

    def _spoken(self) -> str:
        return " or ".join(self._languages) or "another language"

    def _known(self, number: int) -> tuple[int, int]:
        """Return how many modules of a watched corpus training has seen, and how many it has."""
        rollouts = self._watched.rollouts
        names = [rollouts.places[place].module.name for place in self._watched.of_corpus(number)]
        functions, _ = read_corpus_functions(rollouts.corpora[number], names, jobs=rollouts.jobs)
        shares = (self._all_seen.share(one.hashes, one.instructions) for one in functions.by_module(len(names)))
        return sum(share >= TRAINED_SHARE for share in shares), len(names)

    def _policy(self, numbers: Doubles) -> LearnedPolicy:
        return LearnedPolicy(self._name, self._options.task, self._features, self._shape.model(numbers))

    def _limited(self, numbers: Doubles) -> LearnedPolicy:
        """Return the policy as it will be used: it decides in modules of the languages that it has learned."""
        return replace(self._policy(numbers), languages=self._languages)


def _folder_of(step: int) -> str:
    return f"step-{step}"
