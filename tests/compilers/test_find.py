"""Compilers are found, identified behind wrappers, and known by what they do; also those that misbehave."""

from __future__ import annotations

import errno
import importlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mlgo_corpus.cli.console import print_json
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers import find, probe
from mlgo_corpus.compilers.find import (
    COMPILER_VARIABLE,
    Candidate,
    find_compilers,
    find_zig,
    named_compiler,
)
from mlgo_corpus.compilers.probe import PROBE_DATA, Toolchain, _any_advice, probe_compiler, probe_toolchains
from mlgo_corpus.corpus.links import cache_folder
from mlgo_corpus.errors import UsageError
from mlgo_corpus.toolchain import list_toolchains
from tests.conftest import Llvm

pytestmark = pytest.mark.whole

ALL = ("inlining", "regalloc-eviction", "regalloc-priority")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which no compiler is found; its PATH is the folder that is returned."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(COMPILER_VARIABLE, raising=False)
    monkeypatch.setattr("mlgo_corpus.compilers.find._USUAL_FOLDERS", ())
    monkeypatch.setattr("mlgo_corpus.compilers.find.find_zig", lambda: None)
    return folder


@pytest.fixture(scope="session")
def clang22(llvm22: Llvm) -> str:
    """A path that is looked up before a test changes PATH."""
    return llvm22.clang


@pytest.fixture
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a compiler only the plain compile and the embedding are tried, for tests of when rather than what."""
    monkeypatch.setattr(probe, "TASKS", ())
    monkeypatch.setattr(probe, "_samples", list)


def words_of(candidates: tuple[Candidate, ...]) -> list[tuple[str, str]]:
    return [(candidate.words[0], candidate.origin) for candidate in candidates]


def test_zig_is_found_when_the_package_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_zig() is None
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").write_text("raise AssertionError('imported')\n")
    importlib.invalidate_caches()
    assert find_zig() == (sys.executable, "-m", "ziglang")


def test_the_order_is_named_variable_built_path(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, by_variable = script(tmp_path / "named", ""), script(tmp_path / "by-variable", "")
    built = script(tmp_path / "built" / "bin" / "clang", "").parents[1]
    for name in ("clang-22", "clang-9", "clang", "clang-format-22", "clang++", "clang-cpp", "clang-tidy"):
        script(alone / name, "")
    (alone / "clang-7").write_text("not a program")
    monkeypatch.setenv(COMPILER_VARIABLE, f"{by_variable} --driver-mode=gcc")
    found = find_compilers(str(named), built=(built, tmp_path / "gone"))
    assert words_of(found) == [
        (str(named), "option"),
        (str(by_variable), "environment"),
        (str(built / "bin" / "clang"), "built"),
        (str(alone / "clang"), "PATH"),
        (str(alone / "clang-9"), "PATH"),
        (str(alone / "clang-22"), "PATH"),
    ]
    assert found[1].words == (str(by_variable), "--driver-mode=gcc")


def test_the_same_file_is_listed_once_but_not_ccache(alone: Path, tmp_path: Path) -> None:
    clang = script(tmp_path / "llvm" / "clang-22", "")
    ccache = script(tmp_path / "ccache", "")
    (alone / "clang").symlink_to(clang)
    (alone / "clang-22").symlink_to(clang)
    (alone / "clang-20").symlink_to(ccache)
    (alone / "clang-21").symlink_to(ccache)
    assert [Path(words).name for words, _ in words_of(find_compilers())] == ["clang", "clang-20", "clang-21"]


def test_a_name_on_path_a_folder_and_a_path_with_blanks_can_be_named(alone: Path, tmp_path: Path) -> None:
    on_path = script(alone / "my-clang", "")
    folder = script(tmp_path / "a toolchain" / "bin" / "clang", "").parents[1]
    spaced = script(tmp_path / "my clang", "")
    assert words_of(find_compilers("my-clang")) == [(str(on_path), "option")]
    assert words_of(find_compilers(str(folder))) == [(str(folder / "bin" / "clang"), "option")]
    assert find_compilers(str(spaced))[0].words == (str(spaced),)
    assert find_compilers(f"{on_path} -v")[0].words == (str(on_path), "-v")


@pytest.mark.parametrize("words", ["zig", "zig cc", "zig c++"])
def test_every_name_of_zig_means_its_clang(alone: Path, words: str) -> None:
    zig = script(alone / "zig", "")
    assert find_compilers(words)[0].words == (str(zig), "clang")


def test_what_is_named_and_missing_is_one_line(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^/no/such/clang: no such program$"):
        find_compilers("/no/such/clang")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"/empty: expected a compiler, found a folder without bin/clang$"):
        find_compilers(str(tmp_path / "empty"))
    (tmp_path / "text").write_text("")
    with pytest.raises(UsageError, match=r"/text: not an executable program$"):
        find_compilers(str(tmp_path / "text"))
    with pytest.raises(UsageError, match=r"^clang ': not a compiler or its command: No closing quotation$"):
        find_compilers("clang '")
    with pytest.raises(UsageError, match=r"^expected a compiler, got an empty name$"):
        find_compilers("")
    monkeypatch.setenv(COMPILER_VARIABLE, "gone-clang")
    with pytest.raises(UsageError, match=r"^gone-clang: no such program \(from MLGO_CORPUS_COMPILER\)$"):
        find_compilers()
    monkeypatch.setenv(COMPILER_VARIABLE, '"')
    with pytest.raises(UsageError, match=r"No closing quotation \(from MLGO_CORPUS_COMPILER\)$"):
        find_compilers()
    monkeypatch.setenv(COMPILER_VARIABLE, " ")
    assert find_compilers() == ()


def test_the_variable_may_name_a_path_with_blanks(alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spaced = script(tmp_path / "my clang", "")
    monkeypatch.setenv(COMPILER_VARIABLE, str(spaced))
    assert words_of(find_compilers()) == [(str(spaced), "environment")]


def test_a_name_on_path_comes_before_a_folder_of_that_name(
    alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM's own tree has a folder called clang."""
    clang = script(alone / "clang", "")
    (tmp_path / "tree" / "clang").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "tree")
    assert words_of(find_compilers("clang")) == [(str(clang), "option")]
    with pytest.raises(UsageError, match=r"^\./clang: expected a compiler, found a folder without bin/clang$"):
        find_compilers("./clang")


def test_the_cache_is_where_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder(None, {"MLGO_CORPUS_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"}) == tmp_path
    assert cache_folder(None, {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "mlgo-corpus"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(None, {}) == tmp_path / ".cache" / "mlgo-corpus"


def test_every_sample_is_of_the_llvm_that_its_name_says() -> None:
    from mlgo_corpus.formats.bitcode.headers import read_module_header

    samples = sorted(PROBE_DATA.glob("llvm-*.bc"))
    assert [path.stem for path in samples] == [f"llvm-{version}" for version in range(17, 23)]
    for path in samples:
        header = read_module_header(path.read_bytes())
        assert header.producer is not None
        assert header.producer.startswith(f"LLVM{path.stem[5:]}.")
        assert header.source_filename == "probe.c"


@pytest.mark.parametrize("version", [19, 22])
def test_a_stock_clang_embeds_and_converses_and_writes_no_logs(version: int, request: pytest.FixtureRequest) -> None:
    llvm: Llvm = request.getfixturevalue(f"llvm{version}")
    found = probe_compiler(llvm.clang)
    assert found.problem is None
    assert found.version is not None
    assert found.major == version
    assert f"clang version {found.version}" in str(found.vendor)
    assert found.embeds_bitcode
    assert found.training_logs == ()
    assert found.interactive == ALL
    assert found.reads_bitcode == tuple(range(17, 21 if version == 19 else 23))
    assert "Unknown command line argument '-training-log=" in found.lacks["inlining log"]
    assert set(found.lacks) == {f"{task} log" for task in ALL} | {f"LLVM {n} bitcode" for n in (21, 22) if version < 21}
    assert found.opt is not None
    assert found.opt.samefile(llvm.tool("opt"))
    assert found.llc is not None
    assert found.llc.name == "llc"
    assert found.binary is not None
    assert found.identity == sha256(str(found.vendor).encode() + found.binary.read_bytes()).hexdigest()


def test_a_development_mode_compiler_writes_all_three_logs(devmode: Path) -> None:
    found = probe_compiler(str(devmode))
    assert found.training_logs == ALL
    assert found.interactive == ALL
    assert found.embeds_bitcode
    assert (found.opt, found.llc) == (devmode / "bin" / "opt", devmode / "bin" / "llc")


def test_the_four_toolchains_of_the_readme(
    llvm19: Llvm, llvm22: Llvm, devmode: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if find_zig() is None:
        pytest.skip("there is no ziglang")
    (tmp_path / "built.json").write_text(json.dumps([str(devmode)]))
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path))
    monkeypatch.delenv(COMPILER_VARIABLE, raising=False)
    found = {toolchain.driver[0]: toolchain for toolchain in list_toolchains() if toolchain.problem is None}
    zig = next(name for name, toolchain in found.items() if toolchain.origin == "ziglang")
    rows = [
        (
            found[name].origin,
            found[name].major,
            found[name].embeds_bitcode,
            found[name].training_logs,
            found[name].interactive,
            found[name].opt is not None and found[name].llc is not None,
            found[name].reads_bitcode,
        )
        for name in (str(devmode / "bin" / "clang"), llvm19.clang, llvm22.clang, zig)
    ]
    assert rows == [
        ("built", 19, True, ALL, ALL, True, (17, 18, 19, 20)),
        ("PATH", 19, True, (), ALL, True, (17, 18, 19, 20)),
        ("PATH", 22, True, (), ALL, True, (17, 18, 19, 20, 21, 22)),
        ("ziglang", 22, True, (), ALL, False, (17, 18, 19, 20, 21, 22)),
    ]


def test_zig_has_no_opt(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_zig() is None:
        pytest.skip("there is no ziglang")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    [found] = [toolchain for toolchain in probe_toolchains() if toolchain.origin == "ziglang"]
    assert found.problem is None
    assert (found.embeds_bitcode, found.training_logs, found.interactive) == (True, (), ALL)
    assert (found.opt, found.llc, found.llvm_config) == (None, None, None)


def test_behind_a_wrapper_the_binary_is_found_and_listed_once(clang22: str, alone: Path, tmp_path: Path) -> None:
    wrapper = script(tmp_path / "bin" / "cc", f'exec {clang22} -DWRAPPED "$@"')
    (alone / "clang-22").symlink_to(clang22)
    found = probe_toolchains(str(wrapper))
    assert [(toolchain.origin, toolchain.problem) for toolchain in found] == [("option", None)]
    assert found[0].driver == (str(wrapper),)
    assert found[0].binary is not None
    assert found[0].binary.samefile(clang22)
    assert found[0].interactive == ALL
    assert found[0].identity == probe_compiler(clang22).identity


def test_ccache_in_front_changes_nothing(clang22: str, alone: Path, tmp_path: Path) -> None:
    ccache = shutil.which("ccache", path="/usr/bin")
    if ccache is None:  # what it does, as far as we can see it
        ccache = str(script(tmp_path / "ccache", f'exec {clang22} "$@"'))
    (alone / "clang").symlink_to(ccache)
    (alone / "clang-22").symlink_to(clang22)
    [found] = [toolchain for toolchain in probe_toolchains(str(alone / "clang")) if toolchain.problem is None]
    assert found.binary is not None
    assert found.binary.samefile(clang22)
    assert found.embeds_bitcode


def test_a_wrapper_that_drops_options_does_not_embed(clang22: str, alone: Path, tmp_path: Path) -> None:
    """The driver in front decides about embedding, the binary behind about the rest."""
    text = f'for a in "$@"; do [ "$a" = -fembed-bitcode=all ] && exec {clang22} -c ../probe.c -o embedded.o; done'
    wrapper = script(tmp_path / "cc", f'{text}\nexec {clang22} "$@"')
    found = probe_compiler(str(wrapper))
    assert not found.embeds_bitcode
    assert "no bitcode" in found.lacks["embedding"] or "without bitcode" in found.lacks["embedding"]
    assert found.interactive == ALL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("exit 3", "exit code 3"),
        ("echo broken >&2; exit 1", "exit code 1: broken"),
        ("kill -SEGV $$", "ended by signal 11"),
        ("echo gcc 12", "not a clang, or not one that prints its commands with -###"),
        ("""echo 'clang version 19.1.0'; echo ' "clang" "-cc1" "-o'""", "not a clang, or not one that prints its"),
        ("yes error: flood | head -c 9000000 >&2; exit 1", "exit code 1: error: fl"),
        ("exec sleep 600", "did not finish in time"),
        ("trap '' TERM; while :; do sleep 1; done", "did not finish in time"),
    ],
)
def test_what_is_no_compiler_is_one_line(alone: Path, text: str, problem: str) -> None:
    script(alone / "clang", f"PATH=/usr/bin:/bin\n{text}")
    [found] = probe_toolchains(timeout=2 if problem == "did not finish in time" else 300)
    assert problem in str(found.problem)
    assert "\n" not in str(found.problem)
    assert len(str(found.problem)) < 500


def test_a_compiler_that_hangs_in_the_middle_of_the_probe_costs_one_time_limit(
    clang22: str, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It identifies itself and compiles; with a log it hangs. The others are listed all the same."""
    binary = script(
        tmp_path / "clang-hanging",
        f'case "$*" in *-training-log=*) echo >>{tmp_path}/hung; exec /bin/sleep 600;; esac\nexec {clang22} "$@"',
    )
    usual = probe._Abilities.__init__

    def patient(
        self: probe._Abilities, compiler: find.Compiler, folder: Path, timeout: float, stop: threading.Event
    ) -> None:
        usual(self, compiler, folder, 3 if binary == compiler.binary else timeout, stop)

    monkeypatch.setattr(probe._Abilities, "__init__", patient)
    said = f'echo clang version 22.1.0 >&2; echo \' "{binary}" "-cc1" "-emit-obj" "-o" "probe.o" "-x" "c" "../probe.c"\' >&2'  # noqa: E501
    script(alone / "clang", f'case "$*" in *-###*) {said};; *) exec {binary} "$@";; esac')
    (alone / "clang-22").symlink_to(clang22)
    hanging, good = probe_toolchains(timeout=300)
    assert len((tmp_path / "hung").read_text().splitlines()) == 1
    assert hanging.problem == "did not finish in time"
    assert good.problem is None
    assert good.interactive == ALL


def test_what_was_found_out_is_kept_until_the_binary_changes(
    clang22: str, alone: Path, few_tries: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    wrapper = script(tmp_path / "cc", f'echo x >> {count}\nexec {clang22} "$@"')
    cache = tmp_path / "cache"

    def runs() -> int:
        before = count.stat().st_size if count.exists() else 0
        probe_compiler(str(wrapper), cache=cache)
        return (count.stat().st_size - before) // 2

    assert runs() == 2  # -### and the embedding; the rest goes to the binary
    assert runs() == 1
    os.utime(wrapper, (1, 1))
    assert runs() == 2
    (cache / "probes.json").write_text('{"torn')
    assert runs() == 2
    known = json.loads((cache / "probes.json").read_bytes())
    (cache / "probes.json").write_text("[" * 100_000)
    assert runs() == 2
    wrong = {
        "embeds_bitcode": "no",
        "training_logs": 5,
        "interactive": [5],
        "reads_bitcode": ["x"],
        "identity": 5,
        "lacks": None,
        "opt": 1,
    }
    for name, value in wrong.items():
        damaged = {key: {**abilities, name: value} for key, abilities in known.items()}
        (cache / "probes.json").write_text(json.dumps(damaged))
        assert runs() == 2, name
    (cache / "probes.json").write_text(json.dumps({key: {"opt": 1} for key in known}))
    assert runs() == 2
    monkeypatch.setattr(probe, "__version__", "0.0.0")
    assert runs() == 2


def test_a_cache_that_cannot_be_written_does_no_harm(clang22: str, few_tries: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert probe_compiler(clang22, cache=tmp_path / "file" / "cache").problem is None


def test_probing_leaves_nothing_behind(clang22: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    probe_compiler(clang22)
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_cannot_be_removed_is_no_error(clang22: str, alone: Path, tmp_path: Path) -> None:
    """A daemon that a compiler started may still write into it."""
    kept: list[str] = []

    def refuse(path: str, **_: object) -> None:
        kept.append(path)
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path))
        patch.setattr("os.rmdir", refuse)
        assert probe_compiler(clang22).embeds_bitcode
    assert kept


def test_a_full_disk_is_a_problem_and_is_not_kept(
    clang22: str, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a compiler that could not write would be said to lack what it has until it changes."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(UsageError, match=r": No space left on device$"):
            probe_compiler(clang22, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_what_a_program_beside_the_compiler_says_may_be_any_bytes(clang22: str, alone: Path, tmp_path: Path) -> None:
    binary = script(tmp_path / "llvm" / "clang", f'exec {clang22} "$@"')
    script(binary.with_name("opt"), "printf '\\377'")
    script(binary.with_name("llc"), "printf '\\377 LLVM version 22.1.0'")
    said = f'echo clang version 22.1.0; echo \' "{binary}" "-cc1" "-emit-obj" "-o" "probe.o" "-x" "c" "../probe.c"\''
    driver = script(tmp_path / "cc", f'case "$*" in *-###*) {said};; *) exec {binary} "$@";; esac')
    found = probe_compiler(str(driver))
    assert (found.opt, found.llc) == (None, binary.with_name("llc"))


def test_a_compiler_that_was_killed_has_not_said_what_it_lacks(clang22: str, alone: Path, tmp_path: Path) -> None:
    """The system kills what takes too much memory; that must not be kept as an ability that is not there."""
    wrapper = script(tmp_path / "cc", f'case "$*" in *-###*) exec {clang22} "$@";; *) kill -9 $$;; esac')
    with pytest.raises(UsageError, match=r"/cc: ended by signal 9$"):
        probe_compiler(str(wrapper), cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("value", [0, 1, [0, 1], [], float("nan")])
def test_there_is_advice_for_any_default(value: object) -> None:
    field = np.array(value)
    record = np.zeros((), np.dtype([("inlining_default", field.dtype, field.shape)]))
    record["inlining_default"] = field
    assert _any_advice(record[()]) == int(field.any())


def test_an_interrupt_ends_the_compilers_at_once(alone: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    for name in ("clang", "clang-9", "clang-22"):
        script(alone / name, f"echo $$ >>{started}; exec /bin/sleep 600")
    environment = {**os.environ, "PYTHONPATH": str(Path(probe.__file__).parents[2]), "TMPDIR": str(tmp_path)}
    argv = (sys.executable, "-m", "mlgo_corpus.cli.main", "toolchain", "list", "--jobs", "2")
    argv = ("/usr/bin/env", "--default-signal=INT", *argv)
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        while not started.exists() or len(started.read_text().split()) < 2:
            time.sleep(0.01)
        begin = time.monotonic()
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)
    assert time.monotonic() - begin < 300
    assert running.returncode == 130
    assert said[1].startswith(b"mlgo-corpus: interrupted")
    for pid in map(int, started.read_text().split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not list(tmp_path.glob("mlgo-*"))


def test_a_list_of_built_toolchains_that_is_none_is_no_obstacle(alone: Path) -> None:
    cache_folder().mkdir()
    for text in ("5", "null", "[" * 100_000, "\xff"):
        (cache_folder() / "built.json").write_bytes(text.encode("latin-1"))
        assert list_toolchains() == ()


def test_toolchains_that_were_built_are_listed(clang22: str, alone: Path, few_tries: None, tmp_path: Path) -> None:
    cache = cache_folder()
    for folder in (cache / "toolchains" / "devmode-22", tmp_path / "elsewhere"):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "clang").symlink_to(clang22)
    (cache / "built.json").write_text(json.dumps([str(tmp_path / "elsewhere"), str(tmp_path / "deleted"), 7]))
    found = list_toolchains()
    assert [(toolchain.origin, toolchain.major) for toolchain in found] == [("built", 22)]  # one binary


def test_the_list_in_a_terminal(
    clang22: str, alone: Path, tmp_path: Path, plain_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (alone / "clang-22").symlink_to(clang22)
    script(alone / "clang-9", "echo too old >&2; exit 1")
    result = CliRunner().invoke(app, ["toolchain", "list"])
    assert result.exit_code == 0
    shown, _, hint = result.stdout.partition("hint: ")
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["compiler", "LLVM", "embeds", "logs", "interactive", "tools", "reads"]
    folded = "".join(line[0] for line in lines[2:] if line)
    assert folded == str(alone / "clang-22")
    assert lines[2][1:] == [probe_compiler(clang22).version, "yes", "-", "all", "opt", "llc", "17-22"]
    made = "none of these writes training logs; 'mlgo-corpus toolchain build' makes one that does"
    assert " ".join(hint.split()) == made
    assert result.stderr == f"cannot use {alone / 'clang-9'}: exit code 1: too old\n"


def test_a_terminal_that_is_too_narrow_leaves_nothing_out(
    clang22: str, alone: Path, plain_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "clang-22").symlink_to(clang22)
    shown = []
    for columns in ("20", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        shown.append(CliRunner().invoke(app, ["toolchain", "list"]).stdout)
    assert shown[0] == shown[1]


def test_a_name_of_any_bytes_is_shown(
    clang22: str, alone: Path, tmp_path: Path, plain_terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    good = script(tmp_path / "good\n[red]\udcff", f'exec {clang22} "$@"')
    result = CliRunner().invoke(app, ["toolchain", "list", "--compiler", str(good)])
    assert result.exit_code == 0, result.exception
    assert "good\\n[red]\\udcff'" in result.stdout
    bad = script(tmp_path / "bad\n\udcff", "printf '\\033[31mred\\n' >&2; exit 9")
    result = CliRunner().invoke(app, ["toolchain", "list", "--compiler", str(bad)])
    assert result.exit_code == 1
    assert result.stderr == f"cannot use '{tmp_path}/bad\\n\\udcff': exit code 9: \\x1b[31mred\n"
    assert result.stdout == (
        "no compiler can be used: install clang, or pip install ziglang, or name one with --compiler\n"
    )


def test_json_without_a_stdout_is_no_error(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    print_json({})


def test_the_list_as_json(clang22: str, alone: Path) -> None:
    result = CliRunner().invoke(app, ["toolchain", "list", "--json", "--compiler", clang22])
    assert result.exit_code == 0
    [found] = json.loads(result.stdout)["toolchains"]
    assert found["driver"] == [clang22]
    assert found["origin"] == "option"
    assert found["interactive"] == list(ALL)
    assert found["reads_bitcode"] == [17, 18, 19, 20, 21, 22]
    assert found["problem"] is None
    assert list(found) == list(Toolchain.__dataclass_fields__)


def test_no_compiler_at_all_says_what_to_do(alone: Path, plain_terminal: None) -> None:
    result = CliRunner().invoke(app, ["toolchain", "list"])
    assert result.exit_code == 1
    assert (
        result.stdout == "no compiler was found: install clang, or pip install ziglang, or name one with --compiler\n"
    )


def test_a_named_compiler_that_fails_is_a_failure(clang22: str, alone: Path, plain_terminal: None) -> None:
    (alone / "clang-22").symlink_to(clang22)
    broken = script(alone / "broken", "exit 9")
    result = CliRunner().invoke(app, ["toolchain", "list", "--compiler", "broken"])
    assert result.exit_code == 1
    assert f"cannot use {broken}: exit code 9\n" in result.stderr
    result = CliRunner().invoke(app, ["toolchain", "list", "--compiler", "gone"])
    assert result.exit_code == 2
    assert result.stderr == "mlgo-corpus: error: gone: no such program\n"


def test_a_program_without_execute_permission_is_not_on_the_list(alone: Path) -> None:
    clang = script(alone / "clang", "")
    clang.chmod(stat.S_IRUSR)
    if os.access(clang, os.X_OK):
        pytest.skip("everything can be run here")
    assert find_compilers() == ()


def test_building_what_is_there_is_quick_and_lists_it(
    devmode: Path, llvm19: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_terminal: None
) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path))
    argv = ["toolchain", "build", "--output", str(devmode), "--llvm-config", llvm19.tool("llvm-config")]
    result = CliRunner().invoke(app, [*argv, "--json"])
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["output"] == str(devmode)
    assert [phase["phase"] for phase in report["phases"]] == ["look", "probe"]
    assert report["phases"][1]["detail"].startswith("already there")
    assert report["toolchain"]["training_logs"] == list(ALL)
    assert json.loads((tmp_path / "built.json").read_bytes()) == [str(devmode)]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0
    assert f"{devmode}: clang, opt and llc 19.1.7 in " in result.stdout
    assert "training logs of inlining, regalloc-eviction and regalloc-priority were made and read" in result.stdout
    assert json.loads((tmp_path / "built.json").read_bytes()) == [str(devmode)]


def test_a_relative_output_is_remembered_and_the_users_compiler_is_left_alone(
    devmode: Path, llvm19: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_terminal: None
) -> None:
    monkeypatch.setenv("MLGO_CORPUS_CACHE", str(tmp_path))
    monkeypatch.setenv(COMPILER_VARIABLE, "gone-clang")
    monkeypatch.chdir(devmode.parent)
    argv = ["toolchain", "build", "--output", devmode.name, "--llvm-config", llvm19.tool("llvm-config")]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 0, result.stderr
    assert json.loads((tmp_path / "built.json").read_bytes()) == [str(devmode)]


def test_a_build_without_what_it_needs_is_one_line_and_writes_nothing(
    alone: Path, tmp_path: Path, plain_terminal: None
) -> None:
    output = tmp_path / "toolchain"
    argv = ["toolchain", "build", "--output", str(output), "--llvm-config", "llvm-config-99"]
    result = CliRunner().invoke(app, argv)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("mlgo-corpus: error: ")
    assert "llvm-config-99" in result.stderr
    assert not output.exists()


def test_where_there_is_no_clang_the_newest_other_is_meant(alone: Path) -> None:
    """As on Debian, whose programs have their version in their names."""
    with pytest.raises(UsageError, match=r"^clang: no such program$"):
        named_compiler("clang", "option")
    for name in ("clang-9", "clang-19", "clang-22", "clang-tidy-23"):
        script(alone / name, "exit 1")
    assert named_compiler("clang -m32", "option").words == (str(alone / "clang-22"), "-m32")
    assert find_compilers("clang")[0].words == (str(alone / "clang-22"),)
    with pytest.raises(UsageError, match=r"^clang-23: no such program; there is clang-9, clang-19, clang-22$"):
        named_compiler("clang-23", "option")
    script(alone / "clang", "exit 1")
    assert named_compiler("clang", "option").words == (str(alone / "clang"),)
    with pytest.raises(UsageError, match=r"^gcc: no such program$"):
        named_compiler("gcc", "option")
