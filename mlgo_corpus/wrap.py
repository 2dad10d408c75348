"""The wrap stage: put a learned policy into a stock clang, and list such clangs.

The stage behind ``mlgo-corpus toolchain wrap`` and a part of ``toolchain list``. The program that asks the policy is in
`mlgo_corpus.compilers.native`.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers.choose import choose_for_build, refuse_zig
from mlgo_corpus.compilers.driver import drivers_of
from mlgo_corpus.compilers.find import Compiler, cache_folder, loads_plugin, note_folder, noted_folders
from mlgo_corpus.compilers.native.extended import copy_plugin, read_extended
from mlgo_corpus.compilers.native.wrapped import (
    Asking,
    PolicyCode,
    StockClang,
    Wrapped,
    read_wrapped,
    refuse_wrapped,
    wrap_clang,
)
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.logs.tasks import INLINING, needs_plugin
from mlgo_corpus.policies.conversation import MISPLACED_DEFAULT, needs_default
from mlgo_corpus.policies.learned import named_policy
from mlgo_corpus.policies.source import policy_source
from mlgo_corpus.runs.report import Report

# The folders of wrapped clangs, in the cache.
_WRAPPED_NAME: Final = "wrapped.json"
# LLVM's InteractiveModelRunner is as old as this.
_FIRST_INTERACTIVE: Final = 17


@dataclass(frozen=True, slots=True)
class WrapReport(Report):
    """The result of `wrap_toolchain`.

    Attributes:
        wrapped: the clang with the policy inside.
        seconds: how long it took.
    """

    wrapped: Wrapped
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; seconds have three decimals."""
        return {**Report.as_json(self), "seconds": round(self.seconds, 3)}


def wrap_toolchain(
    policy: str | Path,
    output: Path | str,
    *,
    compiler: str | None = None,
    always: bool = False,
    keep_smaller: bool = False,
    force: bool = False,
    cache: Path | str | None = None,
) -> WrapReport:
    """Make a clang with a learned policy inside: a program around a stock clang, which compiles it in seconds.

    Args:
        policy: the folder of a learned policy, or the name of one that comes with the package.
        output: the folder to make; it gets ``bin/clang`` and ``bin/clang++``.
        compiler: the clang to wrap; by default the one that a build would take.
        always: ask the policy at every level of optimisation, not only where code is optimised for size.
        keep_smaller: compile each object plainly, too, and keep the smaller one.
        force: replace another wrapped clang.
        cache: the folder that remembers wrapped clangs, and keeps plugins; the user's `cache_folder` by default.

    Raises:
        UsageError: the policy or the compiler will not do, or something else is in the output's place.
        ToolError: the program or the plugin cannot be compiled.
    """
    begin = time.perf_counter()
    _, learned = named_policy(policy)
    source, header = policy_source(learned)
    code = PolicyCode(learned.name, learned.task, learned.digest, source, header, learned.languages)
    is_extended = needs_plugin(feature.name for feature in learned.features)
    cache = cache_folder(cache)
    stock = _stock_clang(compiler, learned.task, cache if is_extended else None)
    asking = Asking(
        always=always,
        keep_smaller=keep_smaller,
        with_default=needs_default(learned),
    )
    wrapped = wrap_clang(Path(output), code, stock, asking, force=force)
    note_folder(cache / _WRAPPED_NAME, wrapped.output)
    return WrapReport(wrapped, time.perf_counter() - begin)


def list_wrapped(*, cache: Path | str | None = None) -> tuple[Wrapped, ...]:
    """Return the clangs with a policy inside that were made here and are still there."""
    folder = cache_folder(cache)
    return tuple(filter(None, map(read_wrapped, noted_folders(folder / _WRAPPED_NAME))))


def _stock_clang(named: str | None, task: str, plugins: Path | None) -> StockClang:
    """Return the clang to wrap.

    Args:
        named: the compiler that the user named.
        task: the policy's task.
        plugins: the cache that keeps plugins, if the policy needs features that only one tells.

    Raises:
        UsageError: there is none, or it cannot be wrapped.
    """
    compiler = choose_for_build(named)
    if (extended := read_extended(Path(os.path.realpath(compiler.driver[0])).parent.parent)) is not None:
        compiler = choose_for_build(
            shlex.join((*extended.compiler, *compiler.driver[1:]))
        )  # a plugin of its own is nobody else's to remove
    refuse_zig(compiler, "zig's driver keeps objects, and would not ask for them again")
    _refuse_others(compiler)
    if compiler.major < _FIRST_INTERACTIVE:
        message = f"a policy decides in clang {_FIRST_INTERACTIVE} or newer, this is {compiler.version}"
        raise UsageError(message, option="compiler", value=compiler.driver[0])
    drivers = drivers_of(compiler)
    is_misplaced = task == INLINING and compiler.major in MISPLACED_DEFAULT
    plugin = None if plugins is None else partial(copy_plugin, compiler=compiler, cache=plugins)
    return StockClang(drivers.c, drivers.cxx, compiler.version, is_misplaced, plugin)


def _refuse_others(compiler: Compiler) -> None:
    """Refuse a clang that has a policy inside or loads a plugin, and what keeps objects, which must be in front.

    Raises:
        UsageError: it is one.
    """
    refuse_wrapped(compiler)
    program = Path(compiler.driver[0])
    if loads_plugin(compiler.compile_words):
        raise UsageError(f"loads a plugin: wrap {compiler.binary}", option="compiler", value=program)
    if Path(os.path.realpath(program)).name in ("ccache", "sccache"):
        message = f"keeps objects, and would not ask for them again; wrap {compiler.binary}"
        raise UsageError(message, option="compiler", value=program)
