"""The toolchain stage: list the compilers with their abilities, and build one in development mode in a minute.

The stage behind ``mlgo-corpus toolchain``. A stock clang embeds bitcode and holds live sessions. Only a compiler in
development mode writes training logs, and none is distributed: `build_toolchain` makes one from the distribution's
own static libraries (`mlgo_corpus.compilers.devmode`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlgo_corpus.compilers.choose import choose_for_build, refuse_zig
from mlgo_corpus.compilers.devmode.record import Embedded
from mlgo_corpus.compilers.find import BUILT_NAME, note_folder, noted_folders
from mlgo_corpus.compilers.native.extended import Extended, extend_clang
from mlgo_corpus.compilers.native.wrapped import refuse_wrapped
from mlgo_corpus.compilers.probe import CACHE_NAME, Toolchain, probe_compiler, probe_toolchains
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.runs.functions.copies import project_copies
from mlgo_corpus.runs.report import Report

if TYPE_CHECKING:
    from mlgo_corpus.compilers.devmode.build import Released

_DEVELOPMENT: Final = "development"
_MODES: Final = (_DEVELOPMENT, "release")
# The folders of compilers with a policy linked in, in the cache.
_RELEASED_NAME: Final = "released.json"


@dataclass(frozen=True, slots=True)
class BuildReport(Report):
    """The result of `build_toolchain`.

    Attributes:
        output: the folder of the toolchain.
        seconds: how long it took.
        phases: the steps: name, seconds and a short detail.
        toolchain: the compiler that was made, and its abilities.
    """

    output: Path
    seconds: float
    phases: tuple[tuple[str, float, str], ...]
    toolchain: Toolchain

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; each phase is a dictionary."""
        phases = [{"phase": name, "seconds": round(took, 3), "detail": what} for name, took, what in self.phases]
        return {**Report.as_json(self), "phases": phases}


@dataclass(frozen=True, slots=True)
class ExtendReport(Report):
    """The result of `extend_toolchain`.

    Attributes:
        extended: the clang that says more.
        seconds: how long it took.
    """

    extended: Extended
    seconds: float


def extend_toolchain(
    output: Path | str,
    *,
    compiler: str | None = None,
    corpus: Path | str | None = None,
    force: bool = False,
) -> ExtendReport:
    """Make a clang that tells policies more of each call: a script around a stock clang, with a plugin.

    Objects are those of the stock clang, as long as the same is decided. All stages take it as a compiler.

    Args:
        output: the folder to make; it gets ``bin/clang`` and ``bin/clang++``.
        compiler: the clang to extend; by default the one that a build would take.
        corpus: that of the project that it is for: then it also tells how many modules have a copy of a function.
        force: replace another one.

    Raises:
        UsageError: the compiler will not do, LLVM's headers are not installed, or something else is in the output's
            place.
        CorpusError: the corpus is missing or damaged.
        MlgoCorpusError: its table of functions cannot be written.
        ToolError: the plugin cannot be compiled.
    """
    begin = time.perf_counter()
    output = output_here(output, "a toolchain", "a folder")
    stock = choose_for_build(compiler)
    refuse_zig(stock, "zig's clang loads no plugins")
    refuse_wrapped(stock)
    copies = None if corpus is None else project_copies(open_corpus(corpus), jobs=available_cpus())
    extended = extend_clang(output, stock, copies, force=force)
    return ExtendReport(extended, time.perf_counter() - begin)


def list_toolchains(
    compiler: str | None = None, *, jobs: int | None = None, refresh: bool = False, cache: Path | str | None = None
) -> tuple[Toolchain, ...]:
    """Find the compilers on this machine and, by running them, their abilities; those that fail have a reason.

    Args:
        compiler: a compiler to examine first: a program, a command, or a folder with ``bin/clang``.
        jobs: how many to examine at once; by default one for each CPU.
        refresh: examine compilers again whose abilities are known.
        cache: the folder that keeps the known abilities; the user's `cache_folder` by default.

    Raises:
        UsageError: ``compiler``, or the one that ``MLGO_CORPUS_COMPILER`` names, does not exist.
    """
    folder = cache_folder(cache)
    if refresh:
        _forget(folder)
    return probe_toolchains(compiler, cache=folder, jobs=jobs or available_cpus())


def build_toolchain(
    output: Path | str | None = None,
    *,
    llvm_config: str | None = None,
    llvm_source: Path | str | None = None,
    install: bool = False,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    mode: str = _DEVELOPMENT,
    policy: str | None = None,
    default_on: bool = False,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> BuildReport:
    """Make a clang, opt and llc in development or release mode from an LLVM's static libraries and its sources.

    Args:
        output: the folder to make; by default one in the cache.
        llvm_config: the ``llvm-config`` of the LLVM to use.
        llvm_source: a source tree of the same version, or an archive of one; by default Debian's source package.
        install: install missing packages.
        jobs: how many compilers to run at once; by default one for each CPU.
        force: replace other content of ``output``.
        cache: the folder that keeps sources and objects; the user's `cache_folder` by default.
        mode: ``development``, or ``release``: with a learned policy linked in.
        policy: release mode: the policy's folder, or the name of one that comes with the package.
        default_on: release mode: clang uses the policy for -Os and -Oz without being told.
        progress: called with (phase, done, total).

    Raises:
        UsageError: something is missing or unsuitable; nothing was written to ``output``.
        ToolError: a compiler, a linker or apt failed.
    """
    from mlgo_corpus.compilers.devmode.build import build_devmode

    if mode not in _MODES:
        raise UsageError(f"expected one of {', '.join(_MODES)}", option="mode", value=mode)
    if (policy is None) != (mode == _DEVELOPMENT):
        what = "is for `mode` release" if mode == _DEVELOPMENT else "is missing: name the one to link in"
        raise UsageError(what, option="policy")
    if default_on and mode == _DEVELOPMENT:
        raise UsageError("is for `mode` release", option="default_on")
    output = None if output is None else output_here(output, "a toolchain", "a folder")
    folder = cache_folder(cache)
    made = build_devmode(
        output,
        llvm_config=llvm_config,
        llvm_source=None if llvm_source is None else Path(llvm_source),
        cache=folder,
        install=install,
        jobs=jobs or available_cpus(),
        force=force,
        progress=progress,
        embedded=None if policy is None else _embedded(policy, default_on=default_on),
    )
    toolchain = probe_compiler(str(made.output), cache=folder)
    # One with a policy in it is no compiler to record or measure others with.
    note_folder(folder / (BUILT_NAME if mode == _DEVELOPMENT else _RELEASED_NAME), made.output)
    phases = tuple((phase.name, phase.seconds, phase.detail) for phase in made.phases)
    return BuildReport(made.output, made.seconds, phases, toolchain)


def list_released(*, cache: Path | str | None = None) -> tuple[Released, ...]:
    """Return the compilers with a policy linked in that were made here and are still there."""
    from mlgo_corpus.compilers.devmode.build import read_released

    folder = cache_folder(cache)
    return tuple(filter(None, map(read_released, noted_folders(folder / _RELEASED_NAME))))


def _embedded(policy: str, *, default_on: bool) -> Embedded:
    from mlgo_corpus.policies.embedded import model_header, model_name
    from mlgo_corpus.policies.learned import named_policy

    _, found = named_policy(policy)
    return Embedded(
        name=found.name,
        digest=found.digest,
        task=found.task,
        model=model_name(found.task),
        header=model_header(found),
        features=tuple(spec.name for spec in found.features),
        default_on=default_on,
        languages=found.languages,
    )


def _forget(cache: Path) -> None:
    try:
        (cache / CACHE_NAME).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{cache / CACHE_NAME}: {os_reason(error)}") from error
