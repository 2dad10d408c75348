"""Training logs to Parquet and back: what is written, and that it is all that was in the logs.

The measure is a second, plain implementation: `formats.traininglog.LogReader` event by event, `numpy.frombuffer` with
a structured type for values, and lists (`plain_log`, `expected_dataset`).
"""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlgo_corpus import LogWriter, TensorSpec, __version__, convert_logs, restore_logs
from mlgo_corpus.dataset.logtable import LogRow
from mlgo_corpus.errors import FormatError, TruncatedError, UsageError
from mlgo_corpus.formats.logs.events import (
    Context,
    LogHeader,
    LogReader,
    Observation,
    encode_context,
    parse_header,
)
from mlgo_corpus.formats.logs.tensors import ELEMENT_TYPES
from tests.conftest import DATA

pytestmark = pytest.mark.whole

LOGS = DATA / "training-logs"
KINDS = ("inlining", "regalloc-eviction", "regalloc-priority")


def real_logs(kind: str = "") -> list[Path]:
    return sorted(LOGS.glob(f"{kind}*.log"))


# The plain implementation


@dataclass
class PlainLog:
    """A log as the plain reader gives it: all events before the damage, if there is any."""

    header: LogHeader
    separator: bytes | None = None
    events: list[Context | Observation] = field(default_factory=list)
    whole: int = 0
    damage: FormatError | None = None


def plain_log(data: bytes) -> PlainLog | FormatError:
    """Read a log; give the error where it has not even a header."""
    try:
        reader = LogReader(io.BytesIO(data))
    except FormatError as error:
        return error
    log = PlainLog(reader.header, whole=reader.offset)
    try:
        for event in reader:
            if isinstance(event, LogHeader):
                log.damage = FormatError("a second header", offset=log.whole)
                break
            log.events.append(event)
            log.whole = reader.offset
            log.separator = reader.separator
    except FormatError as error:
        log.damage = error
    return log


def record_type(header: LogHeader) -> np.dtype[Any]:
    """Give the type of an observation's tensors and score, packed as they are in the log."""
    return np.dtype([(f"{index}", spec.dtype, spec.shape) for index, spec in enumerate(header.columns)])


@dataclass
class Expected:
    """What a dataset has to hold: plain lists in the order of the logs."""

    modules: list[dict[str, Any]] = field(default_factory=list)
    contexts: list[dict[str, Any]] = field(default_factory=list)
    keys: list[tuple[str, str | None, int]] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    restored: dict[str, bytes] = field(default_factory=dict)


def expected_dataset(logs: dict[str, bytes], *, allow_truncated: bool = False, regex: str | None = None) -> Expected:
    """Say what becomes of logs, by their file names; those without a header come first."""
    dataset = Expected()
    read = {name: plain_log(data) for name, data in logs.items()}
    for name, log in sorted(read.items(), key=lambda item: not isinstance(item[1], FormatError)):
        module, data = name.removesuffix(".log"), logs[name]
        row = dict.fromkeys(LogRow._fields)
        row |= {"module": module, "source": name, "contexts": 0, "observations": 0, "log_bytes": len(data)}
        dataset.modules.append(row)
        damage = log if isinstance(log, FormatError) else log.damage
        row |= {"status": "ok", "reason": "ok", "detail": ""}
        if damage is not None:
            row |= {"reason": "truncated" if isinstance(damage, TruncatedError) else "malformed", "detail": str(damage)}
            if damage.message == "a second header":
                message = "a second header: this is more than one log in one file"
                row |= {"reason": "second_header", "detail": f"byte {damage.offset}: {message}"}
            if isinstance(log, PlainLog):
                row["header"] = log.header.line.decode()
            if isinstance(log, FormatError) or not allow_truncated:
                row["status"] = "failed"
                continue
        assert isinstance(log, PlainLog)
        row |= {"dropped_bytes": len(data) - log.whole, "header": log.header.line.decode()}
        row["separator"] = None if log.separator is None else log.separator.decode()
        _expect_events(dataset, row, log, regex)
    return dataset


def _expect_events(dataset: Expected, row: dict[str, Any], log: PlainLog, regex: str | None) -> None:
    separator = log.separator or b":"
    restored = [log.header.line + b"\n"]
    context: str | None = None
    begun = False
    kept = regex is None or re.search(regex, "") is not None

    def begin(name: str | None, line: bytes | None) -> None:
        where = {"first_row": len(dataset.keys), "count": 0}
        dataset.contexts.append({"module": row["module"], "context": name, **where, "line": line})

    for event in log.events:
        if isinstance(event, Context):
            context, begun = event.name, True
            kept = regex is None or re.search(regex, event.name) is not None
            if kept:
                begin(event.name, None if event.line == encode_context(event.name) else event.line)
                row["contexts"] += 1
                restored.append(event.line)
        elif kept:
            if not begun:
                begin(None, None)
                begun = True
            row["observations"] += 1
            dataset.contexts[-1]["count"] += 1
            dataset.keys.append((row["module"], context, event.number))
            dataset.values.append(event.tensors + (event.score or b""))
            restored += [b'{"observation"%b%d}\n' % (separator, event.number), event.tensors, b"\n"]
            if event.score is not None:
                restored += [b'{"outcome"%b%d}\n' % (separator, event.number), event.score, b"\n"]
    dataset.restored[row["source"]] = b"".join(restored)


# What is on disk


def parts_of(output: Path) -> list[Path]:
    return [output] if output.is_file() else sorted((output / "observations").iterdir())


def beside(output: Path, name: str) -> Path:
    return output.with_suffix(f".{name}") if output.is_file() else output / name


def observations_of(output: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(part) for part in parts_of(output)]).combine_chunks()


def tree(folder: Path) -> dict[str, bytes]:
    """Give all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def column_bytes(table: pa.Table, index: int) -> bytes:
    """Give a column's values as they were in the logs."""
    column = pa.concat_arrays(table.column(index).chunks) if table.column(index).num_chunks else None
    if column is None:
        return b""
    flat = column.flatten() if pa.types.is_fixed_size_list(column.type) else column
    values: bytes = flat.to_numpy(zero_copy_only=True).tobytes()
    return values


def check_schema(schema: pa.Schema, header: LogHeader) -> None:
    text = pa.dictionary(pa.int32(), pa.string())
    assert [(field.name, field.type) for field in schema][:3] == [
        ("module", text),
        ("context", text),
        ("observation", pa.int64()),
    ]
    assert len(schema) == 3 + len(header.columns)
    taken = {"module", "context", "observation"}
    for column, spec in zip(list(schema)[3:], header.columns, strict=True):
        number, name = 2, spec.name
        while name in taken:
            name, number = f"{spec.name}_{number}", number + 1
        taken.add(name)
        assert column.name == name
        assert not column.nullable
        element = pa.from_numpy_dtype(spec.dtype)
        size = int(np.prod(spec.shape))
        if size == 1:
            assert column.type == element
            assert b"shape" not in (column.metadata or {})
        else:
            assert pa.types.is_fixed_size_list(column.type)
            assert (column.type.value_type, column.type.list_size) == (element, size)
            shape = ",".join(map(str, spec.shape))
            assert column.metadata[b"shape"] == f"[{shape}]".encode()


def check_dataset(output: Path, expected: Expected, header: LogHeader) -> None:
    """Compare a dataset on disk, all of it, with what is expected."""
    table = observations_of(output) if parts_of(output) else None
    rows = 0 if table is None else table.num_rows
    assert rows == len(expected.keys)
    if table is not None:
        check_schema(table.schema, header)
        keys = zip(*(table.column(index).to_pylist() for index in range(3)), strict=True)
        assert list(keys) == expected.keys
        records = np.frombuffer(b"".join(expected.values), record_type(header)) if header.columns else None
        for index in range(len(header.columns)):
            assert records is not None
            assert column_bytes(table, 3 + index) == np.ascontiguousarray(records[f"{index}"]).tobytes(), index
    contexts = pq.read_table(beside(output, "contexts.parquet"))
    assert contexts.schema.field("module").type == pa.dictionary(pa.int32(), pa.string())
    assert contexts.to_pylist() == expected.contexts
    modules = pq.read_table(beside(output, "modules.parquet"))
    assert modules.column_names == list(LogRow._fields)
    assert modules.to_pylist() == expected.modules


def restored(output: Path, folder: Path) -> dict[str, bytes]:
    report = restore_logs(output, folder)
    assert report.log_bytes == sum(map(len, tree(folder).values()))
    return tree(folder)


# Arbitrary logs


def spelled(value: Any, rng: random.Random) -> str:
    """Write JSON with odd spacing, escapes and order of keys."""
    space = rng.choice(["", "", " ", "  ", "\t"])
    if isinstance(value, dict):
        items = list(value.items())
        if rng.random() < 0.5:
            rng.shuffle(items)
        inside = f",{space}".join(f"{spelled(key, rng)}:{space}{spelled(item, rng)}" for key, item in items)
        return f"{{{space}{inside}{space}}}"
    if isinstance(value, list):
        return f"[{space}{f'{space},'.join(spelled(item, rng) for item in value)}{space}]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["x", "x_2", "module", "context", "observation", "reward", "a.b", "a b", '"', "\\", "é\u2028", "element", "\0"]
)
SHAPES = st.lists(st.integers(1, 4), max_size=3) | st.just([1]) | st.just([1, 33])
SPECS = st.builds(
    lambda name, kind, shape, port: {"name": name, "type": kind, "port": port, "shape": shape},
    NAMES,
    st.sampled_from(sorted(ELEMENT_TYPES)),
    SHAPES,
    st.sampled_from([0, 0, 1, -5, 1 << 40]),
)
HEADERS = st.builds(
    lambda features, score, advice: {"features": features} | ({} if score is None else {"score": score}) | advice,
    st.lists(SPECS, max_size=6),
    st.none() | SPECS,
    st.just({}) | st.just({"advice": None}) | SPECS.map(lambda spec: {"advice": spec, "extra": [1, {}]}),
)
FIRST_NUMBERS = st.sampled_from([0, 0, 0, 1, 8, 97, 995, 9_990, 99_999_998, (1 << 63) - 5])
EVENTS = st.lists(
    NAMES.map(lambda name: ("context", name))
    | st.tuples(FIRST_NUMBERS, st.integers(1, 5) | st.integers(1, 40)).map(lambda run: ("run", run)),
    max_size=8,
)
DAMAGES = st.none() | st.tuples(
    st.sampled_from(["cut", "cut", "cut", "flip", "insert", "delete", "header", "junk"]), st.floats(0, 1)
)


def encode_log(header: dict[str, Any], events: Iterable[tuple[str, Any]], seed: int) -> bytes:
    """Write a log in one of the spellings there are; the bytes of tensors are random, or look like events."""
    rng = random.Random(seed)
    line = f"{rng.choice(['', '', ' '])}{spelled(header, rng)}{rng.choice(['', '', chr(13), '  '])}".encode()
    parsed = parse_header(line)
    separator = rng.choice(["", "", " "])
    pieces = [line, b"\n"]
    for kind, value in events:
        if kind == "context":
            plain = encode_context(value)
            odd = b'{ "context" :%b }\n' % json.dumps(value).encode()
            pieces.append(rng.choice([plain, plain, plain, odd, encode_context(value, b": ")]))
            continue
        first, count = value
        for number in range(first, min(first + count, 1 << 63)):
            pieces += [f'{{"observation":{separator}{number}}}\n'.encode(), _tensors(parsed.tensor_bytes, rng), b"\n"]
            if parsed.score is not None:
                pieces += [f'{{"outcome":{separator}{number}}}\n'.encode(), _tensors(parsed.score_bytes, rng), b"\n"]
    return b"".join(pieces)


def _tensors(size: int, rng: random.Random) -> bytes:
    if rng.random() < 0.1:
        text = b'\n{"observation":1}\n{"context":"x"}\n'
        start = rng.randrange(len(text))
        return (text * (size // len(text) + 2))[start : start + size]
    return rng.randbytes(size)


def damaged(data: bytes, damage: tuple[str, float] | None) -> bytes:
    """Damage a log at some place; but for a cut, after its header."""
    if damage is None:
        return data
    how, where = damage
    start = 0 if how == "cut" else data.index(b"\n") + 1
    at = start + int(where * (len(data) - start))
    if how == "flip" and at < len(data):
        return data[:at] + bytes([data[at] ^ 0x21]) + data[at + 1 :]
    if how == "insert":
        return data[:at] + b"?" + data[at:]
    if how == "delete":
        return data[:at] + data[at + 1 :]
    if how == "header":
        return data + data
    return data + b"junk\n" if how == "junk" else data[:at]


@dataclass(frozen=True)
class Limits:
    """Everything that bounds memory, so small that flushes, splits, files on trial and roll-backs happen all over."""

    single: bool
    group_bytes: int
    max_contexts: int
    rows_per_file: int | None
    task_bytes: int
    allow_truncated: bool
    regex: str | None
    jobs: int


CHOICES: dict[str, list[Any]] = {
    "single": [False, True],
    "group_bytes": [1, 100, 1000, 5000],
    "max_contexts": [1, 2, 3, 200_000],
    "rows_per_file": [None, 1, 2, 7, 100],
    "task_bytes": [1, 2000, 32 << 20, 32 << 20],
    "allow_truncated": [False, True],
    "regex": [None, None, None, "^$", "[a-m]", "x"],
    "jobs": [1, 3],
}


def check_conversion(folder: Path, logs: dict[str, bytes], header: LogHeader, limits: Limits) -> None:
    """Convert logs and restore them, and compare everything with the model."""
    options: dict[str, Any] = {
        "rows_per_file": None if limits.single else limits.rows_per_file,
        "allow_truncated": limits.allow_truncated,
        "context_regex": limits.regex,
        "jobs": limits.jobs,
    }
    expected = expected_dataset(logs, allow_truncated=limits.allow_truncated, regex=limits.regex)
    source, output = folder / "logs", folder / ("d.parquet" if limits.single else "d")
    source.mkdir(parents=True)
    for name, data in logs.items():
        (source / name).write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlgo_corpus.dataset.writer.ROW_GROUP_BYTES", limits.group_bytes)
        patch.setattr("mlgo_corpus.dataset.restore.ROW_GROUP_BYTES", limits.group_bytes)
        patch.setattr("mlgo_corpus.dataset.writer._MAX_CONTEXTS", limits.max_contexts)
        patch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", limits.task_bytes)
        patch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)
        if all(row["status"] == "failed" for row in expected.modules):
            with pytest.raises(UsageError):
                convert_logs(source, output, **options)
            assert sorted(path.name for path in folder.iterdir()) == ["logs"]
            return
        report = convert_logs(source, output, **options)
        check_dataset(output, expected, header)
        rows = [pq.read_metadata(part).num_rows for part in parts_of(output)]
        assert rows == [0] or limits.single or (min(rows) > 0 and max(rows) <= (limits.rows_per_file or 1 << 63))
        assert report.observations == len(expected.keys)
        assert report.exit_code == any(row["status"] == "failed" for row in expected.modules)
        assert report.dropped_bytes == sum(row["dropped_bytes"] or 0 for row in expected.modules)
        assert restored(output, folder / "back") == expected.restored
    if limits.regex is None:
        for row in expected.modules:
            if row["reason"] == "ok":
                assert expected.restored[row["source"]] == logs[row["source"]]
    made = {"d.parquet", "d.contexts.parquet", "d.modules.parquet"} if limits.single else {"d"}
    assert {path.name for path in folder.iterdir()} == {"logs", "back", *made}


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    header=HEADERS,
    logs=st.lists(st.tuples(EVENTS, DAMAGES, st.integers(0, 1 << 32)), min_size=1, max_size=5),
    limits=st.builds(Limits, **{name: st.sampled_from(choices) for name, choices in CHOICES.items()}),
)
def test_any_logs_become_what_a_plain_reader_reads_and_come_back(
    tmp_path: Path, header: dict[str, Any], logs: list[tuple[Any, Any, int]], limits: Limits
) -> None:
    encoded = {
        f"{number}.log": damaged(encode_log(header, events, seed), damage)
        for number, (events, damage, seed) in enumerate(logs)
    }
    folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
    check_conversion(folder, encoded, parse_header(json.dumps(header).encode()), limits)


@pytest.mark.parametrize("seed", range(20))
def test_many_observations_many_of_them_damaged(tmp_path: Path, seed: int) -> None:
    """The same with logs that are larger than the limits, more often than Hypothesis would make them."""
    rng = random.Random(seed)
    specs = [{"name": "x", "type": rng.choice(sorted(ELEMENT_TYPES)), "port": 0, "shape": [rng.randint(1, 9)]}]
    header: dict[str, Any] = {"features": specs}
    if rng.random() < 0.5:
        header["score"] = {"name": "reward", "type": "float", "port": 0, "shape": [1]}
    encoded = {}
    for number in range(rng.randint(2, 7)):
        events: list[tuple[str, Any]] = []
        for _ in range(rng.randint(1, 8)):
            events += [("context", rng.choice("abcdx")) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
            events.append(("run", (rng.choice([0, 0, 5, 98]), rng.choice([1, 3, 10, 40]))))
        data = encode_log(header, events, rng.randrange(1 << 32))
        damage = (rng.choice(["flip", "insert", "delete", "header", "junk", "cut"]), 1 - rng.random() ** 2)
        encoded[f"{number}.log"] = damaged(data, damage if rng.random() < 0.5 else None)
    limits = Limits(**{name: rng.choice(choices) for name, choices in CHOICES.items()})
    check_conversion(tmp_path / "case", encoded, parse_header(json.dumps(header).encode()), limits)


# Real logs


def data_of(paths: Iterable[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def header_of(path: Path) -> LogHeader:
    return parse_header(path.read_bytes().partition(b"\n")[0])


@pytest.mark.parametrize("name", ["d", "d.parquet"])
@pytest.mark.parametrize("kind", KINDS)
def test_real_logs_and_back(tmp_path: Path, kind: str, name: str) -> None:
    logs = real_logs(kind)
    output = tmp_path / name
    report = convert_logs(logs, output)
    expected = expected_dataset(data_of(logs))
    check_dataset(output, expected, header_of(logs[0]))
    assert (report.logs, report.converted, report.damaged, report.failed, report.exit_code) == (6, 6, 0, 0, 0)
    assert (report.observations, report.files) == (len(expected.keys), 1)
    assert report.contexts == len(expected.contexts)
    assert report.log_bytes == sum(path.stat().st_size for path in logs)
    assert report.parquet_bytes == parts_of(output)[0].stat().st_size
    assert report.counts == {"ok": 6}
    assert report.problems == ()
    assert restored(output, tmp_path / "back") == data_of(logs)


def test_all_kinds_at_once(tmp_path: Path) -> None:
    report = convert_logs(LOGS, tmp_path / "d", group_by_header=True)
    assert [group.output.name for group in report.groups] == list(KINDS)
    assert report.output == tmp_path / "d"
    assert (report.logs, report.converted, report.observations) == (18, 18, 239 + 186 + 2892)
    assert report.log_bytes == sum(path.stat().st_size for path in real_logs())
    back = {}
    for kind in KINDS:
        check_dataset(tmp_path / "d" / kind, expected_dataset(data_of(real_logs(kind))), header_of(real_logs(kind)[0]))
        back |= restored(tmp_path / "d" / kind, tmp_path / "back" / kind)
    assert back == data_of(real_logs())
    assert convert_logs(LOGS, tmp_path / "d", group_by_header=True).unchanged


def test_what_is_in_a_dataset(tmp_path: Path) -> None:
    log = LOGS / "regalloc-eviction.ltable.log"
    convert_logs(real_logs("regalloc-eviction"), tmp_path / "d")
    assert sorted(tree(tmp_path / "d")) == [
        "README.md",
        "contexts.parquet",
        "dataset.json",
        "modules.parquet",
        "observations/part-00000.parquet",
    ]
    schema = pq.read_schema(tmp_path / "d/observations/part-00000.parquet")
    features = [spec.name for spec in header_of(log).features]
    assert schema.names == ["module", "context", "observation", *features, "reward"]
    assert schema.names[3:5] + schema.names[-3:] == ["mask", "is_free", "progress", "index_to_evict", "reward"]
    mask = schema.field("mask")
    assert mask.type == pa.list_(pa.field("element", pa.int64(), nullable=False), 33)
    assert mask.metadata[b"shape"] == b"[1,33]"
    assert schema.field("hint_weights_by_max").type.value_type == pa.float32()
    assert (schema.field("index_to_evict").type, schema.field("reward").type) == (pa.int64(), pa.float32())
    line = log.read_bytes().partition(b"\n")[0].decode()
    metadata = json.loads(schema.metadata[b"mlgo_corpus"])
    assert metadata == {"tool": "mlgo-corpus", "version": __version__, "kind": "observations", "header": line}
    described = json.loads((tmp_path / "d/dataset.json").read_bytes())
    assert described == {
        "tool": "mlgo-corpus",
        "version": __version__,
        "kind": "training-logs",
        "header": line,
        "modules": 6,
        "contexts": 143,
        "observations": 186,
        "files": [{"name": "observations/part-00000.parquet", "rows": 186}],
    }
    contexts = pq.read_table(tmp_path / "d/contexts.parquet").to_pylist()
    assert sum(row["count"] == 0 for row in contexts) > 50
    assert (contexts[0]["module"], contexts[0]["context"]) == ("regalloc-eviction.lapi", "lua_checkstack")
    modules = [row["module"] for row in pq.read_table(tmp_path / "d/modules.parquet").to_pylist()]
    assert modules == [path.name.removesuffix(".log") for path in real_logs("regalloc-eviction")]
    assert set(modules) - {row["module"] for row in contexts} == {"regalloc-eviction.lopcodes"}  # a header, no more


def test_a_small_log_written_out(tmp_path: Path) -> None:
    """Without the model: what is in the tables, spelled out."""
    features = [TensorSpec("x", "int16_t"), TensorSpec("observation", "uint8_t", (2,)), TensorSpec("x", "double")]
    with LogWriter(tmp_path / "a.log", features, score=TensorSpec("reward", "float")) as log:
        log.write_observation([-1, [2, 3], 0.5], 1.5)
        log.write_context("f")
        log.write_observation([4, [5, 255], -0.0], 2.5)
        log.write_observation([6, [7, 8], float("inf")], 3.5)
        log.write_context("empty")
        log.write_context("é")
    with LogWriter(tmp_path / "b.log", features, score=TensorSpec("reward", "float")):
        pass
    convert_logs([tmp_path / "a.log", tmp_path / "b.log"], tmp_path / "d.parquet")
    assert pq.read_table(tmp_path / "d.parquet").to_pylist() == [
        {"module": "a", "context": context, "observation": number, "x": x, "observation_2": y, "x_2": z, "reward": r}
        for context, number, x, y, z, r in [
            (None, 0, -1, [2, 3], 0.5, 1.5),
            ("f", 0, 4, [5, 255], 0.0, 2.5),
            ("f", 1, 6, [7, 8], float("inf"), 3.5),
        ]
    ]
    assert pq.read_table(tmp_path / "d.contexts.parquet").to_pylist() == [
        {"module": "a", "context": context, "first_row": first, "count": count, "line": None}
        for context, first, count in [(None, 0, 1), ("f", 1, 2), ("empty", 3, 0), ("é", 3, 0)]
    ]
    rows = pq.read_table(tmp_path / "d.modules.parquet").to_pylist()
    assert [(row["module"], row["contexts"], row["observations"], row["separator"]) for row in rows] == [
        ("a", 3, 3, ":"),
        ("b", 0, 0, None),
    ]
    assert restored(tmp_path / "d.parquet", tmp_path / "back") == data_of([tmp_path / "a.log", tmp_path / "b.log"])


def test_logs_without_an_observation_still_make_a_table_with_columns(tmp_path: Path) -> None:
    log = LOGS / "inlining.linit.log"
    report = convert_logs(log, tmp_path / "d")
    assert (report.observations, report.contexts, report.files) == (0, 1, 1)
    table = observations_of(tmp_path / "d")
    assert table.num_rows == 0
    check_schema(table.schema, header_of(log))
    assert restored(tmp_path / "d", tmp_path / "back") == data_of([log])


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [(2892, [2892]), (2891, [2891, 1]), (1446, [1182, 1446, 264]), (1000, [1000, 182, 1000, 710])],
)
def test_rows_per_file(tmp_path: Path, limit: int, sizes: list[int]) -> None:
    """A log that does not fit beside those before it begins a file of its own, so that it can be taken back."""
    logs = real_logs("regalloc-priority")
    report = convert_logs(logs, tmp_path / "d", rows_per_file=limit, jobs=2)
    assert [pq.read_metadata(part).num_rows for part in parts_of(tmp_path / "d")] == sizes
    assert report.files == len(sizes)
    described = json.loads((tmp_path / "d/dataset.json").read_bytes())["files"]
    assert [item["rows"] for item in described] == sizes
    assert [item["name"] for item in described] == [f"observations/part-{n:05d}.parquet" for n in range(len(sizes))]
    check_dataset(tmp_path / "d", expected_dataset(data_of(logs)), header_of(logs[0]))


@pytest.mark.parametrize(
    ("compression", "codec"),
    [
        ("zstd", "ZSTD"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("lz4", "LZ4"),
        ("brotli", "BROTLI"),
        ("none", "UNCOMPRESSED"),
    ],
)
def test_compression(tmp_path: Path, compression: str, codec: str) -> None:
    logs = real_logs("inlining")
    convert_logs(logs, tmp_path / "d", compression=compression)
    metadata = pq.read_metadata(parts_of(tmp_path / "d")[0])
    assert {metadata.row_group(0).column(index).compression for index in range(metadata.num_columns)} == {codec}
    assert restored(tmp_path / "d", tmp_path / "back") == data_of(logs)


def test_contexts_by_name(tmp_path: Path) -> None:
    logs = real_logs("regalloc-priority")
    report = convert_logs(logs, tmp_path / "d", context_regex="^lua_.*stack$")
    names = set(pq.read_table(tmp_path / "d/contexts.parquet").column("context").to_pylist())
    assert names == {"lua_checkstack", "lua_xmove"} - {"lua_xmove"}
    expected = expected_dataset(data_of(logs), regex="^lua_.*stack$")
    check_dataset(tmp_path / "d", expected, header_of(logs[0]))
    assert 0 < report.observations < 2892
    back = restore_logs(tmp_path / "d", tmp_path / "back")
    assert (back.logs, back.incomplete) == (6, 6)
    assert tree(tmp_path / "back") == expected.restored


def copies(folder: Path, count: int) -> list[Path]:
    """Make many logs of a few real ones."""
    logs = real_logs("regalloc-priority")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number:03d}.log" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(logs[number % len(logs)].read_bytes())
    return paths


def test_the_files_do_not_depend_on_the_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", 300_000)
    logs = copies(tmp_path / "logs", 60)
    datasets = []
    for jobs in (1, 4):
        report = convert_logs(logs, tmp_path / f"{jobs}", jobs=jobs, rows_per_file=3000)
        assert report.files > 10
        datasets.append(tree(tmp_path / f"{jobs}"))
    assert datasets[0] == datasets[1]
    for jobs in (1, 4):  # one task, in this process; with threads
        convert_logs(logs, tmp_path / f"{jobs}.parquet", jobs=jobs)
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "4.parquet").read_bytes()
    check_dataset(tmp_path / "4", expected_dataset(data_of(logs)), header_of(logs[0]))


def test_progress_adds_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copies(tmp_path / "logs", 12)
    total = sum(path.stat().st_size for path in logs)
    for task_bytes in (1 << 30, 100_000):
        monkeypatch.setattr("mlgo_corpus.runs.datasets.convert.TASK_BYTES", task_bytes)
        told: list[tuple[int, int]] = []
        convert_logs(logs, tmp_path / f"{task_bytes}", progress=lambda done, of, told=told: told.append((done, of)))
        assert {of for _, of in told} == {total}
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert told[-1][0] == total
