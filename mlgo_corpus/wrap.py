"""The wrap stage: put a learned policy into a stock clang, and list such clangs.

The stage behind ``mlgo-corpus toolchain wrap`` and a part of ``toolchain list``. The program that asks the policy is in
`mlgo_corpus.compilers.native`.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.compilers.choose import choose_for_build, refuse_zig
from mlgo_corpus.compilers.driver import drivers_of
from mlgo_corpus.compilers.find import VERSION_LINE, Compiler, loads_plugin, note_folder, noted_folders
from mlgo_corpus.compilers.native.extended import plugin_files, read_extended
from mlgo_corpus.compilers.native.wrapped import (
    Asking,
    FoundDecisions,
    PolicyCode,
    StockClang,
    Wrapped,
    read_wrapped,
    refuse_wrapped,
    wrap_clang,
)
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.formats.logs.tasks import INLINING, INLINING_DEFAULT
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.policies.conversation import MISPLACED_DEFAULT, MISPLACED_IN, knows_project, needs_default, says_more
from mlgo_corpus.policies.keyed import (
    DecisionTable,
    dataset_digest,
    dataset_note,
    decision_table,
    find_dataset,
    growth_options,
)
from mlgo_corpus.policies.learned import LearnedPolicy, find_policy, named_policy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.source import policy_source
from mlgo_corpus.runs.functions.copies import project_copies
from mlgo_corpus.runs.report import Report

# LLVM's own decision, as a policy.
_DEFAULT: Final = LearnedPolicy("default", INLINING, (TensorSpec(INLINING_DEFAULT),), Rule(-0.5, (1.0,)))
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
        languages: those that the policy decides in, of sources; None for all.
        modules: the names of those whose decisions, of a dataset, are inside.
        decisions: how many these are.
        left_out: how many modules of the dataset are not, because no object has their name: members of archives, and
            sources that one command compiled and linked.
        otherwise: the policy that decides what the dataset does not, ``default`` for LLVM; empty without a dataset.
    """

    wrapped: Wrapped
    seconds: float
    languages: tuple[str, ...] | None = None
    modules: tuple[str, ...] = ()
    decisions: int = 0
    left_out: int = 0
    otherwise: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; modules are counted."""
        return {**Report.as_json(self), "modules": len(self.modules)}


def wrap_toolchain(
    policy: str | Path,
    output: Path | str,
    *,
    otherwise: str | Path | None = None,
    compiler: str | None = None,
    corpus: Path | str | None = None,
    always: bool = False,
    keep_smaller: bool = False,
    force: bool = False,
    cache: Path | str | None = None,
) -> WrapReport:
    """Make a clang with a policy inside: a program around a stock clang, which compiles it in seconds.

    Args:
        policy: the folder of a learned policy, or the name of one that comes with the package; or the folder of a
            dataset of inlining, such as a search's, whose decisions are made again wherever one of its modules is
            compiled.
        output: the folder to make; it gets ``bin/clang`` and ``bin/clang++``.
        otherwise: the learned policy that decides what a dataset does not, or ``default`` for LLVM; by default the
            learned one that the search tried, else LLVM.
        compiler: the clang to wrap; by default the one that a build would take.
        corpus: that of the project, for a policy that decides by how many of its modules have a copy of a function.
        always: ask the policy at every level of optimisation, not only where code is optimised for size.
        keep_smaller: compile each object plainly, too, and keep the smaller one.
        force: replace another wrapped clang.
        cache: the folder that remembers wrapped clangs, and keeps plugins; the user's `cache_folder` by default.

    Raises:
        UsageError: the policy or the compiler will not do, or something else is in the output's place.
        CorpusError: the corpus is missing or damaged.
        MlgoCorpusError: its table of functions cannot be written.
        ToolError: the program or the plugin cannot be compiled.
    """
    begin = time.perf_counter()
    output = output_here(output, "a toolchain", "a folder")
    cache = cache_folder(cache)
    dataset = find_dataset(str(policy))
    if dataset is None and otherwise is not None:
        raise UsageError("only a dataset leaves something to decide", option="otherwise", value=otherwise)
    learned = named_policy(policy)[1] if dataset is None else policy_of_the_rest(dataset, otherwise)
    who = learned.name if dataset is None else f"what {dataset.name} does not decide is left to {learned.name}, which"
    if corpus is None and knows_project(learned):
        raise UsageError(f"{who} decides by what the whole project has: name its corpus", option="corpus")
    if corpus is not None and not knows_project(learned):
        remedy = "" if dataset is None else ": leave it out, or name inlining-3.0 with `otherwise`"
        raise UsageError(f"{who} asks nothing of a corpus{remedy}", option="corpus", value=corpus)
    project = None if corpus is None else open_corpus(corpus)
    is_extended = says_more(learned) or (dataset is not None and says_more(str(dataset)))
    make_plugin = partial(_make_plugin, cache=cache, project=project) if is_extended else None
    stock = _stock_clang(compiler, learned.task, make_plugin)
    source, header = policy_source(learned)
    code = PolicyCode(learned.name, learned.task, learned.digest, source, header, learned.languages)
    table = None
    if dataset is not None:
        table = _table_of(dataset, stock)
        code = _with_found(code, dataset, table)
    asking = Asking(
        always=always,
        keep_smaller=keep_smaller,
        with_default=needs_default(learned),
        growth=growth_options(()) if learned.task == INLINING else (),
    )
    wrapped = wrap_clang(output, code, stock, asking, force=force)
    note_folder(cache / _WRAPPED_NAME, wrapped.output)
    found = () if table is None else (table.modules, table.decisions, table.left_out, learned.name)
    return WrapReport(wrapped, time.perf_counter() - begin, learned.languages or None, *found)


def policy_of_the_rest(dataset: Path, named: str | Path | None = None) -> LearnedPolicy:
    """Return the policy that decides what a dataset does not: by default the first learned one that it was made with.

    Raises:
        UsageError: there is none of this name, or it is none of inlining.
    """
    if named is None:
        note = dataset_note(dataset)
        also = note.get("also")
        tried = [note.get("start"), *(also if isinstance(also, list) else ()), note.get("policy")]
        names = [name for text in tried if isinstance(text, str) for name in (text, Path(text).name)]
        named = next((name for name in names if find_policy(name) is not None), "default")
    if str(named) == "default":
        return _DEFAULT
    learned = named_policy(named)[1]
    if learned.task != INLINING:
        raise UsageError(
            f"expected a policy of {INLINING}, found one of {learned.task}", option="otherwise", value=named
        )
    return learned


def _table_of(dataset: Path, clang: StockClang) -> DecisionTable:
    """Return the decisions of a dataset, for a clang.

    Raises:
        UsageError: it is no dataset of inlining, or one of another LLVM.
        CorpusError: it cannot be read.
    """
    by = str(dataset_note(dataset).get("compiler") or "an unknown compiler")
    version = VERSION_LINE.search(by)
    if version is None or version[1] != clang.version.partition(".")[0]:
        message = f"its decisions were found with {by}, and LLVM {clang.version} asks other questions"
        message += ": name that clang with `compiler`" if version is not None else ""
        raise UsageError(message, option="policy", value=dataset)
    table = decision_table(dataset, (MISPLACED_IN,) if clang.misplaced_default else ())
    if table.left_out and not table.modules:
        raise UsageError(
            "no object has the name of one of its modules, which are of archives, or of sources that one command "
            "compiled and linked: build each object by itself, with -c",
            option="policy",
            value=dataset,
        )
    return table


def _with_found(code: PolicyCode, dataset: Path, table: DecisionTable) -> PolicyCode:
    """Return a policy that decides what a dataset does not."""
    return replace(
        code,
        name=f"{dataset.name}, else {code.name}",
        digest=dataset_digest(dataset),
        languages=None if code.name == _DEFAULT.name else code.languages,
        found=FoundDecisions(table.features, table.digest, table.data, growth_options((), dataset)),
    )


def list_wrapped(*, cache: Path | str | None = None) -> tuple[Wrapped, ...]:
    """Return the clangs with a policy inside that were made here and are still there."""
    folder = cache_folder(cache)
    return tuple(filter(None, map(read_wrapped, noted_folders(folder / _WRAPPED_NAME))))


def _make_plugin(compiler: Compiler, cache: Path, project: Corpus | None) -> dict[str, bytes]:
    """Return the files of the plugin for a clang, with what it is to know of a project.

    Raises:
        CorpusError: the project's corpus is damaged.
        MlgoCorpusError: a file cannot be written, or LLVM's headers are not installed.
    """
    copies = None if project is None else project_copies(project, jobs=available_cpus())
    return plugin_files(compiler, cache, copies)


def _stock_clang(named: str | None, task: str, make_plugin: Callable[..., dict[str, bytes]] | None) -> StockClang:
    """Return the clang to wrap.

    Args:
        named: the compiler that the user named.
        task: the policy's task.
        make_plugin: returns the files of the plugin for a clang; None if the policy needs none.

    Raises:
        UsageError: there is none, or it cannot be wrapped.
    """
    compiler = choose_for_build(named)
    if (extended := read_extended(Path(os.path.realpath(compiler.driver[0])).parent.parent)) is not None:
        # A plugin of its own is nobody else's to remove.
        compiler = choose_for_build(shlex.join((*extended.compiler, *compiler.driver[1:])))
    refuse_zig(compiler, "zig's driver keeps objects, and would not ask for them again")
    _refuse_others(compiler)
    if compiler.major < _FIRST_INTERACTIVE:
        message = f"a policy decides in clang {_FIRST_INTERACTIVE} or newer, this is {compiler.version}"
        raise UsageError(message, option="compiler", value=compiler.driver[0])
    drivers = drivers_of(compiler)
    is_misplaced = task == INLINING and compiler.major in MISPLACED_DEFAULT
    plugin = None if make_plugin is None else partial(make_plugin, compiler=compiler)
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
