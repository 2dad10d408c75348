"""The products of a corpus linked again, from a request to a report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mlgo_corpus import __version__
from mlgo_corpus.compilers.choose import choose_for_link
from mlgo_corpus.compilers.driver import drivers_of
from mlgo_corpus.compilers.limits import Limits, check_count
from mlgo_corpus.compilers.walls import close_launchers
from mlgo_corpus.corpus.folder import Corpus
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.corpus.products import read_links
from mlgo_corpus.engine.choice import available_cpus
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import writing
from mlgo_corpus.files.folder import recover, replaces, whole_folder
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.tables import read_metadata
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.runs.links.module import LinkSettings
from mlgo_corpus.runs.links.run import Relink, RelinkReport, sum_up
from mlgo_corpus.runs.links.table import PRODUCTS_FOLDER, PRODUCTS_NAME, RELINK_KIND, write_product_rows
from mlgo_corpus.runs.trace.module import clashing_copies


def run_relink(
    corpus: Path | str,
    output: Path | str,
    *,
    objects: Path | str | None,
    ld_flags: Sequence[str],
    compiler: str | None,
    trust_corpus: bool,
    limits: Limits,
    jobs: int | None,
    force: bool,
    progress: Callable[[int, int, int], None] | None,
) -> RelinkReport:
    """Link the products again, as `mlgo_corpus.relink_corpus` does.

    Raises:
        UsageError: the request cannot be carried out as it stands; nothing was written.
        CorpusError: there is no corpus, or it has no record of links.
        MlgoCorpusError: the products cannot be written.
    """
    started = time.perf_counter()
    limits.check()
    check_count("jobs", jobs)
    opened = open_corpus(corpus)
    place = Path(os.path.realpath(output))
    other = None if objects is None else _folder_of_objects(objects)
    replace = _may_be_made(place, opened, other, force=force)
    records = read_links(opened)
    names = {module: one.object for module, one in clashing_copies(opened.names).items()}
    if other is not None and not any((other / names.get(name, name)).is_file() for name in opened.names):
        found = "found none of any module; `keep_objects` of a trace or a search leaves them in a folder"
        raise UsageError(f"expected the corpus's objects, {found}", option="objects", value=objects)
    chosen = choose_for_link(compiler, records[-1].compiler if records else None)
    drivers = drivers_of(chosen)
    archiver = drivers.archivers.get("ar") or (shutil.which("ar") or "ar",)
    try:
        with (
            writing(output),
            whole_folder(place, replace=replace) as result,
            scratch_folder(place.parent) as work,
        ):
            settings = LinkSettings(
                c=drivers.c,
                cxx=drivers.cxx,
                ar=archiver,
                vendor=chosen.vendor,
                flags=tuple(ld_flags),
                corpus=opened.path if isinstance(opened.place, Path) else None,
                objects=other,
                object_names=names,
                work=work,
                trusted=trust_corpus,
                limits=limits,
            )
            rows = Relink(records, settings, result, jobs=jobs or available_cpus(), progress=progress).run()
            report = sum_up(
                rows,
                records,
                corpus=opened.shown,
                output=Path(output),
                compiler=chosen.vendor,
                seconds=time.perf_counter() - started,
            )
            about = {
                "kind": RELINK_KIND,
                "version": __version__,
                "corpus": opened.location,
                "corpus_digest": opened.own_digest(),
                "compiler": chosen.vendor,
                "objects": None if other is None else str(other),
                "ld_flags": list(ld_flags),
            }
            write_product_rows(result / PRODUCTS_NAME, rows, about)
    finally:
        close_launchers()
    return report


def _folder_of_objects(objects: Path | str) -> Path:
    if not os.path.isdir(objects):
        found = "a file" if os.path.exists(objects) else "none"
        raise UsageError(f"expected a folder of objects, found {found}", option="objects", value=objects)
    return Path(os.path.realpath(objects))


def _may_be_made(place: Path, corpus: Corpus, objects: Path | None, *, force: bool) -> Callable[[], bool]:
    """Check that the folder for the products is free, or holds an earlier relink that may be replaced.

    Returns:
        The same check, for when the products are there.

    Raises:
        UsageError: it is not.
    """
    for what, folder in (("corpus", corpus.path.resolve()), ("folder of objects", objects)):
        if folder is not None and (place.is_relative_to(folder) or folder.is_relative_to(place)):
            raise UsageError(f"{place}: is in the {what}, or around it; name another `output`")
    recover(place)
    files = (PRODUCTS_NAME, f"{PRODUCTS_FOLDER}/*")
    replace = replaces(place, lambda: _is_relink(place), "not an earlier relink", files=files, force=force)
    try:
        replace()
    except OSError as error:
        raise UsageError(f"{place}: {os_reason(error)}") from error
    return replace


def _is_relink(place: Path) -> bool:
    try:
        return read_metadata(place / PRODUCTS_NAME).get("kind") == RELINK_KIND
    except (CorpusError, OSError):
        return False
