"""The choice of a stage's compiler, and of the way in which a trace sees the decisions."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mlgo_corpus.compilers.devmode.installed import DEVMODE_MAJOR
from mlgo_corpus.compilers.find import (
    COMPILER_VARIABLE,
    Compiler,
    find_compilers,
    identify,
    loads_plugin,
    named_compiler,
    newest_first,
    one_line,
)
from mlgo_corpus.compilers.native.extended import cached_extended, tells_copies
from mlgo_corpus.compilers.probe import Toolchain, probe_compiler, probe_toolchains
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.files.text import option_key
from mlgo_corpus.formats.logs.tasks import INLINING, PROJECT_FEATURES, Task, lacking

TRAINING_LOG: Final = "training-log"
INTERACTIVE: Final = "interactive"
AUTO = "auto"
USUAL_MAJOR: Final = 22
"""The LLVM to install if nothing else determines it."""
_OTHER_POLICY = "name a `policy`: first, random or module:attribute"
WAYS = (AUTO, TRAINING_LOG, INTERACTIVE)


def ways_of(toolchain: Toolchain, task: Task, policy: str, *, learned: bool = False) -> tuple[str, ...]:
    """Return the ways in which a compiler can show this task's decisions under this policy, the better first.

    A training log has the decisions of LLVM's own heuristic, or of a learned policy, which the compiler loads. A live
    session has that heuristic's decision for inlining only.
    """
    ways = []
    if policy == "default" and task.name in toolchain.training_logs:
        ways.append(TRAINING_LOG)
    if task.name in toolchain.interactive and (policy != "default" or task.name == INLINING):
        ways.append(INTERACTIVE)
    if learned and task.name in toolchain.training_logs:
        ways.append(TRAINING_LOG)
    return tuple(ways)


def _user_compiler(named: str | None, *, cache: Path | None = None) -> Toolchain | None:
    """Probe the compiler that the user wants: ``named``, else the one that `COMPILER_VARIABLE` names; None for neither.

    Raises:
        UsageError: there is no such program, or it is not a working clang.
    """
    wanted = named if named is not None else os.environ.get(COMPILER_VARIABLE) or None
    return None if wanted is None else probe_compiler(wanted, cache=cache)


def _user_error(named: str | None, message: str) -> UsageError:
    """Return the error for the compiler of `_user_compiler`."""
    if named is not None:
        return UsageError(message, option="compiler", value=named)
    return UsageError(f"{COMPILER_VARIABLE}={os.environ.get(COMPILER_VARIABLE)}: {message}")


def choose_compiler(
    named: str | None,
    task: Task,
    policy: str,
    via: str,
    *,
    learned: bool = False,
    producer: int | None,
    cache: Path | None = None,
    jobs: int = 1,
    says_more: bool = False,
    copies: Callable[[], bytes] | None = None,
) -> tuple[Toolchain, str]:
    """Choose a compiler that can show the decisions, and the way.

    Args:
        named: the compiler that the user wants, or None for `COMPILER_VARIABLE`'s, else the best one found.
        task: the task whose decisions are traced.
        policy: the policy that makes them.
        via: a way, or `AUTO`.
        learned: whether the policy is a learned one, which a compiler in development mode can load.
        producer: the major version of the LLVM that made the corpus, if known.
        cache: the folder that keeps probe results, and knows the toolchains that this package built.
        jobs: how many compilers to probe at a time.
        says_more: whether the policy needs features that only an extended clang tells: a stock one is extended, in the
            cache.
        copies: returns what a clang is to know of the project, see `extend_clang`, if the policy needs that. A compiler
            that is extended already stays as it is.

    Raises:
        UsageError: there is none, it cannot be extended, or it was, but for no project and the policy knows one; the
            message says what would help.
        ToolError: the plugin for it cannot be compiled.
    """
    found, way = _choose(named, task, policy, via, learned=learned, producer=producer, cache=cache, jobs=jobs)
    if says_more and way == INTERACTIVE:
        compiler = choose_for_build(shlex.join(found.driver))
        if not loads_plugin(compiler.compile_words):
            refuse_zig(compiler, "the policy needs a plugin, and zig's clang loads none")
            extended = cached_extended(compiler, cache, None if copies is None else copies())
            found = probe_compiler(str(extended.clang), cache=cache)
        elif copies is not None and not tells_copies(compiler.compile_words):
            which = named if named is not None else shlex.join(found.driver)  # it may be that of PATH
            raise UsageError(f"the policy {lacking(PROJECT_FEATURES[0])}", option="compiler", value=which)
    return found, way


def _choose(
    named: str | None,
    task: Task,
    policy: str,
    via: str,
    *,
    learned: bool,
    producer: int | None,
    cache: Path | None,
    jobs: int,
) -> tuple[Toolchain, str]:
    if (wanted := _user_compiler(named, cache=cache)) is not None:
        ways = _wanted(ways_of(wanted, task, policy, learned=learned), via)
        if not ways:
            raise _user_error(named, _cannot(task, policy, via, producer, learned=learned))
        return wanted, ways[0]
    found = [one for one in probe_toolchains(cache=cache, jobs=jobs) if one.problem is None]
    able = list(_iter_able(found, task, policy, via, learned=learned))
    if not able:
        why = _cannot(task, policy, via, producer, learned=learned)
        raise UsageError(f"no compiler found for this: {why}; see 'mlgo-corpus toolchain list'")
    readers = [pair for pair in able if producer is None or reads_corpora_of(pair[0], producer)]
    if not readers:
        versions = sorted({version for toolchain, _ in able for version in toolchain.reads_bitcode})
        remedy = "name a newer one with `compiler`"
        if all(way == TRAINING_LOG for _, way in able):  # no newer one writes them
            remedy = build_with(max(toolchain.major or 0 for toolchain, _ in able))
            remedy += f", or {_OTHER_POLICY}" if policy == "default" and via == AUTO else ""
        raise UsageError(
            f"the corpus is made by LLVM {producer}, and the compilers that can show its decisions read only "
            f"bitcode of {', '.join(map(str, versions))}: {remedy}"
        )
    # Prefer the better way, then the corpus's own version, then the order in which they were found.
    better = TRAINING_LOG if policy == "default" else INTERACTIVE
    return min(readers, key=lambda pair: (pair[1] != better, pair[0].major != producer))


def reads_corpora_of(toolchain: Toolchain, producer: int) -> bool:
    """Return True if a compiler reads the bitcode of an LLVM: if it is not older, or a probe has shown it."""
    return producer <= (toolchain.major or 0) or producer in toolchain.reads_bitcode


def _iter_able(
    found: Sequence[Toolchain], task: Task, policy: str, via: str, *, learned: bool
) -> Iterator[tuple[Toolchain, str]]:
    for toolchain in found:
        ways = _wanted(ways_of(toolchain, task, policy, learned=learned), via)
        if ways:
            yield toolchain, ways[0]


def _wanted(ways: Sequence[str], via: str) -> tuple[str, ...]:
    return tuple(way for way in ways if via in (AUTO, way))


def build_with(major: int) -> str:
    """Return the advice to make a corpus that a compiler of this LLVM reads."""
    return f"build the corpus with 'mlgo-corpus build {option_key('compiler')} clang-{major}'"


def _cannot(task: Task, policy: str, via: str, producer: int | None, *, learned: bool) -> str:
    made = "a compiler made by 'mlgo-corpus toolchain build'"
    if (producer or 0) > DEVMODE_MAJOR:
        made += f", which reads no corpus of LLVM {producer}: {build_with(DEVMODE_MAJOR)}"
    if policy != "default" and via == TRAINING_LOG and not learned:
        return f"a training log shows the default policy's decisions, not those of {policy!r}: `via` interactive does"
    if via == TRAINING_LOG:
        return f"training logs of {task.name} need {made}"
    if policy == "default" and task.name != INLINING:
        return f"{task.name} by the default policy needs {made}; with any other compiler, {_OTHER_POLICY}"
    return f"{task.name} needs a clang of LLVM 17 or newer"


def choose_optimiser(
    named: str | None,
    *,
    producer: int | None,
    cache: Path | None = None,
    jobs: int = 1,
) -> Toolchain:
    """Choose a clang that has an opt of the same version, and that reads the corpus's bitcode.

    Args:
        named: the compiler that the user wants, or None for `COMPILER_VARIABLE`'s, else the best one found.
        producer: the major version of the LLVM that made the corpus, if known.
        cache: the folder that keeps probe results, and knows the toolchains that this package built.
        jobs: how many compilers to probe at a time.

    Raises:
        UsageError: there is none; the message says what would help.
    """
    if (wanted := _user_compiler(named, cache=cache)) is not None:
        if wanted.opt is None:
            message = (
                f"there is no opt of LLVM {wanted.version} for it: install clang-{wanted.major} and "
                f"llvm-{wanted.major}, and name that clang"
            )
            raise _user_error(named, message)
        return wanted
    found = [one for one in probe_toolchains(cache=cache, jobs=jobs) if one.problem is None]
    able = [one for one in found if one.opt is not None]
    if not able:
        major = producer or next((one.major for one in found), USUAL_MAJOR)
        raise UsageError(
            f"no clang found that has an opt of its version: install clang-{major} and llvm-{major} (zig's clang, from "
            "pip, has none)"
        )
    readers = [one for one in able if producer is None or reads_corpora_of(one, producer)]
    if not readers:
        versions = ", ".join(sorted({str(one.major) for one in able}))
        raise UsageError(
            f"the corpus is made by LLVM {producer}, and opt is installed only for {versions}: install "
            f"llvm-{producer} and clang-{producer}"
        )
    return min(readers, key=lambda one: (one.major != producer, one.origin == "built"))


def choose_for_build(named: str | None, cc: str | None = None) -> Compiler:
    """Choose the clang for a build. All since LLVM 4 embed bitcode, so none is probed.

    Args:
        named: the compiler that the user wants, or None.
        cc: the compiler that the environment's CC names, if that is a clang; used if nothing else is named.

    Raises:
        UsageError: there is none, or the one named cannot be used.
    """
    by_variable = os.environ.get(COMPILER_VARIABLE) or None
    for wanted, origin in ((named, "option"), (by_variable, "environment"), (cc, "CC")):
        if wanted is not None:
            try:
                return identify(named_compiler(wanted, origin))
            except (ToolError, UsageError) as error:
                if origin == "option":
                    raise UsageError(one_line(error), option="compiler", value=wanted) from None
                where = origin if origin == "CC" else COMPILER_VARIABLE
                raise UsageError(f"{where} {wanted}: {one_line(error)}") from None
    for candidate in newest_first(find_compilers()):
        with suppress(ToolError, UsageError):
            return identify(candidate)
    raise UsageError("no clang found: install one (pip install ziglang does), or name it with `compiler`")


def choose_for_link(named: str | None, vendor: str | None) -> Compiler:
    """Choose the clang to link with: the one that the user wants, else the one that a build was linked by.

    zig's clang is not one: its driver has the linker in itself, so that this cannot be run alone.

    Args:
        named: the compiler that the user wants, or None for `COMPILER_VARIABLE`'s.
        vendor: the version line of the build's clang, if it is known; if it is not found, the best one is taken.

    Raises:
        UsageError: there is none, or the one named cannot be used.
    """
    if named is None and not os.environ.get(COMPILER_VARIABLE) and vendor is not None:
        for candidate in newest_first(find_compilers()):
            with suppress(ToolError, UsageError):
                found = identify(candidate)
                if found.vendor == vendor and not found.is_zig:
                    return found
    found = choose_for_build(named)
    refuse_zig(found, "zig's driver does not say which linker it runs")
    return found


def refuse_zig(compiler: Compiler, why: str) -> None:
    """Refuse zig's clang.

    Raises:
        UsageError: it is that; the message says why it will not do.
    """
    if compiler.is_zig:
        raise UsageError(f"{why}: name another clang with `compiler`")
