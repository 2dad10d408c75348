"""The make stage: make a corpus of loose bitcode files, with one command for all of them or one for each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from mlgo_corpus import __version__
from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.corpus.assemble import Placing, check_apart, digest_of_request, is_whole, local_output, new_corpus
from mlgo_corpus.corpus.folder import Module, manifest_bytes, read_manifest
from mlgo_corpus.corpus.modules import (
    STATUS_FAILED,
    STATUS_OK,
    ModuleRow,
    iter_module_rows,
    write_module_rows,
)
from mlgo_corpus.corpus.scan import scan_module
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import walk, whole_files
from mlgo_corpus.files.names import (
    BITCODE_SUFFIX,
    COMMAND_SUFFIX,
    MANIFEST_NAME,
    MODULE_SUFFIXES,
    MODULES_NAME,
    STATE_FOLDER,
    THINLTO_INDEX_SUFFIX,
    numbered_name,
    safe_module_name,
)
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import command_words, counted, os_reason
from mlgo_corpus.runs.report import Report


@dataclass(frozen=True, slots=True)
class MakeReport(Report):
    """The result of making a corpus.

    Attributes:
        output: the corpus.
        modules: number of modules in it.
        has_thinlto: True if they have ThinLTO indexes.
        without_command: number of modules that have no command and are not covered by default arguments.
        failed: files that are not modules: name, reason and detail.
        unchanged: True if it existed already, made of the same files.
        seconds: how long it took.
    """

    output: Path
    modules: int
    has_thinlto: bool
    without_command: int
    failed: tuple[tuple[str, str, str], ...]
    unchanged: bool
    seconds: float

    _properties: ClassVar = ("hints", "exit_code")

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice for the user."""
        if not self.without_command:
            return ()
        without = f"{counted(self.without_command, 'module')} without a command"
        return (f"{without}, and trainers refuse a corpus with such modules: `default_args` gives one for all",)


def make_corpus(
    folder: Path | str,
    output: Path | str | None = None,
    *,
    default_args: Sequence[str] | str | None = None,
    placing: Placing | str = Placing.LINK,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MakeReport:
    """Make a corpus of the ``*.bc`` files in and below a folder; a module's name is its path without ``.bc``.

    ``*.thinlto.bc`` files are the modules' ThinLTO indexes. A ``*.cmd`` file beside a module is its own command.

    Args:
        folder: the folder that holds the files.
        output: the new corpus; by default the folder itself becomes one: a manifest and a table are added.
        default_args: one command for all modules, for the manifest's ``global_command_override``; as one string, quoted
            as for a shell. By default that of a manifest in the folder, if the modules have no commands of their own.
        placing: how files get to ``output``, see `Placing`.
        force: replace another corpus, or another manifest in the folder.
        progress: called with (files read, files in all).

    Raises:
        UsageError: there are no bitcode files, there is no command for them, or the output cannot be used.
        MlgoCorpusError: the corpus cannot be written.
    """
    started = time.perf_counter()
    folder = Path(folder)
    output = None if output is None else local_output(output)
    placing = Placing(placing)
    names = _find_modules(folder)
    override = None if default_args is None else command_words(default_args, "default_args")
    if override is None and not any(os.path.isfile(folder / (name + COMMAND_SUFFIX)) for name in names):
        override = None if output is not None else _override_there(folder / MANIFEST_NAME)
        if not override:
            said = f"{folder}: no module has a command of its own, a .cmd file; `default_args` sets one for all"
            raise UsageError(said)
    with_index = frozenset(name for name in names if os.path.isfile(folder / (name + THINLTO_INDEX_SUFFIX)))
    modules = [Module(folder, name, bool(with_index), override) for name in names]

    def scanned() -> Iterator[tuple[Module, ModuleRow]]:
        for number, module in enumerate(modules, 1):
            row = scan_module(module)
            if module.has_thinlto and row.status == STATUS_OK and module.name not in with_index:
                detail = "other modules have a ThinLTO index, and this one has none"
                row = row._replace(status=STATUS_FAILED, reason=str(Reason.MISSING_THINLTO_INDEX), detail=detail)
            yield module, row
            if progress is not None:
                progress(number, len(modules))

    if output is None:
        rows, unchanged = _in_place(folder, scanned(), bool(with_index), override, force=force)
        return _report(folder, rows, bool(with_index), unchanged, started)
    if output.resolve() == folder.resolve():
        raise UsageError(
            f"is {folder}; without `output` that folder itself becomes a corpus", option="output", value=output
        )
    check_apart(output, [folder])
    stamps = [_stamps(folder, name) for name in names]
    request = digest_of_request("make", str(placing), os.path.abspath(folder), override, names, stamps)
    if is_whole(output, request, force=force):
        return _report(output, [row for _, row in scanned()], bool(with_index), True, started)
    rows = []
    taken: set[str] = set()
    with new_corpus(output, placing, request=request, force=force) as made:
        for module, row in scanned():
            name = _free_name(safe_module_name(module.name), taken)
            if row.status == STATUS_OK:
                rows.append(made.add(row, name, module))
            else:
                rows.append(made.add_row(row, name))
        _check_any(folder, rows)
        about = {"made_by": "make", "request": request, "placing": str(placing)}
        made.finish(has_thinlto=bool(with_index), override=override, about=about)
    return _report(output, rows, bool(with_index), False, started)


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return a unique name; two paths may differ only in bytes that are not allowed in names."""
    name, number = wanted, 2
    while name in taken:
        name, number = numbered_name(wanted, number), number + 1
    taken.add(name)
    return name


def _find_modules(folder: Path) -> list[str]:
    """Return the paths of all bitcode files without suffix, sorted by bytes; links to folders are not followed."""
    names = []

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename}: {os_reason(error)}") from error

    for where, folders, files in walk(folder, refuse):
        folders[:] = sorted(name for name in folders if name != STATE_FOLDER)
        for file in files:
            if file.endswith(BITCODE_SUFFIX) and not file.endswith(THINLTO_INDEX_SUFFIX) and file != BITCODE_SUFFIX:
                path = os.path.relpath(os.path.join(where, file), folder)
                names.append(path.removesuffix(BITCODE_SUFFIX))
    if not names:
        raise UsageError(f"{folder}: no *{BITCODE_SUFFIX} files in it; mlgo-corpus extract takes a build's objects")
    return sorted(names, key=os.fsencode)


def _stamps(folder: Path, name: str) -> tuple[tuple[int, int, bool] | None, ...]:
    found: list[tuple[int, int, bool] | None] = []
    for suffix in MODULE_SUFFIXES:
        try:
            path = folder / (name + suffix)
            status = os.stat(path)
            found.append((status.st_size, status.st_mtime_ns, os.access(path, os.R_OK)))
        except OSError:
            found.append(None)
    return tuple(found)


def _in_place(
    folder: Path,
    scanned: Iterator[tuple[Module, ModuleRow]],
    has_thinlto: bool,
    override: Sequence[str] | None,
    *,
    force: bool,
) -> tuple[list[ModuleRow], bool]:
    """Write a manifest and a table into a folder; return the rows, and whether both existed already."""
    manifest = folder / MANIFEST_NAME
    if (folder / STATE_FOLDER / "lock").exists():
        raise UsageError(f"{folder}: is a corpus that extract keeps up to date; name another `output`")
    found = list(scanned)
    rows = [row for _, row in found]
    _check_any(folder, rows)
    names = [module.name for module, row in found if row.status == STATUS_OK]
    with writing(folder), whole_files(folder / MODULES_NAME) as files:
        before = _modules_before(manifest, has_thinlto=has_thinlto, override=override)
        same = before is not None and len(before) == len(names) and set(before) == set(names)
        if os.path.lexists(manifest) and not same and not force:
            raise UsageError(f"{manifest}: another manifest is there; `force` replaces it")
        unchanged = _is_own_table(folder / MODULES_NAME, rows, force=force)
        if not unchanged:
            about = {"tool": "mlgo-corpus", "version": __version__, "made_by": "make"}
            table = files.make(folder / MODULES_NAME)
            write_module_rows(table, table, rows, about)
        if not same:
            files.remove(manifest)
            data = manifest_bytes(names, has_thinlto=has_thinlto, override=override)
            files.make(manifest).write_bytes(data)
    return rows, same and unchanged


def _is_own_table(table: Path, rows: Sequence[ModuleRow], *, force: bool) -> bool:
    """Return True if an equal table exists, which other verbs may have extended.

    Raises:
        UsageError: another table exists, which may hold more than can be read from the modules.
    """
    if not os.path.lexists(table):
        return False
    try:
        if read_metadata(table).get("made_by") == "make":
            found = (row._replace(functions=None, split=None) for row in iter_module_rows(table))
            return all(one == other for one, other in zip_longest(found, rows))
    except CorpusError:
        pass
    if not force:
        raise UsageError(f"{table}: another table is there; `force` replaces it")
    return False


def _override_there(manifest: Path) -> tuple[str, ...] | None:
    """Return the command for all modules of a manifest, such as LLVM's tools wrote; None if there is none."""
    try:
        return tuple(read_manifest(manifest).get("global_command_override") or ()) or None
    except CorpusError:
        return None


def _modules_before(manifest: Path, *, has_thinlto: bool, override: Sequence[str] | None) -> list[str] | None:
    """Return the modules of a manifest whose other keys are the same; None if there is no such manifest."""
    try:
        said = read_manifest(manifest)
    except CorpusError:
        return None
    modules: list[str] = said.pop("modules")
    other = {"has_thinlto": has_thinlto} | ({} if override is None else {"global_command_override": list(override)})
    return modules if said == other else None


def _check_any(folder: Path, rows: Sequence[ModuleRow]) -> None:
    if not any(row.status == STATUS_OK for row in rows):
        first = rows[0]
        raise UsageError(f"{folder}: none of {len(rows)} files is a module: {first.module}.bc: {first.detail}")


def _report(output: Path, rows: Sequence[ModuleRow], has_thinlto: bool, unchanged: bool, started: float) -> MakeReport:
    there = [row for row in rows if row.status == STATUS_OK]
    return MakeReport(
        output=output,
        modules=len(there),
        has_thinlto=has_thinlto,
        without_command=sum(row.reason == Reason.NO_COMMAND for row in there),
        failed=tuple((row.module, row.reason, row.detail) for row in rows if row.status != STATUS_OK),
        unchanged=unchanged,
        seconds=time.perf_counter() - started,
    )
