"""The card of a dataset: Hugging Face loads by it, what it shows runs, and no name can get out of its place."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus import LogWriter, TensorSpec, convert_logs
from mlgo_corpus.dataset import calls
from mlgo_corpus.dataset.card import dataset_card
from mlgo_corpus.dataset.folder import DatasetFolder
from mlgo_corpus.dataset.logs import find_logs
from mlgo_corpus.dataset.reasons import TRACE_REASONS
from mlgo_corpus.dataset.tracetable import TRACE_KIND, TraceRow
from mlgo_corpus.files.markdown import documented_columns, markdown_code, markdown_text
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.meanings import describe
from tests.dataset.test_tracetable import header_of, trace
from tests.runs.datasets.test_logs import KINDS, real_logs

pytestmark = pytest.mark.whole

ABOUT = {
    "tool": "mlgo-corpus",
    "version": "1.2",
    "kind": TRACE_KIND,
    "modules": 1234,
    "failed": 5,
    "contexts": 6,
    "observations": 1234567,
    "policy": "default",
    "compiler": "Debian clang version 22.1.8",
    "argv": ["clang", "-cc1", "-x", "ir", "MODULE.bc", "-D", "a b"],
    "corpus": "lua",
    "corpus_sha256": "ab" * 32,
    "measure": "text_size",
    "epsilon": 0.01,
    "caveats": ["LLVM 19 is not faithful.", "1. 5 % of <modules> failed"],
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of each task's logs, under its name, and ``trace``."""
    folder = tmp_path_factory.mktemp("cards")
    for task in KINDS:
        convert_logs(real_logs(task), folder / task)
    logs = list(find_logs(real_logs("inlining")))
    rows = [TraceRow(log.module, "ok", "ok", "", reward=0.5, text_size=1, argv=("clang", "a b")) for log in logs]
    rows.append(TraceRow("bad", "failed", "timeout", ""))
    trace(DatasetFolder(folder / "trace", {}, force=False), logs, header_of(real_logs("inlining")[0]), rows)
    return folder


def header(*features: TensorSpec, score: TensorSpec | None = None) -> LogHeader:
    return LogHeader(features, score=score)


def blocks(card: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)\n```\n", card, re.DOTALL)


def tables(card: str) -> list[list[list[str]]]:
    """The tables' cells, without their headings, as GitHub's Markdown divides them."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", card, re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        found.append([[cell.strip() for cell in line] for line in lines[2:]])
    return found


@pytest.mark.parametrize("name", [*KINDS, "trace"])
def test_what_it_shows_runs(datasets: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    card = (datasets / name / "README.md").read_text(encoding="utf-8")
    monkeypatch.chdir(datasets / name)
    queries = blocks(card, "sql")
    assert len(queries) == (2 if name == "trace" else 1)
    with duckdb.connect() as connection:
        shown = connection.execute(queries[0]).fetchall()
        assert shown
        assert sum(row[1] for row in shown) == pq.read_table("observations").num_rows
        if name == "trace":
            assert len(connection.execute(queries[1]).fetchall()) == 6
    frame, hugging_face = blocks(card, "python")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(frame, {})  # noqa: S102 - what the card shows
    assert "mean" in printed.getvalue()
    assert "load_dataset" in hugging_face


@pytest.mark.parametrize("task", KINDS)
def test_every_column_is_there_with_its_meaning(datasets: Path, task: str) -> None:
    card = (datasets / task / "README.md").read_text(encoding="utf-8")
    observations, modules = tables(card)
    assert [row[0] for row in observations] == [
        f"`{name}`" for name in pq.read_schema(next((datasets / task / "observations").iterdir())).names
    ]
    for name, _, meaning in observations[3:]:
        assert meaning == markdown_text(str(describe(task, name.strip("`"))))
    assert [row[0] for row in modules] == [
        f"`{name}`" for name in pq.read_schema(datasets / task / "modules.parquet").names
    ]
    assert all(meaning for _, _, meaning in (*observations, *modules))
    if task == "regalloc-eviction":
        assert observations[3][1] == "list of 33 int64: a tensor of \\[1, 33\\]"


HUGGING_FACE = """
import json, sys
import datasets
result = {}
for name in sys.argv[2:]:
    folder = sys.argv[1] + "/" + name
    result[name] = {}
    for config in (None, "observations", "contexts", "modules"):
        args = (folder,) if config is None else (folder, config)
        loaded = datasets.load_dataset(*args, split="train", cache_dir=sys.argv[1] + "/cache")
        result[name][str(config)] = [loaded.num_rows, loaded.column_names]
        if config == "modules" and name == "trace":
            result["argv"] = loaded["argv"][:]
json.dump(result, sys.stdout)
"""


def test_hugging_face_loads_the_folder(datasets: Path, tmp_path: Path) -> None:
    """In a process of its own: the library reads its settings when it is imported, and starts threads."""
    env = {
        **os.environ,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    names = ("regalloc-eviction", "trace")
    argv = (sys.executable, "-c", HUGGING_FACE, str(datasets), *names)
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in names:
        sizes = {
            "None": pq.read_table(datasets / name / "observations"),
            "observations": pq.read_table(datasets / name / "observations"),
            "contexts": pq.read_table(datasets / name / "contexts.parquet"),
            "modules": pq.read_table(datasets / name / "modules.parquet"),
        }
        assert found[name] == {config: [table.num_rows, table.column_names] for config, table in sizes.items()}
    assert found["argv"] == [["clang", "a b"]] * 6 + [None]


def test_what_is_told_is_said() -> None:
    card = dataset_card(ABOUT, header(TensorSpec("inlining_decision")))
    for line in (
        "- task: `inlining`",
        "- decision: `inlining_decision`",
        "- policy: `default`",
        "- compiler: `Debian clang version 22.1.8`",
        "- corpus: `lua`",
        "- modules: 1 234, 5 of them failed",
        "- observations: 1 234 567",
        "- made by: `mlgo-corpus 1.2`",
        f"- SHA-256 of the corpus: `{'ab' * 32}`",
        "- size measured: `text_size`",
        "- epsilon of the reward, in bytes: `0.01`",
        "clang -cc1 -x ir MODULE.bc -D 'a b'",
        "- LLVM 19 is not faithful.",
        "- 1\\. 5 % of \\<modules\\> failed",
    ):
        assert line in card.splitlines(), line
    assert "`worker_died`" in card
    assert all(f"`{reason}`" in card for reason in TRACE_REASONS)
    assert card.endswith("\n")
    assert "\n\n\n" not in card


def test_what_is_not_told_is_not_said() -> None:
    card = dataset_card({}, header())
    assert "None" not in card
    assert "Caveats" not in card
    assert "made by: `mlgo-corpus`" in card
    assert 'pretty_name: "MLGO decisions, other"' in card
    dataset_card({"modules": None, "argv": None, "caveats": None, "failed": 0}, header(TensorSpec("x", "float", (2,))))


def test_it_is_the_same_each_time() -> None:
    assert dataset_card(ABOUT, header(TensorSpec("x"))) == dataset_card(dict(ABOUT), header(TensorSpec("x")))


def test_a_card_without_observations_does_not_load_them() -> None:
    loads = [dataset_card({"observations": count}, header(TensorSpec("x"))).count("load_dataset(") for count in (0, 1)]
    assert loads == [1, 2]


HOSTILE = ("a|b", "`", "``x``", "a\nb\n---\n# c", "\\|", "<script>", "![x](y)", "\u2028", '"; DROP TABLE', "\x1b[31m")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_place(name: str) -> None:
    plain = dataset_card({**ABOUT, "caveats": ["x"]}, header(TensorSpec("x"), TensorSpec("y"), score=TensorSpec("z")))
    hostile: dict[str, Any] = {
        key: [name] if isinstance(value, list) else name if isinstance(value, str) and key != "kind" else value
        for key, value in ABOUT.items()
    }
    specs = (TensorSpec(name), TensorSpec(f"{name}2", "int64_t", (2, 3)))
    card = dataset_card(hostile, header(*specs, score=TensorSpec(f"{name}3")))
    assert shape(card) == shape(plain)
    assert [len(row) for table in tables(card) for row in table] == [3] * sum(map(len, tables(card)))
    assert card.split("---\n")[1] == plain.split("---\n")[1]
    assert all(character == "\n" or character.isprintable() for character in card)


def shape(card: str) -> list[str]:
    """What each line is, outside of fenced blocks: a heading, an item, a row."""
    found, fence = [], ""
    for line in card.splitlines():
        match = re.match(r"(`{3,})", line)
        if fence:
            fence = "" if line == fence else fence
        elif match:
            fence = match[1]
            found.append("block")
        elif line:
            found.append(re.match(r"#+ |- |\| |---|", line)[0])  # type: ignore[index]
    return [kind for kind in found if kind]


@given(st.text())
def test_any_text_as_code(text: str) -> None:
    code = markdown_code(text)
    assert "\n" not in code
    fence = re.match("`+", code)
    assert fence is not None
    inner = code[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner)
    assert not re.search(r"(?<!\\)\|", markdown_code(text, in_table=True))


@given(st.text())
def test_any_text_as_text(text: str) -> None:
    shown = markdown_text(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(\\\\)*[|<`\[]", shown.replace("\\\\", ""))


def test_text_is_left_alone_where_it_can_be() -> None:
    for text in ("inlining_default is 0", "5 (of 33), 1.5 % - x", "callee's", "0.2 for a copy"):
        assert markdown_text(text) in (text, text.replace("0.2", "0\\.2").replace("1.5", "1.5"))
    assert markdown_text("_x_ *y*") == "\\_x\\_ \\*y\\*"
    assert markdown_text("- x") == "\\- x"
    assert markdown_text("12) x") == "12\\) x"


def test_documented_columns() -> None:
    text = "T.\n\n====  ===\n``a``  one\n       two\n``b``  three\n====  ===\n\n``c`` is text\n  more\n"
    assert documented_columns("\n" + text)["a"] == "one two"
    assert documented_columns("\n" + text)["b"] == "three"
    assert documented_columns("") == {}


def test_a_single_file_has_no_card(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "a.log", [TensorSpec("x")]) as log:
        log.write_context("f")
        log.write_observation([1])
    convert_logs(tmp_path / "a.log", tmp_path / "d.parquet")
    assert not (tmp_path / "README.md").exists()
    assert not (tmp_path / "d.README.md").exists()


def test_a_card_is_made_without_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "__doc__", None)  # as under python -OO
    card = dataset_card({"task": "inlining", "names": True}, header(TensorSpec("inlining_decision")))
    assert ["`caller`", "string", ""] in tables(card)[0]
