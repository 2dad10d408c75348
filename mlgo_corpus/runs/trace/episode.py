"""One compile of a module that waits at each decision, for a program that decides as it goes.

It is a trace of the module turned inside out: the same compiles, the same command, the same sizes, but no policy that
is called and no log. The time that is taken to decide does not count: a learner may think as long as it likes.

Which call a decision of inlining is about is known at the end only. A live session does not name it, and LLVM writes
the remark that does when the decision has been carried out, through a buffer. The function that registers are allocated
in is known at once: it is the observation's context.

LLVM's own score of each decision is only in a training log, and development mode has no live session. So that is a
second compile, at the end, by a policy that decides as the episode did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.compile import Compiled, ModuleCompiles, check_bitcode, run_folder
from mlgo_corpus.compilers.failures import RunFailure, module_failure
from mlgo_corpus.compilers.session import InteractiveSession, LiveObservation
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.dataset.loaded import read_log
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.errors import FormatError, ProtocolError, ToolError, UsageError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.remarks import DecidedCall, decision_options
from mlgo_corpus.formats.logs.tasks import for_clang
from mlgo_corpus.policies.conversation import repair_of
from mlgo_corpus.policies.embedded import place_replay
from mlgo_corpus.policies.keyed import growth_options
from mlgo_corpus.runs.trace.baseline import PlainCompile
from mlgo_corpus.runs.trace.module import TraceSettings, read_calls, size_model_options

DELTA_SIZE: Final = "delta_size"
"""LLVM's name of its score of a decision of inlining, by a model of native size."""

_CHANNEL: Final = "channel"
_REMARKS: Final = "remarks"
_LOG: Final = "training.log"
_REPLAY: Final = "replay"


class EpisodeOutcome(NamedTuple):
    """The outcome of an episode.

    Attributes:
        compiled: the object's sizes; ``data`` is the object.
        baseline: the plain object's sizes.
        calls: the calls that the decisions were about, in their order, if they were asked for.
    """

    compiled: Compiled
    data: Buffer
    baseline: Compiled
    calls: tuple[DecidedCall, ...]


class Episode:
    """One compile of a module: entering the context begins it, leaving it ends the compiler, wherever that is.

    Iteration yields the observations; call `advise` once for each before the next, as with an `InteractiveSession`.

    Args:
        settings: as of a trace by a policy: who decides, and how it is seen, does not matter.
        module: the module.
        default: whether the heuristic's decision is sent, too, where it can be.
        plain: whether the plain object is wanted itself; else what is remembered of it is enough.

    Attributes:
        header: the compiler's, None before the first decision.
        plain_object: the plain object, if it was wanted.
        outcome: None before the iteration has ended.

    Raises:
        RunFailure: the module cannot be compiled; on entering, in iterating, or in `advise`.
        OSError: a disk is full.
    """

    def __init__(self, settings: TraceSettings, module: Module, *, default: bool = True, plain: bool = False) -> None:
        self.header: LogHeader | None = None
        self.plain_object: Buffer | None = None
        self.outcome: EpisodeOutcome | None = None
        self._settings = settings
        self._module = module
        self._default = default
        self._plain = plain
        self._inlined: list[bool] = []
        self._asked = 0.0

    def __enter__(self) -> Episode:
        with ExitStack() as stack:
            folder = stack.enter_context(run_folder(self._settings.work))
            self._compiles = ModuleCompiles(
                self._module, folder, self._settings.edits, self._settings.limits, stop=self._settings.stop
            )
            try:
                self._session = stack.enter_context(self._prepared())
            except ToolError as error:
                self._compiles.fail(error)
            except OSError as error:
                raise module_failure(error) from None
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def __iter__(self) -> Iterator[LiveObservation]:
        return self

    def __next__(self) -> LiveObservation:
        try:
            observation = next(self._session, None)
        except (ToolError, ProtocolError) as error:
            self._compiles.fail(error)
        if observation is None:
            self._end()
            raise StopIteration
        if self._session.header is not self.header:
            self._use_header()
        self._asked = time.monotonic()
        return observation

    def advise(self, decision: float) -> None:
        """Decide on the last observation: a valid decision, which is not checked here."""
        self._session.extend(time.monotonic() - self._asked)
        try:
            self._session.advise(decision)
        except ToolError as error:
            self._compiles.fail(error)
        self._inlined.append(decision != 0)

    def scores(self) -> NDArray[np.int64]:
        """Compile again, in development mode, by the decisions of an episode that has ended; return LLVM's scores.

        The settings have a model of native size, and the compiler writes training logs.

        Raises:
            RunFailure: the compile failed, or did something else than the episode.
            OSError: a disk is full.
        """
        settings, compiles = self._settings, self._compiles
        if self.outcome is None or settings.ir2native_model is None:
            raise AssertionError("an episode that has ended has scores, by a model")
        compiles.empty()
        try:
            place_replay(self._inlined, compiles.folder / _REPLAY)
        except UsageError as error:
            raise RunFailure(RunReason.POLICY_ERROR, str(error)) from None
        task = settings.the_task
        extra = (*task.log_options(_LOG), *task.model_options(_REPLAY))
        extra += size_model_options(settings.ir2native_model, compiles.folder)
        extra += growth_options(self._options)
        argv = (*settings.cc1, *compiles.command(self._options, *for_clang(extra)))
        compiles.run(argv)
        if not (compiles.folder / _LOG).is_file():
            raise RunFailure(RunReason.NO_LOG, "the compiler wrote no training log")
        try:
            columns = read_log(compiles.folder / _LOG).to_numpy()
        except FormatError as error:
            raise RunFailure(RunReason.UNREADABLE_LOG, str(error.at(None))) from None
        if DELTA_SIZE not in columns or task.decision not in columns:
            raise RunFailure(RunReason.OTHER_HEADER, f"expected a log of {task.name} with {DELTA_SIZE}, found another")
        decided = columns[task.decision].astype(bool).tolist()
        if decided != self._inlined or compiles.measure(compiles.read_object()) != self.outcome.compiled:
            raise RunFailure(RunReason.UNREADABLE_LOG, "the log is not of the episode's decisions")
        scores: NDArray[np.int64] = columns[DELTA_SIZE]
        return scores

    def _prepared(self) -> InteractiveSession:
        """Compile plainly, unless that is known, and return the session to begin."""
        settings, compiles = self._settings, self._compiles
        compiles.place()
        data = compiles.read_bitcode()
        check_bitcode(data)
        self._options = options = compiles.options(settings.cc1)
        plain = PlainCompile(
            compiles,
            settings.cc1,
            compiles.command(options),
            sha256(data).hexdigest(),
            settings.compiler_id,
            settings.baselines,
        )
        remembered = None if self._plain else plain.remembered()
        self._baseline, _ = plain.run() if remembered is None else remembered
        if self._plain:
            self.plain_object = compiles.read_object()
        task = settings.the_task
        extra = for_clang((*task.channel_options(_CHANNEL, default=self._default), *growth_options(options)))
        if settings.with_calls:
            extra = (*extra, *decision_options(settings.major), _REMARKS)
        argv = (*settings.cc1, *compiles.command(options, *extra))
        compiles.empty()
        return InteractiveSession(
            argv,
            compiles.folder / _CHANNEL,
            **compiles.keywords(),
            repair=partial(repair_of, task, settings.major),
        )

    def _use_header(self) -> None:
        header = self._session.header
        if header is None or self.header not in (None, header):
            raise RunFailure(RunReason.OTHER_HEADER, "the compiler asks again, with other features")
        self.header = header

    def _end(self) -> None:
        compiles = self._compiles
        data = compiles.read_object()
        named = self._settings.with_calls and self._inlined
        calls = read_calls(compiles.folder / _REMARKS, self._inlined) if named else ()
        self.outcome = EpisodeOutcome(compiles.measure(data), data, self._baseline, tuple(calls))
