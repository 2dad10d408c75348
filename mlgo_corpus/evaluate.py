"""The evaluate stage: what policies make of a corpus, against LLVM's own decisions."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import INTERACTIVE, choose_compiler
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, check_count, given_once, whole_number
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.dataset.folder import differences
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import finish_moves, read_note, whole_files, work_folder
from mlgo_corpus.files.names import STATE_FOLDER
from mlgo_corpus.files.remote import output_here
from mlgo_corpus.files.text import counted, os_reason, several
from mlgo_corpus.formats.logs.tasks import INLINING, find_task
from mlgo_corpus.policies.conversation import says_more
from mlgo_corpus.policies.policy import policy_digest
from mlgo_corpus.runs.evaluate.run import Evaluation, contenders
from mlgo_corpus.runs.evaluate.sums import EvaluationReport, measured_by_all, sum_up
from mlgo_corpus.runs.evaluate.table import (
    EVALUATION_KIND,
    EVALUATION_NAME,
    LINKED_NAME,
    NOTE_NAME,
    iter_evaluation_rows,
    iter_linked_rows,
    write_evaluation_rows,
    write_linked_rows,
)
from mlgo_corpus.runs.functions.copies import copies_for
from mlgo_corpus.runs.links.run import TREE_HINT, is_of_the_tree
from mlgo_corpus.runs.trace.corpus import TraceRequest

_PROBLEMS: Final = 5
_ALL_KNOWN: Final = "a policy was trained on all of these modules: evaluate a project that it has not seen"
_INLINED_IN_EACH: Final = (
    "what many objects hold is inlined in each of them; a search of this project weighs that (mlgo-corpus search), as "
    "a policy does that knows the project (inlining-3.0)"
)


def evaluate_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    policies: Sequence[Path | str] | Path | str,
    link: bool = True,
    compiler: Path | str | None = None,
    seed: int = 0,
    add_flags: Sequence[str] | str = (),
    delete_flags: Sequence[str] | str = (),
    replace_flags: Sequence[str] | str = (),
    trust_corpus: bool = False,
    timeout: float = 60.0,
    memory_limit: int | None = None,
    retries: int = 0,
    sample: str | float | None = None,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    choice: ModuleChoice | None = None,
    edits: CommandEdits | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int, int, str], None] | None = None,
) -> EvaluationReport:
    """Compile a corpus by each of several policies, link its products of the objects, and compare all sizes.

    Modules that a learned policy was trained on are found by their functions' bodies, and are not in the headline.
    Called again after an interruption, it goes on: modules that are done are not compiled again.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: a folder for the tables (`mlgo_corpus.runs.evaluate.table`).
        policies: who decides, see `mlgo_corpus.policies.policy.make_policy`.
        link: link the products, too, if the corpus knows them.
        compiler: a clang; by default the best one found on this machine.
        seed: of random policies, of the sample, and of the intervals.
        add_flags: as of `mlgo_corpus.trace_corpus`, and so the following ones.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have.
        retries: how often a compile is tried again that crashed or took too long.
        sample: compile only so many modules, or this fraction of them, of all sizes.
        module_filter: compile only modules in whose names this regular expression is found.
        modules_file: compile only the modules whose names are in this file.
        jobs: compilers at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace an evaluation that was made otherwise.
        cache: where plain compiles are remembered; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        choice: which modules, instead of ``sample``, ``module_filter`` and ``modules_file``.
        edits: how commands are changed, instead of the three ``flags`` and ``trust_corpus``.
        limits: what a compile may take, instead of ``timeout``, ``memory_limit`` and ``retries``.
        progress: called with (compiles done, of them failed by this policy, compiles in all, the policy's name).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be compiled by a policy, or the tables cannot be written.
    """
    started = time.perf_counter()
    output = output_here(output, "an evaluation", "a folder")
    cache = cache_folder(cache)
    check_count("jobs", jobs)
    seed = whole_number("seed", seed)
    compiler = None if compiler is None else str(compiler)
    request = TraceRequest(
        task=INLINING,
        via=INTERACTIVE,
        compiler=compiler,
        seed=seed,
        names=False,
        choice=given_once("choice", choice, ModuleChoice(sample, module_filter, modules_file, seed), seed=seed),
        edits=given_once("edits", edits, CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus)),
        limits=given_once("limits", limits, Limits(timeout, memory_limit, retries)),
    )
    wanted = contenders(several(policies), request)
    opened = open_corpus(engine.place(corpus))
    chosen = request.choice.select(opened)
    toolchain, _ = choose_compiler(
        compiler,
        find_task(INLINING),
        wanted[0].request.policy,
        INTERACTIVE,
        producer=newest_producer(opened, chosen),
        cache=cache,
        jobs=jobs or available_cpus(),
        says_more=any(says_more(one.request.policy) for one in wanted),
        copies=copies_for((one.request.policy for one in wanted), opened, jobs=jobs or available_cpus()),
    )
    key = {
        "version": __version__,
        "stage": "evaluate",
        "policies": [[one.label, policy_digest(one.request.policy)] for one in wanted],
        "link": link,
        "seed": seed,
        "compiler": {"version": toolchain.version, "sha256": toolchain.identity},
        **request.edits.key(),
        **choice_key(opened, chosen),
    }
    if isinstance(opened.place, Path) and output.resolve().is_relative_to(opened.place.resolve()):
        raise UsageError(f"{output}: is in the corpus's folder; name another `output`")
    note = output / NOTE_NAME
    finish_moves(note)
    said = _note_of(output)
    there = said.get("key")
    if there is not None and there != key and not force:
        raise UsageError(f"{output}: made in another way: {differences(there, key)}; `force` replaces it")
    hints: tuple[str, ...] = ()
    unchanged = there == key and not force and (output / EVALUATION_NAME).is_file() and (output / LINKED_NAME).is_file()
    if unchanged:
        try:
            rows = list(iter_evaluation_rows(output / EVALUATION_NAME))
            linked = list(iter_linked_rows(output / LINKED_NAME))
            unchanged = not any(is_of_the_tree(row.reason, row.detail) for row in linked)
        except CorpusError:  # damaged: it is made again
            unchanged = False
        told = said.get("hints")
        hints = tuple(map(str, told)) if isinstance(told, list) else ()
    if not unchanged:
        work = output / STATE_FOLDER
        busy = f"{output}: another mlgo-corpus is writing this evaluation"
        with writing(output), work_folder(work, key, busy, fresh=force):
            evaluation = Evaluation(
                opened,
                chosen,
                corpus,
                work,
                compiler=shlex.join(toolchain.driver),
                link=link,
                jobs=jobs,
                cache=cache,
                engine=engine,
                progress=progress,
            )
            evaluation.run(wanted)
            rows, linked, hints = evaluation.rows, evaluation.linked, tuple(evaluation.hints)
            _write(output, rows, linked, key, hints)
            shutil.rmtree(work, ignore_errors=True)
    failed = [(row.module, row.reason, row.detail) for row in rows if row.status != STATUS_OK]
    failed += [(row.product, row.reason, row.detail) for row in linked if row.status != STATUS_OK]
    failed += [(row.product, row.link, row.detail) for row in linked if row.status == STATUS_OK and row.detail]
    sums = sum_up(rows, linked, seed)
    if any(is_of_the_tree(row.reason, row.detail) for row in linked):
        hints += (TREE_HINT,)
    if any(one.trained is not None and one.trained.modules == one.modules for one in sums):
        hints += (_ALL_KNOWN,)
    if len(sums) > 1 and (left_out := len(chosen) - len(measured_by_all(rows))):
        hints += (f"{counted(left_out, 'module')} in no sum of objects, as not all policies were measured there",)
    for one in sums:
        if (larger := one.larger_product) is not None:
            by = f"{100 * (larger.sizes.change or 0.0):+.2f} %"
            hints += (f"{one.policy}: its objects are no larger, but {by} when {larger.link}: {_INLINED_IN_EACH}",)
    return EvaluationReport(
        corpus=opened.shown,
        output=output,
        compiler=toolchain.vendor or "",
        modules=len(chosen),
        policies=sums,
        unchanged=unchanged,
        problems=tuple(dict.fromkeys(failed))[:_PROBLEMS],
        hints=hints,
        seconds=time.perf_counter() - started,
    )


def _note_of(output: Path) -> Mapping[str, Any]:
    """Return what the evaluation in a folder says of itself; nothing if there is none.

    Raises:
        UsageError: something else is there.
    """
    if os.path.lexists(output) and not output.is_dir():
        raise UsageError(f"{output}: expected a folder, found a file; name another `output`")
    note = read_note(output / NOTE_NAME)
    if isinstance(note, dict) and note.get("kind") == EVALUATION_KIND:
        return note
    try:
        strangers = sorted(name for name in os.listdir(output) if name != STATE_FOLDER)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UsageError(f"{output}: {os_reason(error)}") from error
    if strangers:
        raise UsageError(f"{output}: is not empty, and not an evaluation: it holds {strangers[0]}; name another folder")
    return {}


def _write(output: Path, rows: Sequence[Any], linked: Sequence[Any], key: Any, hints: Sequence[str]) -> None:
    note = output / NOTE_NAME
    about = {"tool": "mlgo-corpus", "kind": EVALUATION_KIND, "key": key}
    with whole_files(note) as files:
        write_evaluation_rows(files.make(output / EVALUATION_NAME), rows, about)
        write_linked_rows(files.make(output / LINKED_NAME), linked, about)
        files.make(note).write_text(json.dumps({**about, "hints": hints}, indent=1) + "\n", encoding="utf-8")
