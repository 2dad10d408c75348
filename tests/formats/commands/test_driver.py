"""Lines for clang's driver: told from cc1's, and given to the driver only in part."""

from __future__ import annotations

import shlex

import pytest

from mlgo_corpus.errors import UsageError
from mlgo_corpus.formats.commands.driver import driver_words, is_driver_line, refused_driver_options

UPSTREAM = "-fPIC --target=x86_64-unknown-linux-gnu -O2 -c"


@pytest.mark.parametrize(
    ("line", "is_driver"),
    [
        (UPSTREAM, True),
        ("-O2", True),
        ("-Xclang -emit-obj", True),
        ("-cc1 -O2", False),
        ("-cc1", False),
        ("-triple x86_64-pc-linux-gnu -emit-obj -O2", False),
        ("", False),
    ],
)
def test_which_lines_are_the_drivers(line: str, *, is_driver: bool) -> None:
    assert is_driver_line(shlex.split(line)) is is_driver


@pytest.mark.parametrize(
    ("line", "given"),
    [
        (UPSTREAM, UPSTREAM),
        ("-target aarch64-linux-gnu -mcpu=neoverse-n1+crc", "--target=aarch64-linux-gnu -mcpu=neoverse-n1+crc"),
        ("-Wall -g -gdwarf-4 -pthread -fvisibility=hidden -fsanitize=address,undefined",) * 2,
        # What has no effect on IR is left out, whatever its value looks like.
        ("-DX=@y -D -fplugin=x -I. -isystem /usr/include -std=c++20 -x ir -o ../x.o -MD -MF /x.d -Os", "-Os"),
        ("-include-pch x.pch -isystem-after x -Os", "-Os"),
        # A flag of some clang may take the next word: that is never an option's value of the line's.
        (
            "-O2 -ftrapv-handler -Xclang -target-feature -Xclang +avx -mllvm -inline-threshold=7",
            "-Xclang -target-feature -Xclang +avx -mllvm -inline-threshold=7 -O2 -ftrapv-handler",
        ),
    ],
)
def test_words_for_the_driver(line: str, given: str) -> None:
    assert driver_words(shlex.split(line)) == tuple(shlex.split(given))


NOT_ONE = "it is not among the options of clang's driver that only generate code"
REFUSED = [
    *((word, NOT_ONE) for word in shlex.split("""
        -fplugin=x.so -fpass-plugin=x.so -B/tmp -fuse-ld=/tmp/ld --config=/tmp/x -specs=x -save-temps=obj -### -E -S
        -emit-llvm -flto -flto=thin -fembed-bitcode -fno-integrated-cc1 -fno-integrated-as -fproc-stat-report=/tmp/x
        --amdgpu-arch-tool=/tmp/x --offload-arch=native -fopenmp-targets=nvptx64 -fcrash-diagnostics-dir=/tmp
        -fsanitize-ignorelist=/etc/passwd -fprofile-use=/etc/passwd -fprofile-use -multi-lib-config=x -module-file-info
        -gen-cdb-fragment-path -Wl,-x -Wa,-x -Wp,-x -ccc-gcc-name -resource-dir=/tmp -mllvm=-x --target=../x -march=a/b
    """)),
    ("@/tmp/words", "clang would replace a word that begins with @ by a file's words"),
    ("-Xclang @/tmp/words", "clang would replace a word that begins with @ by a file's words"),
    ("-mllvm @/tmp/words", "clang would replace a word that begins with @ by a file's words"),
    ("a.c", "expected an option of clang's driver, or -cc1 first"),
    ("clang", "expected an option of clang's driver, or -cc1 first"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_refused_words(text: str, why: str) -> None:
    line = ("-O2", *shlex.split(text), "-c")
    assert refused_driver_options(line)[0] == (text, why)
    with pytest.raises(UsageError) as caught:
        driver_words(line)
    assert str(caught.value) == f"{text}: {why}"


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("-O2 -Xclang -load -Xclang x.so", ("-load x.so", "it loads code into the compiler")),
        ("-Xclang -fplugin=x.so", ("-fplugin=x.so", "it loads code into the compiler")),
        ("-mllvm -exec-on-ir-change=x", ("-mllvm -exec-on-ir-change=x", "it runs a program")),
        ("-O2 -Xclang", ("-Xclang ", "its value is missing")),
        ("-O2 -o", ("-o", "its value is missing")),
        ("-target", ("--target=", "its value is missing")),
    ],
)
def test_what_cc1_and_llvm_must_not_have_either(line: str, refused: tuple[str, str]) -> None:
    assert refused_driver_options(shlex.split(line))[0] == refused
