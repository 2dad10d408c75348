"""Clangs with a policy inside, against the clang that they wrap and against traces by the same policy."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.native.wrapped import Asking, PolicyCode, StockClang, wrap_clang
from mlgo_corpus.errors import ToolError, UsageError
from mlgo_corpus.extract import extract_corpus
from mlgo_corpus.formats.logs.tensors import TensorSpec
from mlgo_corpus.formats.objects.objfile import measure_object
from mlgo_corpus.policies.learned import LearnedPolicy
from mlgo_corpus.policies.models import Rule
from mlgo_corpus.policies.source import policy_source
from mlgo_corpus.trace import trace_corpus
from mlgo_corpus.wrap import list_wrapped, wrap_toolchain
from tests.compilers.native import fake_clang
from tests.conftest import EMBED, Llvm, run_checked
from tests.processes import alive, every_process, told_of

FAKE = Path(fake_clang.__file__)
# Each way to decide gives another object of these lines: plain, never, always.
CODE = """\
#warning every compile says this
static int area(int a, int b) { return a * b + (a ^ b); }
static int edge(int a, int b) { return 2 * (area(a, b) - area(b, a) / 3); }
int inside%s(int a, int b) { return edge(a, b) > 0 ? area(a, 2) : edge(b, a); }
int corner%s(int *v, int n) { int s = 0; for (int i = 0; i < n; i++) s += edge(v[i], n) + area(i, n); return s; }
"""
MAIN = "int inside(int, int);\nint main(int n, char **v) { return inside(n, 1) == 5; }\n"
# A policy that is told by the environment what to do, so that one program is enough.
POLICY = """\
#include "policy.h"
#include <stdlib.h>
#include <string.h>
static int is(const char *mode) { const char *told = getenv("POLICY"); return told && strcmp(told, mode) == 0; }
int mlgo_policy_abi(void) { return MLGO_POLICY_ABI; }
const char *mlgo_policy_name(void) { return "inlining-0.1"; }
const char *mlgo_policy_task(void) { return "inlining"; }
const char *mlgo_policy_digest(void) { return "0"; }
int mlgo_policy_feature_count(void) { return 2; }
const char *mlgo_policy_feature_name(int index) {
  return index ? is("missing") ? "made_up" : "cost_estimate" : is("fake") ? "cost_estimate" : "inlining_default";
}
const char *mlgo_policy_feature_type(int index) { return index < 0 ? 0 : "int64_t"; }
long long mlgo_policy_feature_size(int index) { return index < 2; }
const char *mlgo_policy_decision_type(void) { return "int64_t"; }
void mlgo_policy_decide(const void *const *features, void *decision) {
  long long standard, cost, answer;
  memcpy(&standard, features[0], sizeof standard);
  memcpy(&cost, features[1], sizeof cost);
  if (is("crash"))
    abort();
  answer = is("never") ? 0 : is("always") ? 1 : is("fake") ? cost < 30 : standard;
  memcpy(decision, &answer, sizeof answer);
}
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def cost_feature(name: str = "cost_estimate") -> TensorSpec:
    return TensorSpec(name, "int64_t", port=0, shape=(1,))


@pytest.fixture(scope="module")
def cheap_calls() -> LearnedPolicy:
    """Inline what costs less than -20: the last calls of static functions."""
    return LearnedPolicy("inlining-1.0", "inlining", (cost_feature(),), Rule(-20.0, (-1.0,)))


def stock(llvm: Llvm) -> StockClang:
    return StockClang((llvm.clang,), (llvm.clangxx,), f"{llvm.version}.0.0", misplaced_default=llvm.version < 21)


@pytest.fixture(scope="module")
def code(cheap_calls: LearnedPolicy) -> PolicyCode:
    return PolicyCode("inlining-0.1", "inlining", "0", POLICY, policy_source(cheap_calls)[1])


@pytest.fixture(scope="module")
def wrapped(llvm22: Llvm, code: PolicyCode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``bin`` of a wrapped clang, whose policy is told what to do by the variable POLICY."""
    output = tmp_path_factory.mktemp("wrapped") / "clang"
    return wrap_clang(output, code, stock(llvm22), Asking(), force=False).output / "bin"


@pytest.fixture(scope="module")
def for_cxx(llvm22: Llvm, code: PolicyCode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with a policy for C++."""
    output = tmp_path_factory.mktemp("cxx") / "clang"
    policy = replace(code, languages=("C++",))
    return wrap_clang(output, policy, stock(llvm22), Asking(), force=False).output / "bin"


@pytest.fixture(scope="module")
def keeping(llvm22: Llvm, code: PolicyCode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with the smaller object kept, at all levels of optimisation."""
    output = tmp_path_factory.mktemp("keeping") / "clang"
    asking = Asking(always=True, keep_smaller=True)
    return wrap_clang(output, code, stock(llvm22), asking, force=False).output / "bin"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.c").write_text(CODE % ("", ""))
    (folder / "b.cc").write_text(CODE % ("_b", "_b"))
    (folder / "main.c").write_text(MAIN)
    (folder / "empty.c").write_text("int x;\n")
    (folder / "wrong.c").write_text("int f(void) { return g(); }\n")
    assembly = 'static int late(int n) { __asm__("no_such %0" :: "r"(n)); return n; }\n'
    (folder / "late.c").write_text(assembly + "int f(int n) { return late(n) + late(n + 2); }\n")
    (folder / "s.s").write_text("\t.globl s\ns:\tret\n")
    (folder / "line.rsp").write_text("-Oz '-c' \"a.c\"\n-DX='it\\'s' -o a\\.o @more.rsp")
    (folder / "more.rsp").write_text("-DX=1")
    return folder


Result = tuple[int, bytes, bytes, dict[str, bytes]]


def compiled(program: str | Path, line: str, sources: Path, tmp_path: Path, **told: str) -> Result:
    """Run a line in a copy of the sources; return exit code, stdout, stderr, and the files that were made."""
    folder = tmp_path / "run"
    shutil.copytree(sources, folder)
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(scratch), **told}
    stdin = (sources / "a.c").read_bytes()
    done = subprocess.run([program, *line.split()], cwd=folder, env=env, input=stdin, capture_output=True, check=False)
    made = {path.name: path.read_bytes() for path in folder.iterdir() if not (sources / path.name).exists()}
    shutil.rmtree(folder)
    assert not list(scratch.iterdir())
    return done.returncode, done.stdout, done.stderr, made


# C for what is compiled by the policy.
LINES = [
    ("C", "-Oz -c a.c"),
    ("C", "-O2 -Os -c a.c -o there.o"),
    ("C", "-c -othere.o -Oz a.c -MD -MF there.d"),
    ("C", "-Oz -c a.c b.cc -MMD"),
    ("C", "-Oz a.c main.c -o program"),
    ("C", "-Oz -S a.c"),
    ("C", "-Oz -emit-llvm -c a.c"),
    ("C", "-Oz -c a.c -fno-integrated-cc1 -pipe"),
    ("C", "-Oz -g -gsplit-dwarf -c a.c"),
    ("C", "-Oz -save-temps -c a.c"),
    ("C", "-Oz -x c - -c -o stdin.o"),
    ("C", "-Oz -c a.c -o -"),
    ("C", "-Oz -c -- a.c"),
    ("C", "@line.rsp"),
    ("C", "-Oz -ObjC -c a.c"),
    ("", "-c a.c"),
    ("", "-Oz -O2 -c a.c"),
    ("", "-Oz -E a.c"),
    ("", "-Oz -M a.c"),
    ("", "-Oz -c a.c -###"),
    ("", "-Oz -fsyntax-only a.c"),
    ("", "-Oz -c s.s"),
    ("", "-Oz -flto -c a.c"),
    ("", "-Oz -c a.c -Xclang -fembed-bitcode=all"),
    ("", "-Oz -c a.c -mllvm -enable-ml-inliner=default"),
    ("", "-Oz -c a.c -mllvm=--enable-ml-inliner=default"),
    ("", "-Oz -c a.c -Xclang -mllvm -Xclang -inliner-interactive-channel-base=here"),
    ("", "-Oz -x c-header a.c -o a.pch"),
    ("", "--version"),
    ("", "-Oz -c missing.c"),
    ("", "-Oz -c wrong.c"),
    ("", "-Oz empty.c -o program"),
    ("", "-Oz -c a.c -no-such-option"),
    ("", "-Oz"),
    ("", "@missing.rsp"),
    ("", "-Oz -x c /dev/stdin -c -o stdin.o"),  # a pipe, which can be read once
    ("", "@/dev/stdin"),
    ("", "-Oz -c main.c -include /dev/stdin"),
    ("", "-Oz -c main.c -include/dev/stdin"),
    ("", "-Oz -c main.c --include=/dev/stdin"),
    ("", "-Oz -c main.c -Xclang -include -Xclang /dev/stdin"),
    ("C", "-Oz -c a.c -include /dev/null"),
    ("", "-Oz -c a.c -MJ a.json"),  # a channel of a finished compile should not be written down
    ("", "-Oz -c a.c -frecord-command-line"),
    ("", "-Oz -c a.c -g -grecord-gcc-switches"),
    # (the option leaves the time out of the object)
    ("", "-Oz -c a.c -g --target=x86_64-pc-windows-msvc -mno-incremental-linker-compatible"),
    ("", "-Oz -c a.c -g -target x86_64-pc-windows-msvc -mno-incremental-linker-compatible"),
    ("", "-Oz -c a.c -g -gcodeview --target=x86_64-pc-windows-gnu -mno-incremental-linker-compatible"),
    ("C", "-Oz -c a.c --target=x86_64-pc-windows-msvc -mno-incremental-linker-compatible"),
    ("C", "-Oz -c a.c -g --target=x86_64-pc-windows-gnu -mno-incremental-linker-compatible"),
    ("C", "-Oz -c a.c -fdebug-compilation-dir . -g"),  # a folder is no source that can be read once
]


@pytest.mark.parametrize(("asks", "line"), LINES, ids=[line for _, line in LINES])
def test_a_line_is_compiled_as_by_the_clang_inside(
    asks: str, line: str, llvm22: Llvm, wrapped: Path, sources: Path, tmp_path: Path
) -> None:
    plain = compiled(llvm22.clang, line, sources, tmp_path)
    assert compiled(wrapped / "clang", line, sources, tmp_path, POLICY="default") == plain
    never = compiled(wrapped / "clang", line, sources, tmp_path, POLICY="never")
    assert never[0] == plain[0]
    assert never[2] == plain[2]
    assert never[3].keys() == plain[3].keys()
    assert (never != plain) == bool(asks)


@pytest.mark.parametrize(
    ("asks", "program", "line"),
    [
        ("", "clang", "-Oz -c a.c"),
        ("asks", "clang", "-Oz -c b.cc"),
        ("asks", "clang++", "-Oz -c a.c -w"),
        ("asks", "clang", "-Oz -x c++ -c a.c"),
        ("", "clang", "-Oz -x c -c b.cc"),
        ("", "clang", "-Oz -c a.c b.cc"),
        ("", "clang++", "-Oz -x c -c a.c"),
    ],
)
def test_a_policy_is_asked_in_its_languages_only(
    asks: str, program: str, line: str, llvm22: Llvm, for_cxx: Path, sources: Path, tmp_path: Path
) -> None:
    stock = llvm22.clang if program == "clang" else llvm22.clangxx
    plain = compiled(stock, line, sources, tmp_path)
    never = compiled(for_cxx / program, line, sources, tmp_path, POLICY="never")
    assert never[:3] == plain[:3]
    assert never[3].keys() == plain[3].keys()
    assert (never != plain) == bool(asks)


def test_an_error_behind_the_inliner_is_told_once(llvm22: Llvm, wrapped: Path, sources: Path, tmp_path: Path) -> None:
    """The assembler's, for example, so that nobody knows whose fault it is: the plain compile fails as well."""
    plain = compiled(llvm22.clang, "-Oz -c late.c", sources, tmp_path)
    assert (plain[0], plain[2].count(b"error: ")) == (1, 2)
    assert compiled(wrapped / "clang", "-Oz -c late.c", sources, tmp_path) == plain
    never = compiled(wrapped / "clang", "-Oz -c late.c", sources, tmp_path, POLICY="never")
    assert (never[0], never[2].count(b"error: ")) == (1, 1)  # late() is there once


def test_the_name_of_the_program_is_the_language(llvm22: Llvm, wrapped: Path, sources: Path, tmp_path: Path) -> None:
    (sources / "c.c").write_text("class C { public: int f(); };\nint C::f() { return 1; }\n")
    link = tmp_path / "x86_64-linux-gnu-clang++-22"
    link.symlink_to(wrapped / "clang")
    line = "-w -Oz c.c b.cc -shared -fPIC -o lib.so"
    plain = compiled(llvm22.clangxx, line, sources, tmp_path)
    assert plain[0] == 0
    assert compiled(wrapped / "clang++", line, sources, tmp_path) == plain
    assert compiled(link, line, sources, tmp_path)[:2] == plain[:2]


SAID = b"mlgo-corpus: policy inlining-0.1: "


@pytest.mark.parametrize("line", ["-Oz -w -c a.c", "-Oz -w -x c - -c -o stdin.o", "-Oz -w -c a.c -o -"])
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("missing", b"it needs the feature 'made_up', which this compiler does not send"),
        ("crash", b"the process that asks it has died"),
    ],
)
def test_a_policy_that_fails_is_left_out(
    told: str, why: bytes, line: str, llvm22: Llvm, wrapped: Path, sources: Path, tmp_path: Path
) -> None:
    code, out, err, files = compiled(wrapped / "clang", line, sources, tmp_path, POLICY=told)
    assert err == SAID + why + b"; compiled without it\n"
    assert (code, out, b"", files) == compiled(llvm22.clang, line, sources, tmp_path)


def test_without_a_folder_for_the_channel_nothing_is_asked(wrapped: Path, sources: Path, tmp_path: Path) -> None:
    argv = (wrapped / "clang", "-Oz", "-w", "-c", "a.c")
    env = {**os.environ, "TMPDIR": str(tmp_path / "none")}
    done = subprocess.run(argv, cwd=sources, env=env, capture_output=True, text=True, check=True)
    assert "no channel can be made: No such file or directory; compiled without it\n" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_line_that_is_too_long_with_the_channels_options_is_compiled(
    llvm22: Llvm, wrapped: Path, sources: Path
) -> None:
    def run(word: str, padding: int) -> subprocess.CompletedProcess[bytes]:
        pads = {f"PAD{n}": "x" * min(100_000, padding - n) for n in range(0, padding, 100_000)}
        argv = (wrapped / "clang", "-Oz", "-w", word, "a.c", "-o", "a.o")
        return subprocess.run(argv, cwd=sources, env={**os.environ, **pads}, capture_output=True, check=False)

    most = resource.getrlimit(resource.RLIMIT_STACK)[0] // 4
    if not 0 < most < 1 << 24:
        pytest.skip("the limit of a line is too large")
    fits = 0
    while most - fits > 1:
        middle = (fits + most) // 2
        try:
            assert run("-E", middle).returncode == 0
            fits = middle
        except OSError:
            most = middle
    done = run("-c", fits)
    assert done.stderr == SAID + b"the line is too long with the options that it needs; compiled without it\n"
    run_checked(llvm22.clang, "-Oz", "-w", "-c", "a.c", "-o", "plain.o", cwd=sources)
    assert (done.returncode, (sources / "a.o").read_bytes()) == (0, (sources / "plain.o").read_bytes())


def test_a_full_standard_output_is_told(wrapped: Path, sources: Path) -> None:
    argv = (wrapped / "clang", "-Oz", "-w", "-S", "a.c", "-o", "-")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(argv, cwd=sources, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr == SAID + b"the output cannot be written: No space left on device\n"
    assert done.returncode == 1


def wait_for(pipe: int, size: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until so many bytes are in a pipe, or the process has ended."""
    while process.poll() is None and fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != size.to_bytes(4, sys.byteorder):
        time.sleep(0.01)


def test_streams_that_do_not_block_are_read_and_written_whole(llvm22: Llvm, wrapped: Path, sources: Path) -> None:
    text = (sources / "a.c").read_bytes()
    line = ("-Oz", "-w", "-g", "-x", "c", "-", "-S", "-o", "-")
    plain = subprocess.run([llvm22.clang, *line], cwd=sources, input=text, capture_output=True, check=True).stdout
    source, ours = os.pipe()
    output, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    assert len(plain) > 4096
    for end in (source, theirs):
        os.set_blocking(end, False)
    argv = (wrapped / "clang", *line)
    with subprocess.Popen(argv, cwd=sources, stdin=source, stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        for part in (text[:200], text[200:]):
            os.write(ours, part)
            wait_for(source, 0, process)
        os.close(ours)
        wait_for(output, 4096, process)
        with open(output, "rb") as file:
            assert file.read() == plain
        assert process.communicate()[1] == b""
        assert process.returncode == 0
    os.close(source)


def test_half_a_source_is_not_compiled(wrapped: Path, sources: Path) -> None:
    argv = (wrapped / "clang", "-Oz", "-x", "c", "-", "-c", "-o", "half.o")
    folder = os.open(sources, os.O_RDONLY)  # which cannot be read, as a source on a damaged disk
    done = subprocess.run(argv, cwd=sources, stdin=folder, capture_output=True, check=False)
    os.close(folder)
    assert done.stderr == SAID + b"standard input cannot be copied: Is a directory\n"
    assert (done.returncode, (sources / "half.o").exists()) == (1, False)


WAYS = {
    "no_header": "the compiler sent something else than observations",
    "observation_first": "the compiler sent an observation before a header",
    "no_advice": "the compiler sent a header that cannot be read",
    "other_advice": "the compiler sends 'inlining_decision' in another type or shape than the policy needs",
    "other_type": "the compiler sends 'cost_estimate' in another type or shape than the policy needs",
    "other_shape": "the compiler sends 'cost_estimate' in another type or shape than the policy needs",
    "huge_shape": "the compiler sent a header that cannot be read",
    "deep": "the compiler sent something else than observations",
    "cut_off": "the compiler sent a header that cannot be read",
    "endless": "the compiler sent a line without an end",
    "other_size": "the compiler sent an observation of another size",
    "does_not_read": "the compiler does not read the advice",
    "fails": "the compile with it failed with exit code 70",
    "crashes": "the compile with it was killed by signal 11",
    "loses_its_channel": "the compile with it failed with exit code 70",
}


@pytest.fixture(scope="module")
def misbehaving(llvm22: Llvm, code: PolicyCode, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wrapped clang that is the real one, and a fake where it is asked to use a channel."""
    folder = tmp_path_factory.mktemp("misbehaving")
    program = folder / "clang"
    fake = f'exec {sys.executable} -I -S {FAKE} "$MODE" "$@"'
    script = f'case "$*" in *{fake_clang.CHANNEL}*) {fake};; esac\nexec {llvm22.clang} "$@"\n'
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    clang = replace(stock(llvm22), c=(str(program),))
    with pytest.MonkeyPatch.context() as patch:  # it is tried when it is made
        patch.setattr("mlgo_corpus.compilers.native.wrapped._try", lambda *_: None)
        return wrap_clang(folder / "wrapped", code, clang, Asking(), force=False).clang


@pytest.mark.parametrize(("mode", "why"), WAYS.items(), ids=list(WAYS))
def test_a_compiler_that_breaks_the_protocol_compiles_without_the_policy(
    mode: str, why: str, llvm22: Llvm, misbehaving: Path, sources: Path, tmp_path: Path
) -> None:
    result = compiled(misbehaving, "-Oz -w -c a.c", sources, tmp_path, MODE=mode, POLICY="fake")
    said = result[2].decode().replace("error: what is new\n", "")
    assert said == f"{SAID.decode()}{why}; compiled without it\n"
    assert (*result[:2], b"", result[3]) == compiled(llvm22.clang, "-Oz -w -c a.c", sources, tmp_path)


def text_of(result: Result) -> int:
    (data,) = result[3].values()
    return measure_object(data).text_size


def test_the_smaller_object_is_kept(llvm22: Llvm, wrapped: Path, keeping: Path, sources: Path, tmp_path: Path) -> None:
    differ = set()
    (sources / "big.c").write_text(
        "void out(int);\nstatic void big(int n) {\n"
        + "out(n);\n" * 9
        + "}\n"
        + "void f(int n) {\n"
        + "big(n);\n" * 9
        + "}\n"
    )
    (sources / "one.c").write_text("static int one(int n) { return n; }\nint f(int n) { return one(n); }\n")
    for name, told in itertools.product(("a", "big", "one"), ("never", "always")):
        line = f"-Oz -c {name}.c"
        plain = compiled(llvm22.clang, line, sources, tmp_path)
        policys = compiled(wrapped / "clang", line, sources, tmp_path, POLICY=told)
        kept = compiled(keeping / "clang", line, sources, tmp_path, POLICY=told)
        assert kept == (policys if text_of(policys) < text_of(plain) else plain)
        differ.add(text_of(policys) - text_of(plain) > 0)
        differ.add(text_of(policys) - text_of(plain) < 0)
    assert True in differ


def test_both_ways_are_compiled_only_where_there_is_one_object(
    llvm22: Llvm, keeping: Path, sources: Path, tmp_path: Path
) -> None:
    for line in (
        "-Oz -c a.c b.cc", "-Oz -S a.c", "-Oz a.c main.c -o program", "-O0 -c a.c", "-Oz -c wrong.c",
        "-Oz -c a.c -fstack-usage", "-Oz -c a.c -fsave-optimization-record", "-Oz -x c /dev/stdin -c -o stdin.o",
    ):  # fmt: skip
        plain = compiled(llvm22.clang, line, sources, tmp_path)
        assert compiled(keeping / "clang", line, sources, tmp_path, POLICY="crash") == plain
    for line in ("-O2 -w -c a.c", f"-O2 -w -c a.c -o {'y' * 250}.o"):  # no longer name can be made of that one
        code, _, err, files = compiled(keeping / "clang", line, sources, tmp_path, POLICY="missing")
        assert err.startswith(SAID)
        assert (code, b"", b"", files) == compiled(llvm22.clang, line, sources, tmp_path)


def test_what_is_included_from_a_pipe_is_in_the_object(llvm22: Llvm, keeping: Path, sources: Path) -> None:
    (sources / "inc.c").write_text(f"#ifdef BIG\n{CODE % ('', '')}#endif\n")
    for program, name in ((llvm22.clang, "plain.o"), (keeping / "clang", "kept.o")):
        argv = (program, "-Oz", "-w", "-c", "inc.c", "-include", "/dev/stdin", "-o", name)
        subprocess.run(argv, cwd=sources, input=b"#define BIG 1\n", check=True)
    assert (sources / "kept.o").read_bytes() == (sources / "plain.o").read_bytes()


def test_objects_are_those_of_a_trace(
    llvm22: Llvm, cheap_calls: LearnedPolicy, probed: Path, sources: Path, tmp_path: Path
) -> None:
    cache = shutil.copytree(probed, tmp_path / "cache")
    cheap_calls.save(tmp_path / "policy")
    report = wrap_toolchain(tmp_path / "policy", str(tmp_path / "wrapped"), compiler=llvm22.clang, cache=str(cache))
    for name in ("a.c", "b.cc"):
        run_checked(llvm22.clang, "-w", "-Oz", *EMBED, "-c", name, "-o", f"{name}.o", cwd=sources)
    extract_corpus([sources], tmp_path / "corpus", jobs=1)
    trace_corpus(
        tmp_path / "corpus",
        tmp_path / "traced",
        policy=str(tmp_path / "policy"),
        compiler=llvm22.clang,
        jobs=1,
        keep_objects=tmp_path / "objects",
        cache=cache,
    )
    for name in ("a.c", "b.cc"):
        run_checked(report.wrapped.clang, "-w", "-Oz", "-c", name, "-o", "it.o", cwd=sources)
        run_checked(llvm22.clang, "-w", "-Oz", "-c", name, "-o", "plain.o", cwd=sources)
        (traced,) = (tmp_path / "objects").rglob(f"{name}.o")
        assert (sources / "it.o").read_bytes() == traced.read_bytes()
        assert (sources / "it.o").read_bytes() != (sources / "plain.o").read_bytes()


def test_an_llvm_that_misplaces_its_decision_is_put_right(
    llvm19: Llvm, llvm22: Llvm, code: PolicyCode, sources: Path, tmp_path: Path
) -> None:
    (clang := tmp_path / "clang").symlink_to(llvm19.clang)
    program = wrap_clang(
        tmp_path / "wrapped", code, replace(stock(llvm19), c=(str(clang),)), Asking(), force=False
    ).clang
    plain = compiled(llvm19.clang, "-Oz -c a.c", sources, tmp_path)
    assert compiled(program, "-Oz -c a.c", sources, tmp_path) == plain
    assert compiled(program, "-Oz -c a.c", sources, tmp_path, POLICY="never")[3] != plain[3]
    clang.unlink()
    clang.symlink_to(llvm22.clang)  # which would be put wrong
    newer = compiled(llvm22.clang, "-Oz -w -c a.c", sources, tmp_path)
    why = b"the clang that is wrapped was updated, wrap it again (mlgo-corpus toolchain wrap); compiled without it\n"
    assert compiled(program, "-Oz -w -c a.c", sources, tmp_path) == (0, b"", SAID + why, newer[3])


def test_a_policy_may_make_a_module_grow(llvm22: Llvm, cache: Path, sources: Path, tmp_path: Path) -> None:
    always = LearnedPolicy("inlining-1.0", "inlining", (cost_feature(),), Rule(1.0, (0.0,)))
    always.save(tmp_path / "policy")
    clang = wrap_toolchain(tmp_path / "policy", tmp_path / "clang", compiler=llvm22.clang, cache=cache).wrapped.clang
    callers = (f"void caller{n}(void) {{ big({n}); }}\n" for n in range(20))
    (sources / "grow.c").write_text("".join(("void out(int);\nvoid big(int n) {\n", "out(n);\n" * 9, "}\n", *callers)))
    sizes = [
        text_of(compiled(program, f"-Oz -c grow.c {limit}", sources, tmp_path))
        for program, limit in ((llvm22.clang, ""), (clang, "-mllvm -ml-advisor-size-increase-threshold=2"), (clang, ""))
    ]
    plain, limited, grown = sizes
    assert plain < limited < grown / 1.5


def left_over(scratch: Path) -> list[str]:
    """Return what is left of compiles whose temporary folder this is: processes and files."""
    found = [path.name for path in scratch.iterdir()]
    mark = f"TMPDIR={scratch}".encode()
    environments = {pid: told_of(pid, "environ") for pid in every_process()}
    return found + [str(pid) for pid, told in environments.items() if mark in told.split(b"\0") and alive(pid)]


@pytest.fixture
def interrupted(wrapped: Path, tmp_path: Path) -> Callable[..., int]:
    """Return a function that starts a compile of two sources, and sends it a signal after some seconds."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    one = "static int f%d(int a) { return a * %d + (a ^ 7); }\nint g%d(int a) { return f%d(a) + f%d(a + 1); }"
    lines = [one % ((n,) * 5) for n in range(250)]
    for name in ("a.c", "b.c"):
        (folder / name).write_text("\n".join(lines))
    argv = (wrapped / "clang", "-Oz", "-c", "a.c", "b.c")
    env = {**os.environ, "TMPDIR": str(scratch)}
    subprocess.run(argv, cwd=folder, env=env, check=True)
    whole = {path.name: path.read_bytes() for path in folder.iterdir()}

    def run(number: int, after: float, *, group: bool) -> int:
        for path in folder.glob("*.o"):
            path.unlink()
        with subprocess.Popen(argv, cwd=folder, env=env, stderr=subprocess.DEVNULL, start_new_session=True) as process:
            time.sleep(after)
            (os.killpg if group else os.kill)(process.pid, number)
        deadline = time.monotonic() + 300
        while left_over(scratch) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not left_over(scratch)
        assert {path.name: path.read_bytes() for path in folder.iterdir()}.items() <= whole.items()
        return process.returncode

    return run


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def test_a_killed_compile_leaves_nothing(interrupted: Callable[..., int]) -> None:
    draw = random.Random(19)
    for number, group in itertools.product(SIGNALS, (False, True)):
        assert interrupted(number, draw.uniform(0.0, 0.2), group=group) in (0, -number)


@pytest.mark.whole
def test_compiles_killed_at_random_moments_leave_nothing(interrupted: Callable[..., int]) -> None:
    draw = random.Random(20)
    codes = set()
    for _ in range(25):
        number = draw.choice((signal.SIGKILL, *SIGNALS))
        code = interrupted(number, draw.uniform(0.0, 0.3), group=draw.random() < 0.5)
        assert code in (0, -number)
        codes.add(code)
    assert -signal.SIGKILL in codes


def test_a_signal_that_the_wrapper_ignores_ends_nothing(wrapped: Path, sources: Path) -> None:
    script = "trap '' INT TERM; \"$1\" -Oz -w -c a.c & kill -INT $!; kill -TERM $!; wait $!"
    done = subprocess.run(["sh", "-c", script, "sh", wrapped / "clang"], cwd=sources, check=False)
    assert done.returncode == 0
    assert (sources / "a.o").exists()


@pytest.mark.parametrize("how", [signal.SIG_BLOCK, signal.SIG_UNBLOCK])
def test_the_parent_may_block_or_ignore_the_end_of_children(how: int, wrapped: Path, sources: Path) -> None:
    def prepare() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(how, {signal.SIGCHLD})

    argv = (wrapped / "clang", "-Oz", "-w", "-c", "a.c", "b.cc")
    subprocess.run(argv, cwd=sources, preexec_fn=prepare, timeout=300, check=True)
    assert (sources / "b.o").exists()


# --- the verb


def wrap(*arguments: Any, cache: Path) -> Any:
    return CliRunner().invoke(app, ["toolchain", "wrap", *map(str, arguments)], env={"MLGO_CORPUS_CACHE": str(cache)})


def test_a_wrapped_clang_is_listed_until_it_is_gone(
    llvm22: Llvm, cheap_calls: LearnedPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlgo_corpus.toolchain.probe_toolchains", lambda *_, **__: ())
    cache = tmp_path / "cache"
    cheap_calls.save(tmp_path / "policy")
    words = ("--policy", tmp_path / "policy", "--output", tmp_path / "made", "--compiler", llvm22.clang, "--always")
    made = wrap(*words, "--json", cache=cache)
    report = json.loads(made.stdout)
    assert report["wrapped"]["policy"] == "inlining-1.0"
    assert (tmp_path / "made/bin/clang++").readlink() == Path("clang")
    (found,) = list_wrapped(cache=cache)
    assert (found.output, found.policy, found.policy_digest) == (tmp_path / "made", "inlining-1.0", cheap_calls.digest)
    assert (found.always, found.keep_smaller, found.compiler) == (True, False, (llvm22.clang,))
    env = {"MLGO_CORPUS_CACHE": str(cache), "COLUMNS": "200"}
    listed = CliRunner().invoke(app, ["toolchain", "list"], env=env).stdout
    assert f"{found.clang}   inlining-1.0   {found.version}   at -O1 and above" in listed
    listed = CliRunner().invoke(app, ["toolchain", "list", "--json"], env=env).stdout
    assert json.loads(listed)["wrapped"][0]["policy_digest"] == cheap_calls.digest
    again = wrap(*words, cache=cache)
    assert again.exit_code == 2
    assert "--force" in again.stderr
    inside = wrap(*words[:2], "--output", tmp_path / "twice", "--compiler", found.clang, cache=cache)
    assert inside.exit_code == 2
    assert "has a policy inside already" in inside.stderr
    note = tmp_path / "made" / "wrapped.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "compiler": [str(tmp_path / "removed")]}))
    listed = CliRunner().invoke(app, ["toolchain", "list"], env=env).stdout
    assert f"{found.version}   its clang is gone; at -O1 and above" in listed
    shutil.rmtree(tmp_path / "made")
    assert list_wrapped(cache=cache) == ()


@pytest.mark.parametrize("tool", [True, False])
def test_a_full_disk_is_one_line(
    tool: bool, llvm22: Llvm, cheap_calls: LearnedPolicy, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(argv: Any, **_: Any) -> Any:
        if tool:
            raise ToolError(
                argv, 1, "ld: final link failed: No space left on device\nclang: error: linker command failed"
            )
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("mlgo_corpus.compilers.native.wrapped.run_tool", full)
    cheap_calls.save(tmp_path / "policy")
    words = ("--policy", tmp_path / "policy", "--output", tmp_path / "made", "--compiler", llvm22.clang)
    done = wrap(*words, cache=cache)
    folders = "|".join(map(re.escape, (tempfile.gettempdir(), str(tmp_path))))
    said = f"mlgo-corpus: error: ({folders}): no space left on the disk; a wrapped clang takes a megabyte\n"
    assert (done.exit_code, done.stdout) == (2, "")
    assert re.fullmatch(said, done.stderr)
    assert not (tmp_path / "made").exists()


def test_what_cannot_be_wrapped_is_refused(
    llvm22: Llvm, cheap_calls: LearnedPolicy, cache: Path, tmp_path: Path
) -> None:
    made_up = replace(cheap_calls, features=(cost_feature("made_up"),))
    made_up.save(tmp_path / "policy")
    output = tmp_path / "made"
    with pytest.raises(UsageError, match="it needs the feature 'made_up', which this compiler does not send"):
        wrap_toolchain(tmp_path / "policy", output, compiler=llvm22.clang, cache=cache)
    with pytest.raises(UsageError, match="nothing: no such policy"):
        wrap_toolchain("nothing", output, compiler=llvm22.clang, cache=cache)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UsageError, match="not made by toolchain wrap"):
        wrap_toolchain(tmp_path / "policy", tmp_path / "other", compiler=llvm22.clang, cache=cache, force=True)
    assert not output.exists()
