"""The combine stage: make one corpus of many, or a manifest for a folder of corpora as LLVM's mlgo-utils does."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mlgo_corpus.corpus.assemble import Placing, check_inputs, digest_of_request, is_whole, local_output, new_corpus
from mlgo_corpus.corpus.folder import Corpus, read_manifest
from mlgo_corpus.corpus.groups import projects_of
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK, read_module_columns
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import known_links, links_bytes
from mlgo_corpus.corpus.scan import iter_rows
from mlgo_corpus.corpus.select import corpus_digest
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.folder import whole_files
from mlgo_corpus.files.names import MANIFEST_NAME, MODULES_NAME, NameRegistry, checked_name, safe_module_name
from mlgo_corpus.files.regular import MAX_LIST_BYTES, read_regular
from mlgo_corpus.files.text import counted, os_reason, printable, several
from mlgo_corpus.runs.report import Report

_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class CombineReport(Report):
    """The result of combining corpora.

    Attributes:
        output: the corpus, or the folder of corpora.
        corpora: for each corpus, the folder that holds its modules now, and their number.
        modules: modules in all.
        left_out: rows about modules that the corpora themselves had left out.
        failed: modules whose files could not be read: name and reason.
        copied: files that were copied because they could not be linked.
        unchanged: True if the output existed already, made from the same corpora.
        seconds: how long it took.
    """

    output: Path
    corpora: tuple[tuple[str, int], ...]
    modules: int
    left_out: int
    failed: tuple[tuple[str, str], ...]
    copied: int
    unchanged: bool
    seconds: float

    _properties: ClassVar = ("hints", "exit_code")

    @property
    def hints(self) -> tuple[str, ...]:
        """Advice for the user."""
        return (f"{counted(self.copied, 'file')} could not be linked and were copied",) if self.copied else ()

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; ``corpora`` is a dictionary."""
        return {**Report.as_json(self), "corpora": dict(self.corpora)}


def combine_corpora(
    corpora: Sequence[Path | str] | Path | str,
    output: Path | str,
    *,
    placing: Placing | str = Placing.LINK,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CombineReport:
    """Make one corpus of several; the name of its corpus is put in front of each module's name.

    Args:
        corpora: their folders, or the URLs of packed ones, in the order that their modules will have;
            ``NAME=FOLDER`` names one. By default a corpus has the name of its folder, or of the nearest folder above
            whose name distinguishes it from the others.
        output: the new corpus's folder.
        placing: how files get there, see `Placing`.
        force: replace another corpus.
        progress: called with (modules done, modules in all).

    Raises:
        UsageError: the corpora differ in settings that apply to all modules, or the output cannot be used.
        CorpusError: one of the inputs is not a corpus.
        MlgoCorpusError: the output cannot be written.
    """
    started = time.perf_counter()
    output = local_output(output)
    placing = Placing(placing)
    opened = [_named(item) for item in several(corpora)]
    if not opened:
        raise UsageError("expected the folders of corpora, found none")
    folders = _names([name for name, _ in opened], [_place_of(corpus) for _, corpus in opened])
    sources = dict(zip(folders, (corpus for _, corpus in opened), strict=True))
    check_inputs(output, sources.values(), placing)
    _check_agreement(
        (name, {"has_thinlto": one.has_thinlto, "global_command_override": one.global_command_override})
        for name, one in sources.items()
    )
    digests = [(name, _place_of(one), corpus_digest(one, one.names)) for name, one in sources.items()]
    links = {name: known_links(one) for name, one in sources.items()}
    request = digest_of_request("combine", str(placing), digests, *map(links_bytes, filter(None, links.values())))
    counts = tuple((name, len(corpus)) for name, corpus in sources.items())
    total = sum(count for _, count in counts)
    if is_whole(output, request, force=force):
        modules = len(open_corpus(output))
        left_out = len(read_module_columns(output / MODULES_NAME, ["module"])) - modules
        return CombineReport(output, counts, modules, left_out, (), 0, True, time.perf_counter() - started)
    left_out = done = 0
    with new_corpus(output, placing, request=request, force=force) as made:
        for name, corpus in sources.items():
            by_name = {printable(module): module for module in corpus.names}
            begin = len(made.modules)
            unusable: dict[str, str] = {}
            if placing is Placing.REFERENCE:
                made.refer(name, corpus.path)
            for row in iter_rows(corpus):
                row = row._replace(
                    duplicate_of=None if row.duplicate_of is None else f"{name}/{row.duplicate_of}", split=None
                )
                own = by_name.get(row.module)
                if row.status == STATUS_OK and own is not None:
                    made.add(row, f"{name}/{own}", corpus[own], referred=placing is Placing.REFERENCE)
                    del by_name[row.module]
                    done += 1
                    if progress is not None:
                        progress(done, total)
                    continue
                made.add_row(row, f"{name}/{row.module or ''}")
                if row.status == STATUS_FAILED and own is not None:
                    unusable[row.module] = row.detail
                else:
                    left_out += 1
            # Modules that the manifest names and that failed: only a row with the reason is kept.
            made.failed += [(f"{name}/{module}", why) for module, why in unusable.items() if module in by_name]
            left_out += sum(module not in by_name for module in unusable)
            places = {f"{name}/{module}": place for place, module in enumerate(corpus.names)}
            made.modules[begin:] = sorted(made.modules[begin:], key=places.__getitem__)
            made.take_links(links[name], f"{name}/")
        some = next(iter(sources.values()))
        projects: list[str] = []
        for name, one in sources.items():
            projects += [f"{name}/{project}" for project in projects_of(one)] or [name]
        made.finish(
            has_thinlto=some.has_thinlto,
            override=some.global_command_override,
            about={"made_by": "combine", "request": request, "placing": str(placing), "corpora": projects},
        )
    return CombineReport(
        output,
        counts,
        len(made.modules),
        left_out,
        tuple(made.failed),
        made.copied,
        False,
        time.perf_counter() - started,
    )


def combine_in_place(root: Path | str, *, force: bool = False) -> CombineReport:
    """Write a manifest for all corpora that are sub-folders of ``root``: LLVM's ``combine_training_corpus``.

    The manifest equals the one that mlgo-utils writes for the same order of folders, byte for byte. Here the folders
    are sorted by name, and those whose name begins with a dot are ignored. Keys that this tool does not know are kept;
    a ``has_thinlto`` that is missing is written as false, because trainers do not read a manifest without it.

    Raises:
        UsageError: there are no corpora, their manifests differ in more than modules, or another manifest exists.
        CorpusError: a manifest is invalid, or names a module outside its folder.
        MlgoCorpusError: the manifest cannot be written.
    """
    started = time.perf_counter()
    root = Path(root)
    try:
        folders = sorted(
            folder
            for folder in root.iterdir()
            if not folder.name.startswith(".") and (folder / MANIFEST_NAME).is_file()
        )
    except OSError as error:
        raise UsageError(f"{error.filename or root}: {os_reason(error)}") from error
    if not folders:
        raise UsageError(f"{root}: no folder in it has a {MANIFEST_NAME}; `root` is the folder that holds the corpora")
    manifests = {folder.name: read_manifest(folder / MANIFEST_NAME) for folder in folders}
    modules = {name: manifest.pop("modules") for name, manifest in manifests.items()}
    for name, names in modules.items():
        for module in names:
            try:
                checked_name(module)
            except CorpusError as error:
                raise CorpusError(f"{root / name / MANIFEST_NAME}: {error}") from error
    _check_agreement(manifests.items())
    combined = dict(next(iter(manifests.values())))
    combined["modules"] = [os.path.join(name, module) for name, names in modules.items() for module in names]
    data = json.dumps(combined, indent=2).encode("ascii")
    place = root / MANIFEST_NAME
    try:
        unchanged = place.is_file() and read_regular(place, MAX_LIST_BYTES) == data
        if place.exists() and not unchanged and not force:
            raise UsageError(f"{place}: another manifest is there; `force` replaces it")
        if not unchanged:
            with whole_files(place) as files:
                files.make(place).write_bytes(data)
    except OSError as error:
        raise MlgoCorpusError(f"cannot write {place}: {os_reason(error)}") from error
    counts = tuple((name, len(names)) for name, names in modules.items())
    total = sum(count for _, count in counts)
    return CombineReport(root, counts, total, 0, (), 0, unchanged, time.perf_counter() - started)


def _named(item: Path | str) -> tuple[str | None, Corpus]:
    text = item if isinstance(item, str) else ""
    name, equals, folder = text.partition("=")
    if equals and name and "/" not in name and not os.path.lexists(text):
        return name, open_corpus(folder)
    return None, open_corpus(item)


def _place_of(corpus: Corpus) -> str:
    """Return a string that identifies where a corpus is."""
    return os.path.abspath(corpus.place) if isinstance(corpus.place, Path) else corpus.location


def _names(given: Sequence[str | None], paths: Sequence[str]) -> list[str]:
    """Return a unique name for each corpus: the given one, or the last part of its path that is not common to all.

    ``one/corpus`` and ``two/corpus`` are ``one`` and ``two``.
    """
    parts = [[part for part in path.split("/") if part] for path in paths]
    if len({tuple(part) for part in parts}) > 1:
        while all(len(part) > 1 for part in parts) and len({part[-1] for part in parts}) == 1:
            for part in parts:
                part.pop()
    registry = NameRegistry()
    names = (name if name is not None else part[-1] for name, part in zip(given, parts, strict=True))
    # The name of a folder is more restricted than a module's: it must not be the name of one of the corpus's own files.
    wanted = (safe_module_name(f"{name or 'corpus'}/module").rpartition("/")[0] for name in names)
    return [registry.claim(name or "corpus") for name in wanted]


def _check_agreement(settings: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Raise if the corpora differ in the manifest keys that apply to all modules, and list their values."""
    said = list(settings)
    conflicts = []
    for key in dict.fromkeys(key for _, values in said for key in values):
        found = [(name, key in values, values.get(key)) for name, values in said]
        if any(one[1:] != found[0][1:] for one in found):
            shown = ", ".join(f"{name} has {_shown(value)}" for name, _, value in found)
            conflicts.append(f"{key}: {shown}")
    if conflicts:
        raise UsageError(
            f"the corpora differ in settings that apply to all modules: {'; '.join(conflicts)}; "
            "combine only corpora that agree"
        )


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        text = shlex.join(map(str, value)) or "an empty command"
        return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return json.dumps(value)[:_LONGEST_SHOWN]
