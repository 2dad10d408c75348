"""Make the table that a model of native size learns from: features of every function after inlining, and its bytes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import choose_optimiser
from mlgo_corpus.compilers.command import CommandEdits
from mlgo_corpus.compilers.limits import Limits, check_count, given_once, whole_number
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.select import ModuleChoice, choice_key, newest_producer
from mlgo_corpus.corpus.split.rows import RowDivision
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, refuse_difference
from mlgo_corpus.dataset.sizes.table import SIZES_FOLDER, Columns, describe_columns, read_module_sizes
from mlgo_corpus.engine.choice import HERE, EngineChoice, available_cpus
from mlgo_corpus.errors import FormatError, UsageError
from mlgo_corpus.formats.ir.pipeline import POST_INLINING, SNAPSHOTS
from mlgo_corpus.policies.sizes.inputs import columns_of
from mlgo_corpus.policies.sizes.model import SizeModel
from mlgo_corpus.runs.datasets.publish import to_urls
from mlgo_corpus.runs.sizes.module import SnapshotSettings
from mlgo_corpus.runs.sizes.rows import SizingJob
from mlgo_corpus.runs.sizes.run import SizesReport, SizesTable

__all__ = ["SizesReport", "ir2native_table"]

_TIMEOUT_S: Final = 300.0


@to_urls
def ir2native_table(
    corpus: Path | str,
    output: Path | str,
    *,
    features: str | Sequence[str] = "all",
    vector: bool = False,
    snapshot: str = POST_INLINING,
    verify: bool = True,
    model: Path | str | None = None,
    fractions: tuple[float, float, float] | None = None,
    seed: int = 0,
    compiler: Path | str | None = None,
    add_flags: Sequence[str] | str = (),
    delete_flags: Sequence[str] | str = (),
    replace_flags: Sequence[str] | str = (),
    trust_corpus: bool = False,
    timeout: float = _TIMEOUT_S,
    memory_limit: int | None = None,
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
    progress: Callable[[int, int, int, int], None] | None = None,
) -> SizesReport:
    """Take the features of every function of a corpus after inlining, compile on, and take the functions' sizes.

    Called again after an interruption, it goes on: modules that are done are not run again.

    Args:
        corpus: the corpus's folder; a packed one may be behind a URL.
        output: the table: a folder, or a single file if it is called ``*.parquet``; or an ``s3://`` or ``gs://`` URL.
        features: ``all``, or some of ``llvm``, ``ir2native``, ``context``, ``operands``, as a list or between commas.
        vector: add the IR2Native features as one list column, too.
        snapshot: ``post-inlining``: features are taken after the last inlining; or ``pre-inlining``: before any.
        verify: compile each module plainly too, and compare the objects.
        model: the folder of a model of native size (`mlgo_corpus.train_size_model`): its predictions are columns, too.
        fractions: of train, validation and test; by default 0.8, 0.1 and 0.1. A corpus that has a split decides itself:
            a function is on its module's side.
        seed: of the split and of the sample.
        compiler: a clang that has an opt of the same version; by default the best one found on this machine.
        add_flags: options to add to each command; see `mlgo_corpus.formats.commands.edit` for how they are named.
        delete_flags: options to take out of each command.
        replace_flags: ``NAME=VALUE``: options that get another value.
        trust_corpus: the corpus is one's own: run any command, without walls and without default limits.
        timeout: seconds that each program may take.
        memory_limit: bytes of address space that each may have; by default the machine's memory, shared among
            its CPUs, at least 4 GiB.
        sample: take only so many modules, or this fraction of them, of all sizes.
        module_filter: take only modules in whose names this regular expression is found.
        modules_file: take only the modules whose names are in this file.
        jobs: modules at a time; by default the CPUs this process may use, or the cluster's.
        force: start over, and replace a table that was made otherwise.
        cache: where it is known what compilers can do; the user's cache by default.
        engine: where the compilers run: on this machine, or on a cluster.
        choice: which modules, instead of ``sample``, ``module_filter`` and ``modules_file``.
        edits: how commands are changed, instead of the three ``flags`` and ``trust_corpus``.
        limits: what each program may take, instead of ``timeout`` and ``memory_limit``.
        progress: is told (modules done, of them failed, functions, modules in all).

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus.
        MlgoCorpusError: not one function was found, or the table cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    cache = cache_folder(cache)
    check_count("jobs", jobs)
    seed = whole_number("seed", seed)
    compiler = None if compiler is None else str(compiler)
    columns = Columns.of(features, vector=vector, predicted=model is not None)
    loaded = None if model is None else _model_for(columns, model)
    if snapshot not in SNAPSHOTS:
        raise UsageError(f"expected one of {', '.join(SNAPSHOTS)}", option="snapshot", value=snapshot)
    choice = given_once("choice", choice, ModuleChoice(sample, module_filter, modules_file, seed), seed=seed)
    edits = given_once("edits", edits, CommandEdits.of(add_flags, delete_flags, replace_flags, trusted=trust_corpus))
    limits = given_once("limits", limits, Limits(timeout, memory_limit), timeout=_TIMEOUT_S)
    limits.check()
    edits.check()
    opened = open_corpus(engine.place(corpus))
    division = RowDivision.of(opened, fractions, seed)
    names = choice.select(opened)
    toolchain = choose_optimiser(
        compiler,
        producer=newest_producer(opened, names),
        cache=cache,
        jobs=jobs or available_cpus(),
    )
    key = {
        "version": __version__,
        "features": list(columns.groups),
        "vector": vector,
        "snapshot": snapshot,
        "verify": verify,
        "model": None if loaded is None else loaded.digest,
        "fractions": division.key,
        "seed": seed,
        "compiler": {"version": toolchain.version, "sha256": toolchain.identity},
        **edits.key(),
        **choice_key(opened, names),
    }
    if not force:
        refuse_difference(DatasetPaths.of(output, SIZES_FOLDER), key)
    folder = DatasetFolder(output, key, force=force, rows=SIZES_FOLDER)
    opt = str(toolchain.opt)
    settings = SnapshotSettings(
        cc1=toolchain.cc1,
        opt=(opt,),
        cxxfilt=_cxxfilt(opt),
        snapshot=snapshot,
        ir2native=columns.wants_vectors,
        operands="operands" in columns.groups,
        verify=verify,
        edits=edits,
        limits=limits,
    )
    job = SizingJob(settings, columns, folder.paths.work.absolute())
    table = SizesTable(folder, job, toolchain, opened, names, jobs, division, engine, progress, loaded)
    try:
        if folder.is_whole:
            table.read(read_module_sizes(folder.paths.modules))
        else:
            table.run()
    finally:
        folder.close()
    return table.report(time.perf_counter() - started)


def _model_for(columns: Columns, folder: Path | str) -> SizeModel:
    """Return a model that can predict from these columns.

    Raises:
        UsageError: there is none, or it needs others.
    """
    try:
        model = SizeModel.load(folder)
    except FormatError as error:
        raise UsageError(str(error)) from None
    there = dict(describe_columns(columns))
    missing = [name for name in columns_of(model.features) if name not in there]
    if missing:
        raise UsageError(f"{folder}: the model needs the column {missing[0]!r}: add its group to `features`")
    return model


def _cxxfilt(opt: str) -> tuple[str, ...] | None:
    """Return the words that run the llvm-cxxfilt beside an opt; None if there is none."""
    folder, name = os.path.split(opt)
    program = os.path.join(folder, name.replace("opt", "llvm-cxxfilt", 1))
    return (program,) if os.access(program, os.X_OK) else None
