"""Replaying a module's command: what is taken away, refused and read, and that the object is the original's."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.cc1table import JOINED, JOINED_OR_SEPARATE, SEPARATE, SHADOWED
from mlgo_corpus.formats.commands.embedded import decode_options, split_options
from mlgo_corpus.formats.commands.options import join_cc1, parse_cc1
from mlgo_corpus.formats.commands.replay import neutralise, refused_options, replay_command, required_files
from tests.conftest import EMBED, Llvm, run_checked, unpack
from tests.formats.commands.test_options import COMMANDS, WORDS

pytestmark = pytest.mark.whole

VALUES_IN_WORD = JOINED | JOINED_OR_SEPARATE
PLAIN = (
    *("-cc1", "-emit-obj", "-triple", "x86_64-pc-linux-gnu", "-O2", "-main-file-name", "a.c"),
    *("-mllvm", "-inline-threshold=225"),
)

CODE = """
static int g(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x; return s; }
int h(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * g(i); return s; }
int k(int a) { int b[64]; for (int i = 0; i < 64; i++) b[i] = a ^ i; return h(b, a); }
"""


def extract(llvm: Llvm, target: Path) -> tuple[Path, tuple[str, ...], Path]:
    """Give an object's bitcode, its command, and the object without the two sections."""
    bitcode, command, bare = (target.with_suffix(suffix) for suffix in (".bc", ".cmd", ".bare"))
    dumps = (f"--dump-section=.llvmbc={bitcode}", f"--dump-section=.llvmcmd={command}")
    run_checked(llvm.objcopy, *dumps, "--remove-section=.llvmbc", "--remove-section=.llvmcmd", target, bare)
    return bitcode, decode_options(split_options(command.read_bytes())), bare


def replay(llvm: Llvm, words: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [llvm.clang, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=300
    )


def sections(llvm: Llvm, target: Path) -> dict[str, bytes]:
    """Give the code and data that end up in memory, and their relocations, by name."""
    table = run_checked(llvm.readelf, "-S", "-W", target)
    found = re.findall(
        r"^ *\[ *\d+\] (\S+) +(?!NULL|NOBITS)[A-Z]\S* .* (?:[WXMSIGT]*A\w*|I) +\d+ ", table, re.MULTILINE
    )
    names = [name for name in found if not name.startswith(".rela.debug")]
    assert ".text" in names
    dump = target.with_name(f"{target.name}.dump")
    dump.mkdir()
    flags = [f"--dump-section={name}={dump / name}" for name in names]
    run_checked(llvm.objcopy, *flags, target, dump / "unused")
    return {name: (dump / name).read_bytes() for name in names}


# --- the fixtures replay to themselves


@pytest.mark.parametrize(("corpus", "version"), [("lua-clang19", 19), ("lua-clang22", 22), ("zlib-clang19", 19)])
def test_every_module_of_a_build_replays_to_its_object(
    corpus: str, version: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    llvm: Llvm = request.getfixturevalue(f"llvm{version}")
    unpack(corpus, tmp_path)
    targets = sorted(tmp_path.glob("**/*.o"))
    assert len(targets) > 10
    for target in targets:
        bitcode, options, bare = extract(llvm, target)
        assert refused_options(options) == ()
        assert required_files(options) == ()
        output = target.with_suffix(".replayed")
        done = replay(llvm, replay_command(options, bitcode=str(bitcode), output=str(output)), tmp_path / "empty")
        assert (done.returncode, done.stderr) == (0, b"")
        # objcopy lays out every object in its own way.
        run_checked(llvm.objcopy, output)
        assert output.read_bytes() == bare.read_bytes(), target.name
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    "flags",
    [
        ("-O2", "-g", "-gsplit-dwarf", "-MMD", "-MF", "a.d", "-MT", "x", "-MP"),
        ("-Os", "--coverage", "-fstack-usage", "-H"),
        ("-O2", "-fsave-optimization-record", "-ftime-trace", "--serialize-diagnostics", "a.dia", "-Rpass=inline"),
        ("-O1", "-ffunction-sections", "-mllvm", "-stats", "-mllvm", "-info-output-file=stats.txt"),
        ("-O2", "-fembed-bitcode"),
    ],
    ids=["debug", "coverage", "reports", "stats", "driver"],
)
def test_a_replay_writes_its_object_and_nothing_else(
    llvm: Llvm, flags: tuple[str, ...], compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    embed = () if "-fembed-bitcode" in flags else EMBED
    bitcode, options, bare = extract(llvm, compile_c(llvm, CODE, *flags, *embed))
    output = tmp_path / "replayed.o"
    folder = tmp_path / "empty"
    before = set(tmp_path.iterdir())
    done = replay(llvm, replay_command(options, bitcode=str(bitcode), output=str(output)), folder)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"")
    assert sections(llvm, output) == sections(llvm, bare)
    assert list(folder.iterdir()) == []
    assert set(tmp_path.iterdir()) - before == {output, folder, *tmp_path.glob("*.dump")}
    assert b".llvmbc" not in output.read_bytes()


def test_bytes_that_are_no_text_reach_the_compiler(
    llvm22: Llvm, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    target = compile_c(
        llvm22, "const char *s = S;", '-DS="{}\\xe4\'"', b"-DT=\xe4".decode(errors="surrogateescape"), *EMBED
    )
    bitcode, options, bare = extract(llvm22, target)
    assert "T=\udce4" in options
    output = tmp_path / "replayed.o"
    done = replay(llvm22, replay_command(options, bitcode=str(bitcode), output=str(output)), tmp_path / "empty")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sections(llvm22, output) == sections(llvm22, bare)


def test_a_module_of_a_thinlto_link_replays_with_its_index(
    llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    """The command was made for another step and names another index; the module already holds ``g``, imported."""
    caller = "int g(int); int main(int c, char **v) { return g(c) + 5; }"
    for name, text in (("a.c", caller), ("b.c", "int g(int x) { return x * 77; }")):
        compile_c(llvm, text, "-O2", "-flto=thin", name=name)
    link = ("-flto=thin", f"-B{llvm.lld_folder}", "-fuse-ld=lld", "a.o", "b.o", "-o", "ab")
    run_checked(llvm.clang, *link, "-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files", cwd=tmp_path)
    options = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-llvm-bc", "-flto=thin", "-O2", "-fthinlto-index=gone")
    command = replay_command(options, bitcode="a.o.3.import.bc", output="replayed.o", thinlto_index="a.o.thinlto.bc")
    done = replay(llvm, command, tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert bytes([77]) in sections(llvm, tmp_path / "replayed.o")[".text"]  # the factor, as an imul's operand


# --- neutralise


@pytest.mark.parametrize(
    "words",
    [
        ["-o", "a.o"], ["-oa.o"], ["-x", "c"], ["-xc", "a.c", "-", "/a.c", ""], ["-fembed-bitcode=all"],
        ["-dependency-file", "-load"], ["-MT", "@x", "-MTx", "-MQ", "x", "-MP"], ["-split-dwarf-file", "a.dwo"],
        ["-split-dwarf-output", "a.dwo"], ["-coverage-notes-file=/a.gcno"], ["-coverage-notes-file", "/a.gcno"],
        ["-serialize-diagnostic-file", "a"], ["-stack-usage-file", "a"], ["-ftime-trace=a"], ["-stats-file=a"],
        ["-opt-record-file", "a", "-opt-record-passes", "b"], ["-Rpass=x"], ["-working-directory", "/x"],
        ["-ivfsoverlay", "a"], ["-emit-llvm-bc"], ["-S"], ["-header-include-file", "a"], ["-print-stats"],
        ["-objcmt-migrate-all"], ["--vfsoverlay", "-load"], ["--save-temps=cwd"],
        ["-fdiagnostics-show-hotness", "-fdiagnostics-hotness-threshold=auto"],
        ["-mllvm", "-info-output-file", "-mllvm", "-exec-on-ir-change=x"],
        ["-mllvm", "-stats"], ["-mllvm", "-info-output-file", "-mllvm", "/x"], ["-mllvm", "--view-edge-bundles"],
        ["-mllvm", "-print-pipeline-passes"], ["-mllvm", "-print-changed=dot-cfg"], ["-mllvm", "-training-log=/x"],
        ["-mllvm", "-pgo-view-counts=graph"], ["-mllvm", "-filter-print-funcs=f"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_has_no_bearing_on_code_is_taken_away(words: list[str]) -> None:
    for at in range(2, len(PLAIN) + 1):
        if join_cc1(parse_cc1(PLAIN[:at])) and not parse_cc1(PLAIN[:at])[-1].lacks_value:
            assert neutralise((*PLAIN[:at], *words, *PLAIN[at:])) == PLAIN
    assert refused_options((*PLAIN, *words)) == ()


@pytest.mark.parametrize(
    "words",
    [
        ["-fdebug-compilation-dir=/x"], ["-dwarf-debug-flags", "-o a"], ["-coverage-data-file=/a.gcda"], ["-D", "-o"],
        ["-disable-llvm-passes"], ["-mllvm", "-msan-print-stack-names=0"],
        ["-mllvm", "-disable-debug-info-print"], ["-fprofile-instrument-use-path=/a"],
        ["-mllvm", "-inline-threshold=5"], ["-main-file-name", "-load"], ["-D", "{a}", "-U", "}"], ["-Wall"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_may_bear_on_code_stays(words: list[str]) -> None:
    assert neutralise((*PLAIN, *words)) == (*PLAIN, *words)
    assert refused_options((*PLAIN, *words)) == ()


@given(COMMANDS)
def test_neutralising_again_changes_nothing(words: tuple[str, ...]) -> None:
    once = neutralise(words)
    assert neutralise(once) == once
    assert refused_options(once)[:1] == refused_options(words)[:1] or not words or words[0] != "-cc1"
    assert once.count("-emit-obj") >= 1
    assert not any(option.is_input for option in parse_cc1(once))


HARMLESS_VALUES = sorted(SEPARATE - {"-mllvm", "-mmlir", "-load", "-plugin", "-add-plugin", "-ast-merge"})


@given(st.sampled_from(HARMLESS_VALUES), WORDS.filter(lambda word: not word.startswith("@") and "\0" not in word))
def test_a_value_is_never_refused_for_what_it_looks_like(name: str, value: str) -> None:
    assert refused_options(("-cc1", name, value)) == ()


@pytest.mark.parametrize("spelling", sorted(SHADOWED))
def test_what_versions_read_as_different_options_is_treated_alike(spelling: str) -> None:
    shorter = next(spelling[:end] for end in range(len(spelling) - 1, 1, -1) if spelling[:end] in VALUES_IN_WORD)
    kept = [neutralise(("-cc1", word)) == ("-cc1", "-emit-obj", word) for word in (f"{spelling}q", f"{shorter}q")]
    assert kept[0] == kept[1]
    assert refused_options(("-cc1", spelling)) == ()


# --- what is refused


@pytest.mark.parametrize(
    ("words", "text", "reason"),
    [
        (["-load", "x.so"], "-load x.so", "it loads code into the compiler"),
        (["-fpass-plugin=x.so"], "-fpass-plugin=x.so", "it loads code into the compiler"),
        (["-plugin", "p"], "-plugin p", "it loads code into the compiler"),
        (["-add-plugin", "p"], "-add-plugin p", "it loads code into the compiler"),
        (["-plugin-arg-p", "x"], "-plugin-arg-p x", "it loads code into the compiler"),
        (["-mllvm", "-load=x.so"], "-mllvm -load=x.so", "it loads code into the compiler"),
        (["-mllvm", "--load", "-w", "-mllvm", "x.so"], "-mllvm --load -mllvm x.so", "it loads code into the compiler"),
        (["-mllvm", "-load-pass-plugin=x"], "-mllvm -load-pass-plugin=x", "it loads code into the compiler"),
        (["-mllvm", "-exec-on-ir-change=touch"], "-mllvm -exec-on-ir-change=touch", "it runs a program"),
        (["-mllvm", "--exec-on-ir-change", "-mllvm", "sh"],
         "-mllvm --exec-on-ir-change -mllvm sh", "it runs a program"),
        (["-mllvm", "-anything=1"], "-mllvm -anything=1", "LLVM 17 to 22 has no such option"),
        (["-mllvm", "-any", "-mllvm", "../x"], "-mllvm -any -mllvm ../x", "LLVM 17 to 22 has no such option"),
        (["-mllvm", "---stats"], "-mllvm ---stats", "LLVM 17 to 22 has no such option"),
        (["-mllvm", "-gpsize8"], "-mllvm -gpsize8", "LLVM 17 to 22 has no such option"),
        (["-mllvm", "-amdgpu-module-splitting-log-dir=x"], "-mllvm -amdgpu-module-splitting-log-dir=x",
         "it may write a file or run a program: the effect of its value is unknown"),
        (["-mllvm", "-x86-lvi-load-opt-plugin=x"], "-mllvm -x86-lvi-load-opt-plugin=x",
         "it loads code into the compiler"),
        (["-mllvm", "-inline-threshold"], "-mllvm -inline-threshold", "its value is missing"),
        (["-mllvm", "-lowertypetests-drop-type-tests", "-mllvm", "-exec-on-ir-change=x"],
         "-mllvm -lowertypetests-drop-type-tests", "versions of LLVM disagree on its value: write it after a ="),
        (["-mllvm", "-enable-gvn-hoist", "-mllvm", "x"], "-mllvm x", "it is a value without an option"),
        (["-no-such-option"], "-no-such-option", "clang -cc1 17 to 22 has no such option"),
        (["--no-such-option=1"], "--no-such-option=1", "clang -cc1 17 to 22 has no such option"),
        (["--load", "x.so"], "--load", "clang -cc1 17 to 22 has no such option"),
        (["--include", "-main-file-name", "-fpass-plugin=x"], "-fpass-plugin=x", "it loads code into the compiler"),
        (["-validator-version", "-main-file-name", "-mllvm", "-exec-on-ir-change=x"],
         "-mllvm -exec-on-ir-change=x", "it runs a program"),
        (["/validator-version", "-main-file-name", "-load", "x"], "-load x", "it loads code into the compiler"),
        (["--imacros", "-D", "--vfsoverlay", "-D", "-plugin", "p"], "-plugin p", "it loads code into the compiler"),
        (["-mcpu=help"], "-mcpu=help", "it does something else than generating code"),
        (["-mllvm", "-h"], "-mllvm -h", "it does something else than generating code"),
        (["-mllvm", "-polly-dot-only"], "-mllvm -polly-dot-only", "it writes files"),
        (["-mllvm", "-a/b"], "-mllvm -a/b", "LLVM 17 to 22 has no such option"),
        (["-mllvm", "-regalloc-evict-interactive-channel-base=x"],
         "-mllvm -regalloc-evict-interactive-channel-base=x",
         "the compiler would wait for a program that is not there"),
        (["-D", "@x"], "-D @x", "clang would replace a word that begins with @ by a file's words"),
        (["-mllvm", "@x"], "-mllvm @x", "clang would replace a word that begins with @ by a file's words"),
        (["-E"], "-E", "it does something else than generating code"),
        (["-fsyntax-only"], "-fsyntax-only", "it does something else than generating code"),
        (["-ast-dump=json"], "-ast-dump=json", "it does something else than generating code"),
        (["-emit-pch"], "-emit-pch", "it does something else than generating code"),
        (["-print-supported-cpus"], "-print-supported-cpus", "it does something else than generating code"),
        (["-analyzer-checker-help"], "-analyzer-checker-help", "it does something else than generating code"),
        (["-cc1as"], "-cc1as", "it starts another program than the compiler"),
        (["-mmlir", "-x"], "-mmlir -x", "MLIR's options are not known here"),
        (["-Xclang"], "-Xclang", "it is an option of the driver, not of cc1"),
        (["-D", "a\0b"], "-D a\0b", "it holds a NUL character"),
        (["-mllvm"], "-mllvm", "its value is missing"),
        (["-main-file-name"], "-main-file-name", "its value is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_what_is_refused(words: list[str], text: str, reason: str) -> None:
    assert refused_options((*PLAIN, *words))[0] == (text, reason)
    with pytest.raises(UsageError, match=re.escape(f"a replay refuses {text!r}: {reason}")):
        replay_command((*PLAIN, *words), bitcode="a.bc", output="a.o")


def test_an_llvm_value_without_an_option_is_refused() -> None:
    assert refused_options(("-cc1", "-mllvm", "x")) == (("-mllvm x", "it is a value without an option"),)


@pytest.mark.parametrize("words", [(), ("-cc1as",), ("-O2", "-cc1"), ("",), ("a.c",), ("<UNSPECIFIED>",)])
def test_a_command_begins_with_cc1(words: tuple[str, ...]) -> None:
    expected = (words[0] if words else "", "expected -cc1 as the first word")
    assert refused_options(words)[0] == expected


@pytest.fixture
def library(llvm: Llvm, tmp_path: Path) -> Path:
    """Build a library that makes a file as soon as it is loaded."""
    source = tmp_path / "library.c"
    source.write_text(
        '#include <stdio.h>\n__attribute__((constructor)) static void f(void) { fclose(fopen("loaded", "w")); }\n'
    )
    run_checked(llvm.clang, "-shared", "-fPIC", source, "-o", tmp_path / "library.so")
    return tmp_path / "library.so"


@pytest.mark.parametrize(
    "words", [["-load", "{}"], ["-fpass-plugin={}"], ["@{}.words"], ["-D", "@{}.words"]], ids=" ".join
)
def test_what_is_refused_loads_code_indeed(
    llvm: Llvm, words: list[str], library: Path, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    Path(f"{library}.words").write_text(f"-DA -load {library}")
    words = [word.replace("{}", str(library)) for word in words]
    bitcode, options, _ = extract(llvm, compile_c(llvm, CODE, "-O2", *EMBED))
    plain = replay_command(options, bitcode=str(bitcode), output=str(tmp_path / "replayed.o"))
    replay(llvm, (*plain, *words), tmp_path / "empty")
    assert (tmp_path / "empty" / "loaded").exists()
    if words[0].startswith("@"):  # an input, as far as a command is concerned
        assert refused_options((*options, *words)) == ()
        assert words[0] not in replay_command((*options, *words), bitcode="a.bc", output="a.o")
    else:
        assert len(refused_options((*options, *words))) == 1


@pytest.mark.parametrize("word", ["-exec-on-ir-change=touch", "--exec-on-ir-change", "@words"])
def test_what_is_refused_runs_programs_indeed(
    llvm: Llvm, word: str, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "words").write_text("-exec-on-ir-change=touch")
    bitcode, options, _ = extract(llvm, compile_c(llvm, CODE, "-O2", *EMBED))
    words = ["-mllvm", word] + ([] if "=" in word or "@" in word else ["-mllvm", "touch"])
    plain = replay_command(options, bitcode=str(bitcode), output=str(tmp_path / "replayed.o"))
    replay(llvm, (*plain, *words), tmp_path / "empty")
    assert (tmp_path / "empty" / "InlinerPass").exists()
    assert len(refused_options((*options, *words))) == 1


# --- what is read


def test_the_files_that_are_read_in_order() -> None:
    words = (
        "-cc1", "-fprofile-instrument-use-path=/a", "-fsanitize=address,dataflow", "-fsanitize-ignorelist=b",
        "-fbasic-block-sections=list=c", "-mllvm", "-cgscc-inline-replay", "-mllvm", "d", "-mlink-builtin-bitcode", "e",
        "-fembed-offload-object=f,host", "-fthinlto-index=", "-mllvm", "-sample-profile-file=/g", "-include-pch", "h",
        "-fbasic-block-sections=all", "-main-file-name", "-fthinlto-index=i", "-ivfsoverlay", "j", "-fprofile-list=k",
    )  # fmt: skip
    assert required_files(words) == (
        ("-fprofile-instrument-use-path=", "/a"),
        ("-fsanitize-ignorelist=", "b"),
        ("-fbasic-block-sections=list=", "c"),
        ("-mllvm -cgscc-inline-replay", "d"),
        ("-mlink-builtin-bitcode", "e"),
        ("-fembed-offload-object=", "f"),
        ("-mllvm -sample-profile-file", "/g"),
    )
    assert refused_options(words) == ()
    assert required_files(("-cc1", "-fsanitize=address", "-fsanitize-ignorelist=b")) == ()


@pytest.mark.parametrize(
    "word",
    ["-fprofile-sample-use=missing", "-fmemory-profile-use=missing", "-fembed-offload-object=missing",
     "-fbasic-block-sections=list=missing", "-mllvm -cgscc-inline-replay=missing", "-mlink-bitcode-file missing",
     "-fprofile-instrument-use=llvm -fprofile-instrument-use-path=missing"],
)  # fmt: skip
def test_a_missing_file_is_an_error_of_clang(
    llvm: Llvm, word: str, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    bitcode, options, _ = extract(llvm, compile_c(llvm, CODE, "-O2", *EMBED))
    options = (*options, *word.split())
    assert [path for _, path in required_files(options)] == ["missing"]
    command = replay_command(options, bitcode=str(bitcode), output=str(tmp_path / "replayed.o"))
    assert replay(llvm, command, tmp_path / "empty").returncode != 0


def test_a_missing_index_is_no_error_of_clang(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    """So a caller has to look for it: the exit code is 0, and the object is empty."""
    bitcode, options, _ = extract(llvm, compile_c(llvm, CODE, "-O2", *EMBED))
    output = tmp_path / "replayed.o"
    command = replay_command(options, bitcode=str(bitcode), output=str(output), thinlto_index="missing")
    done = replay(llvm, command, tmp_path / "empty")
    assert (done.returncode, output.read_bytes()) == (0, b"")
    assert b"Error loading index file 'missing'" in done.stderr


# --- the whole command


def test_the_command_in_order() -> None:
    words = ("-cc1", "-O2", "a.c", "-o", "b.o", "-emit-llvm", "-D", "{x}")
    assert replay_command(words, bitcode="m.bc", output="m.o", extra=("-mllvm", "-inline-threshold=5")) == (
        "-cc1", "-emit-obj", "-O2", "-D", "{x}", "-x", "ir", "m.bc", "-mllvm", "-inline-threshold=5", "-o", "m.o",
    )  # fmt: skip
    assert replay_command(words, bitcode="m.bc", output="m.ll", extra=("-emit-llvm",)) == (
        "-cc1", "-O2", "-D", "{x}", "-x", "ir", "m.bc", "-emit-llvm", "-o", "m.ll",
    )  # fmt: skip


def test_the_index_takes_the_place_of_the_commands_own() -> None:
    words = ("-cc1", "-fthinlto-index=a", "-O2", "-fthinlto-index=b", "-main-file-name", "-fthinlto-index=c")
    assert replay_command(words, bitcode="m.bc", output="m.o", thinlto_index="{i}") == (
        "-cc1", "-emit-obj", "-fthinlto-index={i}", "-O2", "-main-file-name", "-fthinlto-index=c",
        "-mllvm", "-thinlto-assume-merged", "-x", "ir", "m.bc", "-o", "m.o",
    )  # fmt: skip


def test_an_override_gets_the_index_once() -> None:
    words = ("-cc1", "-O2", "-mllvm", "-thinlto-assume-merged")
    assert replay_command(words, bitcode="m.bc", output="m.o", thinlto_index="i") == (
        *("-cc1", "-emit-obj", "-O2", "-mllvm", "-thinlto-assume-merged", "-fthinlto-index=i"),
        *("-x", "ir", "m.bc", "-o", "m.o"),
    )


def test_a_command_without_thinlto_keeps_its_index() -> None:
    words = ("-cc1", "-fthinlto-index=a")
    assert "-fthinlto-index=a" in replay_command(words, bitcode="m.bc", output="m.o")


def test_paths_are_never_options_or_files_of_words() -> None:
    command = replay_command(("-cc1",), bitcode="-load", output="@o", thinlto_index="@i")
    assert command[-5:] == ("-x", "ir", "./-load", "-o", "./@o")


def test_words_to_add_are_whole() -> None:
    with pytest.raises(UsageError, match="expected a value after '-mllvm' in the added options, found none"):
        replay_command(("-cc1",), bitcode="m.bc", output="m.o", extra=("-mllvm",))
