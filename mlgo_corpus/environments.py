"""LLVM's decisions as environments of Gymnasium, for reinforcement learners.

An episode is one compile of a module of a corpus, by a stock clang: each step is a decision, and the reward comes with
the last one, from the object's size. Importing this module registers ``mlgo-corpus/Inlining-v0``,
``mlgo-corpus/Eviction-v0`` and ``mlgo-corpus/Priority-v0``.

An observation has the features that the compiler sends, one after the other, as finite doubles
(`mlgo_corpus.formats.logs.flat`). The last one of an episode is all zeros: there is nothing more to decide.
"""

from __future__ import annotations

import os
import shlex
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.compilers.choose import TRAINING_LOG, choose_compiler
from mlgo_corpus.compilers.failures import RunFailure
from mlgo_corpus.compilers.session import LiveObservation
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, newest_producer
from mlgo_corpus.dataset.reasons import RunReason
from mlgo_corpus.dataset.tracetable import reward as reward_of
from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.files.text import counted, os_reason, printable, several
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.flat import FlatFeatures, Numbers
from mlgo_corpus.formats.logs.tasks import EVICTION, INLINING, INLINING_DEFAULT, PRIORITY, find_task
from mlgo_corpus.policies.embedded import vector_model
from mlgo_corpus.policies.learned import MASK
from mlgo_corpus.runs.search.linked import LinkedSizes
from mlgo_corpus.runs.search.run import LINKED, TEXT
from mlgo_corpus.runs.trace.episode import DELTA_SIZE, Episode
from mlgo_corpus.runs.trace.tracer import Tracer, settings_of

if TYPE_CHECKING:
    import gymnasium
    from gymnasium import spaces

    _Base = gymnasium.Env[Numbers, Any]
else:
    try:
        import gymnasium
        from gymnasium import spaces

        _Base = gymnasium.Env
    except ImportError:  # who makes an environment is told
        gymnasium, _Base = None, object

_REWARDS: Final = (TEXT, LINKED, DELTA_SIZE)
_NOTHING: Final = "there is nothing to decide in it"
# LLVM's score of an inlined call once the module is too large: it no longer estimates.
_NO_SCORE: Final = 2**31 - 1
# Single precision has each whole number up to this.
_PRIORITIES: Final = float(1 << 24)


class _Environment(_Base):
    _task: ClassVar[str]
    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(
        self,
        corpus: Path | str,
        compiler: str | None = None,
        *,
        reward: str = TEXT,
        size_model: Path | str | None = None,
        features: Sequence[str] | str | None = None,
        choice: ModuleChoice | None = None,
        names: bool = True,
        timeout: float = 60.0,
        memory_limit: int | None = None,
        trust_corpus: bool = False,
        cache: Path | str | None = None,
    ) -> None:
        if gymnasium is None:
            raise UsageError("environments need Gymnasium: pip install 'mlgo-corpus[rl]'")
        _check_reward(reward, self._task, size_model)
        cache = cache_folder(cache)
        if reward == DELTA_SIZE:
            compiler = _scoring_compiler(compiler, corpus, cache)
        tracer = Tracer(
            corpus,
            compiler,
            task=self._task,
            policy=_any_policy,
            timeout=timeout,
            memory_limit=memory_limit,
            trust_corpus=trust_corpus,
            cache=cache,
        )
        self._running = _Running(tracer)
        self._finalizer = weakref.finalize(self, self._running.close)
        self._corpus = tracer.corpus
        model = None if reward != DELTA_SIZE else str(Path(size_model or "").absolute())
        self._settings = replace(settings_of(tracer), names=names, ir2native_model=model)
        features = None if features is None else several(features)
        self._default = features is None or INLINING_DEFAULT in features
        self._header: LogHeader | None = None
        self._linked: LinkedSizes | None = None
        self._baselines: dict[str, float] = {}
        self._unusable: dict[str, str] = {}
        self._module = ""
        self._asked: LiveObservation | None = None
        try:
            self._names = (choice or ModuleChoice()).select(tracer.corpus)
            self._left = set(self._names)
            self._header = self._find_header()
            self._flat = FlatFeatures(self._header, features)
            if reward == LINKED:
                self._linked = LinkedSizes(tracer.corpus, self._settings, cache)
        except OSError as error:
            self.close()
            _raise_system(error)
        except BaseException:
            self.close()
            raise
        self.features = self._flat.features
        self.places = self._flat.places
        self.observation_space = spaces.Box(self._flat.low, self._flat.high, dtype=np.float64)
        self.action_space = self._actions(self._header)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Numbers, dict[str, Any]]:
        """Begin to compile a module, up to its first decision.

        Args:
            seed: of the choice of modules.
            options: ``module`` names the module; by default, one is drawn of those that have something to decide.

        Raises:
            UsageError: there is another option, or nothing to decide in the module that is named.
            CorpusError: there is no such module, or it cannot be compiled.
            MlgoCorpusError: no module has something to decide, or the disk is full.
        """
        super().reset(seed=seed)
        if not isinstance(options, dict | None):
            raise UsageError("expected a dictionary", option="options", value=options)
        wanted = dict(options or {})
        module = wanted.pop("module", None)
        if wanted:
            raise UsageError(f"expected 'module', found {', '.join(map(repr, wanted))}", option="options")
        try:
            observation = self._draw() if module is None else self._begin(module)
        except OSError as error:
            _raise_system(error)
        if observation is not None:
            return self._flat.read(observation.tensors), self._info(observation)
        why = self._unusable[module]
        raise UsageError(why, option="module", value=module) if why == _NOTHING else CorpusError(why, module)

    def step(self, action: Any) -> tuple[Numbers, float, bool, bool, dict[str, Any]]:
        """Decide, and go on to the next decision, or to the end of the compile.

        Raises:
            UsageError: the action is not in the action space, no decision is asked for, or the environment is closed
                or another process's.
            MlgoCorpusError: the disk is full.
        """
        self._running.check()
        episode, asked = self._running.episode, self._asked
        if episode is None or asked is None:
            raise UsageError("no decision is asked for; call reset first")
        decision = self._decision(action, asked.tensors)
        self._asked = None
        reward, failed = 0.0, False
        try:
            episode.advise(decision)
            self._asked = following = next(episode, None)
            if following is not None:
                return self._flat.read(following.tensors), 0.0, False, False, self._info(following)
            reward, info = self._measured(episode)
        except RunFailure as failure:
            failed = True
            info = {"module": self._module, "reason": failure.reason.value, "detail": failure.detail}
        except OSError as error:
            _raise_system(error)
        self._running.end()
        return self._flat.nothing(), reward, not failed, failed, info

    def close(self) -> None:
        """End the compiler, and remove its files."""
        self._asked = None
        self._finalizer()

    def _actions(self, header: LogHeader) -> spaces.Space[Any]:
        """Return the action space."""
        raise NotImplementedError

    def _decision(self, action: Any, tensors: bytes) -> float:
        """Return the decision that an action means for an observation."""
        raise NotImplementedError

    def _info(self, observation: LiveObservation) -> dict[str, Any]:
        """Return what is known at a decision."""
        return {"module": self._module, "function": observation.context or ""}

    def _measured(self, episode: Episode) -> tuple[float, dict[str, Any]]:
        """Return the reward at the end of an episode, and what is known then."""
        outcome = episode.outcome
        if outcome is None:
            raise AssertionError("an episode that has ended has an outcome")
        size: float = outcome.compiled.text_size
        baseline: float = outcome.baseline.text_size
        info: dict[str, Any] = {
            "module": self._module,
            "text_size": size,
            "baseline_text_size": baseline,
            "object_sha256": outcome.compiled.sha256,
        }
        if outcome.calls:
            info["calls"] = tuple(
                (printable(call.caller), printable(call.callee), call.line, call.column) for call in outcome.calls
            )
        if self._linked is not None:
            try:
                size = self._linked.size(self._module, outcome.data, outcome.compiled.text_size)
                if episode.plain_object is not None:
                    plain = episode.plain_object, outcome.baseline.text_size
                    self._baselines[self._module] = self._linked.size(self._module, *plain)
            except FormatError as error:
                raise RunFailure(RunReason.NO_OBJECT, str(error)) from None
            baseline = self._baselines[self._module]
            info |= {"linked_size": size, "baseline_linked_size": baseline}
        if self._settings.ir2native_model is not None:
            scores = episode.scores()
            # Vectors of environments would join arrays, which are of different lengths.
            info[DELTA_SIZE] = tuple(scores.tolist())
            return float(-scores[scores != _NO_SCORE].sum()), info
        return reward_of(size, baseline) or 0.0, info

    def _find_header(self) -> LogHeader:
        """Return the header that the compiler sends at the first module that has something to decide."""
        for name in self._names:
            if self._begin(name) is not None:
                episode = self._running.episode
                self._running.end()
                if episode is not None and episode.header is not None:
                    return episode.header
        raise self._unusable_error()

    def _draw(self) -> LiveObservation:
        """Begin with a module at random. Which one depends on the seed alone, not on what is known of modules."""
        while self._left:
            name = self._names[int(self.np_random.integers(len(self._names)))]
            if name in self._left and (observation := self._begin(name)) is not None:
                return observation
        raise self._unusable_error()

    def _unusable_error(self) -> MlgoCorpusError:
        found = [(name, self._unusable[name]) for name in self._names]
        failed = [f"{name}: {why}" for name, why in found if why != _NOTHING]
        what = f"there is nothing to decide in {len(found) - len(failed)} of {counted(len(found), 'module')}"
        what += f", and {len(failed)} cannot be compiled, first {failed[0]}" if failed else ""
        return MlgoCorpusError(f"{self._corpus.location}: {what}")

    def _begin(self, name: str) -> LiveObservation | None:
        """Begin to compile a module; return its first observation, or note why there is none, and return None."""
        running = self._running
        self._asked = None
        try:
            module = self._corpus[name]
        except KeyError:
            raise CorpusError("there is no such module in the corpus", name) from None
        plain = self._linked is not None and name not in self._baselines
        try:
            episode = running.begin(Episode(self._settings, module, default=self._default, plain=plain))
            observation = next(episode, None)
            if observation is not None:
                if self._header not in (None, episode.header):
                    raise RunFailure(RunReason.OTHER_HEADER, "the compiler sends other features than for other modules")
                self._module, self._asked = name, observation
                if name in self._names:
                    self._left.add(name)  # what failed before, on a busy machine, is drawn again
                return observation
            self._unusable[name] = _NOTHING
        except RunFailure as failure:
            self._unusable[name] = f"{failure.reason.value}: {failure.detail}"
        self._left.discard(name)
        running.end()
        return None


class InliningEnv(_Environment):
    """Inlining, as an environment of Gymnasium: whether to inline a call.

    The action is 0 or 1. The reward comes with the last step, all others have 0: ``1 - (size + 0.01) / (baseline +
    0.01)``, where the baseline is the size by LLVM's own decisions. If the compiler fails, the episode is truncated,
    its reward is 0, and the info has the ``reason`` and a ``detail``, as in a trace's ``modules.parquet``. The time
    that passes between two steps does not count for ``timeout``.

    Args:
        corpus: its folder; a packed one may be behind a URL.
        compiler: a clang; by default the best one found on this machine.
        reward: ``text``, the bytes of the object's text; or ``linked``, the same where a function that several of the
            corpus's objects hold counts its share, and what a linker adds of each function counts, too, as
            `mlgo_corpus.search_corpus` has it. For that, all modules are compiled once, and what was found is
            remembered in the cache. Or ``delta_size``, for a compiler in development mode: LLVM's estimate by how many
            bytes the decisions make functions smaller. At the end of an episode it compiles once more for that, and the
            info has ``delta_size``, a tuple with an entry for each decision, as in a trace. What has no estimate
            (2147483647) does not count.
        size_model: the folder of the model of native size that LLVM estimates by: of the features ``ir2native``.
        features: which ones an observation has, in this order; by default all that the compiler sends. Without
            ``inlining_default``, the compiler is not asked for its own decision.
        choice: the modules to draw from; by default all.
        names: whether the last step's info has the ``calls`` that the decisions were about.
        timeout: seconds that the compiler may take for a module.
        memory_limit: bytes of address space that it may have, as of `Tracer`.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        cache: where plain compiles are remembered; the user's cache by default.

    Attributes:
        features: the features of an observation, with their types and shapes.
        places: where they are in it, as slices by their names.

    Raises:
        UsageError: there is no such compiler, reward, or feature.
        CorpusError: there is no corpus.
        MlgoCorpusError: no module has something to decide, or the disk is full.
    """

    _task = INLINING

    def _actions(self, header: LogHeader) -> spaces.Space[Any]:  # noqa: ARG002 - the same for all
        return spaces.Discrete(2)

    def _decision(self, action: Any, tensors: bytes) -> float:  # noqa: ARG002 - the same for all
        return _whole(action, 2)

    def _info(self, observation: LiveObservation) -> dict[str, Any]:  # noqa: ARG002 - it does not name the call
        return {"module": self._module}


class EvictionEnv(_Environment):
    """Register eviction, as an environment of Gymnasium: which live range to evict.

    The action is the candidate's number. Only some may be evicted: the info's ``action_mask`` has 1 for these. Another
    one stands for the next that may be evicted, or else for the first. The info has the ``function``, too. For
    everything else see `InliningEnv`.
    """

    _task = EVICTION

    def _actions(self, header: LogHeader) -> spaces.Space[Any]:
        mask = next((spec for spec in header.features if spec.name == MASK), None)
        if mask is None:
            self.close()
            raise UsageError(f"this compiler does not send {MASK!r}")
        self._mask = (mask.dtype, mask.element_count, header.places[MASK].start)
        return spaces.Discrete(mask.element_count)

    def _allowed(self, tensors: bytes) -> NDArray[np.bool_]:
        return np.asarray(np.frombuffer(tensors, *self._mask) != 0)

    def _decision(self, action: Any, tensors: bytes) -> float:
        allowed = self._allowed(tensors)
        chosen = _whole(action, len(allowed))
        following = np.flatnonzero(allowed)
        if len(following) == 0:
            return 0
        return int(following[np.searchsorted(following, chosen) % len(following)])

    def _info(self, observation: LiveObservation) -> dict[str, Any]:
        return {**super()._info(observation), "action_mask": self._allowed(observation.tensors).astype(np.int8)}


class PriorityEnv(_Environment):
    """Priorities of live ranges, as an environment of Gymnasium: which one gets a register first.

    The action is a number from 0 to 1. LLVM reads priorities as whole numbers, so this is a share of 2^24. The info has
    the ``function``, too. For everything else see `InliningEnv`.
    """

    _task = PRIORITY

    def _actions(self, header: LogHeader) -> spaces.Space[Any]:  # noqa: ARG002 - the same for all
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def _decision(self, action: Any, tensors: bytes) -> float:  # noqa: ARG002 - the same for all
        share = _number(action)
        if not 0.0 <= share <= 1.0:
            raise UsageError(f"expected a number from 0 to 1, found {share}", option="action")
        return share * _PRIORITIES


class _Running:
    """The open tracer and the current episode."""

    def __init__(self, tracer: Tracer) -> None:
        self.episode: Episode | None = None
        self._tracer = tracer
        self._stack = ExitStack()
        self._process = os.getpid()
        self._closed = False

    def check(self) -> None:
        """Check that it can be used: a fork's copy would take the answers of the process that began the episode.

        Raises:
            UsageError: it cannot be used.
        """
        if self._closed or self._process != os.getpid():
            raise UsageError(f"the environment is {'closed' if self._closed else 'of another process'}")

    def begin(self, episode: Episode) -> Episode:
        """Begin an episode, and end the one before."""
        self.check()
        self.end()
        self.episode = self._stack.enter_context(episode)
        return episode

    def end(self) -> None:
        """End the episode."""
        self.episode = None
        self._stack.close()

    def close(self) -> None:
        """Close everything; in a process that has only a copy, nothing."""
        if self._process == os.getpid() and not self._closed:
            self._closed = True
            try:
                self.end()
            finally:
                self._tracer.close()


def _any_policy(observation: Any) -> NoReturn:
    """Stand for whoever calls ``step``."""
    raise AssertionError(observation)


def _check_reward(reward: str, task: str, size_model: Path | str | None) -> None:
    if reward not in _REWARDS:
        raise UsageError(f"expected one of {', '.join(_REWARDS)}", option="reward", value=reward)
    if reward != DELTA_SIZE:
        if size_model is not None:
            raise UsageError(f"it is for the reward {DELTA_SIZE} only", option="size_model", value=size_model)
        return
    if task != INLINING:
        raise UsageError(f"LLVM estimates sizes for {INLINING} only", option="reward", value=reward)
    if size_model is None:
        raise UsageError(
            "it needs a `size_model`: train one of a table with the features ir2native", option="reward", value=reward
        )
    vector_model(size_model)


def _scoring_compiler(named: str | None, corpus: Path | str, cache: Path) -> str:
    """Return a compiler that writes training logs, as a user names it.

    Raises:
        UsageError: there is none, or the one that is named is none.
        CorpusError: there is no corpus.
    """
    opened = open_corpus(corpus)
    names = tuple(module.name for module in opened)
    toolchain, _ = choose_compiler(
        named,
        find_task(INLINING),
        "default",
        TRAINING_LOG,
        producer=newest_producer(opened, names),
        cache=cache,
    )
    return shlex.join(toolchain.driver)


def _raise_system(error: OSError) -> NoReturn:
    where = f"{error.filename}: " if error.filename else ""
    raise MlgoCorpusError(f"{where}{os_reason(error)}") from error


def _number(action: Any) -> float:
    """Return the only number of an action."""
    try:
        return float(np.asarray(action, np.float64).item())
    except (TypeError, ValueError):
        raise UsageError(f"expected a number, found {action!r}", option="action") from None


def _whole(action: Any, count: int) -> int:
    """Return an action that is a whole number from 0 to below a count."""
    if isinstance(action, int | np.integer):
        if 0 <= action < count:
            return int(action)
        number: float = int(action)
    elif 0 <= (number := _number(action)) < count and number == int(number):
        return int(number)
    raise UsageError(f"expected a whole number from 0 to {count - 1}, found {number}", option="action")


def _register() -> None:
    for kind in (InliningEnv, EvictionEnv, PriorityEnv):
        name = f"mlgo-corpus/{kind.__name__.removesuffix('Env')}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f"{__name__}:{kind.__name__}")


if gymnasium is not None:
    _register()
