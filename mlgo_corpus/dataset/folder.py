"""A dataset on disk, and how it appears there all at once.

::

    dataset/
      observations/part-00000.parquet ...   one row per observation (`mlgo_corpus.dataset.observations`)
      contexts.parquet                      one row per context of a log, also of those without observations
      modules.parquet                       one row per log, also of those that could not be read
      README.md                             the dataset's card (`mlgo_corpus.dataset.card`)
      dataset.json                          what the dataset is and how it was made; written last
      .mlgo-corpus/                         work in progress; removed when the dataset is complete

If the output is called ``NAME.parquet``: that file with the observations, and ``NAME.contexts.parquet`` and
``NAME.modules.parquet`` beside it.

All files are made in the work folder. When they are complete, a list of their places is written, and they are moved
(`mlgo_corpus.files.atomic`); if that is interrupted, the list says what remains to be done.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.atomic import Move, checked_moves, list_moves, make_moves, write_atomically, writing
from mlgo_corpus.files.folder import WORK_JOURNALS, WORK_KEY, WORK_LOCK, find_stranger, keep_work_of, read_note
from mlgo_corpus.files.lock import open_locked
from mlgo_corpus.files.names import MANIFEST_NAME, STATE_FOLDER, TABLE_NAMES
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.tables import METADATA_KEY, has_footer, open_parquet
from mlgo_corpus.files.text import os_reason

_OBSERVATIONS_FOLDER: Final = "observations"
DATASET_NAME: Final = "dataset.json"
PARQUET_SUFFIX: Final = ".parquet"
_DIGEST: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")
_CONTEXTS_NAME = "contexts.parquet"
_MODULES_NAME = "modules.parquet"
_CARD_NAME = "README.md"
_MOVES_NAME = "moves.json"
FLIPS_NAME: Final = "flips.parquet"
SEARCH_NAME: Final = "search.parquet"
SEARCH_TABLES: Final = (FLIPS_NAME, SEARCH_NAME)
"""What a search's dataset has besides (`mlgo_corpus.dataset.flips`)."""
_PART: Final = re.compile(rf"part-[0-9]+{re.escape(PARQUET_SUFFIX)}")


class MadeOtherwiseError(UsageError):
    """The dataset that is there was made in another way, or is damaged: only ``force`` replaces it."""


@dataclass(frozen=True, slots=True)
class DatasetPaths:
    """The paths of a dataset's files: in a folder, or beside a single file of observations.

    Attributes:
        root: the folder, or the single file.
        single: whether it is a single file.
        rows: the folder of the files of rows.
        has_contexts: whether there is a table of contexts.
    """

    root: Path
    single: bool
    rows: str = _OBSERVATIONS_FOLDER
    has_contexts: bool = True

    @classmethod
    def of(cls, output: Path, rows: str = _OBSERVATIONS_FOLDER) -> DatasetPaths:
        """Return the paths for an output: ``*.parquet`` is a single file, unless that is a folder.

        Raises:
            UsageError: the path cannot be inspected.
        """
        try:
            is_folder = stat.S_ISDIR(os.stat(output).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            is_folder = False
        except OSError as error:
            raise UsageError(f"{output}: {os_reason(error)}") from error
        return cls(output, output.suffix == PARQUET_SUFFIX and not is_folder, rows, rows == _OBSERVATIONS_FOLDER)

    @property
    def folder(self) -> Path:
        """The folder that contains all files."""
        return self.root.parent if self.single else self.root

    @property
    def contexts(self) -> Path:
        """The table of contexts."""
        return self._beside(_CONTEXTS_NAME)

    @property
    def modules(self) -> Path:
        """The table of logs."""
        return self._beside(_MODULES_NAME)

    @property
    def card(self) -> Path:
        """The dataset's description for people; a single file has none."""
        return self.root / _CARD_NAME

    @property
    def work(self) -> Path:
        """The folder for work in progress."""
        return self.folder / (f".{self.root.name}{STATE_FOLDER}" if self.single else STATE_FOLDER)

    @property
    def whole(self) -> Path:
        """The file that is moved to its place last: if it exists, the dataset is complete."""
        return self.root if self.single else self.root / DATASET_NAME

    def part(self, number: int, count: int = 1) -> Path:
        """Return the path of observations' file ``number`` of ``count``: sorted by name, the files are in order."""
        if self.single:
            return self.root
        digits = max(5, len(str(count - 1)))
        return self.root / self.rows / f"part-{number:0{digits}d}{PARQUET_SUFFIX}"

    def parts(self) -> tuple[Path, ...]:
        """Return the observations' files in their order; none if their folder does not exist.

        Raises:
            CorpusError: the folder cannot be read.
        """
        if self.single:
            return (self.root,)
        folder = self.root / self.rows
        try:
            names = os.listdir(folder)  # a glob takes a folder that may not be read for an empty one
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise CorpusError(f"{folder}: {os_reason(error)}") from error
        return tuple(folder / name for name in sorted(fnmatch.filter(names, f"part-*{PARQUET_SUFFIX}")))

    def _beside(self, name: str) -> Path:
        return self.root.with_suffix(f".{name}") if self.single else self.root / name


def rows_pattern(output: Path | str, rows: str = _OBSERVATIONS_FOLDER) -> str:
    """Return a pattern of a dataset's files of rows, for a query; the dataset may be behind a URL."""
    place = rows_place(output, rows)
    return place if place == str(output) else f"{place}/*{PARQUET_SUFFIX}"


def rows_place(output: Path | str, rows: str = _OBSERVATIONS_FOLDER) -> str:
    """Return what pandas and polars read as one table: the folder of a dataset's rows, or its single file.

    They do not read the dataset's own folder, which has several tables and a card.
    """
    single = DatasetPaths.of(output).single if isinstance(output, Path) else output.endswith(PARQUET_SUFFIX)
    return str(output) if single else f"{output}/{rows}"


def is_dataset_file(name: str, rows: str = _OBSERVATIONS_FOLDER) -> bool:
    """Return whether a path in the folder of a dataset is that of one of its own files, judged by the name."""
    folder, _, part = name.rpartition("/")
    if folder:
        return folder == rows and _PART.fullmatch(part) is not None
    return name in (DATASET_NAME, _CARD_NAME, _CONTEXTS_NAME, _MODULES_NAME)


class DatasetFolder:
    """A dataset under construction. From `begin` to `close` it is locked.

    Attributes:
        paths: the places of its files.
        key: the inputs and options that it is made from.
        is_whole: whether it is there already, made from the same inputs with the same options.

    Raises:
        UsageError: something else is there, or another process makes it.
        MlgoCorpusError: the moves of an interrupted run cannot be finished.
    """

    def __init__(self, output: Path, key: Mapping[str, Any], *, force: bool, rows: str = _OBSERVATIONS_FOLDER) -> None:
        self.paths = paths = DatasetPaths.of(output, rows)
        self.key = json.loads(json.dumps(key))
        self._force = force
        self._lock: int | None = None
        self._made: tuple[Path, ...] = ()
        if not paths.single and output.exists() and not output.is_dir():
            raise UsageError(f"{output}: expected a folder, found a file")
        if paths.single:
            if output.exists() and not output.is_file():
                raise UsageError(f"{output}: is neither a file nor a folder; name another output")
            wholes = (name for name in (MANIFEST_NAME, DATASET_NAME) if (output.parent / name).exists())
            if output.name in (*TABLE_NAMES, _CONTEXTS_NAME) and (whole := next(wholes, None)) is not None:
                raise UsageError(f"{output}: is a part of what {whole} describes; name another output")
        for folder in (paths.work, output / rows):
            if folder.is_symlink():
                raise UsageError(f"{folder}: expected a folder of the dataset, found a symbolic link; delete it")
        if (paths.work / _MOVES_NAME).exists():
            self._acquire()
            try:
                self._move()
            finally:
                self.close()
        there = is_dataset(paths)
        self._seen = read_key(paths) if there else None
        if isinstance(self._seen, dict) and _has_functions(self._seen) != _has_functions(self.key):
            raise UsageError(f"{output}: {_made_by(self._seen)}, and has other tables; name another output")
        same = there and self._seen == self.key
        self.is_whole = same and not force and _has_all(paths)
        if self.is_whole:
            self._sweep()
        elif not there:
            self._check_place()
        elif not same and not force:
            what = (
                "its description is damaged" if self._seen is None else "made from other inputs or with other options"
            )
            raise MadeOtherwiseError(f"{output}: {what}; `force` replaces it")

    @property
    def token(self) -> str:
        """A short name of the key, so that files in the work folder never collide with those of another key."""
        return sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:8]

    def begin(self) -> None:
        """Make the work folder; files and folders that an interrupted run of the same key left there are kept.

        Further calls do nothing.

        Raises:
            UsageError: it cannot be made, or another process uses it.
        """
        if self._lock is not None:
            return
        work = self.paths.work
        was_there = work.is_dir()
        missing = [folder for folder in (self.paths.folder, *self.paths.folder.parents) if not folder.exists()]
        self._made = (self.paths.root,) if was_there and not self.paths.single else tuple(missing)
        try:
            work.mkdir(parents=True, exist_ok=True)
            self._acquire()
            if not self._force and is_dataset(self.paths) and read_key(self.paths) != self._seen:
                self.close()
                raise UsageError(f"{self.paths.root}: another run has just made it; `force` replaces it")
            keep_work_of(self.key, work, fresh=self._force)
        except OSError as error:
            self.close()
            raise UsageError(f"{error.filename or work}: cannot write there: {os_reason(error)}") from error

    def result_of(self, task: str) -> Any:
        """Return what `keep_result` kept for a task, also in an interrupted run with the same key, or None."""
        return read_note(self.paths.work / f"{task}.json")

    def finish(self, moves: Sequence[tuple[Path, Path]]) -> None:
        """Move files from the work folder to their places, in this order, and remove the work folder.

        Files of another dataset in these places are removed.

        Raises:
            MlgoCorpusError: a file cannot be moved; the next run continues with it.
        """
        paths = self.paths
        # Remove first the file that marks the dataset complete, and what is left of another dataset: `train` would
        # learn from the flips of a search that was here.
        kept = {place for _, place in moves}
        others = () if paths.single else (*paths.parts(), *(paths.root / name for name in SEARCH_TABLES))
        old = (paths.whole, *(path for path in others if path not in kept))
        listed: list[Move] = [(None, str(path.relative_to(paths.folder))) for path in old]
        listed += [
            (str(source.relative_to(paths.work)), str(place.relative_to(paths.folder))) for source, place in moves
        ]
        write_atomically(paths.work / _MOVES_NAME, list_moves(listed))
        self._move()

    def discard(self) -> None:
        """Remove the work folder, and the folders that were made for it."""
        if self._lock is None:
            return
        shutil.rmtree(self.paths.work, ignore_errors=True)
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return

    def discard_unless_begun(self) -> None:
        """Discard the work, unless it has results that the next run goes on from."""
        work = self.paths.work
        journals = (path.stat().st_size for path in work.rglob(WORK_JOURNALS))
        if not any(journals) and all(path.name in (WORK_KEY, _MOVES_NAME) for path in work.glob("*.json")):
            self.discard()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _acquire(self) -> None:
        busy = f"{self.paths.root}: another mlgo-corpus is writing this dataset"
        self._lock = open_locked(self.paths.work / WORK_LOCK, busy)

    def _sweep(self) -> None:
        """Remove the work folder of a run that was interrupted at its very end."""
        if self.paths.work.is_dir():
            with contextlib.suppress(UsageError, OSError):  # another process uses it, or we have no permission
                self._acquire()
                shutil.rmtree(self.paths.work, ignore_errors=True)
            self.close()

    def _check_place(self) -> None:
        """Check that the place of a new dataset has no other files."""
        paths = self.paths
        if paths.single:
            mine = (paths.contexts, paths.modules) if paths.has_contexts else (paths.modules,)
            others = [path for path in mine if path.exists()]
            if others and not self._force and read_key(paths) is None:
                raise UsageError(f"{others[0]}: is in the way, and was not made by mlgo-corpus; `force` replaces it")
        elif paths.root.is_dir():
            try:
                names = [name for name in sorted(os.listdir(paths.root)) if name != STATE_FOLDER]
            except OSError as error:
                raise UsageError(f"{paths.root}: {os_reason(error)}") from error
            if names:
                raise UsageError(
                    f"{paths.root}: is not empty, and not a dataset: it holds {names[0]}; name another folder"
                )

    def _move(self) -> None:
        """Make the listed moves."""
        paths = self.paths
        moves = checked_moves(read_note(paths.work / _MOVES_NAME))
        if moves is None:
            raise UsageError(f"{paths.work / _MOVES_NAME}: was not written by mlgo-corpus; delete {paths.work}")
        with writing(paths.root):
            make_moves(moves, paths.work, paths.folder)
        shutil.rmtree(paths.work, ignore_errors=True)


def read_key(paths: DatasetPaths) -> Any:
    """Return a dataset's key: the inputs and options that it was made from; None if it has none."""
    return parquet_key(paths.modules)


def parquet_key(path: Place) -> Any:
    """Return the dataset's key in a table's metadata; None if it has none."""
    import pyarrow as pa

    try:
        with open_parquet(path) as file:
            return json.loads(file.metadata.metadata[METADATA_KEY.encode()])["key"]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def is_dataset(paths: DatasetPaths) -> bool:
    """Return True if a complete dataset exists."""
    return paths.whole.exists() if paths.single else is_description(read_note(paths.whole))


def is_description(value: Any) -> bool:
    """Return whether this is the content of a ``dataset.json`` of this package."""
    return isinstance(value, dict) and value.get("tool") == "mlgo-corpus"


def _has_all(paths: DatasetPaths) -> bool:
    """Return True if all files of a dataset that is marked complete are there, and none of its tables was cut off."""
    files = {paths.contexts, paths.modules} if paths.has_contexts else {paths.modules}
    if not paths.single:
        files.add(paths.card)
        try:
            files |= {paths.root / item["name"] for item in read_note(paths.whole)["files"]}
        except (TypeError, KeyError):
            return False
        files |= {*paths.root.glob(f"*{PARQUET_SUFFIX}")}  # a search has more tables
    return all(has_footer(path) if path.suffix == PARQUET_SUFFIX else path.is_file() for path in files)


def keep_result(work: Path, task: str, result: Any) -> None:
    """Record in the work folder that a task is done, with its result."""
    write_atomically(work / f"{task}.json", json.dumps(result).encode())


def _has_functions(key: Mapping[str, Any]) -> bool:
    """Return whether a key is that of a table of functions."""
    return "snapshot" in key


def _made_by(key: Mapping[str, Any]) -> str:
    """Return words for how the dataset of this key was made."""
    if _has_functions(key):
        return "made by ir2native"
    if key.get("stage") == "search":
        return "made by a search"
    return "made by a trace" if "task" in key else "made from training logs"


def refuse_difference(paths: DatasetPaths, key: Mapping[str, Any], remedy: str = "") -> None:
    """Check that a run of compilers would not continue or replace a dataset made in another way.

    Args:
        paths: of the dataset.
        key: how it would be made.
        remedy: what else can be done with one that is whole.

    Raises:
        MadeOtherwiseError: it would; the message has the differences.
    """
    output = paths.root
    before = read_key(paths) if is_dataset(paths) else None
    what = "begun" if before is None else "made"
    if before is None:
        before = read_note(paths.work / WORK_KEY)
    now = json.loads(json.dumps(key))
    if before is None or before == now:
        return
    how, wanted = _made_by(before if isinstance(before, dict) else {}), _made_by(now)
    if how != wanted:
        force = "" if "ir2native" in how + wanted else ", or add `force`"
        raise MadeOtherwiseError(
            f"{output}: {what} {how.removeprefix('made ')}, not {wanted.removeprefix('made ')}; name another "
            f"{'file' if paths.single else 'folder'}{force}"
        )
    also = f", {remedy}" if remedy and what == "made" else ""
    raise MadeOtherwiseError(f"{output}: {what} in another way: {differences(before, now)}; `force` starts over{also}")


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return words for what is not the same in the keys of two runs, as JSON has them."""
    found = [_difference(name, before, now) for name in now if name != "modules" and before.get(name) != now[name]]
    return "; ".join(found or ["by an earlier version of mlgo-corpus"])


def _difference(name: str, before: Any, now: Any) -> str:
    """Return words for a difference; that of the corpus may be one of the chosen modules alone."""
    was, chosen = before.get("modules"), now.get("modules")
    if name == "corpus" and isinstance(was, dict) and was != chosen and was.get("of") == chosen["of"]:
        whole, count = chosen["of"], chosen["chosen"]
        if {was.get("chosen"), count} != {whole}:
            other = f"{count} others" if was.get("chosen") == count else count
            parameters = "`sample`, `seed`, `module_filter` and `modules_file`"
            return f"modules were {was.get('chosen')} of {whole}, are {other} ({parameters} choose them)"
    return f"{name.replace('_', ' ')} was {_shown(before.get(name))}, is {_shown(now[name])}"


def _shown(value: Any) -> str:
    match value:
        case {"version": version, "sha256": digest}:
            return f"{version} ({str(digest)[:8]})"
        case [str(name), str(digest)] if _DIGEST.fullmatch(digest):
            return f"{name} ({digest[:8]})"
        case [str(name), None]:
            return name
        case [*parts]:
            return ", ".join(map(_shown, parts)) or "none"
    shown = repr(value)
    short = _DIGEST.sub(r"\1", shown)
    return short.strip("'") if isinstance(value, str) and short != shown else short


def find_other_datasets(folder: Path, names: frozenset[str], is_group_name: Callable[[str], bool]) -> tuple[Path, ...]:
    """Return the datasets of training logs in a folder of such datasets, except those of these names.

    Raises:
        UsageError: the folder is a dataset itself, or something else is in it or in one of the datasets returned.
    """
    if is_dataset(DatasetPaths(folder, single=False)):
        raise UsageError(f"{folder}: is a dataset, made without `group_by_header`; name another folder")
    try:
        children = sorted(folder.iterdir()) if folder.is_dir() else []
    except OSError as error:
        raise UsageError(f"{folder}: {os_reason(error)}") from error
    others = []
    for child in children:
        if child.name in names or child.name.startswith("."):
            continue
        paths = DatasetPaths(child, single=False)
        if child.is_symlink() or not is_dataset(paths):
            raise UsageError(f"{folder}: {child.name} is not a dataset; name another folder")
        key = read_key(paths)
        if not is_group_name(child.name) or not isinstance(key, dict) or "logs" not in key:
            raise UsageError(f"{folder}: {child.name} was not made with `group_by_header`; name another folder")
        files = (paths.whole, paths.card, paths.contexts, paths.modules, *paths.parts())
        known = {str(path.relative_to(child)) for path in files}
        if (stranger := find_stranger(child, known, below=frozenset({STATE_FOLDER}))) is not None:
            raise UsageError(
                f"{folder}: {child.name}/{stranger} is not part of the dataset, and would be lost; name another folder"
            )
        others.append(child)
    return tuple(others)


def open_dataset(path: Path | str) -> DatasetPaths:
    """Return the paths of an existing dataset.

    Raises:
        CorpusError: it is not a dataset, or not complete.
    """
    path = Path(path)
    paths = DatasetPaths.of(path)
    if not path.exists():
        raise CorpusError(f"{path}: no such file or folder")
    if not paths.single and not is_dataset(paths):
        groups = [child.name for child in sorted(path.iterdir()) if is_dataset(DatasetPaths(child, single=False))]
        if groups:
            raise CorpusError(
                f"{path}: holds {len(groups)} datasets ({', '.join(groups)}); name one: {path / groups[0]}"
            )
    for needed in (paths.whole, paths.contexts, paths.modules):
        if not needed.is_file():
            raise CorpusError(f"{path}: not a whole dataset: it has no {needed.name}")
    if not is_dataset(paths):
        raise CorpusError(f"{paths.whole}: damaged: it does not describe a dataset")
    return paths
