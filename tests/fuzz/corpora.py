"""Corpora and datasets, damaged: verbs end with 0, 1 or 2 and one line, and write their output and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import vl_convert

from mlgo_corpus import convert_logs, extract_corpus, pack_corpus, split_corpus
from mlgo_corpus.files.names import FUNCTIONS_NAME, MANIFEST_STEM
from tests import handmade
from tests.conftest import DATA
from tests.runs.extract.test_incremental import real_objects
from tests.view.reportinputs import function_columns, sizes

from .mutations import mutate
from .verbs import Place

# Of each kind: a verb and its arguments. IN is what was damaged, OUT what is to be made; INTO: the verb changes IN.
CORPUS_VERBS = (
    "stats IN",
    "stats IN --by folder --json",
    "verify IN --jobs 1",
    "verify IN --jobs 1 --output OUT.parquet",
    "split IN --jobs 1 --output OUT",
    "dedup IN --jobs 1",
    "dedup IN --jobs 1 --near 0.5 --output OUT",
    "report IN --output OUT.html",
    "combine IN WHOLE --output OUT",
)
FOLDER_VERBS = (
    *CORPUS_VERBS,
    "pack IN --jobs 1 --output OUT",
    "combine IN WHOLE --output OUT --copy",
    "make IN --output OUT",
    "split IN --jobs 1 INTO",
    "explain FILE",
)
VERBS = {
    "extracted": FOLDER_VERBS,
    "plain": FOLDER_VERBS,
    "divided": (
        *FOLDER_VERBS,
        "stats SIDE",
        "pack SIDE --jobs 1 --output OUT",
    ),
    "packed": (*CORPUS_VERBS, "unpack IN --jobs 1 --output OUT"),
    "dataset": (
        "report IN --output OUT.html",
        "parquet-to-logs IN --output OUT",
        "export IN --jobs 1 --output OUT.tfrecord",
        "export IN --jobs 1 --shards 2 --output OUT",
        "vocab IN --output OUT",
    ),
    "sizes": ("report IN --output OUT.html",),
    "logs": ("dump FILE", "dump FILE --stats --json", "logs-to-parquet IN --jobs 1 --output OUT", "dump FILE --table"),
}

HOSTILE = (
    "", ".", "..", "../evil", "../../evil", "/nonexistent/evil", "a/../../evil", "a\0b", "a\nb", "x" * 300,
    "x/" * 3000, "\ud800", "é", "e\u0301", "C:\\evil", "a", "a/b", "A", "corpus_description.json", "modules.parquet",
    "ok", "failed", "\u202e", "<script>", "train", "=1+1", "[red]", "[/red]", "\x1b[31m",
)  # fmt: skip
VALUES = (None, True, 0, -1, 1.5, 1e308, 10**30, [], {}, [[]], {"a": None}, ["a", 1], *HOSTILE)


def prepare(folder: Path) -> None:
    build = folder / "build"
    for number, data in enumerate(real_objects(number=5)):
        handmade.put(build / f"s{number % 2}" / f"{number}.o", data)
    (build / "none.o").write_bytes(b"")
    extract_corpus([build], folder / "extracted", jobs=1)
    handmade.corpus(
        folder / "plain", ("a", "b/c", "b/d", "e"), has_thinlto=True, global_command_override=["-cc1", "-O2"]
    )
    shutil.copytree(folder / "extracted", folder / "divided")
    split_corpus(folder / "divided", fractions=(0.5, 0.25, 0.25), jobs=1)
    pack_corpus(folder / "extracted", folder / "packed", jobs=1)
    (folder / "logs").mkdir()
    for path in sorted((DATA / "training-logs").glob("inlining.*.log"))[:4]:
        shutil.copy(path, folder / "logs")
    convert_logs([folder / "logs"], folder / "dataset", jobs=1)
    sizes(folder / "sizes", function_columns(40))
    shutil.rmtree(build)


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    vl_convert.javascript_bundle = lambda _: "no charts"  # it takes seconds, whatever is reported
    place = Place(folder)
    kind = rng.choice(list(VERBS))
    given = place.work / "in"
    shutil.copytree(prepared / kind, given)
    shutil.copytree(prepared / kind, place.work / "whole")
    side = f"{MANIFEST_STEM}{rng.choice(('train', 'test'))}.json"
    for _ in range(rng.randint(1, 3)):
        _damage(given, rng)
    for number, template in enumerate(rng.sample(VERBS[kind], k=min(2, len(VERBS[kind])))):
        output = None
        words: list[str | Path] = []
        for word in template.split():
            if word == "INTO":
                output = given
            elif word.startswith("OUT"):
                output = place.work / f"out{number}{word[3:]}"
                words.append(output)
            elif word == "FILE":
                words.append(rng.choice(_files(given) or [given]))
            else:
                words.append({"IN": given, "WHOLE": place.work / "whole", "SIDE": given / side}.get(word, word))
        # What these two learn of functions stays with the corpus.
        index = [given / FUNCTIONS_NAME] if words[0] in ("split", "dedup") else []
        place.run(*words, output=output, also=index)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _damage(folder: Path, rng: random.Random) -> None:
    """Damage one file: tables and JSON more often than what there is much of."""
    files = _files(folder)
    telling = [path for path in files if path.suffix in (".json", ".parquet", ".cmd")]
    if not files:
        return
    path = rng.choice(telling if telling and rng.random() < 0.7 else files)
    how = rng.random()
    if how < 0.05:
        path.unlink()
    elif how < 0.08:
        path.unlink()
        path.mkdir()
    elif how < 0.09:
        path.unlink()
        os.mkfifo(path)
    elif how < 0.14:
        path.unlink()
        path.symlink_to(rng.choice((path.name, "..", "../../evil", "/nonexistent", *(item.name for item in files))))
    elif how < 0.17:
        shutil.copy(rng.choice(files), path.with_name(rng.choice(("a", "a.bc", "a.cmd", "modules.parquet", "x"))))
    elif how < 0.22:
        path.write_bytes(rng.choice(files).read_bytes())
    elif path.suffix == ".json" and how < 0.8:
        _damage_json(path, rng)
    elif path.suffix == ".parquet" and how < 0.8:
        _damage_table(path, rng)
    else:
        path.write_bytes(mutate(path.read_bytes(), [], rng))


def _damage_json(path: Path, rng: random.Random) -> None:
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return
    places: list[tuple[Any, Any]] = []
    _find_places(value, places)
    if not places:
        return
    for _ in range(rng.randint(1, 3)):
        container, key = rng.choice(places)
        new = rng.choice(VALUES)
        if isinstance(container, list):
            if rng.random() < 0.5:
                container.append(new)
            elif key < len(container):
                container[key] = new
        elif rng.random() < 0.2:
            container.pop(key, None)
        else:
            container[key] = new
    path.write_text(json.dumps(value), errors="surrogatepass")


def _find_places(value: Any, places: list[tuple[Any, Any]]) -> None:
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            places.append((value, key))
            _find_places(item, places)


def _damage_table(path: Path, rng: random.Random) -> None:
    """Change rows, columns, types and what is said of a table."""
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError, ValueError):
        return
    for _ in range(rng.randint(1, 3)):
        table = rng.choice((_rows, _column, _column, _values, _values, _values, _metadata))(table, rng)
    with contextlib.suppress(pa.ArrowInvalid):  # such as nulls where there can be none
        pq.write_table(table, path, store_schema=rng.random() < 0.8)


def _rows(table: Any, rng: random.Random) -> Any:
    size = table.num_rows
    chosen = rng.choice(([], range(size // 2), [*range(size), *range(size)], [*range(size)][::-1], [0] * min(size, 3)))
    return table.take(pa.array([*chosen] if size else [], pa.int64()))


def _column(table: Any, rng: random.Random) -> Any:
    if not table.num_columns:
        return table
    at = rng.randrange(table.num_columns)
    field = table.schema.field(at)
    change = rng.randrange(4)
    if change == 0:
        return table.remove_column(at)
    if change == 1:
        return table.append_column(field.name, table.column(at))
    if change == 2:
        return table.set_column(at, rng.choice((field.name.upper(), "x", "", "module", "\u202e")), table.column(at))
    kinds = (pa.null(), pa.int8(), pa.string(), pa.binary(), pa.list_(pa.string()), pa.float64(), pa.bool_())
    return table.set_column(at, field.name, pa.nulls(table.num_rows, rng.choice(kinds)))


def _values(table: Any, rng: random.Random) -> Any:
    """Put values that are hard to bear into a column that keeps its type."""
    if not table.num_columns or not table.num_rows:
        return table
    at = rng.randrange(table.num_columns)
    field = table.schema.field(at)
    if rng.random() < 0.3 and "module" in table.schema.names:
        at = table.schema.names.index("module")
        field = table.schema.field(at)
    values = table.column(at).to_pylist()
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        choice: tuple[Any, ...] = tuple(item for item in HOSTILE if "\ud800" not in item)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        choice = (b"", b"\0", b"BC\xc0\xde", b"\xff" * 100, b"-cc1\0-O2\0")
    elif pa.types.is_integer(kind):
        choice = (0, 1, -1, 127, (1 << 31) - 1, (1 << 63) - 1, -(1 << 63))
    else:
        choice = (None,)
    for _ in range(rng.randint(1, 3)):
        values[rng.randrange(len(values))] = rng.choice((None, *choice))
    try:
        made = pa.array(values, kind)
        if kind == pa.string() and rng.random() < 0.2:
            encoded = [None if value is None else value.encode() + b"\xff" for value in values]
            made = pa.array(encoded, pa.binary()).view(pa.string())
    except (pa.ArrowException, OverflowError):
        return table
    return table.set_column(at, field.with_type(made.type), made)


def _metadata(table: Any, rng: random.Random) -> Any:
    known = dict(table.schema.metadata or {})
    key = rng.choice([*known, b"mlgo_corpus"])
    said = known.get(key, b"{}")
    try:
        value = json.loads(said)
        if isinstance(value, dict) and value:
            value[rng.choice(list(value))] = rng.choice(VALUES)
        known[key] = json.dumps(value).encode()
    except ValueError:
        known[key] = mutate(said, [], rng)
    if rng.random() < 0.2:
        known[key] = rng.choice((b"", b"[]", b"null", b"\xff", b"{", json.dumps(rng.choice(VALUES)).encode()))
    return table.replace_schema_metadata(known)
