"""The command line as a user sees it: output, exit codes, and what is imported when."""

from __future__ import annotations

import copy
import json
import os
import pickle
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlgo_corpus import __version__
from mlgo_corpus.cli import console
from mlgo_corpus.cli.main import _with_one, app
from mlgo_corpus.errors import UsageError
from tests.conftest import PACKAGE_ROOT, unpack
from tests.forked import run_cli, server_for

pytestmark = pytest.mark.whole


def mlgo(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_cli(*arguments, cwd=cwd, env=cli_environment())


def cli_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}


server_for(cli_environment())  # before tests look for processes that others leave


@pytest.fixture
def lua(tmp_path: Path) -> Path:
    unpack("lua-clang22", tmp_path)
    return tmp_path / "lua"


def test_help_names_every_verb_and_imports_nothing_heavy() -> None:
    done = mlgo("--help")
    assert done.returncode == 0
    for verb in ("demo", "extract", "explain"):
        assert f"\n  {verb} " in done.stdout
    headings = re.findall(r"^(\w.*):$", done.stdout, flags=re.MULTILINE)
    assert headings[:2] == ["Options", "Get data"]
    assert len(headings) == len(set(headings)) < 10, "each heading once, and no verb without one"
    assert "None" not in headings
    assert len({len(name) for name in re.findall(r"^  [a-z][a-z0-9-]*  +", done.stdout, flags=re.MULTILINE)}) == 1
    code = (
        "import sys\n"
        "from mlgo_corpus.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'pyarrow', 'lief', 'numpy', 'rich', 'ray', 'pydantic', 'ziglang'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_version() -> None:
    first, second, *compilers = mlgo("--version").stdout.splitlines()
    assert first == f"mlgo-corpus {__version__}"
    assert second.startswith(f"Python {platform.python_version()}, numpy ")
    assert compilers


def test_extract_says_what_it_did(lua: Path, tmp_path: Path) -> None:
    done = mlgo("extract", "lua", "--output", "corpus", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    count = len(list(lua.iterdir()))
    assert lines[0].startswith(f"corpus: {count} modules from {count} objects in ")
    assert lines[3].split() == ["ok", str(count), "ok"]
    assert "of bitcode found, all is accounted for" in lines[4]
    done = mlgo("extract", "lua", "--output", "corpus", cwd=tmp_path)
    assert f"{count} modules from {count} objects, {count} of them unchanged in " in done.stdout


def test_json_is_all_there_is_on_stdout(lua: Path, tmp_path: Path) -> None:
    (lua / "broken.o").write_bytes(b"\x7fELF")
    done = mlgo("extract", lua, "--output", tmp_path / "corpus", "--json")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["counts"] == {"ok": len(list(lua.iterdir())) - 1, "truncated": 1}
    assert result["exit_code"] == 1
    assert result["bitcode_found"] == result["bitcode_explained"] > 0
    assert result["output"] == str(tmp_path / "corpus")


def test_failures_are_counted_and_hinted_at(lua: Path, tmp_path: Path) -> None:
    (lua / "broken.o").write_bytes(b"\x7fELF")
    done = mlgo("extract", lua, "--output", tmp_path / "corpus")
    assert done.returncode == 1
    assert any(line.split() == ["truncated", "1", "failed"] for line in done.stdout.splitlines())
    assert done.stderr == "hint: mlgo-corpus explain OBJECT says more about a single file\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["lua", "--cmd-filter", "("], "--cmd-filter (: not a regular expression: missing ), unterminated subpattern"),
        (
            ["lua", "--command-override", "'"],
            "--command-override: cannot be split as a shell would: No closing quotation",
        ),
        (["lua", "--thinlto-link-command", "nowhere"], "nowhere: No such file or directory"),
        (["lua", "--thinlto", "local"], "lua: no *.3.import.bc files; link with lld and -Wl,--save-temps=import"),
        (["lua", "--input-type", "aquery"], "lua: expected a file (--input-type aquery), found a folder"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(lua: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    done = mlgo("extract", *arguments, "--output", "corpus", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"mlgo-corpus: error: {message}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "corpus").exists()


def test_options_typer_refuses_are_exit_code_2(tmp_path: Path) -> None:
    assert mlgo("extract", "x").returncode == 2
    assert mlgo("extract", "x", "--output", "y", "--jobs", "0").returncode == 2
    assert mlgo("nonsense").returncode == 2


def test_explain_an_object(lua: Path) -> None:
    done = mlgo("explain", "lua/lvm.o", cwd=lua.parent)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("lua/lvm.o: ELF object, ")
    assert ".llvmbc " in lines[1]
    facts = dict(line.strip().split(": ", 1) for line in lines[2:-1])
    assert {name: value.strip() for name, value in facts.items() if name not in ("bitcode", "command")} == {
        "reason": "ok",
        "producer": "LLVM22.1.8",
        "triple": "x86_64-pc-linux-gnu",
        "source": "lvm.c",
        "opt level": "z",
        "options": "60",
    }
    assert facts["command"].strip().startswith("-cc1 -triple x86_64-pc-linux-gnu ")
    assert lines[-1] == "-> mlgo-corpus extract lua/lvm.o --output CORPUS takes it into a corpus"


def test_explain_as_json(lua: Path) -> None:
    result = json.loads(mlgo("explain", "lua/lvm.o", "--json", cwd=lua.parent).stdout)
    (module,) = result["modules"]
    assert (result["path"], result["kind"], result["size"]) == (
        "lua/lvm.o",
        "ELF object",
        (lua / "lvm.o").stat().st_size,
    )
    assert (module["reason"], module["opt_level"], module["source_filename"]) == ("ok", "z", "lvm.c")


def test_explain_what_is_missing(gcc: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    subprocess.run([gcc, "-c", "a.c"], cwd=tmp_path, check=True, timeout=300)
    done = mlgo("explain", "a.o", cwd=tmp_path)
    assert done.returncode == 1
    assert "no bitcode section; made by GCC: (" in done.stdout
    assert done.stdout.splitlines()[-1] == "-> no_bitcode: compile it with clang and -Xclang -fembed-bitcode=all"
    done = mlgo("explain", "a.c", cwd=tmp_path)
    assert done.returncode == 1
    assert "expected an ELF, Mach-O or COFF file, found text that begins 'int f(void) { return 1; '" in done.stdout
    done = mlgo("explain", "nowhere.o", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlgo-corpus: error: nowhere.o: No such file or directory\n"


def test_a_reader_that_has_enough(lua: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    script = f"'{sys.executable}' -m mlgo_corpus.cli.main explain '{lua}/lvm.o' --json | head -1"
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_parameters_are_shown_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app.registered_commands  # which makes all verbs known
    monkeypatch.setattr(console, "_running", [])
    error = UsageError("expected at least 1, or `force` and `add_flags`, not `unknown`", option="jobs", value=0)
    assert str(error) == "jobs 0: expected at least 1, or `force` and `add_flags`, not `unknown`"
    assert console.in_options(error) == "--jobs 0: expected at least 1, or --force and --add-flag, not `unknown`"
    assert console.in_options("a longer `timeout`") == "a longer --timeout"
    assert console.in_options(UsageError("`no`", option="what_ever")) == "--what-ever: `no`"
    again = pickle.loads(pickle.dumps(error))
    assert (again.message, again.option, again.value, str(again)) == (error.message, "jobs", "0", str(error))


def test_a_verb_alone_is_as_among_all() -> None:
    run = CliRunner().invoke
    every = copy.copy(app)  # whose verbs are made anew: a verb keeps the help option that it was first asked for
    usual = run(every, ["--help"]).stdout
    verbs = re.findall(r"^  ([a-z][a-z0-9-]*)  ", usual, re.MULTILINE)
    assert {"extract", "logs-to-parquet", "ir2native", "policy", "toolchain"} < {*verbs}
    assert len(verbs) == len(app.registered_commands) + len(app.registered_groups)
    for verb in verbs:
        alone = _with_one(verb)
        assert len(alone.registered_commands) + len(alone.registered_groups) == 1
        help_text = run(every, [verb, "--help"]).stdout
        assert run(alone, [verb, "--help"]).stdout == help_text
        assert help_text.startswith(f"Usage: mlgo-corpus {verb} ")
    for verb in ("", "--help", "--version", "extrakt", "logs_to_parquet"):
        assert _with_one(verb) is app
    assert len(verbs) == len(app.registered_commands) + len(app.registered_groups)


def test_an_interrupt_before_a_verb_begins_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PACKAGE_ROOT}"}
    argv = (sys.executable, "-m", "mlgo_corpus", "stats")
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "words",
    [
        "demo", "build -- true", "extract a", "make a", "combine a", "report a", "verify a", "split a", "dedup a",
        "unpack a", "relink a", "evaluate a --policy never", "train a",
        "parquet-to-logs a", "export a", "vocab a", "toolchain build", "toolchain wrap --policy a", "toolchain extend",
        "policy compile a", "policy import a",
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_at_a_url(words: str, tmp_path: Path) -> None:
    verb, dashes, command = words.partition(" -- ")
    argv = (*verb.split(), "--output", "s3://bucket/x", *(["--", command] if dashes else []))
    done = mlgo(*argv, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("mlgo-corpus: error: s3://bucket/x: ")
    assert "URL; name " in done.stderr
    assert not list(tmp_path.iterdir())
