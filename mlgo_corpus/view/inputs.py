"""Find the kind of a page's input: a corpus, a dataset of decisions, a table of functions, a policy, an evaluation."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.corpus.packed.corpus import is_packed
from mlgo_corpus.dataset.folder import DATASET_NAME, PARQUET_SUFFIX, DatasetPaths
from mlgo_corpus.dataset.sizes.table import SIZES_KIND
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.files.columns import column_names_of
from mlgo_corpus.files.folder import read_note
from mlgo_corpus.files.names import MANIFEST_NAME, MANIFEST_STEM
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.remote import Place, RemotePath, parse_place
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.policies.artefact import POLICY_NAME
from mlgo_corpus.runs.evaluate.table import EVALUATION_KIND, NOTE_NAME
from mlgo_corpus.view import words

_EXPECTED: Final = "a corpus, a dataset of decisions, a table of functions and sizes, a policy, or an evaluation"


class Kind(StrEnum):
    """The kinds of inputs."""

    CORPUS = "corpus"
    DATASET = "dataset"
    SIZES = "sizes"
    POLICY = "policy"
    EVALUATION = "evaluation"


def find_kind(path: str | Path) -> Kind:
    """Return the kind of input at a path or URL.

    Raises:
        UsageError: it is none of these kinds, or cannot be read.
    """
    place = parse_place(path)
    if isinstance(place, RemotePath):
        return _kind_behind(place)
    try:
        if place.is_dir():
            return _kind_of_folder(place)
        if not place.exists():
            raise UsageError(f"{place}: no such file or folder; expected {_EXPECTED}")
    except OSError as error:
        raise UsageError(f"{place}: {os_reason(error)}") from error
    if place.name.startswith(MANIFEST_STEM) and place.name.endswith(".json"):
        return Kind.CORPUS
    _check_whole(place)
    if place.suffix != PARQUET_SUFFIX:
        raise UsageError(f"{place}: not a Parquet file; expected {_EXPECTED}")
    return _kind_of_file(place)


def _kind_behind(place: RemotePath) -> Kind:
    """Return the kind of input behind a URL; without a ``dataset.json`` it counts as a corpus."""
    _check_whole(place)
    try:
        if place.name.endswith(PARQUET_SUFFIX):
            return _kind_of_file(place)
        said = read_regular(place / DATASET_NAME, MAX_NOTE_BYTES)
    except FileNotFoundError:
        return Kind.CORPUS
    except CorpusError as error:
        raise UsageError(str(error)) from error
    return _kind_said(place / DATASET_NAME, said)


def _check_whole(place: Place) -> None:
    if place.name in (DATASET_NAME, "modules.parquet", "contexts.parquet"):
        raise UsageError(f"{place}: is part of a dataset or a corpus; name its folder: {place.parent}")


def _kind_of_folder(folder: Path) -> Kind:
    if (folder / MANIFEST_NAME).exists() or is_packed(folder):
        return Kind.CORPUS
    if (folder / NOTE_NAME).exists():
        note = read_note(folder / NOTE_NAME)
        if isinstance(note, dict) and note.get("kind") == EVALUATION_KIND:
            return Kind.EVALUATION
    about = folder / DATASET_NAME
    if not about.exists():
        if (folder / POLICY_NAME).is_file():
            return Kind.POLICY
        inside = sorted(child.parent.name for child in folder.glob(f"*/{DATASET_NAME}"))
        if inside:
            listed = ", ".join(inside[:5])
            raise UsageError(
                f"{folder}: holds {words.counted(len(inside), 'dataset')} ({listed}); name one: {folder / inside[0]}"
            )
        raise UsageError(f"{folder}: has neither {MANIFEST_NAME} nor {DATASET_NAME}; expected {_EXPECTED}")
    try:
        return _kind_said(about, read_regular(about, MAX_NOTE_BYTES))
    except OSError as error:
        raise UsageError(f"{about}: {os_reason(error)}") from error


def _kind_said(about: Place, text: bytes) -> Kind:
    """Return the kind of a folder from the text of its ``dataset.json``."""
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{about}: not JSON: {error}") from error
    if not isinstance(said, dict) or said.get("tool") != "mlgo-corpus":
        raise UsageError(f"{about}: not a dataset of mlgo-corpus; expected {_EXPECTED}")
    return Kind.SIZES if said.get("kind") == SIZES_KIND else Kind.DATASET


def _kind_of_file(path: Place) -> Kind:
    try:
        names = set(column_names_of(path))
    except CorpusError as error:
        raise UsageError(str(error)) from error
    if {"module", "function", "native_size"} <= names:
        return Kind.SIZES
    if {"module", "observation"} <= names:
        folder = path.parent.parent
        above_buckets = isinstance(folder, RemotePath) and not folder.key
        if path.parent.name == "observations" and not above_buckets and (folder / DATASET_NAME).is_file():
            raise UsageError(f"{path}: is part of a dataset; name its folder: {folder}")
        beside = DatasetPaths(Path(path.name), single=True).modules.name
        if not (path.parent / beside).is_file():
            raise UsageError(f"{path}: expected the table of its modules, {beside}, beside it, found none")
        return Kind.DATASET
    columns = ", ".join(sorted(names)[:6])
    raise UsageError(f"{path}: a Parquet file of another kind (its columns: {columns}); expected {_EXPECTED}")
