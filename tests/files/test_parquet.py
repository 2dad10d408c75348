"""Parquet of anybody's: what decoding takes, against pyarrow's own figures, and files that expand beyond reason."""

from __future__ import annotations

import io
import random
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from mlgo_corpus.cli.main import app
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.parquet import texts_of
from mlgo_corpus.files.tables import has_footer, open_parquet
from mlgo_corpus.formats.records.parquetpages import read_chunks, read_cost
from tests.conftest import PACKAGE_ROOT
from tests.handmade import bitcode, corpus, row, table

pytestmark = pytest.mark.whole

VERBS = ("stats", "verify", "pack", "report", "combine", "split", "dedup")


def run(verb: str, place: Path, output: Path) -> Result:
    made = [] if verb == "stats" else ["--output", str(output / f"{verb}.html" if verb == "report" else output / verb)]
    return CliRunner().invoke(app, [verb, str(place), *made], catch_exceptions=False)


def shared(value: str | bytes, rows: int) -> pa.DictionaryArray:
    """Give rows that share one value of a dictionary."""
    return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()).fill_null(0), pa.array([value]))


def module_table(rows: int, **columns: Any) -> pa.Table:
    """Make a table of modules, which but for these columns are all one."""
    words = {"module": "a", "source": "a", "status": "ok", "reason": "ok", "detail": ""}
    said = {name: columns.get(name, shared(words[name], rows)) for name in words}
    return pa.table({**said, "bitcode_bytes": pa.array([4] * rows), "cmd_bytes": pa.array([4] * rows)})


def write(path: Path, made: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(made, path, **{"compression": "zstd", "write_statistics": False, **options})
    return path


def mixed(rows: int) -> pa.Table:
    generator = random.Random(rows)
    names = [f"{generator.getrandbits(160):x}" for _ in range(rows)]
    return pa.table(
        {
            "number": pa.array(np.arange(rows)),
            "name": pa.array(names),
            "same": pa.array(["x86_64", None] * (rows // 2)),
            "bytes": pa.array([name.encode() for name in names], pa.large_binary()),
            "label": pa.array(names).dictionary_encode(),
            "words": pa.array([None if n % 7 == 0 else names[n : n + n % 3] for n in range(rows)]),
            "tensor": pa.array([[1.0, 2.0]] * rows, pa.list_(pa.float32(), 2)),
        }
    )


WAYS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "snappy"},
    "dictionary": {"row_group_size": 700},
    "overflowing": {"dictionary_pagesize_limit": 1 << 10, "data_page_size": 1 << 10, "write_batch_size": 50},
    "version 2": {"data_page_version": "2.0", "write_statistics": True, "write_page_checksum": True},
    "prefixes": {
        "use_dictionary": False,
        "column_encoding": {"name": "DELTA_BYTE_ARRAY", "bytes": "DELTA_LENGTH_BYTE_ARRAY"},
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_reading_gives_what_pyarrow_gives(way: str, tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", mixed(2000), **WAYS[way])
    with pq.ParquetFile(path) as plain, open_parquet(path) as file:
        assert file.schema_arrow.equals(plain.schema_arrow)
        assert file.read().to_pylist() == plain.read().to_pylist() == mixed(2000).to_pylist()
        assert file.read_row_group(0, ["name", "words"]).equals(plain.read_row_group(0, ["name", "words"]))
        batches = list(file.iter_batches(columns=["words", "label"], batch_size=300, expand=True))
        assert {len(batch) for batch in batches} <= {300, 200, 100}
        found = pa.Table.from_batches(batches)
        assert found["label"].to_pylist() == texts_of(plain.read(["label"])["label"])
        assert found["label"].type == pa.string()


@pytest.mark.parametrize("way", WAYS)
def test_costs_are_those_of_the_footer_where_that_is_right(way: str, tmp_path: Path) -> None:
    data = write(tmp_path / "t.parquet", mixed(2000), **WAYS[way]).read_bytes()

    def read_at(size: int, offset: int) -> bytes:
        return data[offset : offset + size]

    metadata = pq.read_metadata(tmp_path / "t.parquet")
    groups = read_chunks(read_at, len(data))
    assert len(groups) == metadata.num_row_groups
    for number, chunks in enumerate(groups):
        assert len(chunks) == metadata.num_columns
        for place, chunk in enumerate(chunks):
            told = metadata.row_group(number).column(place)
            cost = read_cost(read_at, chunk)
            assert (cost.stored, cost.values) == (told.total_compressed_size, told.num_values)
            assert cost.encoded <= told.total_uncompressed_size == chunk.encoded
            assert (cost.shared > 0) == (told.has_dictionary_page or "DELTA_BYTE_ARRAY" in told.encodings)
            assert cost.begins_shared == told.has_dictionary_page
            assert chunk.claimed.has_prefixes == cost.has_prefixes == ("DELTA_BYTE_ARRAY" in told.encodings)


def test_damage_is_one_error(tmp_path: Path) -> None:
    data = write(tmp_path / "t.parquet", mixed(50)).read_bytes()
    generator = random.Random(5)
    for _ in range(400):
        damaged = bytearray(data)
        damaged[generator.randrange(len(data))] = generator.randrange(256)
        source = io.BytesIO(damaged)

        def read_at(size: int, offset: int, source: io.BytesIO = source) -> bytes:
            source.seek(offset)
            return source.read(size)

        try:
            for chunk in (chunk for group in read_chunks(read_at, len(data)) for chunk in group):
                read_cost(read_at, chunk)
        except FormatError:
            pass


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(CorpusError) as caught, open_parquet(path) as file:
        for _ in file.iter_batches(**options):
            pass
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_file_that_was_cut_off_has_no_footer(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3]}), file)
    data = file.read_bytes()
    assert has_footer(file)
    for length in range(len(data)):
        file.write_bytes(data[:length])
        assert not has_footer(file)
    file.write_bytes(data[-8:])  # a footer of which only the end is there
    assert not has_footer(file)
    assert not has_footer(tmp_path / "missing")


def test_what_expands_beyond_reason_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.files.parquet.LARGEST_TEXT", 1 << 16)
    monkeypatch.setattr("mlgo_corpus.files.parquet.ALWAYS_BYTES", 1 << 20)
    path = tmp_path / "t.parquet"
    write(path, pa.table({"name": shared("y" * ((1 << 16) + 1), 3)}), store_schema=False)
    assert refusal(path) == "column 'name': expected at most 65536 bytes of text in a row, found 65537"
    write(path, pa.table({"name": shared("y" * (1 << 16), 400)}), store_schema=False)
    stored = path.stat().st_size
    assert refusal(path) == (
        f"the text up to row group 0: {400 * ((1 << 16) + 4 + 64)} bytes in memory of {stored} in the file, "
        "expected at most 1048576"
    )
    write(path, pa.table({"name": shared("y" * (1 << 16), 400)}))
    with open_parquet(path) as file:  # labels stay what they are
        assert sum(batch.num_rows for batch in file.iter_batches()) == 400
    assert refusal(path, expand=True).startswith("the text up to row group 0: ")
    write(path, pa.table({"numbers": [[7] * 131_073]}))
    assert refusal(path).startswith("row group 0: 1048584 bytes in memory of ")
    words = pa.ListArray.from_arrays([0, 400], shared("y" * (1 << 16), 400).cast(pa.string()))
    write(path, pa.table({"words": words}), store_schema=False)
    assert refusal(path).startswith("the text up to row group 0: ")
    write(path, pa.table({"text": ["y" * (1 << 21)]}), use_dictionary=False)
    assert refusal(path).startswith("row group 0: 2097162 bytes in memory of ")
    write(path, pa.table({"deep": [{"a": 1}]}))
    assert refusal(path) == "column 'deep': expected numbers, text, bytes or lists of them, found struct<a: int64>"


def test_rows_that_share_a_value_are_decoded_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.files.parquet._DECODED_BYTES", 1 << 20)
    path = tmp_path / "t.parquet"
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 100 + [1] * 100, pa.int32()), pa.array(["a", "y" * 100_000]))
    write(path, pa.table({"name": names, "words": pa.ListArray.from_arrays(range(201), names)}), store_schema=False)
    with open_parquet(path) as file:
        flat = [batch.column(0) for batch in file.iter_batches(columns=["name"])]
        lists = [batch.column(0).flatten() for batch in file.iter_batches(columns=["words"])]
    for found in (flat, lists):
        assert [text for texts in found for text in texts.to_pylist()] == names.to_pylist()
        assert max(texts.nbytes for texts in found) < 1_100_000


def test_bytes_may_be_large(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(20 << 20)
    path = write(tmp_path / "t.parquet", pa.table({"bitcode": pa.array([data] * 2, pa.large_binary())}))
    with open_parquet(path) as file:
        assert [batch.column(0)[0].as_py() == data for batch in file.iter_batches(batch_size=1)] == [True, True]


BOMBS: dict[str, Callable[[], pa.Table]] = {
    "one value of 40 MB": lambda: module_table(400, detail=shared("y" * 40_000_000, 400)),
    "many rows": lambda: module_table(100_000, module=shared("q" * 3000, 100_000), detail=shared("z" * 9000, 100_000)),
}

_CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.files.test_parquet import run_limited
for verb in sys.argv[4:]:
    print(*run_limited(verb, Path(sys.argv[2]), Path(sys.argv[3])))
"""


def run_limited(verb: str, place: Path, output: Path) -> tuple[str, int, int]:
    """Run a verb in this process, which cannot take all memory; give its exit code and the peak so far in MB."""
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, 3 << 30))
    code = run(verb, place, output).exit_code
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert peak is not None
    return verb, code, int(peak[1]) >> 10


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_verb_takes_a_gigabyte_for_a_small_table(bomb: str, tmp_path: Path) -> None:
    folder = corpus(tmp_path / "corpus", {"a": bitcode(b"one")})
    path = folder / "modules.parquet"
    write(path, BOMBS[bomb](), store_schema=False, dictionary_pagesize_limit=1 << 30)
    assert path.stat().st_size < 200_000
    verbs = [verb for verb in VERBS if verb != "report" or bomb == "many rows"]  # which loads much
    argv = [sys.executable, "-c", _CHILD, PACKAGE_ROOT, str(folder), str(tmp_path), *verbs]
    child = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    told = [line.split() for line in child.stdout.splitlines()]
    assert [verb for verb, *_ in told] == verbs
    assert {code for _, code, _ in told} <= {"0", "1", "2"}
    assert max(int(peak) for *_, peak in told) < 1000


@pytest.mark.parametrize("verb", VERBS)
def test_text_that_is_not_utf8_is_told_in_a_line(verb: str, tmp_path: Path) -> None:
    data = bitcode(b"one")
    folder = corpus(tmp_path / "corpus", {"a": data})
    table(folder, [row("a", data)])
    path = folder / "modules.parquet"
    whole = pq.read_table(path)
    for name in ("module", "status"):
        broken = pa.array([b"\xff\xfe"]).view(pa.string())
        made = whole.set_column(whole.schema.get_field_index(name), name, broken)
        pq.write_table(made, path, store_schema=False)
        (tmp_path / name).mkdir()
        result = run(verb, folder, tmp_path / name)
        if verb in ("pack", "split"):  # the table goes along as it is; nothing here can be divided
            assert result.exit_code == (0 if verb == "pack" else 1)
            continue
        assert result.exit_code == (1 if verb == "verify" else 2)
        found = result.output.replace("\n", " ")
        assert f"column '{name}': expected UTF-8, found other bytes" in found
