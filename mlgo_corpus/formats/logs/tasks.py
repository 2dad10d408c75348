"""LLVM's tasks: the decisions that it lets a model make, and the options that log or delegate those decisions.

Each option is LLVM's own: ``opt`` and ``llc`` accept it directly, clang after ``-mllvm``. The options are defined in
``lib/Analysis/{DevelopmentModeInlineAdvisor,MLInlineAdvisor}.cpp`` and in
``lib/CodeGen/{MLRegAllocEvictAdvisor,MLRegAllocPriorityAdvisor}.cpp``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mlgo_corpus.errors import UsageError

if TYPE_CHECKING:
    from mlgo_corpus.formats.logs.events import LogHeader


@dataclass(frozen=True, slots=True)
class Task:
    """One of LLVM's tasks.

    Attributes:
        name: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``.
        short_name: the same in a word, for tables.
        decision: the name of the decision in a header.
        advisor: the option that selects the advisor: ``default``, ``development`` or ``release``.
        log: the option that names a training log.
        channel: the option that names the two FIFOs of a live session.
        model: the option that names the folder of a model that decides, where a training log is written.
        with_default: the option that adds the default policy's decision to the features of a live session.
    """

    name: str
    short_name: str
    decision: str
    advisor: str
    log: str
    channel: str
    model: str
    with_default: str | None = None

    def log_options(self, path: str) -> tuple[str, ...]:
        """Return the options that write a training log to ``path``: only a development-mode compiler has them.

        Both are needed. With the first alone such a compiler crashes; the second alone is silently ignored.
        """
        return (f"{self.advisor}=development", f"{self.log}={path}")

    def model_options(self, folder: str) -> tuple[str, ...]:
        """Return the option that has the model in a folder decide, besides those of `log_options`."""
        return (f"{self.model}={folder}",)

    def channel_options(self, base: str, *, default: bool = True) -> tuple[str, ...]:
        """Return the options that open a live session over ``BASE.in`` and ``BASE.out``.

        Args:
            base: the path of the two FIFOs.
            default: whether the heuristic's decision is sent, too, where there is an option for that.
        """
        options = (f"{self.advisor}=release", f"{self.channel}={base}")
        return (*options, self.with_default) if default and self.with_default is not None else options


INLINING: Final = "inlining"
EVICTION: Final = "regalloc-eviction"
PRIORITY: Final = "regalloc-priority"

INLINING_DEFAULT: Final = "inlining_default"
"""The feature of a call that holds what LLVM's own heuristic decides."""

GROWTH_LIMIT: Final = "-ml-advisor-size-increase-threshold"
"""LLVM's option for how many times as large a module may grow by inlining; 2 without it."""

SIZE_MODEL: Final = "-ml-inliner-ir2native-model"
"""The option that names the folder of a model of native size, whose estimates a training log's score is made of."""

TASKS: Final = (
    Task(
        name=INLINING,
        short_name=INLINING,
        decision="inlining_decision",
        advisor="-enable-ml-inliner",
        log="-training-log",
        channel="-inliner-interactive-channel-base",
        model="-ml-inliner-model-under-training",
        with_default="-inliner-interactive-include-default",
    ),
    Task(
        name=EVICTION,
        short_name="eviction",
        decision="index_to_evict",
        advisor="-regalloc-enable-advisor",
        log="-regalloc-training-log",
        channel="-regalloc-evict-interactive-channel-base",
        model="-regalloc-model",
    ),
    Task(
        name=PRIORITY,
        short_name="priority",
        decision="priority",
        advisor="-regalloc-enable-priority-advisor",
        log="-regalloc-priority-training-log",
        channel="-regalloc-priority-interactive-channel-base",
        model="-regalloc-priority-model",
    ),
)


EXTENDED_FEATURES: Final = (
    *("callee_linkage", "caller_linkage", "callee_library", "caller_library", "callee_kind", "callee_arguments"),
    *("callee_address_taken", "calls_in_caller", "callee_asked", "callee_inlined"),
)
"""What an extended clang tells of each call besides LLVM's features: ``mlgo_corpus/compilers/native/advisor.cpp``."""
PROJECT_FEATURES: Final = ("callee_copies", "caller_copies")
"""What one tells that was made for a project."""


def needs_plugin(features: Iterable[str]) -> bool:
    """Return True if some of these features, by their names, are told by an extended clang alone."""
    return not frozenset((*EXTENDED_FEATURES, *PROJECT_FEATURES)).isdisjoint(features)


def needs_project(features: Iterable[str]) -> bool:
    """Return True if some of these features are told by a clang alone that was extended for a project."""
    return not frozenset(PROJECT_FEATURES).isdisjoint(features)


def lacking(name: str) -> str:
    """Return what to say of a feature that a policy needs and a compiler does not send."""
    hint = ""
    if needs_plugin([name]):
        corpus = ", made for the project's corpus," if needs_project([name]) else ""
        hint = f"; a clang of `mlgo-corpus toolchain extend`{corpus} does"
    return f"needs the feature {name!r}, which this compiler does not send{hint}"


def find_task(name: str) -> Task:
    """Return the task of this name.

    Raises:
        UsageError: there is none.
    """
    found = next((task for task in TASKS if task.name == name), None)
    if found is None:
        raise UsageError(f"expected one of {', '.join(task.name for task in TASKS)}", option="task", value=name)
    return found


def _task_of(header: LogHeader) -> Task | None:
    """Return the task that a log with this header is of, by what it calls the decision; None if none of LLVM's."""
    decisions = header.features[-1:] if header.advice is None else (header.advice,)
    names = {spec.name for spec in decisions}
    return next((task for task in TASKS if task.decision in names), None)


def task_name(header: LogHeader) -> str | None:
    """Return the name of the task that a log with this header is of, or None."""
    task = _task_of(header)
    return None if task is None else task.name


def for_clang(options: Iterable[str]) -> tuple[str, ...]:
    """Return LLVM's options as clang accepts them: each after ``-mllvm``."""
    return tuple(word for option in options for word in ("-mllvm", option))
