"""``logs-to-parquet`` and ``parquet-to-logs`` as a user sees them: tables, JSON, hints, one-line errors, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import mlgo
from tests.conftest import PACKAGE_ROOT
from tests.runs.datasets.test_logs import LOGS, data_of, real_logs, tree

pytestmark = pytest.mark.whole

GOOD = LOGS / "regalloc-priority.ltable.log"


def test_there_and_back(tmp_path: Path) -> None:
    done = mlgo("logs-to-parquet", LOGS, "--output", "d", "--group-by-header", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["dataset", "logs", "contexts", "observations", "log", "Parquet", "files"]
    table = [line.split() for line in lines[2:5]]
    assert [row[:6] for row in table] == [
        ["inlining", "6", "6", "239", "97.8", "kB"],
        ["regalloc-eviction", "6", "143", "186", "661.0", "kB"],
        ["regalloc-priority", "6", "143", "2892", "191.6", "kB"],
    ]
    assert all(row[6:] == [row[6], "kB", "1"] for row in table)
    assert re.fullmatch(r"in \d+\.\d\d s.*", lines[5])
    query = "SELECT module, count(*) FROM 'd/inlining/observations/*.parquet' GROUP BY module ORDER BY 2 DESC"
    assert lines[6:8] == [f"DuckDB: {query}", "pandas, polars: read_parquet('d/inlining/observations')"]

    done = mlgo("logs-to-parquet", LOGS, "--output", "d", "--group-by-header", cwd=tmp_path)
    assert done.stdout.splitlines()[5] == "the dataset exists already, made from the same logs; --force makes it again"

    damaged = tmp_path / "d" / "inlining" / "observations" / "part-00000.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    done = mlgo("logs-to-parquet", LOGS, "--output", "d", "--group-by-header", cwd=tmp_path)
    assert (done.returncode, damaged.read_bytes()) == (0, whole)

    done = mlgo("parquet-to-logs", "d/inlining", "--output", "back", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"back: 6 logs, 239 observations, 97\.8 kB in \d+\.\d\d s\n", done.stdout)
    assert tree(tmp_path / "back") == data_of(real_logs("inlining"))


def test_json(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, data in (("a", GOOD.read_bytes()), ("b", GOOD.read_bytes()[:-3]), ("c", b"")):
        (tmp_path / f"logs/{name}.log").write_bytes(data)
    options = ("--compression", "snappy", "--rows-per-file", "300", "--jobs", "1")
    done = mlgo("logs-to-parquet", "logs", "--output", "d", "--allow-truncated", "--json", *options, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    contexts, observations = report.pop("contexts"), report.pop("observations")
    assert 0 < report.pop("seconds") < 60
    assert report.pop("parquet_bytes") == sum(path.stat().st_size for path in tmp_path.glob("d/observations/*"))
    assert report.pop("log_bytes") == 2 * GOOD.stat().st_size - 3
    dropped = report.pop("dropped_bytes")
    assert 0 < dropped < 200
    empty, cut = report.pop("problems")
    assert empty == ["c.log", "byte 0: the log is empty"]
    assert cut[0] == "b.log"
    assert re.match(r"byte \d+: reading ", cut[1])
    assert report == {
        "output": "d",
        "logs": 3,
        "converted": 2,
        "damaged": 1,
        "failed": 1,
        "renamed": 0,
        "files": len(list(tmp_path.glob("d/observations/*"))),
        "unchanged": False,
        "counts": {"ok": 1, "truncated": 2},
        "groups": [],
        "hints": ["1 log of 3 not converted"],
        "exit_code": 1,
    }

    done = mlgo("parquet-to-logs", "d", "--output", "back", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    restored = json.loads(done.stdout)
    assert restored.pop("seconds") > 0
    assert restored == {
        "output": "back",
        "logs": 2,
        "missing": 1,
        "observations": observations,
        "log_bytes": 2 * GOOD.stat().st_size - 3 - dropped,
        "renamed": 0,
        "incomplete": 1,
        "hints": [
            "1 log could not be read when the dataset was made",
            "1 log not restored in full: the dataset was made with --allow-truncated or --context-regex",
        ],
        "exit_code": 0,
    }
    assert contexts > 0

    done = mlgo("logs-to-parquet", LOGS, "--output", "g", "--group-by-header", "--json", cwd=tmp_path)
    grouped = json.loads(done.stdout)
    assert (grouped["exit_code"], grouped["logs"], grouped["output"]) == (0, 18, "g")
    assert [group["output"] for group in grouped["groups"]] == [
        "g/inlining",
        "g/regalloc-eviction",
        "g/regalloc-priority",
    ]
    assert grouped["groups"][0].keys() == grouped.keys()


def test_what_went_wrong_is_said_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/good.log").write_bytes(GOOD.read_bytes())
    for number in range(7):
        (tmp_path / f"logs/{number} [b]é.log").write_bytes(GOOD.read_bytes()[:-number] if number else b"junk")
    done = mlgo("logs-to-parquet", "logs", "-o", "d", cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "0 [b]é.log: byte 0: expected a log's header, found 'junk'"
    assert all(re.match(rf"{number} \[b\]é\.log: byte \d+: ", lines[number]) for number in range(1, 5))
    assert lines[5:] == [
        "and 2 more; all are in modules.parquet",
        "hint: 7 logs of 8 not converted; --allow-truncated keeps the whole observations of damaged ones",
    ]
    assert done.stdout.splitlines()[2].split()[:2] == ["d", "1"]
    done = mlgo("logs-to-parquet", "logs", "-o", "e", "--allow-truncated", cwd=tmp_path)
    assert done.returncode == 1
    more, damaged, hint = done.stderr.splitlines()[5:]
    assert more == "and 2 more; all are in modules.parquet"
    assert re.fullmatch(r"6 damaged logs: whole observations kept, \d+ B dropped", damaged)
    assert hint == "hint: 1 log of 8 not converted"
    done = mlgo("logs-to-parquet", "logs", "-o", "d", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["hints"] == [
        "7 logs of 8 not converted; --allow-truncated keeps the whole observations of damaged ones"
    ]
    done = mlgo("parquet-to-logs", "e", "-o", "back", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "hint: 1 log could not be read when the dataset was made",
        "hint: 6 logs not restored in full: the dataset was made with --allow-truncated or --context-regex",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["logs-to-parquet", "nowhere", "-o", "d"], "nowhere: no such file or folder"),
        (["logs-to-parquet", str(LOGS), "-o", "d"], r".* and .* have different headers: .*; --group-by-header makes a"),
        (["logs-to-parquet", str(GOOD), "-o", "full"], "full: is not empty, and not a dataset: it holds notes; "),
        (["logs-to-parquet", str(GOOD), "-o", "full", "--force"], "full: is not empty, and not a dataset: it holds "),
        (["logs-to-parquet", str(GOOD), "-o", "d", "--context-regex", "("], r"--context-regex \(: not a regular expr"),
        (["logs-to-parquet", "full/notes", "-o", "d"], "notes: byte 0: expected a log's header, found 'mine"),
        (["parquet-to-logs", "full", "-o", "d"], "full: not a whole dataset: it has no dataset.json"),
        (["parquet-to-logs", "nowhere", "-o", "d"], "nowhere: no such file or folder"),
    ],
)
def test_bad_usage_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes").write_text("mine")
    done = mlgo(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(f"mlgo-corpus: error: {message}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert tree(tmp_path) == {"full/notes": b"mine"}


def test_help() -> None:
    done = mlgo("logs-to-parquet", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in (
        "--output", "--compression", "--rows-per-file", "--context-regex", "--group-by-header", "--allow-truncated",
        "--jobs", "--force", "--json",
    ):  # fmt: skip
        assert f" {option}" in done.stdout
    done = mlgo("parquet-to-logs", "--help")
    for option in ("--output", "--force", "--json"):
        assert f" {option}" in done.stdout


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """In names of inputs and outputs, on a terminal that refuses them."""
    name = os.fsdecode(b"\xff[b].log")
    (tmp_path / name).write_bytes(GOOD.read_bytes())
    output = tmp_path / os.fsdecode(b"\xfe")
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "PYTHONIOENCODING": "utf-8:strict", "COLUMNS": "300"}
    for arguments in (
        ["logs-to-parquet", str(tmp_path / name), "-o", str(output)],
        ["parquet-to-logs", str(output), "-o", str(tmp_path / os.fsdecode(b"back\xfe"))],
    ):
        argv = (sys.executable, "-m", "mlgo_corpus.cli.main", *arguments)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert f"{tmp_path}/" in done.stdout
        assert "%FE" in done.stdout
    assert tree(tmp_path / os.fsdecode(b"back\xfe")) == {"%FF[b].log": GOOD.read_bytes()}
