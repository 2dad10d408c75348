"""The README is true: its transcripts run and print what they show, its tables are complete, its verbs exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Llvm

from mlgo_corpus.cli.demo import TRAINING_LOGS
from mlgo_corpus.cli.main import app
from mlgo_corpus.store.certificate import Outcome, RebuildRow
from mlgo_corpus.store.extraction import status_of
from mlgo_corpus.store.logtable import LogReason, LogRow
from mlgo_corpus.store.moduletable import ModuleRow
from mlgo_corpus.store.objects import Reason
from mlgo_corpus.store.originals import OriginalReason
from mlgo_corpus.store.parts import contexts_schema
from mlgo_corpus.store.verification import VerifyReason, VerifyRow

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Numbers depend on the machine and on the compiler's path; everything else has to be as shown.
NUMBER = re.compile(r"\d+(\.\d+)?")


def transcripts() -> list[tuple[str, list[str]]]:
    """The commands of the README's console blocks, each with the lines it is said to print."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def comparable(text: str) -> list[str]:
    lines = [" ".join(NUMBER.sub("N", line).split()) for line in text.splitlines()]
    # A rate is shown only of what took a while, as it may on a busy machine.
    return [re.sub("─+", "─", re.sub(r" \(N .?B/s\)", "", line)) for line in lines]


def test_transcripts_run_and_print_what_they_show(llvm22: Llvm, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "clang").symlink_to(llvm22.clang)
    script = f'#!/bin/sh\nexec "{sys.executable}" -m mlgo_corpus.cli.main "$@"\n'
    (tools / "mlgo-corpus").write_text(script)
    (tools / "mlgo-corpus").chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("square", "cube", "plain"):
        of = f"static int {name}_of(int x) {{ return x * x; }}\n"  # something to inline
        (work / f"{name}.c").write_text(f"{of}int {name}(int x) {{ return {name}_of(x) + {name}_of(x + 1); }}\n")
    (work / "main.c").write_text("int cube(int x);\nint main(int count, char **words) { return cube(count); }\n")
    (work / "Makefile").write_text("\n".join(next(lines for name, lines in transcripts() if name == "cat Makefile")))
    shutil.copytree(TRAINING_LOGS, work / "logs")
    env = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "MLGO_CORPUS_CACHE": str(tmp_path / "cache"),
    }
    assert len(transcripts()) >= 5
    for command, expected in transcripts():
        done = subprocess.run(
            ["bash", "-c", command], cwd=work, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        shown = done.stdout + done.stderr
        assert comparable(shown) == comparable("\n".join(expected)), f"{command}\n{shown}"


def test_every_verb_is_documented() -> None:
    verbs = [command.callback.__name__ for command in app.registered_commands if command.callback is not None]
    names = [verb.replace("_", "-") for verb in verbs]
    assert names == [
        *(
            "demo",
            "build",
            "extract",
            "explain",
            "stats",
            "combine",
            "make",
            "split",
            "dedup",
            "verify",
            "pack",
            "unpack",
        ),
        *("trace", "ir2native", "logs-to-parquet", "parquet-to-logs", "dump", "doctor"),
    ]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        names += [f"{group.name} {command.name}" for command in group.typer_instance.registered_commands]
    assert names[18:] == ["toolchain list", "toolchain build"]
    for name in names:
        assert f"| `mlgo-corpus {name}" in README


def undocumented_options(command: Callable[..., None]) -> set[str]:
    options = {f"--{name.replace('_', '-')}" for name in command.__annotations__} - {"--inputs", "--return"}
    options = (options - {"--json-output"}) | {"--json"}
    return {option for option in options if option not in README}


def test_every_option_of_extract_is_documented() -> None:
    from mlgo_corpus.cli.extract import extract

    # needed when content does not tell, and then an error names it
    assert undocumented_options(extract) == {"--input-type"}


def test_every_option_and_reason_of_verify_is_documented() -> None:
    from mlgo_corpus.cli.verify import verify

    assert undocumented_options(verify) <= {"--corpus"}
    for word in (*VerifyReason, *VerifyRow._fields, *Outcome, *OriginalReason, *RebuildRow._fields):
        assert f"`{word}`" in README, word


def test_every_option_of_pack_is_documented() -> None:
    from mlgo_corpus.cli.pack import pack, unpack

    assert undocumented_options(pack) | undocumented_options(unpack) <= {"--corpus", "--packed"}


def test_every_option_of_build_is_documented() -> None:
    from mlgo_corpus.cli.build import build

    assert undocumented_options(build) <= {"--command"}


def test_every_option_of_trace_is_documented() -> None:
    from mlgo_corpus.cli.trace import trace

    assert undocumented_options(trace) <= {"--corpus"}


def test_every_option_of_ir2native_is_documented() -> None:
    from mlgo_corpus.cli.ir2native import ir2native

    assert undocumented_options(ir2native) <= {"--corpus"}


def test_every_option_of_the_corpus_verbs_is_documented() -> None:
    from mlgo_corpus.cli.combine import combine, make
    from mlgo_corpus.cli.stats import GroupedBy, stats

    assert undocumented_options(combine) | undocumented_options(make) <= {"--corpora", "--folder"}
    assert undocumented_options(stats) <= {"--corpus"}
    for by in GroupedBy:
        assert f"`{by}`" in README


def test_every_option_of_the_toolchain_verbs_is_documented() -> None:
    from mlgo_corpus.cli.toolchain import build_command, list_command

    assert undocumented_options(list_command) | undocumented_options(build_command) == set()


def test_every_option_of_logs_to_parquet_is_documented() -> None:
    from mlgo_corpus.cli.logs import logs_to_parquet

    assert undocumented_options(logs_to_parquet) == set()


def test_every_reason_and_column_of_logs_is_documented() -> None:
    for word in (*LogReason, *LogRow._fields, *contexts_schema().names):
        assert f"`{word}`" in README, word


def test_every_reason_and_column_is_documented() -> None:
    extraction = README.partition("## What is in a corpus")[2]
    for reason in Reason:
        rows = [
            line for line in extraction.splitlines() if line.startswith("| ") and f"`{reason}`" in line.split("|")[1]
        ]
        assert len(rows) == 1, reason
        assert rows[0].split("|")[2].strip() == status_of(reason)
    for column in ModuleRow._fields:
        assert f"`{column}`" in README


def test_every_file_has_its_sentence() -> None:
    package = ROOT / "mlgo_corpus"
    for folder in ("formats", "store", "run"):
        for path in (package / folder).glob("*.py"):
            if path.name != "__init__.py":
                assert path.name in README, path.name


@pytest.mark.parametrize("line", ["    make demo", "    make test"])
def test_the_first_screen_shows_how_to_start(line: str) -> None:
    assert line in README.splitlines()[:25]
