"""``mlgo-corpus dump``: the text is LLVM's byte for byte, statistics are numpy's, and nothing breaks the terminal."""

from __future__ import annotations

import ctypes
import gzip
import io
import json
import math
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from mlgo_corpus import LogWriter, TensorSpec, dump, read_log
from mlgo_corpus.cli.main import app
from mlgo_corpus.dataset.observations import column_names
from mlgo_corpus.dump import DISTINCT_LIMIT, log_statistics, open_selection, write_json, write_text
from mlgo_corpus.formats.logs.blocks import Rows
from mlgo_corpus.formats.logs.tensors import ELEMENT_TYPES
from tests.conftest import DATA, PACKAGE_ROOT
from tests.forked import shell_words

pytestmark = pytest.mark.whole

LOGS = DATA / "training-logs"
REAL_LOGS = sorted(LOGS.glob("*.log"))
LVM_LOGS = [path for path in REAL_LOGS if ".lvm." in path.name]

CTYPES: dict[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

# What a name may hold that something on the way could take for its own.
HOSTILE = '[bold]a[/] %s %d {0} \x1b[31m\t\x07 \u202e é漢😀 "\\'


def llvm_text(data: bytes) -> bytes:
    """What LLVM's log_reader.py prints, worked out value by value; a context without observations prints its line."""
    stream = io.BytesIO(data)
    header = json.loads(stream.readline())
    lines: list[str] = []
    printed = None

    def tensor(spec: dict[str, Any]) -> str:
        array = CTYPES[spec["type"]] * math.prod(spec["shape"])
        values = array.from_buffer_copy(stream.read(ctypes.sizeof(array)))
        return f"{spec['name']}: {','.join(str(value) for value in values)}"

    while line := stream.readline():
        event = json.loads(line)
        if "context" in event:
            if event["context"] != printed:
                printed = event["context"]
                lines.append(f"context: {printed}")
            continue
        lines.append(f"observation: {event['observation']}")
        lines.extend(tensor(spec) for spec in header["features"])
        assert stream.readline() == b"\n"
        if header.get("score"):
            assert json.loads(stream.readline())["outcome"] == event["observation"]
            lines.append(tensor(header["score"]))
            assert stream.readline() == b"\n"
    return "".join(f"{line}\n" for line in lines).encode()


def run(*arguments: str | Path, columns: int = 80, stdin: bytes | None = None) -> Result:
    """Run the verb in this process."""
    env = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, ["dump", *map(str, arguments)], input=stdin, env=env, catch_exceptions=False)


def printed(*arguments: str | Path, **options: Any) -> bytes:
    """What the verb prints when all is well."""
    done = run(*arguments, **options)
    assert (done.exit_code, done.stderr) == (0, "")
    return done.stdout_bytes


def shell(script: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a shell script in which ``dump`` is the verb."""
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, **env}
    function = f'dump() {{ {shlex.join(shell_words(environment))} dump "$@"; }}\n'
    argv = ["bash", "-c", f"set -o pipefail\n{function}{script}"]
    return subprocess.run(argv, env=environment, capture_output=True, timeout=120, check=False)


def extremes(kind: str) -> list[float]:
    dtype = ELEMENT_TYPES[kind]
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return [int(limits.min), int(limits.max), 0, 1, 10, limits.max // 3]
    info = np.finfo(dtype)
    tiny = [float(info.tiny), float(info.smallest_subnormal), float(info.max), float(info.min), float(info.eps)]
    special = [math.nan, math.inf, -math.inf, 0.0, -0.0]
    return [*tiny, *special, 0.1, -1.5, 1e16, 1e15, 123456789012345680.0, 1e-4, 1e-5, 1 / 3, 100.0]


@pytest.fixture
def every_type(tmp_path: Path) -> Path:
    """Every element type, as a scalar and as a tensor, with its extremes; contexts that are empty and come back."""
    return write_every_type(tmp_path / "types.log", steps=13)


def write_every_type(path: Path, steps: int) -> Path:
    specs = [TensorSpec(f"{kind} one", kind) for kind in ELEMENT_TYPES]
    specs += [TensorSpec(f"{kind} six", kind, (2, 3)) for kind in ELEMENT_TYPES]
    specs.append(TensorSpec("no dimensions", "int8_t", ()))
    with LogWriter(path, specs, score=TensorSpec("reward", "double", (2,))) as log:

        def observe(at: int) -> None:
            def pick(spec: TensorSpec, count: int) -> list[float]:
                values = extremes(spec.type)
                return [values[(at + index) % len(values)] for index in range(count)]

            values = [pick(spec, spec.element_count) for spec in specs]
            log.write_observation(values, score=[at / 7, math.nan if at % 5 else -math.inf])

        observe(0)  # before any context
        observe(1)
        for at, name in enumerate(["f", "empty", "empty", "f", "g", "g", "empty", HOSTILE, "", "None", "last"]):
            log.write_context(name)
            for step in range(0 if name in ("empty", "last") else steps):
                observe(at * steps + step)
    return path


@pytest.mark.parametrize("path", REAL_LOGS, ids=lambda path: path.name)
def test_real_logs_are_printed_as_llvm_prints_them(path: Path) -> None:
    assert printed(path) == llvm_text(path.read_bytes())


def test_every_type_is_printed_as_llvm_prints_it(every_type: Path) -> None:
    text = printed(every_type)
    assert text == llvm_text(every_type.read_bytes())
    lines = text.decode().split("\n")
    assert lines[0] == "observation: 0"
    assert "float one: 1.1754943508222875e-38" in lines
    assert "uint64_t six: 0,18446744073709551615,0,1,10,6148914691236517205" in lines
    assert lines.count("context: empty") == 2  # twice in a row is once
    assert f"context: {HOSTILE}" in text.decode()
    assert lines[-2:] == ["context: last", ""]


@pytest.mark.parametrize("batch_bytes", [1, 2_000, 20_000])
@pytest.mark.parametrize("path", [None, LOGS / "regalloc-eviction.ltable.log"], ids=["every type", "real"])
def test_batches_meet_without_a_seam(
    every_type: Path, path: Path | None, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small a batch is; of less than one observation, elements are written some at a time."""
    path = path or every_type
    whole = printed(path, "--json")
    monkeypatch.setattr(dump, "_BATCH_TEXT", batch_bytes)
    monkeypatch.setattr(dump, "_WIDE_ELEMENTS", 4)
    assert printed(path) == llvm_text(path.read_bytes())
    assert printed(path, "--json") == whole


@pytest.mark.parametrize("kind", ELEMENT_TYPES)
def test_any_bytes_are_printed_as_llvm_prints_them(kind: str, tmp_path: Path) -> None:
    """Every bit pattern is a value: signalling NaNs, subnormals, newlines; and fractions of every size."""
    path = tmp_path / "random.log"
    random = np.random.default_rng(5)
    dtype = ELEMENT_TYPES[kind]
    values = np.frombuffer(random.bytes(3000 * 4 * dtype.itemsize), dtype)
    if dtype.kind == "f":
        sizes = (10.0 ** random.uniform(-8, 20, 6000)).astype(dtype)
        fractions = np.arange(-999, 1001).astype(dtype) / dtype.type(8)
        powers = np.ldexp(dtype.type(1), np.arange(-100, 100)).astype(dtype)
        values = np.concatenate([values, sizes, -sizes, fractions, powers, powers * dtype.type(1.1)])
    records = np.ascontiguousarray(values[: len(values) // 4 * 4]).view(f"V{4 * dtype.itemsize}")
    with LogWriter(path, [TensorSpec("x", kind, (4,))]) as log:
        log.write_rows(Rows(0, records, None))
    assert printed(path) == llvm_text(path.read_bytes())
    result = json.loads(printed(path, "--json"))
    observations = result["contexts"][0]["observations"]
    flat = [value for observation in observations for value in observation["values"]["x"]]
    assert same(flat, values[: len(flat)])
    (column,) = json.loads(printed(path, "--stats", "--json"))["columns"]
    assert_is_numpys(column, TensorSpec("x", kind, (4,)), values[: len(flat)])


def test_observations_may_be_empty_and_numbers_may_jump(tmp_path: Path) -> None:
    data = b'{"features":[]}\n{"observation":3}\n\n{"context":"f"}\n{"observation":99}\n\n{"observation":100}\n\n'
    (tmp_path / "a.log").write_bytes(data)
    assert printed(tmp_path / "a.log") == b"observation: 3\ncontext: f\nobservation: 99\nobservation: 100\n"
    result = json.loads(printed(tmp_path / "a.log", "--json"))
    assert result["contexts"] == [
        {"context": None, "observations": [{"observation": 3, "values": {}}]},
        {"context": "f", "observations": [{"observation": 99, "values": {}}, {"observation": 100, "values": {}}]},
    ]
    statistics = json.loads(printed(tmp_path / "a.log", "--stats", "--json"))
    assert (statistics["observations"], statistics["columns"]) == (3, [])
    assert b"99" in printed(tmp_path / "a.log", "--table")


def test_names_are_utf8_where_the_terminal_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with LogWriter(path, [TensorSpec(HOSTILE)]) as log:
        log.write_context(HOSTILE)
        log.write_observation([7])
    for env in ({"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}, {"LC_ALL": "C.UTF-8"}):
        done = shell(f"dump {path}", **env)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == f"context: {HOSTILE}\nobservation: 0\n{HOSTILE}: 7\n".encode()
        for option in ("--table", "--stats"):
            done = shell(f"dump {path} {option}", COLUMNS="80", **env)
            assert (done.returncode, done.stderr) == (0, b"")
            assert b"[bold]a[/] %s %d" in done.stdout
            assert b"\x1b" not in done.stdout
            assert b"\t" not in done.stdout
            assert ("é".encode() in done.stdout) == ("PYTHONIOENCODING" not in env)


def test_compressed_logs_and_standard_input(tmp_path: Path) -> None:
    data = LVM_LOGS[0].read_bytes()
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.log.zst").write_bytes(pa.compress(data, codec="zstd", asbytes=True))
    expected = llvm_text(data)
    assert printed(tmp_path / "a.log.gz") == expected
    assert printed(tmp_path / "a.log.zst") == expected
    for script in (f"cat {LVM_LOGS[0]} | dump -", f"dump - < {LVM_LOGS[0]}", f"cat {tmp_path}/a.log.gz | dump -"):
        done = shell(script)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def observations_of(text: bytes) -> int:
    return text.count(b"\nobservation: ") + text.startswith(b"observation: ")


@pytest.mark.parametrize("limit", [0, 1, 2, 17, 160, 161, 1000])
def test_limit_takes_the_first_observations(limit: int) -> None:
    path = LOGS / "regalloc-eviction.lvm.log"
    whole = llvm_text(path.read_bytes())
    text = printed(path, "--limit", str(limit))
    assert observations_of(text) == min(limit, 161)
    assert whole.startswith(text)
    result = json.loads(printed(path, "--limit", str(limit), "--json"))
    assert sum(len(context["observations"]) for context in result["contexts"]) == min(limit, 161)
    statistics = json.loads(printed(path, "--limit", str(limit), "--json", "--stats"))
    assert statistics["observations"] == min(limit, 161)
    assert statistics["log_bytes"] == (path.stat().st_size if limit > 161 else None)


def test_context_takes_what_is_called_exactly_so() -> None:
    path = LOGS / "regalloc-priority.lvm.log"
    contexts: dict[str, str] = {}
    for part in llvm_text(path.read_bytes()).decode().split("context: ")[1:]:
        contexts[part.partition("\n")[0]] = f"context: {part}"
    first, second, third = list(contexts)[2:5]
    assert printed(path, "--context", second).decode() == contexts[second]
    both = printed(path, "--context", third, "--context", first).decode()
    assert both == contexts[first] + contexts[third]
    limited = printed(path, "--context", second, "--limit", "2").decode()
    assert contexts[second].startswith(limited)
    assert observations_of(limited.encode()) == 2
    result = json.loads(printed(path, "--context", second, "--json"))
    assert [context["context"] for context in result["contexts"]] == [second]
    statistics = json.loads(printed(path, "--context", second, "--json", "--stats"))
    assert statistics["contexts"] == 1
    assert statistics["observations"] == contexts[second].count("\nobservation: ")
    assert statistics["log_bytes"] == path.stat().st_size
    assert b"no observations" in printed(LOGS / "inlining.lopcodes.log", "--context", "", "--table")


def test_context_in_runs_of_contexts_and_before_the_first(every_type: Path) -> None:
    assert printed(every_type, "--context", "empty") == b"context: empty\n"
    text = printed(every_type, "--context", "f")
    assert text.startswith(b"context: f\nobservation: 0\n")
    assert text.count(b"context: ") == 1  # it came back with nothing printed in between
    assert observations_of(text) == 26
    assert printed(every_type, "--context", HOSTILE).startswith(f"context: {HOSTILE}\nobservation: 0\n".encode())
    result = json.loads(printed(every_type, "--context", "empty", "--context", "last", "--json"))
    assert [context["context"] for context in result["contexts"]] == ["empty", "empty", "empty", "last"]


def test_a_context_that_is_not_there(every_type: Path) -> None:
    done = run(every_type, "--context", "g", "--context", "h", "--context", "\x1b[1m")
    assert done.exit_code == 1
    assert observations_of(done.stdout_bytes) == 26
    assert done.stderr == f"mlgo-corpus: error: {every_type}: no context is called 'h' or '\\x1b[1m'\n"
    done = run(every_type, "--context", "f", "--context", "h", "--limit", "1")
    assert (done.exit_code, done.stderr) == (0, "")  # the rest was not looked at


def same(value: Any, array: np.ndarray[Any, Any]) -> bool:
    """Whether a value of --json is what an array holds, with the type's precision."""
    flat = array.reshape(-1).tolist()
    values = value if isinstance(value, list) else [value]
    return len(values) == len(flat) and all(
        (math.isnan(is_float) and math.isnan(wanted)) or (is_float == wanted and type(is_float) is type(wanted))
        for is_float, wanted in zip(
            (float(item) if isinstance(item, str) else item for item in values), flat, strict=True
        )
    )


@pytest.mark.parametrize("path", [*REAL_LOGS, None], ids=lambda path: path.name if path else "every type")
def test_json_holds_what_the_log_holds(path: Path | None, every_type: Path) -> None:
    path = path or every_type

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    result = json.loads(printed(path, "--json"), parse_constant=refuse)
    assert list(result) == ["header", "contexts", "damage"]
    log = read_log(path)
    header = json.loads(log.header.line)
    assert result["header"] == {
        "features": header["features"],
        "score": header.get("score"),
        "advice": header.get("advice"),
    }
    assert result["damage"] is None
    assert len(result["contexts"]) == len(log.contexts)
    for context, expected in zip(result["contexts"], log, strict=True):
        assert context["context"] == expected.name
        assert [item["observation"] for item in context["observations"]] == expected.numbers.tolist()
        for index, observation in enumerate(context["observations"]):
            assert list(observation["values"]) == list(expected.values)
            for name, value in observation["values"].items():
                assert same(value, expected.values[name][index]), (name, value)


def test_json_has_an_observation_per_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with LogWriter(path, [TensorSpec('x"%'), TensorSpec("y", "float", (2,))], score=TensorSpec('x"%', "double")) as log:
        log.write_context("é")
        log.write_context("f")
        log.write_observation([1, [0.5, math.nan]], score=math.inf)
        log.write_observation([2, [-math.inf, 1e30]], score=-0.0)
    header, *lines = printed(path, "--json").decode().splitlines()
    assert header.startswith('{"header": {"features": [{"name": "x\\"%", "type": "int64_t", "port": 0, "shape": [1]}, ')
    assert lines == [
        '"contexts": [',
        '{"context": "\\u00e9", "observations": []},',
        '{"context": "f", "observations": [',
        '{"observation": 0, "values": {"x\\"%": 1, "y": [0.5,"NaN"], "x\\"%_2": "Infinity"}},',
        '{"observation": 1, "values": {"x\\"%": 2, "y": ["-Infinity",1.0000000150474662e+30], "x\\"%_2": -0.0}}]}],',
        '"damage": null}',
    ]


def assert_is_numpys(column: dict[str, Any], spec: TensorSpec, values: np.ndarray[Any, Any]) -> None:
    """Compare a column's statistics with what numpy says of all its values at once."""
    flat = values.reshape(-1)
    nans = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(len(flat), bool)
    numbers = flat[~nans]
    distinct = len(np.unique(flat))
    assert (column["name"], column["type"], tuple(column["shape"])) == (spec.name, spec.type, spec.shape)
    assert (column["values"], column["nans"]) == (len(flat), nans.sum())
    assert column["zeros"] == (flat == 0).sum()
    assert column["distinct"] == (distinct if distinct <= DISTINCT_LIMIT else ">100000")
    assert column["is_constant"] == (distinct == 1 and len(flat) > 1)
    if not len(numbers):
        assert (column["min"], column["max"], column["mean"]) == (None, None, None)
        return
    assert float(column["min"]) == numbers.min()
    assert float(column["max"]) == numbers.max()
    with np.errstate(all="ignore"):
        mean = numbers.mean(dtype=np.float64)
    assert float(column["mean"]) == pytest.approx(mean, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("batch_bytes", [None, 10_000], ids=["one batch", "many batches"])
@pytest.mark.parametrize("path", [*REAL_LOGS, None], ids=lambda path: path.name if path else "every type")
def test_statistics_are_numpys(
    path: Path | None, batch_bytes: int | None, every_type: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path or every_type
    if batch_bytes:
        monkeypatch.setattr(dump, "_BATCH_BYTES", batch_bytes)
        monkeypatch.setattr(dump, "_BATCH_VALUES", 100)
    result = json.loads(printed(path, "--stats", "--json"))
    log = read_log(path)
    assert (result["log"], result["log_bytes"]) == (str(path), path.stat().st_size)
    assert result["observations"] == len(log)
    named = [context for context in log.contexts if context.name is not None]
    assert (result["contexts"], result["empty_contexts"]) == (
        len(named),
        sum(context.count == 0 for context in named),
    )
    expected_task = path.name.partition(".")[0] if path in REAL_LOGS else None
    assert result["task"] == expected_task
    for column, spec, name in zip(result["columns"], log.header.columns, column_names(log.header), strict=True):
        assert_is_numpys(column, spec, log.to_numpy()[name])
    assert [column["name"] for column in result["columns"] if column["is_score"]] == (
        [log.score.name] if log.score else []
    )


@pytest.mark.parametrize("rows", [DISTINCT_LIMIT, DISTINCT_LIMIT + 1])
def test_distinct_values_are_counted_up_to_the_limit(rows: int, tmp_path: Path) -> None:
    path = tmp_path / "many.log"
    records = np.zeros(rows, [("x", "i8"), ("y", "f4"), ("z", "i2")])
    records["x"] = np.random.default_rng(1).permutation(rows) * 3
    records["y"] = np.where(np.arange(rows) % 2, 0.0, -0.0)
    records["z"] = 7
    with LogWriter(path, [TensorSpec("x"), TensorSpec("y", "float"), TensorSpec("z", "int16_t")]) as log:
        log.write_rows(Rows(0, records.view(f"V{records.itemsize}"), None))
    result = json.loads(printed(path, "--stats", "--json"))
    assert [column["distinct"] for column in result["columns"]] == [rows if rows == DISTINCT_LIMIT else ">100000", 1, 1]
    assert [column["is_constant"] for column in result["columns"]] == [False, True, True]
    assert result["columns"][0]["mean"] == 3 * (rows - 1) / 2
    assert b">100000" in printed(path, "--stats") or rows == DISTINCT_LIMIT


def test_sums_are_exact_beyond_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with LogWriter(path, [TensorSpec("u", "uint64_t"), TensorSpec("i", "int64_t")]) as log:
        for at in range(5):
            log.write_observation([2**64 - 1 - at, -(2**63) + at])
    unsigned, signed = json.loads(printed(path, "--stats", "--json"))["columns"]
    assert (unsigned["min"], unsigned["max"]) == (2**64 - 5, 2**64 - 1)
    assert (signed["min"], signed["max"]) == (-(2**63), -(2**63) + 4)
    assert unsigned["mean"] == (5 * (2**64 - 1) - 10) / 5


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.log"
    specs = [TensorSpec("size"), TensorSpec("weight", "float", (1, 4)), TensorSpec("kind", "int8_t")]
    with LogWriter(path, specs, score=TensorSpec("reward", "float")) as log:
        for name, count in (("f", 2), ("g", 0), ("a_name_that_is_longer_than_a_cell_and_than_three", 2)):
            log.write_context(name)
            for at in range(count):
                log.write_observation([at * 1000, [at / 3, 0.0, math.nan, 1e10], 7], score=math.nan)
    return path


def test_statistics_as_a_table(small: Path) -> None:
    assert printed(small, "--stats").decode().splitlines() == [
        f"{small}: a training log, 4 observations, 3 contexts (1 of them empty), a log of {small.stat().st_size} B",
        "an observation: 3 features, score reward; 29 B",
        "feature  type         min    max       mean  distinct  zeros   NaN",
        "──────────────────────────────────────────────────────────────────",
        "size     int64_t        0   1000        500         2    50%    0%",
        "weight   float [1,4]    0  1e+10  3.333e+09         4    38%   25%",
        "kind     int8_t         7      7          7        1*     0%    0%",
        "reward   float          -      -          -        1*     0%  100%",
        "* constant: kind, reward",
    ]


def test_observations_as_a_table(small: Path) -> None:
    assert printed(small, "--table").decode().splitlines() == [
        "                                          a_name_that_i  a_name_that_i",
        "                                          s_lon..ell_an  s_lon..ell_an",
        "                          f            f   d_than_three   d_than_three",
        "feature                   0            1              0              1",
        "──────────────────────────────────────────────────────────────────────",
        "size                      0         1000              0           1000",
        "weight [1,4]  0,0,nan,1e+10  0.333,0,...  0,0,nan,1e+10    0.333,0,...",
        "kind                      7            7              7              7",
        "reward                  nan          nan            nan            nan",
    ]


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", LVM_LOGS, ids=lambda path: path.name)
def test_tables_fit_the_terminal(path: Path, columns: int) -> None:
    done = run(path, "--table", columns=columns)
    assert done.exit_code == 0
    assert done.stderr == "mlgo-corpus: hint: these are the first 5 observations; --limit N shows N\n"
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    features = [spec.name for spec in read_log(path).header.columns]
    tables = sum(line.startswith("feature ") for line in lines)
    for name in features:
        assert sum(line.split()[:1] == [name] for line in lines) == tables
    numbers = [number for line in lines if line.startswith("feature ") for number in line.split()[1:]]
    assert numbers == ["0", "1", "2", "3", "4"]
    assert tables == (1 if columns == 120 or "inlining" in path.name else 2)
    statistics = printed(path, "--stats", columns=columns).decode().splitlines()[2:]
    assert max(len(line) for line in statistics if not line.startswith("* constant: ")) <= columns
    several = printed(path, "--table", "--limit", "40", columns=columns).decode().splitlines()
    numbers = [number for line in several if line.startswith("feature ") for number in line.split()[1:]]
    assert len(numbers) == 40


def test_constant_features_are_named() -> None:
    *_, last = printed(LOGS / "regalloc-eviction.lvm.log", "--stats").decode().splitlines()
    assert last == "* constant: is_free, nr_urgent, is_local"
    header, values, *_, decision = printed(LOGS / "inlining.lzio.log", "--stats").decode().splitlines()
    assert header.endswith(": inlining, 1 observation, 1 context, a log of 3.1 kB")
    assert values == "an observation: 40 features; 320 B"
    assert decision.startswith("inlining_decision ")  # of a single observation nothing is called constant
    *_, last = printed(LOGS / "inlining.lopcodes.log", "--stats").decode().splitlines()
    assert last.split() == ["inlining_decision", "int64_t", "-", "-", "-", "0", "-"]


def test_names_do_not_break_tables(tmp_path: Path) -> None:
    path = tmp_path / "[red]a\n.log"
    with LogWriter(path, [TensorSpec("[bold]x[/bold]\n\x1b[2J"), TensorSpec("[/]", "int8_t", (2,))]) as log:
        log.write_context("[blink]\r\n\x9b")
        log.write_observation([1, [2, 3]])
        log.write_observation([1, [2, 3]])
    assert printed(path).decode() == (
        "context: [blink]\r\n\x9b\n"
        + "".join(f"observation: {at}\n[bold]x[/bold]\n\x1b[2J: 1\n[/]: 2,3\n" for at in (0, 1))
    )
    assert printed(path, "--table").decode().splitlines() == [
        "                         [blink]\\r\\n\\x  [blink]\\r\\n\\x",
        "                                    9b             9b",
        "feature                              0              1",
        "─────────────────────────────────────────────────────",
        "[bold]x[/bold]\\n\\x1b[2J              1              1",
        "[/] [2]                            2,3            2,3",
    ]
    first, *_, last = printed(path, "--stats").decode().splitlines()
    assert first.startswith(f"{tmp_path}/[red]a\\n.log: a training log, 2 observations, ")
    assert last == "* constant: [bold]x[/bold]\\n\\x1b[2J"


def damaged(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "damaged.log"
    path.write_bytes(data)
    return path


def test_what_is_whole_is_printed_before_the_error(tmp_path: Path) -> None:
    data = (LOGS / "inlining.lvm.log").read_bytes()
    whole = llvm_text(data)
    path = damaged(tmp_path, data[:10_000])
    done = run(path)
    assert done.exit_code == 1
    observations = observations_of(done.stdout_bytes)
    assert observations > 10
    assert whole.startswith(done.stdout_bytes)
    assert done.stderr.startswith(f"mlgo-corpus: error: {path}: byte ")
    assert f"of observation {observations}, expected 8 bytes, got " in done.stderr
    assert done.stderr.count("\n") == 1
    message = done.stderr.removeprefix("mlgo-corpus: error: ")

    allowed = run(path, "--allow-truncated")
    assert (allowed.exit_code, allowed.stdout_bytes) == (0, done.stdout_bytes)
    assert allowed.stderr == f"mlgo-corpus: warning: {message}"

    done = run(path, "--json")
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert len(result["contexts"][0]["observations"]) == observations
    assert result["damage"] == message.rstrip("\n")
    done = run(path, "--stats", "--json", "--allow-truncated")
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert (result["observations"], result["damage"]) == (observations, message.rstrip("\n"))
    assert 0 < 10_000 - result["log_bytes"] < 400
    done = run(path, "--stats")
    assert done.exit_code == 1
    assert f"{observations} observations" in done.stdout
    done = run(path, "--table", "--limit", "1000")
    assert done.exit_code == 1
    assert done.stdout.count("inlining_decision") > 1
    assert run(path, "--limit", str(observations)).exit_code == 0  # the damage is not reached


def test_every_truncation_prints_a_beginning(tmp_path: Path) -> None:
    data = write_every_type(tmp_path / "types.log", steps=2).read_bytes()
    whole = llvm_text(data)
    header = data.index(b"\n") + 1
    lengths = {0}
    for end in range(header, len(data), 41):
        path = damaged(tmp_path, data[:end])
        stream = io.BytesIO()
        with open_selection(path) as selection:
            write_text(selection, stream)
        text = stream.getvalue()
        assert whole.startswith(text)
        assert selection.damage is None or selection.damage.path == path
        lengths.add(len(text))
        stream = io.BytesIO()
        with open_selection(path) as selection:
            write_json(selection, stream)
        result = json.loads(stream.getvalue())
        observations = sum(len(context["observations"]) for context in result["contexts"])
        assert observations == observations_of(text)
        with open_selection(path) as selection:
            assert log_statistics(selection).observations == observations
    assert len(lengths) > 15


def test_a_second_header_ends_the_log(tmp_path: Path) -> None:
    data = (LOGS / "inlining.lzio.log").read_bytes()
    path = damaged(tmp_path, data + data)
    done = run(path)
    assert (done.exit_code, done.stdout_bytes) == (1, llvm_text(data))
    assert done.stderr == (
        f"mlgo-corpus: error: {path}: byte {len(data)}: a second header: this is more than one log in one file\n"
    )
    assert run(path, "--allow-truncated").exit_code == 0


@pytest.mark.parametrize("data", [b"", b"{", b"\x7fELF\n", b'{"features":[{"name":"x"}]}\n', b"\x1f\x8b\x08"])
@pytest.mark.parametrize("option", ["--allow-truncated", "--json", "--stats", "--table"])
def test_what_does_not_begin_as_a_log(data: bytes, option: str, tmp_path: Path) -> None:
    path = damaged(tmp_path, data)
    done = run(path, option)
    assert (done.exit_code, done.stdout_bytes) == (1, b"")
    assert done.stderr.startswith(f"mlgo-corpus: error: {path}: ")
    assert done.stderr.count("\n") == 1


def test_damaged_compression(tmp_path: Path) -> None:
    data = (LOGS / "inlining.lvm.log").read_bytes()
    packed = gzip.compress(data, 0)
    path = damaged(tmp_path, packed[: len(packed) // 2])
    done = run(path)
    assert done.exit_code == 1
    assert observations_of(done.stdout_bytes) > 0
    assert llvm_text(data).startswith(done.stdout_bytes)
    assert done.stderr == f"mlgo-corpus: error: {path}: the gzip stream ends early\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.log"], "nowhere.log: No such file or directory"),
        (["."], ".: Is a directory"),
        ([REAL_LOGS[0], "--table", "--json"], "--table: not together with --json"),
        ([REAL_LOGS[0], "--table", "--stats"], "--table: not together with --stats"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout_bytes) == (2, b"")
    assert done.stderr == f"mlgo-corpus: error: {message}\n"


def test_a_reader_that_has_enough_and_one_that_is_not_there() -> None:
    path = LOGS / "regalloc-eviction.lvm.log"
    for option in ("", "--json", "--table", "--stats"):
        done = shell(f"dump {path} {option} --limit 40 | head -1")
        assert done.stdout.count(b"\n") == 1
        assert done.stderr == b""
    done = shell(f"dump {path} >&-")
    assert (done.returncode, done.stderr) == (2, b"mlgo-corpus: error: there is no standard output to print to\n")
    done = shell(f"dump {path} > /dev/full")
    assert (done.returncode, done.stderr) == (1, b"mlgo-corpus: error: No space left on device\n")


def test_how_values_spread(tmp_path: Path) -> None:
    """By sign and power of two: exact in JSON; drawn where there is room, in a terminal that has the characters."""
    header = [TensorSpec("x", "int64_t", (1,)), TensorSpec("inlining_decision", "int64_t", (1,))]
    with LogWriter(tmp_path / "a.log", header) as log:
        log.write_context("f")
        for value in (-5, -1, 0, 0, 0, 0, 1, 3, 3, 40):
            log.write_observation({"x": value, "inlining_decision": int(value > 0)})
    x, decision = json.loads(printed(tmp_path / "a.log", "--stats", "--json"))["columns"]
    assert x["spread"] == [
        {"from": -8, "to": -4, "values": 1},
        {"from": -2, "to": -1, "values": 1},
        {"from": 0, "to": 0, "values": 4},
        {"from": 1, "to": 2, "values": 1},
        {"from": 2, "to": 4, "values": 2},
        {"from": 32, "to": 64, "values": 1},
    ]
    assert [one["values"] for one in decision["spread"]] == [6, 4]
    for columns, encoding, drawn in ((120, "utf-8", True), (99, "utf-8", False), (120, "ascii", False)):
        done = shell("dump --stats $LOG", LOG=str(tmp_path / "a.log"), COLUMNS=str(columns), PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        _, _, head, _, first, second = done.stdout.decode(encoding, "replace").splitlines()
        assert ("spread" in head) == drawn
        assert first.rstrip().endswith("40%  ▂ ▂█▂▄   ▂" if drawn else "40%")
        assert second.rstrip().endswith("60%  █▅" if drawn else "60%")
