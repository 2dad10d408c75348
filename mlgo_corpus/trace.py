"""Run a compiler over a corpus, and make a dataset of its decisions and of the native sizes they led to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, given_once, whole_number
from mlgo_corpus.corpus.select import ModuleChoice
from mlgo_corpus.engine.choice import HERE, EngineChoice
from mlgo_corpus.formats.logs.tasks import INLINING
from mlgo_corpus.policies.policy import policy_text
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.trace.corpus import TraceRequest, run_trace
from mlgo_corpus.runs.trace.run import TraceReport


@to_urls
def trace_corpus(
    corpus: Path | str,
    output: Path | str,
    *,
    task: str = INLINING,
    via: str = "auto",
    policy: Path | str = "default",
    compiler: Path | str | None = None,
    seed: int = 0,
    add_flags: Sequence[str] | str = (),
    delete_flags: Sequence[str] | str = (),
    replace_flags: Sequence[str] | str = (),
    trust_corpus: bool = False,
    timeout: float = 60.0,
    memory_limit: int | None = None,
    retries: int = 0,
    names: bool = True,
    sample: str | float | None = None,
    module_filter: str | None = None,
    modules_file: Path | str | None = None,
    keep_logs: Path | str | None = None,
    keep_objects: Path | str | None = None,
    ir2native_model: Path | str | None = None,
    jobs: int | None = None,
    force: bool = False,
    cache: Path | str | None = None,
    engine: EngineChoice = HERE,
    choice: ModuleChoice | None = None,
    edits: CommandEdits | None = None,
    limits: Limits | None = None,
    progress: Callable[[int, int, int, int], None] | None = None,
) -> TraceReport:
    """Run a compiler over the modules of a corpus and make a dataset of what it decides.

    Called again after an interruption, it goes on: modules that are done are not run again.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: the dataset's folder, or an ``s3://`` or ``gs://`` URL: then it is made in the cache, and uploaded.
        task: ``inlining``, ``regalloc-eviction`` or ``regalloc-priority``.
        via: ``training-log``, ``interactive``, or ``auto``: what the compiler can do.
        policy: who decides: see `mlgo_corpus.policies.policy.make_policy`.
        compiler: a clang; by default the best one found on this machine.
        seed: of random policies and of the sample.
        add_flags: options to add to each command; see `mlgo_corpus.formats.commands.edit` for how they are named.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that one compile may take.
        memory_limit: bytes of address space that one compile may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        retries: how often a compile is tried again that crashed or took too long.
        names: record which call each decision of inlining was about: `mlgo_corpus.dataset.calls`.
        sample: trace only so many modules, or this fraction of them, of all sizes.
        module_filter: trace only modules in whose names this regular expression is found.
        modules_file: trace only the modules whose names are in this file.
        keep_logs: a folder for copies of the training logs, ``MODULE.log``.
        keep_objects: a folder for copies of the objects, ``MODULE``; where another module is below that name, as
            ``a/b`` is below ``a``, ``MODULE.o``.
        ir2native_model: the folder of a model of native size (`mlgo_corpus.train_size_model`) of the features
            ``ir2native``: a development-mode compiler scores each decision of inlining by it, in the column
            ``delta_size``.
        jobs: compilers at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace a dataset that was made otherwise.
        cache: where plain compiles are remembered; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        choice: which modules, instead of ``sample``, ``module_filter`` and ``modules_file``.
        edits: how commands are changed, instead of the three ``flags`` and ``trust_corpus``.
        limits: what a compile may take, instead of ``timeout``, ``memory_limit`` and ``retries``.
        progress: is told (modules done, of them failed, decisions, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one module could be traced, or the dataset cannot be written.
    """
    seed = whole_number("seed", seed)
    request = TraceRequest(
        task=task,
        via=via,
        policy=policy_text(policy),
        compiler=None if compiler is None else str(compiler),
        seed=seed,
        names=names,
        choice=given_once("choice", choice, ModuleChoice(sample, module_filter, modules_file, seed), seed=seed),
        edits=given_once("edits", edits, CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus)),
        limits=given_once("limits", limits, Limits(timeout, memory_limit, retries)),
        keep_logs=None if keep_logs is None else Path(keep_logs),
        keep_objects=None if keep_objects is None else Path(keep_objects),
        ir2native_model=None if ir2native_model is None else str(ir2native_model),
    )
    return run_trace(
        corpus, Path(output), request, jobs=jobs, force=force, cache=cache, engine=engine, progress=progress
    )
