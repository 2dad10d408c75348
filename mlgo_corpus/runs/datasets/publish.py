"""Outputs at a URL: they are made in a local folder, where an interrupted run can be resumed, and then uploaded.

The local folder is in the cache, and is named after the URL. The file that marks an output as complete
(``dataset.json``) is deleted before anything else at the URL changes, and uploaded last. Until then, a marker shows
that the files are ours.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.dataset.folder import (
    DATASET_NAME,
    PARQUET_SUFFIX,
    SEARCH_TABLES,
    DatasetPaths,
    is_dataset_file,
    is_description,
    parquet_key,
    read_key,
)
from mlgo_corpus.dataset.rows import DatasetRows, open_rows
from mlgo_corpus.dataset.sizes.table import SIZES_FOLDER
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.files.lock import open_locked
from mlgo_corpus.files.names import STATE_FOLDER
from mlgo_corpus.files.remote import Place, RemotePath, download_all, parse_place
from mlgo_corpus.files.scratch import scratch_folder
from mlgo_corpus.files.text import os_reason

MARKER: Final = f"{STATE_FOLDER}/uploading"

_FOLDER = "uploads"

Arguments = ParamSpec("Arguments")
Report = TypeVar("Report")


@contextlib.contextmanager
def staging_folder(place: RemotePath, cache: Path | str | None) -> Iterator[Path]:
    """Yield the local folder of a URL, locked, with the files of an interrupted run. The block has to remove it.

    Raises:
        UsageError: it cannot be made, or another process uses it.
    """
    named = sha256(str(place).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = cache_folder(cache) / _FOLDER / named
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_locked(folder.with_name(f"{named}.lock"), f"{place}: another mlgo-corpus is writing there")
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: cannot write there: {os_reason(error)}") from error
    try:
        yield folder
    finally:
        os.close(lock)


def to_urls(stage: Callable[Arguments, Report]) -> Callable[Arguments, Report]:
    """Decorate a stage whose ``output`` is a dataset, so that it also accepts a URL.

    The stage has an argument ``force``; its report is a dataclass with ``output`` and ``unchanged``. An existing output
    is downloaded first, so that the stage can find out whether it was made in the same way.
    """
    signature = inspect.signature(stage)

    @functools.wraps(stage)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Report:
        bound = signature.bind(*args, **kwargs)
        place = parse_place(bound.arguments["output"])

        def run(output: Path) -> Report:
            bound.arguments["output"] = output
            return stage(*bound.args, **bound.kwargs)

        if isinstance(place, Path):
            return run(place)
        given = bound.arguments
        grouped = bool(given.get("group_by_header"))
        return _published(place, run, grouped=grouped, force=bool(given.get("force")), cache=given.get("cache"))

    return wrapped


def _published(
    place: RemotePath, run: Callable[[Path], Report], *, grouped: bool, force: bool, cache: Path | str | None
) -> Report:
    if "/" not in place.key:
        raise UsageError(f"{place}: expected a path in the bucket: {place}/NAME")
    with staging_folder(place, cache) as folder:
        local = folder / place.name
        fetched = False
        if _is_dataset(place, grouped=grouped):
            # The stage checks which datasets of a folder it may remove, also with `force`. An interrupted run with
            # `force` may have left a dataset with another key.
            if grouped or not (
                force or (local.exists() and _key_of(place) == read_key(DatasetPaths.of(local)) is not None)
            ):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                _fetch_dataset(place, local)
                fetched = True
        elif _is_single(place):
            _check_beside(place, force=force)
        else:
            check_no_strangers(place, "dataset")
        try:
            report: Any = run(local)
        except MlgoCorpusError as error:
            if fetched:
                shutil.rmtree(folder, ignore_errors=True)
            raise _renamed(error, str(local), str(place)) from error
        if not (fetched and report.unchanged):
            _upload(local, place, _is_file_of_group if grouped else _is_own_file)
        shutil.rmtree(folder, ignore_errors=True)
    changes: dict[str, Any] = {"output": str(place)}
    if groups := getattr(report, "groups", ()):
        changes["groups"] = tuple(dataclasses.replace(group, output=f"{place}/{group.output.name}") for group in groups)
    made: Report = dataclasses.replace(report, **changes)
    return made


def _renamed(error: MlgoCorpusError, local: str, shown: str) -> MlgoCorpusError:
    """Return an error that names the URL instead of the local path."""
    if isinstance(error, UsageError) and local in str(error):
        value = None if error.value is None else error.value.replace(local, shown)
        return type(error)(error.message.replace(local, shown), option=error.option, value=value)
    if type(error) in (MlgoCorpusError, CorpusError) and local in str(error):
        return type(error)(str(error).replace(local, shown))
    return error


@contextlib.contextmanager
def local_dataset(named: Path | str) -> Iterator[Path]:
    """Yield the path of a dataset on this machine: its own, or that of a copy from a URL, removed after the block.

    Errors raised in the block that name the copy are changed to name the URL.

    Raises:
        UsageError: the URL is not supported, or a copy cannot be written.
        CorpusError: there is no dataset, or it cannot be read.
    """
    place = parse_place(named)
    if isinstance(place, Path):
        yield place
        return
    try:
        cache = cache_folder()
        cache.mkdir(parents=True, exist_ok=True)
        stack = contextlib.ExitStack()
        folder = stack.enter_context(scratch_folder(cache))
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot write there: {os_reason(error)}") from error
    with stack:
        try:
            _fetch_dataset(place, folder / place.name)
            yield folder / place.name
        except MlgoCorpusError as error:
            raise _renamed(error, str(folder / place.name), str(place)) from error


@contextlib.contextmanager
def chosen_rows(
    named: Path | str, *, module_filter: str | None, modules_file: Path | str | None
) -> Iterator[DatasetRows]:
    """Open the rows of a dataset's selected modules; a dataset at a URL is copied here for the duration of the block.

    Raises:
        UsageError: there is no such dataset, or none of its modules is selected.
    """
    with contextlib.ExitStack() as stack:
        try:
            rows = open_rows(stack.enter_context(local_dataset(named)))
        except CorpusError as error:
            raise UsageError(str(error)) from error
        yield rows.select(name_regex=module_filter, modules_file=modules_file)


def _fetch_dataset(place: RemotePath, local: Path) -> None:
    """Download a dataset; it gets its name when it is complete.

    Raises:
        CorpusError: there is no dataset, or it cannot be read.
        UsageError: it cannot be written.
    """
    part = local.with_name(f".{local.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        if _is_single(place):
            names = _names_of_single(place, place.parent)
            for name in names:
                (place.parent / name).download(part / name)
            for name in names:
                (part / name).replace(local.with_name(name))
        else:
            download_all(place, part)
            part.rename(local)
    except FileNotFoundError as error:
        raise CorpusError(f"{place}: not a whole dataset: a file of it is missing") from error
    except OSError as error:
        raise UsageError(f"{error.filename or local}: cannot write there: {os_reason(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_no_strangers(place: RemotePath, what: str) -> None:
    """Check that a new output would not mix with foreign files; files of an interrupted upload are accepted.

    Raises:
        UsageError: there are foreign files.
    """
    files = place.files()
    if files and MARKER not in files:
        raise UsageError(f"{place}: is not empty, and not a {what}: it holds {min(files)}; name another folder")


def _check_beside(place: RemotePath, *, force: bool) -> None:
    """Check that the tables of a new single-file dataset would not replace foreign files.

    Raises:
        UsageError: there are such files, and no ``force``.
    """
    *others, _ = _names_of_single(place, place.parent)
    if others and not force and _key_of(place) is None:
        raise UsageError(
            f"{place.parent / others[0]}: is in the way, and was not made by mlgo-corpus; `force` replaces it"
        )


@contextlib.contextmanager
def uploading(
    place: RemotePath, whole: tuple[str, ...], staging: Path, ours: Callable[[str], bool] = lambda _: True
) -> Iterator[set[str]]:
    """Change the files at a URL. Inside the block they are marked as incomplete, and as ours if the block fails.

    Args:
        place: the folder.
        whole: the names of the files that mark the output as complete; the block leaves them in ``staging``.
        staging: a local folder.
        ours: whether a file of this name may be deleted; by default any file may be.

    Yields:
        A set to which the block adds the names of the files it uploads; our other files are deleted afterwards.
    """
    marker = staging / ".uploading"
    marker.write_bytes(b"")
    (place / MARKER).upload(marker)
    for name in place.files():
        if ours(name) and name.rpartition("/")[2] in {each.rpartition("/")[2] for each in whole}:
            (place / name).unlink()
    kept: set[str] = set()
    yield kept
    for name in place.files():
        if ours(name) and name not in kept and name != MARKER:
            (place / name).unlink()
    for name in whole:
        (place / name).upload(staging / name)
    (place / MARKER).unlink()


def _upload(local: Path, place: RemotePath, ours: Callable[[str], bool]) -> None:
    """Upload a dataset, or a folder of datasets; files there that are not ``ours`` are kept."""
    try:
        if _is_single(place):
            place.unlink()
            for name in _names_of_single(place, local.parent):
                (place.parent / name).upload(local.with_name(name))
            return
        files = sorted(str(path.relative_to(local)) for path in local.rglob("*") if path.is_file())
        whole = tuple(name for name in files if name.rpartition("/")[2] == DATASET_NAME)
        with uploading(place, whole, local, ours) as kept:
            for name in files:
                if name not in whole and not name.startswith("."):
                    (place / name).upload(local / name)
                    kept.add(name)
    except OSError as error:
        raise MlgoCorpusError(f"cannot read {error.filename or local}: {os_reason(error)}") from error


def _key_of(place: RemotePath) -> Any:
    """Return the key of a dataset at a URL; None if it has none."""
    paths = DatasetPaths(Path(place.name), single=_is_single(place))
    return parquet_key(place.parent / paths.modules.name if paths.single else place / paths.modules.name)


def _is_single(place: Place) -> bool:
    return place.name.endswith(PARQUET_SUFFIX)


def _names_of_single(place: RemotePath, folder: Place) -> tuple[str, ...]:
    """Return the names of the files of a single-file dataset in a folder; the file itself is last.

    The table with the key is first: after an interrupted upload, it shows that the files are ours.
    """
    paths = DatasetPaths(Path(place.name), single=True)
    beside = (path.name for path in (paths.modules, paths.contexts))
    return (*(name for name in beside if (folder / name).is_file()), place.name)


def _is_own_file(name: str) -> bool:
    """Return whether a path is that of a file of a dataset, of whatever kind."""
    return is_dataset_file(name) or is_dataset_file(name, SIZES_FOLDER) or name in SEARCH_TABLES


def _is_file_of_group(name: str) -> bool:
    """Return whether a path is that of a file of a dataset in a folder of datasets."""
    return is_dataset_file(name.partition("/")[2])


def _is_dataset(place: RemotePath, *, grouped: bool) -> bool:
    """Return whether a dataset is there, or with ``grouped`` a folder that holds datasets and nothing else."""
    if _is_single(place):
        return place.is_file()
    try:
        if is_description(json.loads((place / DATASET_NAME).read_bytes())):
            return True
    except (FileNotFoundError, ValueError, RecursionError):  # there is none, or it is damaged
        pass
    files = place.files() if grouped else {}
    visible = [name for name in files if not name.startswith(".")]
    return bool(visible) and all(f"{name.partition('/')[0]}/{DATASET_NAME}" in files for name in visible)
