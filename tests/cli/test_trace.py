"""``trace`` as a user sees it: summaries, JSON, hints, one-line errors, exit codes, and what is left where."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import LearnedPolicy, TensorSpec, extract_corpus
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.probe import probe_compiler
from mlgo_corpus.dataset.tracetable import TraceRow, read_trace_rows
from mlgo_corpus.policies.models import Rule
from tests.conftest import PACKAGE_ROOT, Llvm, unpack
from tests.forked import run_cli
from tests.handmade import row, table
from tests.runs.journals import kept
from tests.runs.trace.test_bad_input import cache_of, make_corpus, module, plain, traced, write_fake

pytestmark = pytest.mark.whole

NOISY = """\
import os

print("imported")


class Never:
    def reset(self, header, module):
        print("reset", flush=True)

    def advise(self, observation):
        os.write(1, b"raw")
        return 0


class Leaves:
    def __init__(self):
        raise SystemExit("bye")


class LeavesLater(Never):
    def advise(self, observation):
        raise SystemExit(3)


class FailsIn(Never):
    def __init__(self, *names):
        self.names = names

    def reset(self, header, module):
        self.weights = {} if module in self.names or not self.names else {"cost": 1}

    def advise(self, observation):
        return self.weight()

    def weight(self):
        return 0 * self.weights["cost"]
"""


def line_of(text: str) -> int:
    """Give the number of a line of the policies' file."""
    return NOISY.splitlines().index(text) + 1


FOR_SPEED = (
    "reward is about size, and in 2 modules (-O2) LLVM's heuristic inlines for speed: a policy that inlines less looks "
    "better than it is; compare policies at -Oz or -Os"
)


class Terminal:
    """A folder with a corpus and a fake clang, where the command is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {
            **os.environ,
            "PYTHONPATH": PACKAGE_ROOT,
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "MLGO_CORPUS_CACHE": str(folder / "cache"),
            "MLGO_CORPUS_COMPILER": str(folder / "bin/clang"),
        }

    def argv(self, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "mlgo_corpus.cli.main", "trace", *words)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return run_cli("trace", *words, cwd=self.folder, env={**self.env, **env}, timeout=120)

    def quick(self, *words: str) -> tuple[int, str, str]:
        """Run it in this process; give the exit code, stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(self.folder)
            for name, value in self.env.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                app(["trace", *words])
        return int(ended.value.code or 0), out.getvalue(), err.getvalue()

    def trace(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return self.run("corpus", "--output", "d", "--jobs", "2", *words, **env)


@pytest.fixture(scope="session")
def fake_clang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake clang, and beside it what it can do."""
    folder = tmp_path_factory.mktemp("cli-clang")
    program = write_fake(folder / "clang")
    probe_compiler(str(program), cache=folder)
    return program


@pytest.fixture
def terminal(fake_clang: Path, tmp_path: Path) -> Terminal:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/clang").symlink_to(fake_clang)
    cache_of(tmp_path, fake_clang)
    make_corpus(tmp_path / "corpus", {"a.o": module(), "dir/b.o": module(decisions=5)})
    (tmp_path / "noisy.py").write_text(NOISY)
    return Terminal(tmp_path)


@pytest.mark.parametrize("columns", ["50", "120"])
def test_a_summary(terminal: Terminal, columns: str) -> None:
    done = terminal.trace("--via", "interactive", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("d: 8 inlining decisions of 2 modules in ")
    assert lines[1].endswith(", policy default, seen in live sessions")
    assert [line.split() for line in (lines[2], lines[4])] == [["reason", "modules"], ["ok", "2"]]
    sizes = "text: 144 bytes, 144 by the plain compile (+0.00 %) in 2 modules at -O2"
    assert lines[5:7] == [sizes, "2 of 2 objects equal the plain compile's"]
    query = "SELECT module, observations, text_size, reward FROM 'd/modules.parquet' ORDER BY reward DESC"
    assert lines[7:] == [f"DuckDB: {query}", "pandas, polars: read_parquet('d/observations')"]
    again = terminal.trace("--via", "interactive").stdout.splitlines()[0]
    assert again.startswith("d: 8 inlining decisions of 2 modules, made before in the same way in ")


def test_json_is_all_there_is_on_stdout_whatever_a_policy_prints(terminal: Terminal) -> None:
    done = terminal.trace("--json", "--policy", "noisy:Never", "--delete-flag=-nosuch", "--add-flag=-w")
    assert done.returncode == 0
    assert all(word in done.stderr for word in ("imported", "reset", "raw"))
    report = json.loads(done.stdout)
    assert 0 < report.pop("seconds") < 60
    assert "clang version" in report.pop("compiler")
    assert {name: count for name, _, count in report.pop("slowest")} == {"a.o": 3, "dir/b.o": 5}
    assert report == {
        "output": "d",
        "task": "inlining",
        "via": "interactive",
        "policy": "noisy:Never",
        "modules": 2,
        "traced": 2,
        "failed": 0,
        "counts": {"ok": 2},
        "observations": 8,
        "contexts": 0,
        "text_size": 192,
        "baseline_text_size": 144,
        "levels": [{"opt_level": "2", "modules": 2, "observations": 8, "text_size": 192, "baseline_text_size": 144}],
        "undecided": 0,
        "undecided_text_size": 0,
        "faithful": 0,
        "resumed": 0,
        "unchanged": False,
        "problems": [],
        "caveats": [],
        "hints": ["--delete-flag=-nosuch: no command has this option, nothing was changed", FOR_SPEED],
        "policy_traceback": "",
        "exit_code": 0,
    }


def test_sizes_are_told_by_level_without_modules_that_had_nothing_to_decide(terminal: Terminal) -> None:
    modules = {"a.o": module(), "b.o": module(), "none.o": module(decisions=0), "zero.o": module(decisions=0)}
    commands = {"b.o": b"-cc1\0-emit-obj\0-Oz", "none.o": b"-cc1\0-emit-obj\0-Oz", "zero.o": b"-cc1\0-emit-obj"}
    make_corpus(terminal.folder / "corpus", modules, commands)
    words = ("--policy", "noisy:Never", "--via", "interactive")
    done = terminal.trace(*words)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    found = lines.index("text: 88 bytes, 72 by the plain compile (+22.22 %) in 1 module at -O2")
    assert lines[found + 1 : found + 4] == [
        "text: 88 bytes, 72 by the plain compile (+22.22 %) in 1 module at -Oz",
        "nothing to decide: 144 bytes of text in 2 modules, not counted above",
        "2 of 4 objects equal the plain compile's",
    ]
    unoptimised = "hint: 1 of 4 modules is compiled at -O0 (optnone): nothing to decide; build with -DCMAKE_BUILD_TYPE"
    hints = re.findall("hint: .*", done.stderr)  # the policy's noise, which ends no line, may come before one
    assert hints[0].startswith(unoptimised)
    assert hints[1:] == [f"hint: {FOR_SPEED.replace('2 modules', '1 module')}"]
    report = json.loads(terminal.trace(*words, "--json").stdout)  # the same of a dataset that is there
    assert [(level["opt_level"], level["modules"]) for level in report["levels"]] == [("2", 1), ("z", 1)]
    assert (report["undecided"], report["undecided_text_size"], report["unchanged"]) == (2, 144, True)
    rule = Rule(1.0, (0.0,))
    LearnedPolicy("users-1.0", "inlining", (TensorSpec("callee_users"),), rule).save(terminal.folder / "users")
    options = ("--policy", str(terminal.folder / "users"), "--via", "interactive", "--jobs", "1")
    _, _, said = terminal.quick("corpus", "--output", "learned", *options)
    assert re.findall("hint: in .*", said) == [
        "hint: in 1 module (-O2) a wrapped clang does not ask the policy: build at -Oz or -Os, or wrap with --always"
    ]


def test_a_corpus_at_level_0_has_nothing_to_decide(terminal: Terminal) -> None:
    make_corpus(terminal.folder / "zero", {"a.o": module(traced(never_open=""))}, {"a.o": b"-cc1\0-emit-obj"})
    done = terminal.run("zero", "--output", "z", "--via", "interactive")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "mlgo-corpus: error: in 1 module the compiler found nothing to decide: there is no dataset to make; 1 of 1 "
        "module is compiled at -O0 (optnone): nothing to decide; build with -DCMAKE_BUILD_TYPE=MinSizeRel (CMake), "
    )
    # Functions stay optnone whatever level the command gets later; the heuristic's own sizes need no other hint.
    make_corpus(terminal.folder / "zero", {"a.o": module(decisions=0), "b.o": module()})
    table(terminal.folder / "zero", [row("a.o", opt_level="0"), row("b.o", opt_level="2")])
    done = terminal.run("zero", "--output", "z", "--via", "interactive", "--add-flag=-O2")
    (hint,) = done.stderr.splitlines()
    assert hint.startswith("hint: 1 of 2 modules is compiled at -O0 (optnone): nothing to decide; ")


def test_rows_say_where_a_module_is_from(terminal: Terminal) -> None:
    make_corpus(terminal.folder / "corpus", {"lua/a.o": module(), "own.o": module()}, {"own.o": b"-cc1\0-Oz"})
    sides = {"lua/a.o": "train", "own.o": "test"}
    table(terminal.folder / "corpus", [row(name, split=side) for name, side in sides.items()], corpora=["lua"])
    assert terminal.trace().returncode == 0
    rows = read_trace_rows(terminal.folder / "d/modules.parquet")
    found = [(one.opt_level, one.project, one.split) for one in rows]
    assert found == [("2", "lua", "train"), ("z", None, "test")]
    assert terminal.trace().stderr == ""
    table(terminal.folder / "corpus", [row(name, split="train") for name in sides], corpora=["lua"])
    hint = "the corpus was split after this dataset was made: --force makes it again, with the new sides"
    assert terminal.trace().stderr == f"hint: {hint}\n"


def test_every_column_tells_what_it_means(terminal: Terminal) -> None:
    assert terminal.trace().returncode == 0
    schemas = [pq.read_schema(path) for path in sorted((terminal.folder / "d").rglob("*.parquet"))]
    assert [len(schema) for schema in schemas] == [5, len(TraceRow._fields), 3 + 4 + 4]
    fields = {
        field.name: (field.metadata or {}).get(b"meaning", b"").decode() for schema in schemas for field in schema
    }
    assert [name for name, meaning in fields.items() if not meaning or "`" in meaning] == []
    assert fields["inlining_decision"] == "the decision: 1 to inline the callee here, 0 not to"


def test_failures_are_shown_with_what_helps(terminal: Terminal) -> None:
    modules = {"slow.o": module(traced(hang="")), "old.o": module(plain(say="error: Unknown attribute kind", exit=1))}
    make_corpus(terminal.folder / "corpus", {"a.o": module(), **modules, "junk.o": b"junk"})
    done = terminal.trace("--timeout", "2", "--via", "interactive")
    assert done.returncode == 1
    assert "text: 72 bytes, 72 by the plain compile (+0.00 %) in 1 module at -O2\n1 of 1 object equals" in done.stdout
    assert done.stderr.splitlines() == [
        "slow.o: timeout: not done after 2 seconds",
        "old.o: newer_bitcode: the plain compile: error: Unknown attribute kind",
        "junk.o: unreadable_bitcode: expected bitcode, found other data",
        "hint: timeout of 1 module: a longer --timeout gives them time; with a dataset that is whole, add --force",
        "hint: newer_bitcode of 1 module: --compiler names a clang of the corpus's LLVM or newer",
    ]
    (slowest,) = [line for line in done.stdout.splitlines() if line.startswith("slow.o")]
    assert slowest.split()[2] == "0"
    assert "junk.o" not in done.stdout  # it never ran, and is none of the slowest
    # the dataset is whole: it stays as it is, and the hint says what to do
    done = terminal.trace("--timeout", "3", "--via", "interactive", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["exit_code"], report["unchanged"], report["failed"]) == (1, 1, True, 3)
    assert report["hints"][0].startswith("timeout of 1 module: a longer --timeout")


def test_when_nothing_could_be_traced_the_error_says_what_helps(terminal: Terminal) -> None:
    make_corpus(terminal.folder / "corpus", {"a.o": module(plain(say="error: unknown argument: '-x'", exit=1))})
    (terminal.folder / "corpus/dir").rename(terminal.folder / "gone")
    done = terminal.trace()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mlgo-corpus: error: not one of 1 module could be traced (unknown_option 1): a.o: the plain compile: "
        "error: unknown argument: '-x'; --delete-flag takes an option out of every command, "
        "--compiler names another clang\n"
    )
    assert not (terminal.folder / "d").exists()


def test_copies_of_a_dataset_that_is_there_already(terminal: Terminal) -> None:
    assert terminal.trace().returncode == 0
    done = terminal.trace("--keep-objects", "objects")
    assert done.returncode == 0
    missing = (
        "2 modules have no copy where copies are to be kept: the dataset was there already; --force makes it again"
    )
    assert done.stderr == f"hint: {missing}\n"
    assert not (terminal.folder / "objects").exists()
    done = terminal.trace("--keep-objects", "objects", "--keep-logs", "objects", "--force")
    assert (done.returncode, done.stderr) == (0, "")
    names = sorted(path.name for path in (terminal.folder / "objects").rglob("*.o*"))
    assert names == ["a.o", "a.o.log", "b.o", "b.o.log"]
    assert terminal.trace("--keep-objects", "objects", "--keep-logs", "objects").stderr == ""


BINARY = "--modules-file binary: \\x7fE\\udcffLF is not in the corpus"
ERRORS = {
    "memory": ("--memory-limit 9999999999999T", "expected at most 4611686018427387904"),
    "memory-digits": (f"--memory-limit {'9' * 308}T", "expected a size such as 500M or 2G"),
    "memory-word": ("--memory-limit nan", "--memory-limit nan: expected a size such as 500M or 2G"),
    "retries": ("--retries 101", "--retries 101: expected at most 100"),
    "timeout": ("--timeout inf", "--timeout inf: expected seconds, more than 0 and less than 1000000"),
    "add": ("--add-flag foo", "--add-flag foo: expected one option of clang -cc1, found 'foo'"),
    "delete": ("--delete-flag=", "--delete-flag : expected one option of clang -cc1, found ''"),
    "replace": ("--replace-flag=-O", "--replace-flag -O: expected NAME=VALUE to replace an option's value, found '-O'"),
    "binary": ("--modules-file binary", BINARY),
    "keep-in-corpus": (
        "--keep-logs k --keep-objects corpus/k",
        "corpus/k: is in the corpus's folder; name another one",
    ),
    "keep-in-output": ("--keep-logs k --keep-objects d/k", "d/k: is in the dataset's folder; name another one"),
    "keep-in-a-file": ("--keep-logs k --keep-objects binary", "binary: expected a folder, found a file"),
    "policy-file": ("--policy ./noisy.py:Never", "expected a module, not a file: noisy:Never, in the file's folder"),
    "verify": ("--verify-default --policy never", "requires --policy default, found never"),
    "output-file": ("--output binary", "binary: expected a folder, found a file"),
    "output-corpus": ("--output corpus", "is not empty, and not a dataset: it holds a.o.bc; name another folder"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_options_are_one_line_and_write_nothing(terminal: Terminal, name: str) -> None:
    words, message = ERRORS[name]
    (terminal.folder / "binary").write_bytes(b"\x7fE\xffLF\n")
    before = sorted(terminal.folder.rglob("*"))
    code, out, err = terminal.quick("corpus", "--output", "d", *words.split())
    assert (code, out.replace("imported\n", "")) == (2, "")  # here stdout is no file, and cannot be kept apart
    (line,) = err.splitlines()
    assert line.startswith("mlgo-corpus: error: ")
    assert line.endswith(message)
    assert [path for path in sorted(terminal.folder.rglob("*")) if "__pycache__" not in path.parts] == before


@pytest.mark.parametrize("corpus", ["nothing", "noisy.py", "bin"])
def test_what_is_no_corpus_is_unusable_input(terminal: Terminal, corpus: str) -> None:
    code, out, err = terminal.quick(corpus, "--output", "d")
    assert (code, out) == (2, "")
    assert err.startswith(f"mlgo-corpus: error: {corpus}")
    assert not (terminal.folder / "d").exists()


def test_a_policy_that_leaves_is_a_policy_that_fails(terminal: Terminal) -> None:
    done = terminal.trace("--policy", "noisy:LeavesLater")
    assert done.returncode == 1
    assert "policy_error 2" in done.stderr
    assert "the policy failed: SystemExit: 3 (noisy.py, line " in done.stderr


def test_a_policy_s_traceback_is_shown_once(terminal: Terminal) -> None:
    make_corpus(terminal.folder / "corpus", {f"{name}.o": module() for name in "abc"})
    done = terminal.trace("--policy", "noisy:FailsIn('a.o', 'c.o')")
    assert done.returncode == 1
    line = line_of('        return 0 * self.weights["cost"]')
    what = f"policy_error: the policy failed: KeyError: 'cost' (noisy.py, line {line})"
    said = (
        done.stderr.replace("imported\n", "")
        .replace("reset\n", "")
        .removesuffix(f"hint: {FOR_SPEED}\n".replace("2 modules", "1 module"))
        .splitlines()
    )
    assert [line for line in said if line.strip(" ^~")] == [  # Python marks what failed
        "Traceback (most recent call last):",
        f'  File "{terminal.folder}/noisy.py", line {line_of("        return self.weight()")}, in advise',
        "    return self.weight()",
        f'  File "{terminal.folder}/noisy.py", line {line}, in weight',
        '    return 0 * self.weights["cost"]',
        "KeyError: 'cost'",
        f"a.o: {what}",
        f"c.o: {what}",
    ]


def test_a_policy_that_fails_everywhere_ends_the_trace(terminal: Terminal) -> None:
    make_corpus(terminal.folder / "corpus", {f"{number}.o": module() for number in range(20)})
    done = terminal.trace("--policy", "noisy:FailsIn", "--jobs", "1")
    assert (done.returncode, done.stdout) == (1, "")
    *_, last, error = done.stderr.splitlines()
    assert last == "KeyError: 'cost'"
    assert done.stderr.count("Traceback") == 1
    line = line_of('        return 0 * self.weights["cost"]')
    assert error.startswith(
        "mlgo-corpus: error: stopped after 5 of 20 modules, because the policy failed in all 5 that asked it: "
    )
    assert error.endswith(f": the policy failed: KeyError: 'cost' (noisy.py, line {line})")
    assert not (terminal.folder / "d").exists()


def test_a_policy_that_cannot_be_made_shows_where(terminal: Terminal) -> None:
    done = terminal.trace("--policy", "noisy:Leaves")
    assert (done.returncode, done.stdout) == (2, "")
    line = line_of('        raise SystemExit("bye")')
    assert f'  File "{terminal.folder}/noisy.py", line {line}, in __init__' in done.stderr
    error = f"mlgo-corpus: error: --policy noisy:Leaves: SystemExit: bye (noisy.py, line {line})"
    assert done.stderr.splitlines()[-1] == error


def test_ctrl_c_is_one_line_and_the_same_command_goes_on(terminal: Terminal) -> None:
    slow = {f"{number}.o": module(traced(pause=0.4)) for number in range(5)}
    make_corpus(terminal.folder / "corpus", slow)
    argv = terminal.argv("corpus", "--output", "d", "--jobs", "2", "--via", "interactive")
    process = subprocess.Popen(
        argv, cwd=terminal.folder, env=terminal.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 30
    while not kept(terminal.folder / "d/.mlgo-corpus") and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert err == "mlgo-corpus: interrupted; finished work is kept, and the same command continues from there\n"
    done = terminal.trace("--via", "interactive", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["resumed"] >= 1


def test_stdout_may_be_closed_or_full(terminal: Terminal) -> None:
    argv = terminal.argv("corpus", "--output", "d", "--force")
    for shell, code, said in ((">&-", 0, ""), (">/dev/full", 1, "mlgo-corpus: error: No space left on device\n")):
        done = subprocess.run(
            ["bash", "-c", f'"$@" {shell}', "bash", *argv],
            cwd=terminal.folder,
            env=terminal.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_verify_default_with_a_real_compiler(llvm22: Llvm, terminal: Terminal) -> None:
    unpack("lua-clang22", terminal.folder / "objects")
    extract_corpus([terminal.folder / "objects/lua/lzio.o"], terminal.folder / "lua", jobs=1)
    done = terminal.run("lua", "--output", "l", "--verify-default", MLGO_CORPUS_COMPILER=llvm22.clang)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 object equals the plain compile's" in done.stdout
