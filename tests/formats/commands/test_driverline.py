"""A driver's command taken apart for another compiler, and what clang says about words that it refuses."""

from __future__ import annotations

import re
import shlex

import pytest

from mlgo_corpus.formats.commands.driverline import (
    TAKES_NEXT,
    Language,
    ignored_words,
    named_output,
    read_compile,
    refused_warnings,
    without_refused,
)
from mlgo_corpus.runs.builds import shims


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("gcc -O2 -c a.c -o x.o", "-O2 a.c"),
        ("ccache /usr/bin/gcc -O2 -c a.c -ox.o", "-O2 a.c"),
        ("env A=1 distcc cc -c a.c --output x.o", "a.c"),
        ("cc -c -MD -MP -MMD -MF a.d -MTx -MT y -MQ z -MJ a.json -Wp,-MMD,b.d a.c", "a.c"),
        ("cc -c -save-temps=obj -save-temps --serialize-diagnostics a.dia -ftime-trace -fdump-tree-all a.c", "a.c"),
        ("cc -Ione -I two -D A=b.c -include b.c -c a.c", "-Ione -I two -D A=b.c -include b.c a.c"),
        ("cc a.c b.c c.o libx.a -L. -lm -o prog", "a.c -L. -lm"),
        ("cc -c ./sub/../a.c", "./sub/../a.c"),
        ("cc -c /b/a.c", "/b/a.c"),
        ("cc -O2 -c -- a.c", "-O2 a.c"),
        ("cc -x c -c a.c", "-xc a.c"),
        ("cc b.s -x c a.c -x none b.o", "-xc a.c"),
        ("cc -c -object-file-name=x a.c", "-object-file-name=x a.c"),
        ("cc -c - -o x.o", "a.c"),
        ("clang -fembed-bitcode=all -Xclang -fembed-bitcode=all -Xclang -disable-O0-optnone -emit-llvm -c a.c",
         "-Xclang -disable-O0-optnone a.c"),
        ("cc -flto=auto -ffat-lto-objects -fno-lto -c a.c", "-fno-lto a.c"),
        ("clang -fdebug-compilation-dir . -iwithsysroot /inc -stdlib++-isystem b.c -dependency-file a.d -c a.c",
         "-fdebug-compilation-dir . -iwithsysroot /inc -stdlib++-isystem b.c a.c"),
        ("cc -march=native -mllvm -o -mllvm x -c a.c", "-march=native -mllvm -o -mllvm x a.c"),
        ("clang -fmodule-output -fmodule-output=m.pcm -fmodules-cache-path=d -fmodule-file=n=n.pcm -c a.c",
         "-fmodule-file=n=n.pcm a.c"),
        ("clang -fsave-optimization-record=yaml -foptimization-record-file=a.yml -save-stats=obj --save-stats -c a.c",
         "a.c"),
        ("clang -fproc-stat-report=p -gen-cdb-fragment-path d -index-store-path d -dumpdir d/ -c a.c", "a.c"),
        ("clang -Wa,--noexecstack -Wa,-aln=x -Wa,-L,-MD,x -Xassembler -aln=x -Xassembler -L -c a.c",
         "-Wa,--noexecstack -Xassembler -L a.c"),
        ("clang -Xclang -dependency-file -Xclang x -O1 -Xclang -opt-record-file -Xclang y -Xclang -stats-file=z -c a.c",
         "-O1 a.c"),
        ("clang -Xclang -main-file-name -Xclang -o -mllvm -info-output-file=x -mllvm -stats -c a.c",
         "-Xclang -main-file-name -Xclang -o -mllvm -stats a.c"),
    ],
)  # fmt: skip
def test_what_another_compiler_gets(command: str, words: str) -> None:
    assert shlex.join(read_compile(shlex.split(command), "a.c", "/b").words) == words


@pytest.mark.parametrize(
    ("command", "source", "words"),
    [
        ("cc -O1 -c b.c -o m.o", "b.c", "-O1 b.c"),  # another one, or another path of a.c
        ("cc -c ../src/a.c -DX", "../src/a.c", "../src/a.c -DX"),
        ("cc -c b.c ./a.c", "./a.c", "./a.c"),
        ("cc -c b.c /b/a.c", "/b/a.c", "/b/a.c"),
        ("cc -O1 @gone.rsp", "a.c", "-O1 a.c"),
        ("cc -O1 x.o -o m", "a.c", "-O1 a.c"),
    ],
)
def test_the_source_is_the_one_that_the_command_names(command: str, source: str, words: str) -> None:
    found = read_compile(command.split(), "a.c", "/b")
    assert (found.source, shlex.join(found.words)) == (source, words)


@pytest.mark.parametrize(
    ("program", "is_cxx", "triple"),
    [
        ("gcc", False, None),
        ("/usr/bin/g++-12", True, None),
        ("clang++", True, None),
        ("CC", True, None),
        ("x86_64-linux-gnu-gcc-12", False, "x86_64-linux-gnu"),
        ("aarch64-linux-gnu-g++", True, "aarch64-linux-gnu"),
        ("arm-none-eabi-gcc", False, "arm-none-eabi"),
        ("my-wrapper", False, None),
    ],
)
def test_the_program(program: str, is_cxx: bool, triple: str | None) -> None:
    found = read_compile((program, "-c", "a.c"), "a.c", "/b")
    assert (found.is_cxx, found.triple) == (is_cxx, triple)


@pytest.mark.parametrize(
    ("command", "source", "language"),
    [
        ("cc -c a.c", "a.c", Language.CODE),
        ("cc -c a.C", "a.C", Language.CODE),
        ("cc -c a.mm", "a.mm", Language.CODE),
        ("cc -c a.CC", "a.CC", Language.CODE),
        ("cc -c a.cxxm", "a.cxxm", Language.CODE),
        ("cc -c a.S", "a.S", Language.ASSEMBLY),
        ("nasm -f elf64 a.asm -o a.o", "a.asm", Language.ASSEMBLY),
        ("gfortran -c a.f90", "a.f90", Language.OTHER),
        ("nvcc -c a.cu", "a.cu", Language.OTHER),
        ("cc -x c++ -c a.inc", "a.inc", Language.CODE),
        ("cc -xobjective-c++ -c a.c", "a.c", Language.CODE),
        ("clang++ -x c++-module -c a.cxx", "a.cxx", Language.CODE),
        ("gcc -x cpp-output -c a.c", "a.c", Language.CODE),
        ("cc -x assembler-with-cpp -c a.c", "a.c", Language.ASSEMBLY),
        ("clang -x cuda -c a.c", "a.c", Language.OTHER),
    ],
)
def test_the_language(command: str, source: str, language: Language) -> None:
    assert read_compile(command.split(), source, "/b").language is language


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cc -c a.c", None),
        ("cc -c a.c -o 'x y.o'", "x y.o"),
        ("cc -ox.o -c a.c --output=y.o -object-file-name=z", "y.o"),
        ("cc -c a.c --output y.o -MF -o", "y.o"),
    ],
)
def test_the_output(command: str, output: str | None) -> None:
    assert named_output(shlex.split(command)) == output


def test_options_of_lto_are_told() -> None:
    found = read_compile(["gcc", "-flto=auto", "-c", "a.c", "-flto=auto", "-fuse-linker-plugin"], "a.c", "/b")
    assert found.left_out == ("-flto=auto", "-fuse-linker-plugin")


def test_the_shims_know_the_same_options_with_a_value() -> None:
    script = shims._SCRIPT.read_text()
    (found,) = re.findall(r"^        (-I \| .*?)\) _mlgo_skip=-", script, re.DOTALL | re.MULTILINE)
    words = set(found.replace("\\\n", "").replace("|", "").split())
    in_their_own_way = {"-o", "--output", "-x", "--language", "-Xclang", "-working-directory"}
    assert {word for word in words if not word.endswith("*")} | in_their_own_way == TAKES_NEXT


# What clang 22 says.
@pytest.mark.parametrize(
    ("said", "words", "refused"),
    [
        ("clang: error: unknown argument: '-fipa-pta'", "-O2 -fipa-pta", "-fipa-pta"),
        ("clang: error: unknown argument '-fanalyzer'; did you mean '-Xanalyzer'?", "-fanalyzer", "-fanalyzer"),
        ("clang: error: unsupported option '-mabi=' for target 'x86_64-pc-linux-gnu'", "-mabi=foo -m64", "-mabi=foo"),
        ("clang: error: unsupported argument '-mfoo' to option '-Wa,'", "-Wa,-a,-mfoo -Wall", "-Wa,-a,-mfoo"),
        ("clang: error: unsupported argument 'foo' to option '-fsanitize='", "-fsanitize=foo", "-fsanitize=foo"),
        ("error: unknown target CPU 'znver99'", "-march=znver99 -mtune=znver99", "-march=znver99 -mtune=znver99"),
        ("error: invalid value 'gnu2y9' in '-std=gnu2y9'", "-std=gnu2y9 -O2", "-std=gnu2y9"),
        ("error: invalid value 'x' in '-fdiagnostics-format x'", "-fdiagnostics-format=x", "-fdiagnostics-format=x"),
        ("error: invalid argument '-fsanitize=cfi' only allowed with '-flto'", "-fsanitize=cfi", "-fsanitize=cfi"),
        ("error: unable to load plugin './x.so': 'no such file'", "-fplugin=./x.so -fplugin-arg-x-a",
         "-fplugin=./x.so -fplugin-arg-x-a"),
        ("a.c:1:1: error: unknown type name 'foo'", "-Dfoo foo", ""),
        ("error: unknown argument: '-fnew'", "-Xclang -fnew -fno-common -Xclang -fold -DA", "-Xclang -fnew"),
        ("a: error: unknown argument: '-a'\na: error: unknown argument: '-b'\n", "-a -b -c -d", "-a -b"),
    ],
)  # fmt: skip
def test_refused_words(said: str, words: str, refused: str) -> None:
    kept, left_out = without_refused(said, words.split())
    assert " ".join(left_out) == refused
    assert " ".join(kept) == " ".join(words.replace(refused, "").split())


def test_warnings_that_are_errors() -> None:
    said = (
        "a.c:1:5: error: unused variable 'x' [-Werror,-Wunused-variable]\n"
        "a.c:2:5: error: call to undeclared function 'g' [-Wimplicit-function-declaration]\n"
        "a.c:3:5: warning: something else [-Wother]\n"
        "clang: error: -lm: 'linker' input unused [-Werror,-Wunused-command-line-argument]\n"
        "a.c:4:5: error: unused variable 'y' [-Werror,-Wunused-variable]\n"
        "a.c:5:5: error: expected ';'\n"
    )
    assert refused_warnings(said) == (
        "unused-variable",
        "implicit-function-declaration",
        "unused-command-line-argument",
    )


def test_options_that_clang_ignores() -> None:
    said = "clang: warning: optimization flag '-fno-gcse' is not supported [-Wignored-optimization-argument]\n"
    assert ignored_words(said + said) == ("-fno-gcse",)
    assert ignored_words("clang: warning: argument unused during compilation: '-lm'") == ()
