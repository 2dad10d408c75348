"""Pages on corpora, datasets and tables: their numbers against pandas and plain counts, and what is refused."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import stat
import sys
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from mlgo_corpus import ReportSummary, convert_logs, pack_corpus, report_page, view
from mlgo_corpus.cli.main import app
from mlgo_corpus.corpus.certificate import RebuildRow, write_certificate
from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.names import distinct_names
from tests.conftest import DATA
from tests.handmade import bitcode, corpus, row, table
from tests.view.reportinputs import (
    HOSTILE,
    difference,
    evaluation,
    function_columns,
    plain_trace,
    policy,
    sizes,
    trace,
    trace_row,
)

pytestmark = pytest.mark.whole

MODULES = {"a/x.o": 900, "a/y.o": 1000, "b/z.o": 1500}


def report(*paths: Path, output: Path, **options: Any) -> tuple[ReportSummary, str]:
    """Make a page; give what is said of it, and its text."""
    summary = report_page(paths, output, **options)
    return summary, output.read_text(encoding="utf-8")


def cli(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)], catch_exceptions=False)


def told(summary: ReportSummary, number: int = 0) -> str:
    """Give all that a section calls out."""
    return "\n".join(f"{one['text']} {one['advice']}" for one in summary.sections[number]["call_outs"])


class Parsed(HTMLParser):
    """The parts of a page that matter here: elements with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = "" if tag == self._in else self._in

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.text += data


def test_a_dataset_s_numbers_are_those_of_pandas(tmp_path: Path) -> None:
    dataset = plain_trace(tmp_path / "d", MODULES)
    summary, text = report(dataset, output=tmp_path / "r.html")
    assert "The features that go most with inlining_decision" in Parsed(text).text
    assert "line-clamp" not in text.partition("</style>")[0]  # a meaning is shown in full
    data = summary.sections[0]["data"]
    frame = pd.read_parquet(dataset / "observations")
    modules = pd.read_parquet(dataset / "modules.parquet")
    assert data["observations"] == len(frame)
    assert data["modules"] == len(modules) == 3
    assert data["sizes"] == {
        "measure": "text_size",
        "modules": 3,
        "size": int(modules.text_size.sum()),
        "baseline": int(modules.baseline_text_size.sum()),
        "levels": [{"opt_level": None, "modules": 3, "size": 3400, "baseline": 3000}],
        "undecided": {"modules": 0, "size": 0},
    }
    for name in ("cost_estimate", "callee_users", "inlining_default", "inlining_decision"):
        found = data["features"][name]
        assert found["count"] == len(frame)
        assert (found["min"], found["max"]) == (frame[name].min(), frame[name].max())
        assert found["zeros"] == (frame[name] == 0).sum()
        assert found["mean"] == pytest.approx(frame[name].mean())
        assert found["p50"] == frame[name].quantile(0.5, interpolation="lower")  # whole numbers below 512 are exact
        exact = np.corrcoef(np.arcsinh(frame[name]), np.arcsinh(frame.inlining_decision))[0, 1]
        assert data["relations"].get(name, 1.0) == pytest.approx(exact)
    assert "inlining_decision" not in data["relations"]
    same = int((frame.inlining_default == frame.inlining_decision).sum())
    assert data["agreement"] == {"same": same, "known": len(frame)}
    assert data["reward"]["min"] == pytest.approx(modules.reward.min())
    assert data["faithful"] == 1
    assert data["decision"] == "inlining_decision"


def test_logs_that_were_converted_are_a_dataset_too(tmp_path: Path) -> None:
    logs = sorted((DATA / "training-logs").glob("regalloc-eviction.*.log"))
    convert_logs(logs, tmp_path / "d", jobs=1)
    summary, text = report(tmp_path / "d", output=tmp_path / "r.html")
    data = summary.sections[0]["data"]
    frame = pd.read_parquet(tmp_path / "d" / "observations")
    assert data["task"] == "regalloc-eviction"
    assert data["score"] == "reward"
    assert data["sizes"] is None
    mask = np.stack(list(frame["mask"]))
    assert data["features"]["mask"]["zeros"] == (mask == 0).sum()
    weights = np.stack(list(frame["liverange_size"]))[mask != 0]  # only of places that may be chosen
    assert data["features"]["liverange_size"]["count"] == len(weights)
    assert data["features"]["liverange_size"]["max"] == pytest.approx(weights.max())
    assert data["features"]["progress"]["count"] == len(frame)
    assert data["relations"] == {}  # the number of a register is no quantity
    assert "Outcomes" not in text


def test_odd_features_are_called_out(tmp_path: Path) -> None:
    count = 2000
    odd = {
        "dead": np.zeros(count, np.int64),
        "": np.zeros(count, np.int64),
        "constant": np.full(count, 7),
        "holes": np.where(np.arange(count) % 100, 1.5, np.nan),
        "endless": np.where(np.arange(count) % 100, 2.5, np.inf),
        "rare": np.where(np.arange(count) % 1000, 3, 4),
        "huge": np.where(np.arange(count) == 5, 10**9, np.arange(count) % 50),
        "fine": np.arange(count) % 50,
        "inlining_decision": np.arange(count) % 2,
    }
    rows = [trace_row("m", 900, observations=count)]
    summary, text = report(trace(tmp_path / "d", odd, rows), output=tmp_path / "r.html")
    said = told(summary)
    for expected in (
        "1 feature is sometimes not a number (NaN): holes.",
        "1 feature is sometimes infinite: endless.",
        "2 features are always 0: dead, .",
        "1 feature is always the same number: constant.",
        "1 feature is almost always the same number (more than 99 %): rare.",
        "1 feature is dominated by a few huge values (more than 100 times the 99th percentile): huge.",
    ):
        assert expected in said
    assert "fine" not in said
    assert "inlining_decision" not in said
    assert summary.grave == 2
    assert "always 7" in text


@pytest.mark.parametrize(
    ("about", "rows", "columns", "expected"),
    [
        ({"policy": "default"}, [1000, 1000], {}, "The reward is always 0. This is expected"),
        ({"policy": "random:0.5"}, [1000, 1000], {}, "The reward is always 0. This policy changes no object"),
        ({"policy": "default"}, [1000, 900], {}, "1 object of the default policy is different from the baseline's: m1"),
        ({"policy": "mine:f"}, [900], {"inlining_decision": [1, 1]}, "Every decision is 1."),
        ({}, [900], {"delta": np.zeros(2, np.float32)}, "delta, the score in the logs, is always 0."),
        ({}, [900], {"inlining_decision": np.zeros(0, np.int64)}, "This dataset has no decisions."),
    ],
)
def test_what_spoils_training_is_called_out(
    tmp_path: Path, about: dict[str, Any], rows: list[int], columns: dict[str, Any], expected: str
) -> None:
    given = {"inlining_decision": [0, 1], **columns}
    made = [trace_row(f"m{number}", size) for number, size in enumerate(rows)]
    score = "delta" if "delta" in columns else None
    summary, _ = report(trace(tmp_path / "d", given, made, score=score, **about), output=tmp_path / "r.html")
    assert expected in told(summary)


def test_sizes_are_of_modules_in_which_something_was_decided_by_level(tmp_path: Path) -> None:
    rows = [
        trace_row("a", 900, observations=3, opt_level="z"),
        trace_row("b", 900, observations=3, opt_level="z"),
        trace_row("c", 1500, observations=4, opt_level="2"),
        trace_row("large", 90_000, 90_000, observations=0, opt_level="0"),
        trace_row("small", 10, 10, observations=0, opt_level="z"),
    ]
    made = trace(tmp_path / "d", {"inlining_decision": [0, 1] * 5}, rows, policy="mine:f")
    summary, text = report(made, output=tmp_path / "r.html")
    assert summary.sections[0]["data"]["sizes"] == {
        "measure": "text_size",
        "modules": 3,
        "size": 3300,
        "baseline": 3000,
        "levels": [
            {"opt_level": "z", "modules": 2, "size": 1800, "baseline": 2000},
            {"opt_level": "2", "modules": 1, "size": 1500, "baseline": 1000},
        ],
        "undecided": {"modules": 2, "size": 90_010},
    }
    said = told(summary)
    assert "1 module of 5 is compiled at -O0: the compiler has nothing to decide there." in said
    assert "In 1 module (-O2) LLVM's heuristic inlines for speed, and the reward is about size." in said
    shown = Parsed(text).text
    assert all(words in shown for words in ("size at -Oz", "size at -O2", "Sizes by optimisation level", "−10.00"))
    assert "90 010" not in shown.replace("\N{NARROW NO-BREAK SPACE}", " ")
    other = trace(tmp_path / "e", {"inlining_decision": [0, 1] * 5}, rows, policy="mine:g")
    compared, _ = report(made, other, output=tmp_path / "two.html")
    assert compared.sections[2]["data"]["sizes"]["before"] == 3300


@pytest.mark.parametrize(
    ("because", "expected", "grave"),
    [
        ("recursion", "m1 (recursion). LLVM asks no policy about a function's call of itself", 0),
        ("not_asked", "m1 (not_asked). LLVM asks no policy", 0),
        ("unknown", "m1 (unknown). Recording changed what the compiler did there: do not train on", 1),
        (None, "m1. Recording changed what the compiler did there: do not train on", 1),
    ],
)
def test_why_objects_of_the_default_policy_differ(
    tmp_path: Path, because: str | None, expected: str, grave: int
) -> None:
    made = [trace_row("m0", 1000), trace_row("m1", 900)._replace(unfaithful_because=because)]
    given = {"inlining_decision": [0, 1]}
    summary, _ = report(trace(tmp_path / "d", given, made, policy="default"), output=tmp_path / "r.html")
    assert f"1 object of the default policy is different from the baseline's: {expected}" in told(summary)
    assert summary.grave == grave


def test_failures_are_told_with_what_the_compiler_said(tmp_path: Path) -> None:
    rows = [trace_row("good", 900), trace_row("bad", None, status="failed", reason="signal", detail="signal 11")]
    rows[1] = rows[1]._replace(stderr_tail="PLEASE submit a bug <report>\nStack dump:\n\tat \x07 0x1", signal=11)
    summary, text = report(trace(tmp_path / "d", {"inlining_decision": [0, 1]}, rows), output=tmp_path / "r.html")
    assert summary.sections[0]["data"]["failed"] == 1
    assert "1 module of 2 failed (50.0 %)." in told(summary)
    assert "PLEASE submit a bug &lt;report&gt;" in text
    assert "signal 11" in Parsed(text).text


def test_a_corpus_s_numbers_are_those_of_its_rows(tmp_path: Path) -> None:
    contents = {f"{folder}/{number}.o": bitcode(bytes(number * 40)) for folder in "ab" for number in range(4)}
    made = corpus(tmp_path / "c", contents)
    sides = ("train", "train", "test", "validation")
    said = {"producer": "LLVM22", "functions": 2}
    levels = ["0", *"zzzzzzz"]
    rows = [
        row(name, data, main_file_name=f"{name[0]}.c", split=sides[number % 4], opt_level=levels[number], **said)
        for number, (name, data) in enumerate(contents.items())
    ]
    table(made, [*rows, row("gone.o", b"1234", status="skipped", reason="no_bitcode")], corpus_digest="abc")
    outcomes = [RebuildRow(name, "identical", "ok") for name in contents]
    outcomes[0] = RebuildRow("a/0.o", "differs", "ok", "section .text")
    outcomes[1] = RebuildRow("a/1.o", "no_object", "object_missing")
    write_certificate(made / "rebuild.parquet", outcomes, {"kind": "rebuild"})
    summary, text = report(made, output=tmp_path / "r.html")
    data = summary.sections[0]["data"]
    assert data["modules"] == 8
    assert data["bitcode_bytes"] == sum(map(len, contents.values()))
    assert data["functions"] == 16
    assert data["duplicates"] == 4  # b has the modules of a again
    assert data["by"]["split"]["train"]["modules"] == 4
    assert {level: group["modules"] for level, group in data["by"]["opt-level"].items()} == {"0": 1, "z": 7}
    assert "1 module of 8 is compiled at -O0: the compiler has nothing to decide there." in told(summary)
    assert data["by"]["language"]["C"]["modules"] == 8
    assert {"reason": "no_bitcode", "status": "skipped", "rows": 1} in data["reasons"]
    assert data["rebuild"] == {"identical": 6, "differs": 1, "no_object": 1}
    assert re.search(
        r"6 of 7\s*compile to the same code again; 1 more had no object to compare with", Parsed(text).text
    )
    assert "4 modules (50.0 %) are the same as an earlier one." in told(summary)
    assert "1 module cannot be rebuilt" in told(summary)
    assert "abc" in text
    (made / "rebuild.parquet").unlink()
    outcomes = [RebuildRow(name, "no_object", "object_missing") for name in contents]
    write_certificate(made / "rebuild.parquet", outcomes, {"kind": "rebuild"})
    summary, _ = report(made, output=tmp_path / "none.html")
    assert "The rebuild certificate compared nothing" in told(summary)
    assert "cannot be rebuilt" not in told(summary)


def test_a_packed_corpus_and_one_side_of_a_split(tmp_path: Path) -> None:
    made = corpus(tmp_path / "c", ["a.o", "b.o", "c.o"])
    (made / "corpus_description.train.json").write_text(json.dumps({"has_thinlto": False, "modules": ["b.o"]}))
    pack_corpus(made, tmp_path / "p")
    summary, _ = report(made, tmp_path / "p", made / "corpus_description.train.json", output=tmp_path / "r.html")
    assert [one["data"].get("modules") for one in summary.sections[:3]] == [3, 3, 1]
    assert [one["label"] for one in summary.sections[:3]] == ["c", "p", "c:train"]
    same, fewer = (one["data"] for one in summary.sections[3:])
    assert (same["unchanged"]["modules"], same["changed"]["modules"]) == (3, 0)
    assert (fewer["removed"]["modules"], fewer["unchanged"]["modules"]) == (2, 1)


def test_a_table_of_functions_in_numbers(tmp_path: Path) -> None:
    made = sizes(tmp_path / "s", function_columns(500))
    summary, text = report(made, output=tmp_path / "r.html")
    data = summary.sections[0]["data"]
    frame = pd.read_parquet(made / "functions")
    known = frame.dropna(subset="native_size")
    assert data["functions"] == 500
    assert data["labelled"] == len(known)
    assert data["label"]["max"] == known.native_size.max()
    assert data["statuses"] == frame.status.value_counts().to_dict()
    assert data["splits"] == frame.split.value_counts().to_dict()
    assert data["leaking"] == {"rows": 0, "held": int((frame.split != "train").sum())}
    exact = np.corrcoef(np.log1p(known.total_instruction_count), np.log(known.native_size.astype(float)))[0, 1]
    assert data["correlations"]["total_instruction_count"] == pytest.approx(exact)
    assert data["correlations"]["constant"] is None
    assert {"reason": "timeout", "status": "failed", "modules": 1} in data["modules"]
    assert "not done after 3 seconds" in text


def test_rows_that_leak_are_called_out(tmp_path: Path) -> None:
    columns = function_columns(60)
    columns["body_digest"] = [f"{at % 20:016x}" for at in range(60)]
    summary, _ = report(sizes(tmp_path / "s", columns), output=tmp_path / "r.html")
    held = [
        (digest, side) for digest, side in zip(columns["body_digest"], columns["split"], strict=True) if side != "train"
    ]
    train = {digest for digest, side in zip(columns["body_digest"], columns["split"], strict=True) if side == "train"}
    assert summary.sections[0]["data"]["leaking"]["rows"] == sum(digest in train for digest, _ in held)
    assert "the same body is in training." in told(summary)
    assert "split the rows by body_digest" in told(summary)
    columns["split"][:3] = [None] * 3  # of modules that are on no side
    by_module = sizes(tmp_path / "m", columns, split_by="module", fractions=None)
    summary, _ = report(by_module, output=tmp_path / "m.html")
    assert summary.sections[0]["data"]["leaking"]["held"] == len(held)
    assert "leave them out by body_digest. The corpus's split lets modules share small bodies." in told(summary)


def test_two_datasets_of_a_task_are_compared(tmp_path: Path) -> None:
    first = plain_trace(tmp_path / "one", MODULES)
    second = plain_trace(tmp_path / "two", {"a/x.o": 800, "b/z.o": 1600, "c/new.o": 5}, seed=1, policy="always")
    summary, text = report(first, second, output=tmp_path / "r.html")
    compared = summary.sections[2]
    assert (compared["kind"], compared["label"]) == ("comparison", "one → two")
    assert compared["data"]["sizes"] == {"modules": 2, "before": 2400, "after": 2400, "smaller": 1, "larger": 1}
    frames = [pd.read_parquet(path / "observations") for path in (first, second)]
    for name in ("cost_estimate", "callee_users"):
        at = np.union1d(frames[0][name], frames[1][name])
        steps = [np.searchsorted(np.sort(frame[name]), at, side="right") / len(frame) for frame in frames]
        assert compared["data"]["drift"][name] == pytest.approx(np.abs(steps[0] - steps[1]).max())
    assert "inlining_decision" not in compared["data"]["drift"]
    assert 'id="comparison-1-actions-chart"' in text


def test_datasets_of_two_tasks_are_not_compared(tmp_path: Path) -> None:
    first = plain_trace(tmp_path / "one", MODULES)
    convert_logs(sorted((DATA / "training-logs").glob("regalloc-priority.l*.log")), tmp_path / "two", jobs=1)
    summary, _ = report(first, tmp_path / "two", output=tmp_path / "r.html")
    assert [one["kind"] for one in summary.sections] == ["dataset", "dataset"]


def test_two_tables_and_two_corpora_are_compared(tmp_path: Path) -> None:
    columns = function_columns(100)
    other = {**columns, "native_size": pa.array([None if at % 10 == 0 else at for at in range(100)], pa.int64())}
    tables = [sizes(tmp_path / name, made) for name, made in (("s1", columns), ("s2", other))]
    corpora = [
        corpus(tmp_path / "c1", {"a.o": bitcode(b"1"), "b.o": bitcode(b"2"), "c.o": bitcode(b"3")}),
        corpus(tmp_path / "c2", {"b.o": bitcode(b"2"), "c.o": bitcode(b"4444444"), "d.o": bitcode(b"5")}),
    ]
    summary, text = report(*tables, *corpora, output=tmp_path / "r.html")
    functions, modules = (one["data"] for one in summary.sections[4:])
    before = [size for size in columns["native_size"].to_pylist() if size is not None]
    assert functions["both_labelled"] == 90
    assert functions["sizes"]["before"] == sum(before)
    assert functions["sizes"]["after"] == sum(at for at in range(100) if at % 10)
    changes = {f"f{at}": at - size for at, size in enumerate(columns["native_size"].to_pylist()) if size is not None}
    largest = max(changes, key=lambda name: abs(changes[name]))
    (shown,) = re.findall(r"<caption>The largest changes</caption>.*?<th scope=.row.>(.*?)</th>", text, re.DOTALL)
    assert abs(changes[shown]) == abs(changes[largest])
    counts = {what: modules[what]["modules"] for what in ("added", "removed", "changed", "unchanged")}
    assert counts == {"added": 1, "removed": 1, "changed": 1, "unchanged": 1}


def test_a_page_s_policy_lets_nothing_run_but_its_own_scripts(tmp_path: Path) -> None:
    _, text = report(plain_trace(tmp_path / "d", MODULES), output=tmp_path / "r.html")
    page = Parsed(text)
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in page.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    (allowed,) = re.findall(r"script-src ([^;]*)", policy)
    data, *scripts = page.scripts
    digests = (base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts)
    assert allowed.split() == [f"'sha256-{digest}'" for digest in digests]
    json.loads(data)
    assert not [tag for tag, _ in page.elements if tag in ("link", "img", "iframe", "object", "embed", "base", "form")]
    fetched = {name for _, attributes in page.elements for name in attributes if name in ("src", "srcset", "action")}
    assert not fetched
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in page.elements)


def test_names_stay_text_whatever_is_in_them(tmp_path: Path) -> None:
    rows = [trace_row(HOSTILE, 900, observations=2), trace_row("b" + HOSTILE, 1200, observations=1)]
    rows.append(trace_row("c" + HOSTILE, None, status="failed", reason=HOSTILE, detail=HOSTILE, stderr_tail=HOSTILE))
    columns = {HOSTILE: [1, 2, 3], "inlining_decision": [0, 1, 1]}
    dataset = trace(tmp_path / "d", columns, rows, policy=HOSTILE, compiler=HOSTILE, argv=[HOSTILE], caveats=[HOSTILE])
    again = trace(tmp_path / "e", columns, rows, policy=HOSTILE)
    made = corpus(tmp_path / "c", ["x.o"])
    table(made, [row(HOSTILE, bitcode(b"1"), opt_level=HOSTILE, producer=HOSTILE, main_file_name=HOSTILE)])
    (made / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": [HOSTILE]}))
    functions = {**function_columns(4), "function": [HOSTILE] * 4, "module": [HOSTILE] * 4, "status": [HOSTILE] * 4}
    plain = plain_trace(tmp_path / "plain", MODULES)
    _, text = report(
        dataset, again, made, sizes(tmp_path / "s", functions), plain, output=tmp_path / "r.html", title=HOSTILE
    )
    page = Parsed(text)
    # No element and no attribute is there that the template has not.
    assert len(page.scripts) == 3
    template = (Path(view.__file__).parent / "data" / "page.html.j2").read_text(encoding="utf-8")
    assert {tag for tag, _ in page.elements} <= set(re.findall(r"<([a-z][a-z0-9]*)", template))
    names = {name for _, attributes in page.elements for name in attributes}
    assert names <= {"open", *(name.lower() for name in re.findall(r"([A-Za-z-]+)=\"", template))}
    assert "</script><script>alert" not in text
    # ... but the names are, as they are written: what would turn text around is an escape, nothing is evaluated.
    written = HOSTILE.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028")
    assert written in page.text
    assert "\u202e" not in page.text
    tips = json.dumps(json.loads(page.scripts[0])["charts"], ensure_ascii=False)
    assert json.dumps(written, ensure_ascii=False)[1:-1] in tips


@pytest.mark.parametrize("title", ["<b>&", "", "x" * 1000])
def test_a_title_may_be_given(tmp_path: Path, title: str) -> None:
    _, text = report(plain_trace(tmp_path / "d", MODULES), output=tmp_path / "r.html", title=title)
    (found,) = re.findall(r"<h1>(.*)</h1>", text)
    assert len(found) <= 220
    assert "<b>" not in found


def test_a_page_that_is_there_is_not_replaced_without_being_asked(tmp_path: Path) -> None:
    dataset = plain_trace(tmp_path / "d", MODULES)
    output = tmp_path / "new" / "r.html"
    assert cli(dataset, "-o", output).exit_code == 0
    before = output.read_bytes()
    done = cli(dataset, "-o", output)
    assert done.exit_code == 2
    assert "is there already; --force replaces it" in done.stderr
    assert output.read_bytes() == before
    assert cli(dataset, "-o", output, "--force", "--title", "again").exit_code == 0
    assert output.read_bytes() != before
    assert [path.name for path in output.parent.iterdir()] == ["r.html"]


def test_only_a_page_or_an_empty_file_is_replaced(tmp_path: Path) -> None:
    dataset, other = plain_trace(tmp_path / "d", MODULES), plain_trace(tmp_path / "e", MODULES) / "dataset.json"
    before = other.read_bytes()
    done = cli(dataset, "-o", other, "--force")
    assert (done.exit_code, other.read_bytes()) == (2, before)
    assert "dataset.json: is there already, and something else; name another output" in done.stderr
    (tmp_path / "empty").touch()
    for _ in range(2):
        assert cli(dataset, "-o", tmp_path / "empty", "--force").exit_code == 0


def test_what_is_read_is_never_written_over(tmp_path: Path) -> None:
    made = sizes(tmp_path / "s", function_columns(4))
    single = tmp_path / "single.parquet"
    (made / "functions" / "part-00000.parquet").rename(single)
    before = single.read_bytes()
    done = cli(single, "-o", single, "--force")
    assert done.exit_code == 2
    assert "is an input" in done.stderr
    assert single.read_bytes() == before
    assert "is a folder; name the file" in cli(single, "-o", tmp_path).stderr


@pytest.mark.parametrize(
    "part", ["modules.parquet", "observations/part-00000.parquet", "dataset.json", "links.jsonl", "model.npz"]
)
def test_a_part_of_what_is_read_is_never_written_over(tmp_path: Path, part: str) -> None:
    dataset = plain_trace(tmp_path / "d", MODULES)
    if not (dataset / part).exists():  # as corpora and policies have it
        (dataset / part).write_bytes(b"theirs")
    before = (dataset / part).read_bytes()
    done = cli(dataset, "-o", dataset / part, "--force")
    assert done.exit_code == 2
    assert f"{part}: is an input, or a part of one" in done.stderr
    assert (dataset / part).read_bytes() == before
    for _ in range(2):  # a page may be among them
        assert cli(dataset, "-o", dataset / "page.html", "--force").exit_code == 0


def test_what_is_no_file_is_never_written_over(tmp_path: Path) -> None:
    dataset = plain_trace(tmp_path / "d", MODULES)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for output, options in (("fifo", ()), ("fifo", ("--force",)), ("link", ())):
        done = cli(dataset, "-o", tmp_path / output, *options)
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
    assert stat.S_ISFIFO((tmp_path / "fifo").lstat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_what_turns_text_around_is_an_escape_everywhere(tmp_path: Path) -> None:
    names = [f"{letter}{HOSTILE}\x1b\u2066" for letter in "abds"]
    inputs = []
    for number, actions in enumerate((3, 2, 80, 1)):
        values = [np.arange(100), np.zeros(100), np.arange(100) % actions, np.zeros(100, np.float32)]
        columns = dict(zip(names, values, strict=True))
        rows = [trace_row("m", 900, observations=100)]
        inputs.append(trace(tmp_path / str(number), columns, rows, decision=names[2], score=names[3]))
    _, text = report(*inputs, output=tmp_path / "r.html")
    page = Parsed(text)
    for script in page.scripts[1:]:  # ours
        text = text.replace(script, "")
    charts = json.loads(page.scripts[0])["charts"]
    assert len(charts) >= 9
    for letter in "\u202e\u2028\u2066\x1b":
        assert letter in names[0]
        assert letter not in text
        assert letter not in json.dumps(charts, ensure_ascii=False)
    assert "d</script>" in page.text


def test_json_has_the_numbers_and_nothing_else_is_printed(tmp_path: Path) -> None:
    done = cli(plain_trace(tmp_path / "d", MODULES), "-o", tmp_path / "r.html", "--json")
    said = json.loads(done.stdout)
    assert said["page_bytes"] == (tmp_path / "r.html").stat().st_size
    assert said["sections"][0]["data"]["observations"] == 200
    assert said["call_outs"] == len(said["sections"][0]["call_outs"])


def some_parquet(folder: Path) -> Path:
    pq.write_table(pa.table({"x": [1], "y": ["a"]}), folder / "other.parquet")
    return folder / "other.parquet"


def empty_folder(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def text_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("x")
    return folder / "notes.txt"


def damaged(folder: Path) -> Path:
    made = plain_trace(folder / "damaged", MODULES)
    part = made / "observations" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-40])
    return made


def holes(folder: Path) -> Path:
    made = plain_trace(folder / "holes", MODULES)
    part = made / "observations" / "part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    part.write_bytes(data)
    return made


def wrong_types(folder: Path) -> Path:
    made = plain_trace(folder / "types", MODULES)
    pq.write_table(pa.table({"module": [1], "status": [[1]], "reason": [2.5]}), made / "modules.parquet")
    return made


def no_modules(folder: Path) -> Path:
    made = plain_trace(folder / "none", MODULES)
    (made / "modules.parquet").unlink()
    return made


def no_rows(folder: Path) -> Path:
    made = plain_trace(folder / "rows", MODULES)
    shutil.rmtree(made / "observations")
    return made


def rows_out_of_reach(folder: Path) -> Path:
    made = no_rows(folder)
    (made / "observations").symlink_to("observations")
    return made


def not_parquet(folder: Path) -> Path:
    (folder / "x.parquet").write_bytes(b"PAR1 and no more")
    return folder / "x.parquet"


def part_of_a_dataset(folder: Path) -> Path:
    return plain_trace(folder / "d", MODULES) / "observations" / "part-00000.parquet"


def its_modules(folder: Path) -> Path:
    return plain_trace(folder / "d", MODULES) / "modules.parquet"


def datasets(folder: Path) -> Path:
    plain_trace(folder / "many" / "one", MODULES)
    return folder / "many"


def other_json(folder: Path) -> Path:
    (folder / "o").mkdir()
    (folder / "o" / "dataset.json").write_text('{"tool": "another"}')
    return folder / "o"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda folder: folder / "nowhere", "nowhere: no such file or folder; expected a corpus, a dataset"),
        (empty_folder, "has neither corpus_description.json nor dataset.json; expected a corpus"),
        (text_file, "not a Parquet file"),
        (some_parquet, "a Parquet file of another kind (its columns: x, y)"),
        (not_parquet, "cannot be read"),
        (damaged, "part-00000.parquet: cannot be read"),
        (holes, "part-00000.parquet: cannot be read"),
        (wrong_types, "modules.parquet: cannot be read"),
        (no_modules, "modules.parquet"),
        (no_rows, "contradict each other: there are 0 rows of observations, modules.parquet says "),
        (rows_out_of_reach, "rows/observations: Too many levels of symbolic links"),
        (part_of_a_dataset, "is part of a dataset; name its folder"),
        (its_modules, "is part of a dataset or a corpus; name its folder"),
        (datasets, "holds 1 dataset (one); name one"),
        (other_json, "not a dataset of mlgo-corpus"),
        (lambda _: "ftp://x/y", "ftp://x/y"),
    ],
)
def test_what_cannot_be_told_of_is_one_line(tmp_path: Path, make: Any, expected: str) -> None:
    done = cli(make(tmp_path), "-o", tmp_path / "r.html")
    assert done.exit_code == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("library", ["vl_convert", "jinja2"])
def test_a_missing_library_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=rf"needs {library}.*pip install 'mlgo-corpus\[report\]'"):
        report_page([plain_trace(tmp_path / "d", MODULES)], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_no_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one"):
        report_page([], tmp_path / "r.html")


EXTREMES = (0, -1, 1, 2**63 - 1, -(2**63), None)


@pytest.mark.parametrize(("size", "baseline"), [*zip(EXTREMES, reversed(EXTREMES), strict=True), (0, 0)])
def test_no_number_breaks_a_page(tmp_path: Path, size: int | None, baseline: int | None) -> None:
    rows = [
        trace_row("m", 5)._replace(
            text_size=size, baseline_text_size=baseline, code_size=size, baseline_code_size=baseline, observations=0,
            max_rss_bytes=size, baseline_max_rss_bytes=baseline, reward=float("inf") if size else 1e308, cpu_s=1e308,
            wall_s=float("nan"), baseline_cpu_s=-0.0,
        ),
        trace_row("n", 7)._replace(cpu_s=1e-308, baseline_cpu_s=5e-324, max_rss_bytes=1),
    ]  # fmt: skip
    numbers = {
        "wide": np.array([-1.7e308, 1.7e308, 5e-324, np.nan, np.inf]),
        "large": np.array([2**64 - 1, 0, 1, 2**63, 7], np.uint64),
        "empty": pa.array([None] * 5, pa.float64()),
        "words": ["a"] * 5,
        "inlining_decision": [-(2**63), 2**63 - 1, 0, 1, 1],
    }
    inputs = [trace(tmp_path / name, numbers, rows, policy="random:1") for name in ("d", "e")]
    made = corpus(tmp_path / "c", ["x.o", "y.o"])
    table(made, [row("x.o", b"1", functions=size), row("y.o", b"2") | {"bitcode_bytes": size, "cmd_bytes": baseline}])
    functions = {**function_columns(6), "native_size": pa.array([size, baseline] * 3, pa.int64())}
    page = report(*inputs, made, sizes(tmp_path / "s", functions), output=tmp_path / "r.html")[1]
    json.loads(Parsed(page).scripts[0], parse_constant=pytest.fail)


def test_an_empty_corpus_has_a_page(tmp_path: Path) -> None:
    summary, _ = report(corpus(tmp_path / "c", []), output=tmp_path / "r.html")
    assert "This corpus has no modules." in told(summary)


def test_names_are_as_long_as_they_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path.name
    for places, names in (
        ([".", "/x/corpus", "../a"], [here, "corpus", "a"]),
        (["/x/corpus", "/y/corpus/", "s3://b/c/corpus?region=r"], ["x/corpus", "y/corpus", "c/corpus"]),
        (["/x/corpus/corpus_description.train.json", "/x/corpus"], ["corpus:train", "corpus"]),
        (["/p/x/c", "/q/x/c", "/q/x/../x/c", "/"], ["p/x/c", "q/x/c (2)", "q/x/c (3)", "/"]),
    ):
        assert distinct_names(places) == names


def test_inputs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [plain_trace(tmp_path / folder / "d", MODULES) for folder in "xy"]
    summary, _ = report(*paths, paths[0], output=tmp_path / "r.html")
    labels = [one["label"] for one in summary.sections if one["kind"] == "dataset"]
    assert labels[1] == "y/d"
    assert len(set(labels)) == 3


def test_a_page_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    pages = []
    for count in (1_000, 100_000):
        dataset = plain_trace(
            tmp_path / str(count), {f"m{number}.o": 900 + number for number in range(count // 50)}, count=count
        )
        pages.append(report(dataset, output=tmp_path / f"{count}.html")[0].page_bytes)
    assert pages[1] < pages[0] + 150_000


def test_progress_goes_from_input_to_input(tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    paths = [plain_trace(tmp_path / name, MODULES) for name in ("one", "two")]
    report_page(paths, tmp_path / "r.html", progress=lambda *said: seen.append(said))
    assert [said[2] for said in seen] == ["one", "two"]
    assert seen[-1][0] == seen[-1][1] == 2000


def test_a_policy_s_page_draws_what_training_kept(tmp_path: Path) -> None:
    ranges = [difference(-5, 3, 20, 0.9, 0.4, 0.5), difference(4, 4, 10, 0.1, 0.2, 0.1)]
    linkages = [{"value": "internal", "decisions": 7, "llvm": 0.125, "policy": 0.625, "differ": 0.5}]
    by = {"cost_estimate": ranges, "callee_linkage": linkages}
    made = policy(
        tmp_path / "p",
        ["a", "b"],
        [(0.0, 0.0), (-0.1, 0.02), (-0.05, 0.01)],
        1,
        importance={"cost_estimate": 0.8, "callee_users": 0.2},
        differences={"decisions": 30, "llvm": 0.6, "policy": 0.3, "differ": 0.4, "by": by},
        worst=[["m/x.o", 150, 100]],
    )
    summary, text = report(made, output=tmp_path / "r.html")
    (section,) = summary.sections
    assert section["kind"] == "policy"
    data = section["data"]
    assert data["curve"]["points"] == ((0.0, (0.0, 0.0)), (100.0, (-0.1, 0.02)), (200.0, (-0.05, 0.01)))
    assert (data["curve"]["best"], data["worst"]) == (1, [("m/x.o", 150, 100)])
    shown = Parsed(text).text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    for words in ("-5 to 3", "90.0 %", "-10.00 %", "+2.00 %", "80.0 %", "-4.00 %", "+50.00 %", "internal", "62.5 %"):
        assert words in shown
    assert "b grows by 2.0 %." in told(summary).replace("\N{NARROW NO-BREAK SPACE}", " ")
    # The thresholds of imitation are a curve, too, in their order.
    tried = [{"probability": place, "changes": [change]} for place, change in ((0.65, -0.1), (0.4, -0.2), (0.5, -0.3))]
    other = policy(tmp_path / "q", [], [], 0, probability=0.5, validation={"corpora": ["v"], "tried": tried})
    summary, text = report(other, output=tmp_path / "s.html")
    shown = Parsed(text).text.replace("\N{NARROW NO-BREAK SPACE}", " ").replace("\N{MINUS SIGN}", "-")
    assert "objects and products-30.00 %of the validation corpora, on average" in shown.replace("\n", "")
    curve = summary.sections[0]["data"]["curve"]
    assert [place for place, _ in curve["points"]] == [0.4, 0.5, 0.65]
    assert curve["points"][curve["best"]] == (0.5, (-0.3,))


@pytest.mark.parametrize(
    "metrics",
    [
        {"curve": 1, "importance": [], "differences": "x", "worst": {}},
        {"curve": {"corpora": ["a"], "points": [{"compiles": "1", "changes": [0]}], "best": 0}},
        {"curve": {"corpora": ["a"], "points": [{"compiles": 1, "changes": [0, 1]}], "best": 0}},
        {"curve": {"corpora": ["a"], "points": [{"compiles": 1, "changes": [0]}], "best": 7}},
        {"importance": {"a": 10**400, "b": True}, "differences": {"by": {"cost_estimate": [{"low": 1}]}}},
        {"differences": {"llvm": 1, "policy": None}, "worst": [["m", 1, 2], ["m", "3", 1], 7, ["m", 10**400, 1]]},
        {"validation": {"corpora": 3, "tried": [None, {"probability": 0.5}]}, "probability": 0.5},
    ],
)
def test_other_metrics_are_left_out(tmp_path: Path, metrics: dict[str, Any]) -> None:
    made = policy(tmp_path / "p", [], [], 0, **metrics)
    data = report(made, output=tmp_path / "r.html")[0].sections[0]["data"]
    assert (data["curve"], data["importance"], data["worst"]) == (None, {}, [])


def test_an_evaluation_s_page_shows_sums_and_changes_without_what_was_trained_on(tmp_path: Path) -> None:
    sizes_of = {
        "first": {"a.o": (90, 100), "b.o": (210, 200), "c.o": (300, 300), "seen.o": (10, 100), "d.o": (0, 0)},
        "second": {"a.o": (100, 100), "b.o": (100, 200), "c.o": (240, 300), "seen.o": (20, 100), "d.o": (0, 0)},
    }
    made = evaluation(tmp_path / "e", sizes_of, trained="seen.o")
    summary, text = report(made, output=tmp_path / "r.html")
    (section,) = summary.sections
    first, second = section["data"]["policies"]
    assert (first["objects"]["size"], first["objects"]["baseline"], first["grew"]) == (600, 600, 1)
    assert (second["objects"]["size"], second["trained"]["size"]) == (440, 20)
    page = Parsed(text)
    specs = json.loads(page.scripts[[dict(a).get("id") for t, a in page.elements if t == "script"].index("charts")])
    bars = {
        name: {row["label"].replace("\N{MINUS SIGN}", "-"): row["n"] for row in spec["data"]["values"] if row["n"]}
        for name, spec in specs["charts"].items()
    }
    assert bars["input-1-changes-1"] == {"-10 to -5 %": 1, "unchanged": 2, "2 to 5 %": 1}
    assert bars["input-1-changes-2"] == {"below -20 %": 1, "-20 to -10 %": 1, "unchanged": 2}
    assert "seen.o" not in page.text
    assert "b.o" in page.text
