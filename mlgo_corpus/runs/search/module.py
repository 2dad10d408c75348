"""One module's search, and the trace of what it found.

Each compile is a live session whose decisions are planned: those that are tried, and for all others the start policy's.
What the compiler asks is aligned with the plan (`mlgo_corpus.runs.search.align`). The remarks of the same compile name
the calls, and the object tells the bytes of each function.

LLVM 17 to 20 overwrite a feature with LLVM's own decision, by which a search goes. A policy that needs that feature
first decides in a compile of its own, which counts, and what it decided there is decided again by key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from mlgo_corpus.compilers.compile import ModuleCompiles, run_folder
from mlgo_corpus.compilers.failures import RunFailure, classify
from mlgo_corpus.compilers.session import InteractiveSession, LiveObservation, record_dtype
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.flips import FlipRow, SearchRow, flip_batch
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.engine.choice import Lost
from mlgo_corpus.errors import FormatError, ProtocolError, ToolError, UsageError
from mlgo_corpus.files.tables import write_batch
from mlgo_corpus.formats.commands.languages import language_of_command
from mlgo_corpus.formats.logs.events import LogHeader, parse_header
from mlgo_corpus.formats.logs.keys import Key, key_maker, stable_features
from mlgo_corpus.formats.logs.remarks import decision_options
from mlgo_corpus.formats.logs.tasks import INLINING, find_task, for_clang
from mlgo_corpus.formats.objects.footprints import Exports, function_footprints, linked_footprints, names_by_symbol
from mlgo_corpus.policies.conversation import (
    MISPLACED_DEFAULT,
    MISPLACED_IN,
    asks_default,
    begin_with,
    decides_in,
    learned_policy,
    misplaced,
    repair_of,
)
from mlgo_corpus.policies.keyed import KeyedPolicy, growth_options
from mlgo_corpus.policies.policy import DefaultPolicy, Policy, check_sent, is_learned, make_policy, policy_name
from mlgo_corpus.runs.search.climb import (
    CompileFailedError,
    DecidedPlace,
    Decision,
    Found,
    Guide,
    Mixed,
    Moved,
    Outcome,
    Plan,
    Rule,
    SingleGuide,
    climb,
    draw_guides,
)
from mlgo_corpus.runs.search.follow import (
    ByDefault,
    ByMixture,
    ByPolicy,
    ByRule,
    Decider,
    Follower,
    NativeFollower,
    SingleDecider,
    make_follower,
    native_library,
)
from mlgo_corpus.runs.search.rounds import (
    SoFar,
    Unweighed,
    Weights,
    digests_of,
    functions_in,
    mergeable_functions,
    weighted_size,
    write_held,
)
from mlgo_corpus.runs.search.worth import expected_savings
from mlgo_corpus.runs.trace.baseline import PlainCompile
from mlgo_corpus.runs.trace.module import TracedModule, TraceItem, TraceJob, TraceSettings, read_calls

_CHANNEL: Final = "channel"
_REMARKS: Final = "remarks"
# The policy that decides as LLVM does.
_LLVM: Final = "default"
# The name of a round's best compile among the outcomes that it keeps; the next round begins with it.
_BEST: Final = "best"


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """The settings of all modules' searches.

    Attributes:
        trace: those of the trace of what is found.
        start: the policy whose decisions the search begins with.
        budgets: the most compiles of a module in each round.
        time_limit: the most seconds of a module's search; None for no limit.
        seed: of the search's choices.
        linked: whether a function that several objects hold counts less, see `mlgo_corpus.runs.search.rounds`.
        folded: whether functions that are alike do, too.
        also: the policies whose decisions are tried, too.
    """

    trace: TraceSettings
    start: str
    budgets: tuple[int, ...]
    time_limit: float | None
    seed: int
    linked: bool
    folded: bool = False
    also: tuple[str, ...] = ()

    def round_folder(self, number: int) -> Path:
        """Return the folder of what a round left, for the next one; that of the plain compiles has the number -1."""
        return self.trace.work / (f"round-{number + 1}" if number >= 0 else "survey")

    def counts(self, number: int) -> Path:
        """Return the place of what is known of all objects in a round; it is there when what comes before is done."""
        return self.round_folder(number - 1) / "counts.npy"

    def latest(self, number: int, name: str) -> Path | None:
        """Return the file of the latest round before one that has it: a round may fail, or leave a module out."""
        places = (self.round_folder(earlier) / name for earlier in range(number - 1, -2, -1))
        return next((place for place in places if place.is_file()), None)

    def held(self, number: int, module: str, linked_with: str) -> Path | None:
        """Return the file of the functions that a module's object holds before a round."""
        return self.latest(number, _held_name(module, linked_with))

    def so_far(self, number: int, module: str) -> SoFar:
        """Return what a module's rounds before one found."""
        place = self.latest(number, _so_far_name(module))
        return SoFar() if place is None else SoFar.read(place)

    def outcome(self, number: int, module: str, asked: str) -> Path | None:
        """Return the file of what a compile of a module came to in a round before one."""
        return self.latest(number, _outcome_name(module, asked))

    def weights(self, item: SearchItem, number: int) -> Weights:
        """Return what a byte of each of a module's functions counts in a round; in the first, by the plain objects."""
        held = self.held(number, item.module.name, item.linked_with)
        own = np.empty((2, 0), np.uint64) if held is None else np.load(held)
        counts = self.counts(number) if self.linked else None
        return Weights(counts, own, item.linked_with, kept=number > 0, folded=self.folded)


class SearchItem(NamedTuple):
    """One module to search.

    Attributes:
        number: among those of the run.
        module: what is searched.
        linked_with: the name of those that it is linked with.
        exports: what is exported of it.
    """

    number: int
    module: Module
    linked_with: str
    exports: Exports = Exports.NOTHING

    @property
    def traced(self) -> TraceItem:
        """The same for the trace of what is found."""
        return TraceItem(self.number, self.module)


class _ModuleSearch:
    """The compiles of one module's search.

    Args:
        settings: of the search.
        item: the module.
        folder: empty, and the search's own.
        weight: what a byte of a function counts.
        measure: what it counts in reports.

    Attributes:
        header: the compiler's, None before the first decision.
        policies: those to try: what decides otherwise than the start policy in the module's language.
        learned: the learned ones of these and of the start policy.
        untried: why one of these cannot be tried, ``POLICY: WHY``, in order.

    Raises:
        RunFailure: the module cannot be compiled.
    """

    def __init__(
        self,
        settings: SearchSettings,
        item: SearchItem,
        folder: Path,
        weight: Callable[[str], float],
        measure: Callable[[str], float] | None = None,
    ) -> None:
        trace = settings.trace
        self._settings = settings
        self._name = item.module.name
        self._exports = item.exports
        self._functions = functions_in(item.module)
        self._weight, self._measure = weight, measure or weight
        self._compiles = ModuleCompiles(item.module, folder, trace.edits, trace.limits, stop=trace.stop)
        self._compiles.place()
        task = find_task(INLINING)
        self._repair = partial(repair_of, task, trace.major)
        options = self._compiles.options(trace.cc1)
        language = language_of_command(options)
        named = (settings.start, *settings.also)
        start, *also = (one if decides_in(learned_policy(one), language) else _LLVM for one in named)
        self._start = start
        self.policies = tuple(one for one in dict.fromkeys(also) if one != start)
        self.learned = tuple(filter(is_learned, (start, *self.policies)))
        self._policies: dict[str | Moved, Policy] = {}
        policies = (start, *self.policies)
        self._misled = {one for one in policies if not asks_default(learned_policy(one), task, trace.major)}
        self._foreseen: dict[Guide, Policy | None] = {}
        self.conversations = 0
        self.untried: dict[str, None] = {}
        self._options = options
        self._argv = self._command()
        self.header: LogHeader | None = None
        native_library()  # it may have to be compiled, which is not to count as a compiler's time

    def _command(self, *, default: bool = True) -> tuple[str, ...]:
        """Return the compiler's command; it sends LLVM's own decision, or not."""
        trace, options = self._settings.trace, self._options
        channel = find_task(INLINING).channel_options(_CHANNEL, default=default)
        extra = for_clang((*channel, *growth_options(options)))
        extra = (*extra, *decision_options(trace.major), _REMARKS)
        return (*trace.cc1, *self._compiles.command(options, *extra))

    def compile(self, plan: Plan, guide: Guide | None = None) -> Unweighed:
        """Compile by a plan.

        Raises:
            CompileFailedError: it failed.
            RunFailure, OSError: the disk is full, which tells nothing of the plan. As in a trace, the module fails if
                the compiler says so, and the whole run ends if this process cannot write.
        """
        try:
            return self._compile(plan, guide)
        except (RunFailure, ToolError, ProtocolError, OSError) as error:
            failure = error if isinstance(error, RunFailure) else RunFailure(*classify(error))
            if failure.reason is not RunReason.DISK_FULL:
                raise CompileFailedError(str(error)) from error
            if isinstance(error, OSError):
                raise
            raise failure from error
        except (FormatError, UsageError) as error:
            if isinstance(error, UsageError):
                self._leave_out(guide, error)
            raise CompileFailedError(str(error)) from error

    def can_follow(self, guide: Guide) -> bool:
        """Return False if a guide cannot decide by what this compiler sends, so that its compile would fail."""
        if self.header is None or isinstance(guide, Rule) or guide == _LLVM:
            return True
        if isinstance(guide, Mixed):
            return all(map(self.can_follow, guide.among))
        try:
            check_sent(self._policy(guide), self.header)
        except UsageError as error:
            self._leave_out(guide, error)
            return False
        return True

    def repeats(self, guide: Guide, outcome: Outcome) -> bool:
        """Return True if a guide, at each state of an outcome, decides as that did: its compile would be the same."""
        header = self.header
        if header is None or (isinstance(guide, str) and guide != _LLVM and not is_learned(guide)):
            return False  # another policy may go by what came before, or by chance
        if _policy_of(guide) in self._misled:
            return False  # the outcome's states lack what it decides by
        dtype = record_dtype(header)
        try:
            decider = self._decider(guide, header)
        except UsageError:  # its compile fails
            return False
        return all(
            decider.decide(LiveObservation(None, 0, decision.tensors, dtype)) == decision.decided
            for decision in outcome.decisions
        )

    def weigh(self, one: Unweighed) -> Outcome:
        """Return an outcome with the objectives of this round, which may be of a compile of an earlier one."""
        decisions: tuple[Decision, ...] = ()
        if self.header is not None:  # it is there as soon as there is a decision
            key_of = key_maker(self.header)
            worths = expected_savings(self.header, one.tensors, [call[-1] for call in one.calls])
            decisions = tuple(
                Decision(key_of(tensors), *call, tensors, worth)
                for call, tensors, worth in zip(one.calls, one.tensors, worths, strict=True)
            )
        sizes = one.text_size, one.sizes, one.entries
        objective, measured = (weighted_size(*sizes, by) for by in (self._weight, self._measure))
        return Outcome(decisions, one.sizes, objective, one.text_size, measured, one.mergeable, entries=one.entries)

    def _compile(self, plan: Plan, guide: Guide | None) -> Unweighed:
        compiles = self._compiles
        self._foresee(self._start)
        self._foresee(guide)
        header, decided = self._converse(self._argv, self.header, partial(self._follower, plan, guide))
        self.header = header or self.header
        inlined = [decision != 0 for _, decision, _ in decided]
        calls = read_calls(compiles.folder / _REMARKS, inlined) if decided else []
        data = compiles.read_object()
        text_size = compiles.measure(data).text_size
        names = names_by_symbol(data, self._functions)
        settings = self._settings
        mergeable: dict[str, int | None] = {}
        entries: dict[str, int] = {}
        if settings.linked:
            sizes, entries = linked_footprints(data, names, exports=self._exports)
            mergeable = mergeable_functions(data, sizes, names, folded=settings.folded)
        else:
            sizes = function_footprints(data, names)
        named = ((call.caller, call.callee, *one[:2]) for one, call in zip(decided, calls, strict=True))
        return Unweighed(tuple(named), tuple(tensors for *_, tensors in decided), sizes, text_size, mergeable, entries)

    def _converse(
        self,
        argv: tuple[str, ...],
        known: LogHeader | None,
        follower_of: Callable[[LogHeader], Follower | NativeFollower],
    ) -> tuple[LogHeader | None, Sequence[tuple[int, int, bytes]]]:
        """Compile, and return the compiler's header, if it asks at all, and what was asked and decided.

        Args:
            argv: the command.
            known: the header to expect; None for any.
            follower_of: returns what answers a compiler with a header.
        """
        compiles = self._compiles
        compiles.empty()
        self.conversations += 1
        session = InteractiveSession(argv, compiles.folder / _CHANNEL, **compiles.keywords(), repair=self._repair)
        followers: list[Follower | NativeFollower] = []
        with session:
            header = None
            for observation in session:
                if session.header is not header:
                    if (header := session.header) is None or known not in (None, header):
                        raise FormatError("the compiler asks again, with other features")
                    known = header
                    followers.append(follower_of(header))
                session.advise(followers[-1].decide(observation))
                if isinstance(followers[-1], NativeFollower):
                    session.hand_over(followers[-1])
        return header, [one for follower in followers for one in follower.decided()]

    def _foresee(self, guide: Guide | None) -> None:
        """Find out what a policy decides where LLVM's own decision does not overwrite what it decides by."""
        policy = _policy_of(guide)
        if guide is None or policy is None or guide in self._foreseen or policy not in self._misled:
            return
        argv = self._command(default=False)
        header, decided = self._converse(
            argv, None, lambda header: make_follower(header, (), self._decider(guide, header), None, None)
        )
        self._foreseen[guide] = None
        if header is not None:
            features = tuple(spec for spec in stable_features(header) if spec.name != MISPLACED_IN)
            key_of = key_maker(header, features)
            decisions = {key_of(tensors): decision for _, decision, tensors in decided}
            otherwise = self._policy(guide if isinstance(guide, str | Moved) else policy)
            self._foreseen[guide] = KeyedPolicy(decisions, otherwise, features)

    def _follower(self, plan: Plan, guide: Guide | None, header: LogHeader) -> Follower | NativeFollower:
        """Return what answers by a plan."""
        base, other = self._decider(self._start, header), None if guide is None else self._decider(guide, header)
        misplaced_default = misplaced(find_task(INLINING), self._settings.trace.major, header)
        return make_follower(header, plan, base, other, misplaced_default)

    def _decider(self, guide: Guide, header: LogHeader) -> Decider:
        """Return what decides as a guide does."""
        if (foreseen := self._foreseen.get(guide)) is not None:
            return self._by_policy(foreseen, header)
        if isinstance(guide, Mixed):
            return ByMixture([self._single_decider(one, header) for one in guide.among], guide.seed, header)
        return self._single_decider(guide, header)

    def _single_decider(self, guide: SingleGuide, header: LogHeader) -> SingleDecider:
        if isinstance(guide, Rule):
            return ByRule(guide, header)
        if guide == _LLVM:
            return ByDefault(header)
        return self._by_policy(self._policy(guide), header)

    def _by_policy(self, policy: Policy, header: LogHeader) -> ByPolicy:
        begin_with(policy, header, self._name)
        return ByPolicy(policy, header)

    def _policy(self, guide: str | Moved) -> Policy:
        if guide not in self._policies:
            name, by = (guide, 0.0) if isinstance(guide, str) else guide
            self._policies[guide] = make_policy(name, find_task(INLINING), seed=self._settings.seed, moved=by)
        return self._policies[guide]

    def _leave_out(self, guide: Guide | None, error: UsageError) -> None:
        if (name := _policy_of(guide)) is not None:
            self.untried[f"{policy_name(name)}: {error}"] = None


def _policy_of(guide: Guide | None) -> str | None:
    """Return the name of the policy that a guide decides by; None for a rule."""
    if isinstance(guide, Mixed):
        return next(filter(None, map(_policy_of, guide.among)), None)
    if isinstance(guide, Moved):
        return guide.policy
    return guide if isinstance(guide, str) else None


class _RoundOutcome(NamedTuple):
    """The outcome of a round for one module, or of its plain compile.

    Attributes:
        held: the file of the functions that its object holds and others may hold, too; empty if there is none.
        saved: bytes of text saved so far.
    """

    held: str = ""
    saved: int = 0


@dataclass(frozen=True, slots=True)
class _CountedJob:
    """What is done to a module before a round: which functions its object holds then is counted.

    Attributes:
        settings: of the search.
        number: of the round that it is, -1 for the plain compiles.
    """

    settings: SearchSettings
    number: int = -1

    @property
    def work(self) -> Path:
        """The folder for work under way."""
        return self.settings.round_folder(self.number)

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler."""
        return self.settings.trace.cc1[:1]

    @property
    def trusted(self) -> bool:
        """Whether it runs without walls."""
        return self.settings.trace.edits.trusted

    def lost(self, item: SearchItem, lost: Lost) -> _RoundOutcome:  # noqa: ARG002 - a module that fails holds nothing
        """Return the outcome for a module whose worker died."""
        return _RoundOutcome()

    def outcome(self, record: Any) -> _RoundOutcome:
        """Return the outcome that JSON held."""
        return _RoundOutcome(*record)

    def is_whole(self, item: SearchItem, outcome: _RoundOutcome) -> bool:
        """Return True if the files are there that a next round needs."""
        return bool(outcome.held) and all((self.work / name).is_file() for name in self._files(item))

    def _files(self, item: SearchItem) -> tuple[str, ...]:
        return (_held_name(item.module.name, item.linked_with),)

    def _held(self, item: SearchItem, functions: Mapping[str, int | None], saved: int = 0) -> _RoundOutcome:
        """Keep the functions that an object holds and others may hold, too, in a file."""
        name = _held_name(item.module.name, item.linked_with)
        write_held(self.work / name, digests_of(functions, item.linked_with))
        return _RoundOutcome(name, saved)


@dataclass(frozen=True, slots=True)
class SurveyJob(_CountedJob):
    """The plain compile of one module, to find out which functions its object shares with others."""

    @property
    def limit_s(self) -> float:
        """Seconds that the compile may take."""
        return self.settings.trace.limits.timeout

    def run(self, item: SearchItem) -> _RoundOutcome:
        """Compile, and keep which functions the object holds that others may hold, too.

        Raises:
            OSError: the work folder cannot be written.
        """
        trace = self.settings.trace
        with run_folder(self.work) as folder:
            compiles = ModuleCompiles(item.module, folder, trace.edits, trace.limits, stop=trace.stop)
            try:
                compiles.place()
                command, digest = compiles.command(compiles.options(trace.cc1)), sha256(compiles.read_bitcode())
                # The trace of what is found compares with this compile, too.
                ids = digest.hexdigest(), trace.compiler_id, trace.baselines
                PlainCompile(compiles, trace.cc1, command, *ids).run()
                data = compiles.read_object()
                names = names_by_symbol(data, functions_in(item.module))
                sizes = function_footprints(data, names)
                held = mergeable_functions(data, sizes, names, folded=self.settings.folded)
            except (RunFailure, FormatError):
                return _RoundOutcome()
        return self._held(item, held)


@dataclass(frozen=True, slots=True)
class RoundJob(_CountedJob):
    """A round of a module's search that is not the last one, as `mlgo_corpus.runs.over` does it to every module."""

    @property
    def limit_s(self) -> float:
        """Seconds that the compiles of one module may take together."""
        settings = self.settings
        # A policy may decide in a compile of its own before.
        timeout = settings.trace.limits.timeout * (1 + (settings.trace.major in MISPLACED_DEFAULT))
        compiles = settings.budgets[self.number] * timeout
        limit = self._time_limit()
        return compiles if limit is None else min(compiles, limit + timeout)

    def run(self, item: SearchItem) -> _RoundOutcome:
        """Search, and keep what was found for the next round.

        Raises:
            OSError: the work folder cannot be written.
        """
        searched = self.search(item)
        if searched is None:
            return _RoundOutcome()
        so_far, best = searched.so_far(), searched.found.best
        Unweighed.of(best).write(self.work / _outcome_name(item.module.name, _BEST))
        so_far.write(self.work / _so_far_name(item.module.name))
        return self._held(item, best.mergeable, so_far.baseline_text_size - best.text_size)

    def search(self, item: SearchItem) -> _Searched | None:
        """Search; None if the module cannot be compiled, or there is nothing to decide."""
        settings, number = self.settings, self.number
        before = settings.so_far(number, item.module.name)
        started, limit = time.monotonic(), self._time_limit()
        first_seed = f"{settings.seed}:{item.module.name}"
        seed = first_seed + f":{number}" * (number > 0)
        generator, drawing = random.Random(seed), random.Random(first_seed)  # noqa: S311 - an experiment, no secret
        weight, measure = settings.weights(item, number), settings.weights(item, 0)
        budget, in_all, until = settings.budgets[number], sum(settings.budgets), sum(settings.budgets[: number + 1])
        with run_folder(settings.trace.work) as folder:
            try:
                search = _ModuleSearch(settings, item, folder, weight, measure)
                if before.header:
                    search.header = parse_header(before.header.encode("latin-1"))
                found = climb(
                    partial(self._compile, search, item.module.name, before.plan),
                    budget,
                    generator,
                    weight=weight,
                    over=lambda: limit is not None and before.wall_s + time.monotonic() - started > limit,
                    guides=filter(search.can_follow, draw_guides(in_all, drawing, search.policies, search.learned)),
                    begin=before.plan,
                    tried=(places for _, places in before.flips),
                    most_guides=until // 2,
                    repeats=search.repeats,
                )
            except (RunFailure, CompileFailedError):
                return None
        if not found.first.decisions or search.header is None:
            return None
        return _Searched(before, found, search.header, time.monotonic() - started, tuple(search.untried))

    def _compile(
        self, search: _ModuleSearch, module: str, begin: Plan, plan: Plan, guide: Guide | None = None
    ) -> Outcome:
        """Compile by a plan, or read what that came to: rounds begin with what was best, and have the same guides."""
        asked = _BEST if plan and plan is begin else None if guide is None else repr(guide)
        known = None if asked is None else self.settings.outcome(self.number, module, asked)
        if known is not None and search.header is not None:
            return search.weigh(Unweighed.read(known))._replace(compiles=0)
        before = search.conversations
        made = search.compile(plan, guide)
        if asked is not None and self.number + 1 < len(self.settings.budgets):
            made.write(self.work / _outcome_name(module, asked))
        return search.weigh(made)._replace(compiles=search.conversations - before)

    def _time_limit(self) -> float | None:
        """Return how many seconds a module's search may have taken when this round is over."""
        settings = self.settings
        if settings.time_limit is None:
            return None
        return settings.time_limit * sum(settings.budgets[: self.number + 1]) / sum(settings.budgets)

    def _files(self, item: SearchItem) -> tuple[str, ...]:
        return (_held_name(item.module.name, item.linked_with), _so_far_name(item.module.name))


class _Searched(NamedTuple):
    """A round of a module's search, and what was found before it."""

    before: SoFar
    found: Found
    header: LogHeader
    wall_s: float
    untried: tuple[str, ...]

    def so_far(self) -> SoFar:
        """Return what all rounds found."""
        before, found = self.before, self.found
        has = found.test()
        # Outcomes that are read do not advance the count, so one count may have several points: keep the last.
        curve = dict((*before.curve, *((before.compiles + count, objective) for count, objective in found.curve)))
        flips = ((row, places) for row, places in (*before.flips, *_flip_rows(found, before.compiles)))
        return SoFar(
            plan=tuple((decision.key, decision.decided) for decision in found.best.decisions),
            compiles=before.compiles + found.compiles,
            baseline_text_size=before.baseline_text_size or found.first.text_size,
            baseline_objective=before.baseline_objective or found.first.measured,
            curve=tuple(curve.items()),
            flips=tuple((row._replace(kept=has(places)), places) for row, places in flips),
            wall_s=before.wall_s + self.wall_s,
            kept=sum(decision.decided != decision.base for decision in found.best.decisions),
            text_size=found.best.text_size,
            objective=found.best.measured,
            header=self.header.line.decode("latin-1"),
            untried="\n".join(dict.fromkeys((*before.untried.splitlines(), *self.untried))),
        )


@dataclass(frozen=True, slots=True)
class SearchJob:
    """The last round of a module's search, and the trace of what was found."""

    settings: SearchSettings

    @property
    def work(self) -> Path:
        """The folder for work under way."""
        return self.settings.trace.work

    @property
    def limit_s(self) -> float:
        """Seconds that the compiles of one module may take together."""
        return self._round.limit_s + self._trace.limit_s

    @property
    def programs(self) -> tuple[str, ...]:
        """The compiler."""
        return self._trace.programs

    @property
    def trusted(self) -> bool:
        """Whether it runs without walls."""
        return self._trace.trusted

    @property
    def _trace(self) -> TraceJob:
        return TraceJob(self.settings.trace)

    @property
    def _round(self) -> RoundJob:
        return RoundJob(self.settings, len(self.settings.budgets) - 1)

    def run(self, item: SearchItem) -> TracedModule:
        """Search, and trace what was found; what goes wrong with the module is in the row.

        Raises:
            OSError: the work folder, or a folder for copies, cannot be written.
        """
        settings = self.settings
        searched, module = self._round.search(item), item.module.name
        so_far = settings.so_far(self._round.number, module) if searched is None else searched.so_far()
        if not so_far.compiles:
            start = partial(make_policy, settings.start, find_task(INLINING), seed=settings.seed)
            return TraceJob(replace(settings.trace, make=start)).run(item.traced)
        make = partial(_keyed, dict(so_far.plan))
        traced = TraceJob(replace(settings.trace, make=make)).run(item.traced)
        if traced.log is not None:
            rows = [row for row, _ in so_far.flips]
            header = parse_header(so_far.header.encode("latin-1"))
            write_batch(flips_of(self.work, traced.log), flip_batch(header, module, rows))
        row = SearchRow(
            module=module,
            compiles=so_far.compiles,
            flips=len(so_far.flips),
            kept=so_far.kept,
            baseline_text_size=so_far.baseline_text_size,
            text_size=so_far.text_size,
            baseline_objective=so_far.baseline_objective,
            objective=so_far.objective,
            found_after=_found_after(so_far.curve),
            wall_s=so_far.wall_s,
            untried=so_far.untried,
        )
        return traced._replace(more=row)

    def lost(self, item: SearchItem, lost: Lost) -> TracedModule:
        """Return the outcome for a module whose worker died."""
        return self._trace.lost(item.traced, lost)

    def outcome(self, record: Any) -> TracedModule:
        """Return the outcome that JSON held."""
        traced = self._trace.outcome(record)
        return traced if traced.more is None else traced._replace(more=SearchRow(*traced.more))

    def is_whole(self, item: SearchItem, outcome: TracedModule) -> bool:
        """Return True if the search went well, and all that it left is there."""
        if not self._trace.is_whole(item.traced, outcome):
            return False
        return outcome.more is None or outcome.log is None or flips_of(self.work, outcome.log).is_file()


def _keyed(decisions: Mapping[Key, int]) -> Policy:
    return KeyedPolicy(decisions, DefaultPolicy())


def flips_of(work: Path, log: str) -> Path:
    """Return the place of the flips of a module's search, which is beside its log."""
    return work / f"{log.partition('.')[0]}.flips"


def _flip_rows(found: Found, compiles: int) -> Iterator[tuple[FlipRow, tuple[DecidedPlace, ...]]]:
    """Yield the flips of a round, with the places and decisions of each, after so many compiles before it."""
    for tried in found.tried:
        flip = tried.flip
        first = flip.calls[0]
        row = FlipRow(
            compile=compiles + tried.compile,
            others=tried.others,
            caller=first.caller,
            callee=first.callee,
            calls=len(flip.calls),
            base=first.base,
            tried=1 - first.decided,
            text_effect=tried.text_effect,
            effect=tried.effect,
            kept=False,
            tensors=first.tensors,
        )
        yield row, flip.decided


def _found_after(curve: Iterable[tuple[int, float]]) -> str:
    """Return a curve as text, without the points that this shows as no better than the one before."""
    points = ((number, f"{objective:.12g}") for number, objective in curve)
    return " ".join(f"{next(alike)[0]}:{text}" for text, alike in groupby(points, lambda point: point[1]))


def _so_far_name(module: str) -> str:
    return f"{_digest(module)}.json"


def _outcome_name(module: str, asked: str) -> str:
    return f"{_digest(module)}-{_digest(asked)}.outcome"


def _held_name(module: str, linked_with: str) -> str:
    # Rollouts survey several corpora together, whose modules may have the same name.
    digest = _digest(f"{linked_with}\0{module}")
    return f"held-{digest}.npy"


def _digest(name: str) -> str:
    # A module's number would not do: a survey is of all modules, a round of those that were chosen.
    return sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
