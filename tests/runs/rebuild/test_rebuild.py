"""Every module is compiled again and compared with its object; cmp and sha256 are the oracles."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mlgo_corpus import VerifyReport, extract_corpus, verify_corpus
from mlgo_corpus.cli.main import app
from mlgo_corpus.cli.verify import show_certificate
from mlgo_corpus.compilers.limits import Limits
from mlgo_corpus.corpus.certificate import RebuildRow
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.replay import embedding_options, verbatim_command
from mlgo_corpus.runs.rebuild.module import RebuildCompiler, RebuildItem, RebuildJob, RebuildSettings, pick_compiler
from mlgo_corpus.runs.rebuild.run import RebuildReport
from tests.conftest import EMBED, LLVM_VERSIONS, ROOT, Llvm, run_checked, unpack
from tests.forked import start
from tests.runs.journals import kept

pytestmark = pytest.mark.whole

C_SOURCE = """
#include <stddef.h>
static int counter; extern int other(int);
static const char *const names[] = {"one", "two"};
int first(int x) { counter += x; return other(counter) + names[x & 1][0]; }
"""
CXX_SOURCE = """
#include <string>
#include <vector>
struct A { virtual ~A() {} virtual int f() { return 1; } };
A *make(int i) { if (i) return new A; throw std::string("x"); }
int sum(const std::vector<int> &v) { int s = 0; for (int x : v) s += x; return s; }
"""

Compile = Callable[..., Path]


Rows = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True, scope="module")
def cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let what compilers can do be found out once."""
    with pytest.MonkeyPatch.context() as patch:
        folder = known(tmp_path_factory.mktemp("cache"), *(Llvm(version).clang for version in LLVM_VERSIONS))
        patch.setenv("MLGO_CORPUS_CACHE", str(folder))
        yield folder


def rebuilt(
    corpus: Path, build: Path, compiler: str, more: Sequence[Path] = (), **options: Any
) -> tuple[RebuildReport, Rows]:
    """Rebuild a corpus; give the report, and the certificate's rows."""
    options |= {"build_dirs": [build, *more], "compiler": compiler}
    report = verify_corpus(corpus, rebuild=True, jobs=2, force=True, **options)
    assert report.rebuild is not None
    assert not [path.name for path in report.rebuild.output.parent.iterdir() if path.name.startswith(".rebuild")]
    return report.rebuild, {row["module"]: row for row in pq.read_table(report.rebuild.output).to_pylist()}


def only(corpus: Path, build: Path, compiler: str, **options: Any) -> dict[str, Any]:
    _, rows = rebuilt(corpus, build, compiler, **options)
    (row,) = rows.values()
    return row


@pytest.mark.parametrize("version", [19, 22])
def test_lua_comes_again_byte_for_byte(request: pytest.FixtureRequest, tmp_path: Path, version: int) -> None:
    llvm: Llvm = request.getfixturevalue(f"llvm{version}")
    unpack(f"lua-clang{version}", tmp_path)
    corpus = tmp_path / "corpus"
    extract_corpus([tmp_path / "lua"], corpus, jobs=1)
    report, rows = rebuilt(corpus, tmp_path / "lua", llvm.clang)
    assert (report.outcomes, report.same_bytes, report.bad) == ({"identical": 34}, 34, 0)
    for name, row in rows.items():
        digest = sha256((tmp_path / "lua" / name).read_bytes()).hexdigest()
        assert (row["object_sha256"], row["rebuilt_sha256"], row["same_version"]) == (digest, digest, True)
    text = int(run_checked(llvm.size, tmp_path / "lua" / "lvm.o").splitlines()[1].split()[0])
    assert (rows["lvm.o"]["object_text_size"], rows["lvm.o"]["rebuilt_text_size"]) == (text, text)
    assert list(rows["lvm.o"]) == list(RebuildRow._fields)
    metadata = json.loads(pq.read_schema(corpus / "rebuild.parquet").metadata[b"mlgo_corpus"])
    assert metadata["kind"] == "rebuild"
    assert metadata["outcomes"] == {"identical": 34}
    assert [len(one["sha256"]) for one in metadata["compilers"]] == [64]


@pytest.mark.parametrize("name", ["a.c", "a.cc"])
@pytest.mark.parametrize(
    "flags", ["-O0", "-O2 -g", "-Oz -ffunction-sections -fdata-sections", "-O2 -MD -MF x.d -g3 -gz"]
)
def test_usual_flags_give_the_same_bytes(llvm: Llvm, compile_c: Compile, tmp_path: Path, name: str, flags: str) -> None:
    compile_c(llvm, C_SOURCE if name == "a.c" else CXX_SOURCE, *flags.split(), *EMBED, name=name, output="build/a.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    row = only(tmp_path / "corpus", tmp_path / "build", llvm.clang)
    assert (row["outcome"], row["detail"]) == ("identical", "every byte")
    assert row["object_sha256"] == row["rebuilt_sha256"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".d", ".dwo")) == (
        ["x.d"] if "-MD" in flags else []
    )


@pytest.mark.parametrize(
    ("flags", "section"), [("-O2 -fsanitize=address", ".rodata"), ("-O2 -g -gsplit-dwarf", ".debug_loclists")]
)
def test_what_names_the_input_is_not_the_code(
    llvm: Llvm, compile_c: Compile, tmp_path: Path, flags: str, section: str
) -> None:
    compile_c(llvm, C_SOURCE, *flags.split(), *EMBED, output="build/a.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    report, rows = rebuilt(tmp_path / "corpus", tmp_path / "build", llvm.clang)
    assert (rows["a.o"]["outcome"], rows["a.o"]["section"]) == ("code_identical", section)
    assert report.bad == 0
    assert not list(tmp_path.glob("corpus/*.dwo"))


def test_an_object_whose_code_was_changed_differs(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    listing = run_checked(llvm22.readelf, "-S", "--wide", path)
    (line,) = [line for line in listing.splitlines() if " .text " in line]
    offset = int(line.split("]")[1].split()[3], 16)
    data = bytearray(path.read_bytes())
    data[offset + 5] ^= 1
    path.write_bytes(data)
    report, rows = rebuilt(tmp_path / "corpus", tmp_path / "build", llvm22.clang)
    assert (rows["a.o"]["outcome"], rows["a.o"]["section"], rows["a.o"]["offset"]) == ("differs", ".text", 5)
    assert (report.bad, report.problems[0][:2]) == (1, ("a.o", "differs"))


def test_another_compiler_is_said_to_be_one(llvm19: Llvm, llvm22: Llvm, tmp_path: Path) -> None:
    unpack("zlib-clang19", tmp_path)
    extract_corpus([tmp_path / "zlib"], tmp_path / "corpus", jobs=1)
    report, rows = rebuilt(tmp_path / "corpus", tmp_path / "zlib", llvm22.clang)
    assert report.other_version == len(rows)
    assert {row["same_version"] for row in rows.values()} == {False}
    assert report.outcomes["differs"] > 0


def test_each_module_gets_its_own_version(llvm19: Llvm, llvm22: Llvm, tmp_path: Path, compile_c: Compile) -> None:
    for llvm in (llvm19, llvm22):
        compile_c(llvm, C_SOURCE, "-O2", *EMBED, output=f"build/a{llvm.version}.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    found = verify_corpus(tmp_path / "corpus", rebuild=True, build_dirs=[tmp_path / "build"], jobs=2).rebuild
    assert found is not None
    assert (found.outcomes, found.same_bytes, found.other_version) == ({"identical": 2}, 2, 0)
    assert len(found.compilers) == 2


def test_members_of_archives_and_what_is_linked(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    for name in ("one", "two"):
        compile_c(llvm22, f"int {name}(int x) {{ return x * 3; }}\n", "-O2", *EMBED, name=f"{name}.c")
    build = tmp_path / "build"
    build.mkdir()
    run_checked(llvm22.ar, "rcs", "build/lib.a", "one.o", "two.o", cwd=tmp_path)
    run_checked(llvm22.ar, "rcs", "--thin", "build/thin.a", "one.o", cwd=tmp_path)
    run_checked(llvm22.ld_lld, "-r", "one.o", "two.o", "-o", "build/both.o", cwd=tmp_path)
    run_checked(llvm22.ld_lld, "-shared", "one.o", "two.o", "-o", "build/lib.so", cwd=tmp_path)
    extract_corpus([build], tmp_path / "corpus", jobs=1)
    _, rows = rebuilt(tmp_path / "corpus", build, llvm22.clang)
    row = rows["thin.a/_up/one.o"]  # which is not in the build's folder
    assert (row["outcome"], row["reason"]) == ("no_object", "object_missing")
    report, rows = rebuilt(tmp_path / "corpus", build, llvm22.clang, more=[tmp_path])
    outcomes = {name: (row["outcome"], row["reason"]) for name, row in rows.items()}
    same, linked = ("identical", "ok"), ("no_object", "linked")
    assert outcomes == {
        "lib.a/one.o": same,
        "lib.a/two.o": same,
        "thin.a/_up/one.o": same,
        "both.o/one.c": linked,
        "both.o/two.c": linked,
        "lib.so/one.c": linked,
        "lib.so/two.c": linked,
    }
    assert report.bad == 0
    assert report.reasons == {"linked": 4}
    assert report.outcomes == {"identical": 3, "no_object": 4}


def test_no_object_is_no_difference(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    compile_c(llvm22, C_SOURCE.replace("x & 1", "x & 3"), "-O2", *EMBED, output="build/a.o")
    assert only(corpus, path.parent, llvm22.clang)["reason"] == "object_changed"
    compile_c(llvm22, C_SOURCE, "-O2", *EMBED, "-Wall", output="build/a.o")
    path.write_bytes(path.read_bytes()[:100])
    assert only(corpus, path.parent, llvm22.clang)["reason"] == "object_unreadable"
    path.unlink()
    report, rows = rebuilt(corpus, path.parent, llvm22.clang)
    assert (rows["a.o"]["outcome"], rows["a.o"]["reason"]) == ("no_object", "object_missing")
    assert rows["a.o"]["rebuilt_text_size"] > 0  # it was compiled all the same
    assert report.bad == 0


def test_a_corpus_of_upstream_s_tools(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/sub/a.o")
    extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    (tmp_path / "corpus" / "modules.parquet").unlink()
    assert path.exists()
    assert only(tmp_path / "corpus", tmp_path / "build", llvm22.clang)["detail"] == "every byte"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (b"-cc1\0-load\0evil.so\0", "refused_option"),
        (b"-cc1\0-fno-such-option\0", "refused_option"),
        (b"-cc1\0-fpreserve-vec3-type\0", "unknown_option"),  # LLVM 19 had it
        (b"", "no_command"),
        (None, "no_command"),
        (b"-cc1\0-triple\0x86_64-linux-gnu\0-fprofile-instrument-use-path=gone.profdata\0", "missing_file"),
    ],
)
def test_commands_that_fail(
    llvm22: Llvm, compile_c: Compile, tmp_path: Path, command: bytes | None, reason: str
) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    if command is None:
        (corpus / "a.o.cmd").unlink()
    else:
        (corpus / "a.o.cmd").write_bytes(command)
    report, rows = rebuilt(corpus, path.parent, llvm22.clang)
    assert (rows["a.o"]["outcome"], rows["a.o"]["reason"]) == ("fails", reason)
    assert report.bad == 1


def test_bitcode_that_is_not_what_was_extracted_fails(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    data = bytearray((corpus / "a.o.bc").read_bytes())
    data[600] ^= 1
    (corpus / "a.o.bc").write_bytes(data)
    assert only(corpus, path.parent, llvm22.clang)["reason"] == "wrong_hash"
    (corpus / "a.o.bc").write_bytes(b"text")
    assert only(corpus, path.parent, llvm22.clang)["reason"] == "unreadable_bitcode"
    (corpus / "a.o.bc").unlink()
    assert only(corpus, path.parent, llvm22.clang)["reason"] == "missing_file"


def test_a_compiler_that_hangs_ends_at_its_deadline(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    extract_corpus([path.parent], tmp_path / "corpus", jobs=1)
    hanging = tmp_path / "clang"
    # It answers what a probe asks, and hangs on what is asked of it here.
    hanging.write_text(
        f'#!/bin/sh\ncase " $* " in *" module.bc "*) exec sleep 600;; esac\nexec "{llvm22.clang}" "$@"\n'
    )
    hanging.chmod(0o755)
    settings = RebuildCompiler((str(hanging),), (22, 1, 8), "clang", "x")
    item = RebuildItem(0, Module(tmp_path / "corpus", "a.o"), "a.o", None, None)
    limits = Limits(timeout=0.5)
    row = RebuildJob(RebuildSettings((settings,), (str(path.parent),), tmp_path, limits=limits)).run(item)
    assert (row.outcome, row.reason, row.detail) == ("fails", "timeout", "not done after 0.5 seconds")


def test_the_certificate_is_not_overwritten_silently(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    rebuilt(corpus, path.parent, llvm22.clang)
    with pytest.raises(UsageError, match=r"rebuild\.parquet: is there already; `force` replaces it"):
        verify_corpus(corpus, rebuild=True, build_dirs=[path.parent], compiler=llvm22.clang)
    with pytest.raises(UsageError, match=r"build_dirs .*nowhere: expected the build's folder, found none"):
        verify_corpus(corpus, rebuild=True, build_dirs=str(tmp_path / "nowhere"), force=True)
    with pytest.raises(UsageError, match="timeout 0"):
        verify_corpus(corpus, rebuild=True, timeout=0, compiler=llvm22.clang, force=True)
    # The corpus is whole with its certificate in it.
    report: VerifyReport = verify_corpus(corpus)
    assert report.counts == {"ok": 1}


def test_a_killed_run_goes_on(llvm22: Llvm, tmp_path: Path, cache: Path) -> None:
    unpack("lua-clang22", tmp_path)
    corpus = tmp_path / "corpus"
    extract_corpus([tmp_path / "lua"], corpus, jobs=1)
    words = ("--compiler", llvm22.clang, "--build-dir", tmp_path / "lua", "--jobs", "1")
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "MLGO_CORPUS_CACHE": str(cache)}
    work = corpus / ".rebuild.parquet.work"
    with start("verify", corpus, "--rebuild", *words, env=environment) as child:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(kept(work)) < 5:
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    with next(work.glob("rows-*.jsonl")).open("ab") as file:
        file.write(b'99 ["torn')
    assert not (corpus / "rebuild.parquet").exists()
    report, rows = rebuilt(corpus, tmp_path / "lua", llvm22.clang)
    assert 4 <= report.resumed < 34
    assert (len(rows), report.outcomes) == (34, {"identical": 34})


@pytest.mark.usefixtures("plain_terminal")
def test_the_verb(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    runner = CliRunner()
    asked = ["verify", str(corpus), "--rebuild", "--compiler", llvm22.clang]
    good = runner.invoke(app, [*asked, "--build-dir", str(path.parent)])
    assert good.exit_code == 0, good.output
    assert "every byte came again in 1 of 1 compared object\n" in good.stdout
    lost = runner.invoke(app, [*asked, "--force", "--build-dir", str(tmp_path)])
    assert lost.exit_code == 1
    assert "every byte" not in lost.stdout
    assert (
        "nothing was compared\nhint: 1 module not compared, object_missing: --build-dir names the folder" in lost.stderr
    )
    lost = runner.invoke(app, [*asked, "--force", "--json", "--build-dir", str(tmp_path)])
    assert lost.exit_code == 1
    (hint,) = json.loads(lost.stdout)["hints"]
    assert hint.startswith("1 module not compared, object_missing: --build-dir names the folder that")
    found = json.loads(lost.stdout)["rebuild"]
    assert (found["outcomes"], found["bad"], found["compared"]) == ({"no_object": 1}, 0, 0)
    (corpus / "a.o.cmd").write_bytes(b"-cc1\0-fpreserve-vec3-type\0")
    bad = runner.invoke(app, [*asked, "--force", "--build-dir", str(path.parent)])
    assert bad.exit_code == 1
    assert "a.o: fails: unknown_option: " in bad.stderr
    alone = runner.invoke(app, ["verify", str(corpus), "--build-dir", str(tmp_path)])
    assert (alone.exit_code, alone.stderr) == (2, "mlgo-corpus: error: --build-dir: requires --rebuild\n")


def compiler(version: str, vendor: str = "") -> RebuildCompiler:
    return RebuildCompiler((vendor,), tuple(map(int, version.split("."))), vendor, "")


def test_which_compiler_is_picked() -> None:
    old, debian, zig = compiler("19.1.7", "D 19"), compiler("22.1.8", "D 22"), compiler("22.1.8", "clang 22")
    every = (old, debian, zig)
    assert pick_compiler(every, "LLVM19.1.7", b"") == (old, True)
    assert pick_compiler(every, "LLVM22.1.8", b"") == (debian, True)
    assert pick_compiler(every, "LLVM22.1.8", b"..clang 22..") == (zig, True)
    assert pick_compiler(every, "LLVM20.1.0", b"D 19") == (debian, False)
    assert pick_compiler(every, "LLVM23.0.0", b"") == (None, False)
    assert pick_compiler(every, "APPLE_1_1500", b"D 19") == (old, False)
    assert pick_compiler(every, None, b"")[0] in (debian, zig)


def test_verbatim_commands() -> None:
    plain = ("-cc1", "-triple", "x", "-emit-obj", "-O2", "-fembed-bitcode=all", "-dependency-file", "a.d", "-MT", "a.o")
    assert verbatim_command(plain, bitcode="m.bc", output="m.o") == (*plain, "-x", "ir", "m.bc", "-o", "m.o")
    for more in (
        ("-split-dwarf-output", "x.dwo"),
        ("-stack-usage-file", "a.su"),
        ("-serialize-diagnostic-file", "a.dia"),
        ("-mllvm", "-stats"),
        ("-dependency-file", "/etc/a.d"),
        ("-dependency-file", "b/../../a.d"),
        ("a.c",),
        ("-o", "x.o"),
        ("-x", "c"),
        ("-S",),
    ):
        assert verbatim_command((*plain, *more), bitcode="m.bc", output="m.o") is None
    assert verbatim_command(("-cc1", "-O2"), bitcode="m.bc", output="m.o") is None
    assert verbatim_command((*plain, "-MT"), bitcode="m.bc", output="m.o") is None
    assert embedding_options(plain) == ("-fembed-bitcode=all",)
    assert embedding_options(("-cc1", "-mllvm", "-lto-embed-bitcode=post-merge-pre-opt")) == (
        "-mllvm",
        "-lto-embed-bitcode=post-merge-pre-opt",
    )


def test_nothing_is_left_behind(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, C_SOURCE, "-O2", *EMBED, output="build/a.o")
    corpus = tmp_path / "corpus"
    extract_corpus([path.parent], corpus, jobs=1)
    before = sorted(str(one) for one in tmp_path.rglob("*"))
    outside = tmp_path / "out"
    outside.mkdir()
    rebuilt(corpus, path.parent, llvm22.clang, output=outside / "c.parquet")
    after = sorted(str(one) for one in tmp_path.rglob("*"))
    assert after == sorted([*before, str(outside), str(outside / "c.parquet")])


@pytest.mark.usefixtures("plain_terminal")
def test_what_was_not_compared_counts_as_neither_good_nor_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = RebuildReport(tmp_path / "rebuild.parquet")
    same = {"object_sha256": "1", "rebuilt_sha256": "1"}
    for name, outcome, reason, facts in (
        ("a.o", "identical", "ok", same),
        ("b.o", "code_identical", "ok", same | {"rebuilt_sha256": "2"}),
        ("c.o", "no_object", "object_missing", {}),
        ("d.o", "no_object", "linked", {}),
        ("e.o", "no_object", "linked", {}),
    ):
        report.see(RebuildRow(name, outcome, reason)._replace(**facts))
    assert (report.bad, report.compared, report.exit_code) == (0, 2, 0)
    show_certificate(report)
    shown = capsys.readouterr()
    assert "every byte came again in 1 of 2 compared objects\n" in shown.out
    assert "nothing was compared" not in shown.err
    assert "hint: 1 module not compared, object_missing: " in shown.err
    assert "hint: 2 modules not compared, linked: " in shown.err
    report.see(RebuildRow("f.o", "fails", "timeout"))
    assert (report.bad, report.compared, report.exit_code) == (1, 2, 1)
    assert RebuildReport(tmp_path / "none").exit_code == 0
