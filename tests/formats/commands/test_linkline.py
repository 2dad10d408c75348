"""The override derived from a link line: option by option, and against what lld's own backend makes."""

from __future__ import annotations

import shlex
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, UnsupportedError
from mlgo_corpus.formats.commands.linkline import override_from_link_line

TRIPLE = "x86_64-pc-linux-gnu"
O2 = ("-O2", "-vectorize-loops", "-vectorize-slp")
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-faddrsig")
PIC = ("-mrelocation-model", "pic")
STATIC = ("-mrelocation-model", "static")
CPU = ("-target-cpu", "x86-64")
DRIVER = "clang++ -fuse-ld=lld -flto=thin"


def derive(line: str, triple: str = TRIPLE) -> tuple[str, ...]:
    return override_from_link_line(shlex.split(line), triple)


def override(*words: str, level: tuple[str, ...] = O2, model: tuple[str, ...] = PIC) -> tuple[str, ...]:
    return ("-cc1", "-triple", TRIPLE, "-emit-obj", *level, *SECTIONS, *model, *words)


def test_driver_line_gives_the_whole_command():
    line = (
        "clang++ -fuse-ld=lld -flto=thin -O2 -Wl,--lto-O3 -Wl,-mllvm,-inline-threshold=5 "
        "-Wl,-plugin-opt=mcpu=haswell -march=skylake -fPIC -shared a.o b.o -o lib.so -lm"
    )
    assert derive(line) == (
        "-cc1",
        "-triple",
        "x86_64-pc-linux-gnu",
        "-emit-obj",
        "-O3",
        "-vectorize-loops",
        "-vectorize-slp",
        "-ffunction-sections",
        "-fdata-sections",
        "-faddrsig",
        "-mrelocation-model",
        "pic",
        "-target-cpu",
        "haswell",
        "-mllvm",
        "-inline-threshold=5",
    )


def test_lld_line_gives_the_whole_command():
    line = (
        "ld.lld --lto-O2 -mllvm -inline-threshold=5 -plugin-opt=O1 -plugin-opt=mcpu=haswell --lto-CGO2 -pie "
        "-dynamic-linker /lib64/ld.so -z now -o out a.o"
    )
    words = ("-target-cpu", "haswell", "-mllvm", "-inline-threshold=5")
    assert derive(line) == override(*words, level=("-O1", "-funroll-loops"))


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ("", "-O2"),
        ("-O", "-O1"),
        ("-O0", "-O1"),  # level 0 has no cc1 command of its own
        ("-O1", "-O1"),
        ("-Og", "-O1"),
        ("-Os", "-O2"),
        ("-Oz", "-O2"),
        ("-O3", "-O3"),
        ("-Ofast", "-O3"),
        ("-O9", "-O3"),
        ("-O3 -O1", "-O1"),
        ("-ObjC", "-O2"),
        ("-Wl,-O3", "-O2"),  # the linker's own level
        ("-Xlinker -O3", "-O2"),
        ("-O1 -Wl,--lto-O3", "-O3"),
        ("-Wl,--lto-O3 -O1", "-O3"),  # what a driver derives comes first
        ("-Wl,--lto-O3 -Wl,-plugin-opt=O1", "-O1"),
        ("-Wl,-plugin-opt=O1,--lto-O3", "-O3"),
        ("-Xlinker --lto-O3", "-O3"),
        ("-Wl,-lto-O3", "-O2"),  # with one dash: the library to-O3
        ("-O3 -fno-lto", "-O2"),  # says nothing to the linker
    ],
)
def test_level_of_a_driver_line(options: str, level: str):
    assert derive(f"{DRIVER} {options} a.o")[4] == level


def test_level_decides_on_vectorisers_and_unrolling():
    zero, one, two, three = (derive(f"ld.lld --lto-O{level} a.o") for level in range(4))
    assert zero == override(level=("-O1",), model=STATIC)
    assert one == override(level=("-O1", "-funroll-loops"), model=STATIC)
    assert two == override(model=STATIC)
    assert three == override(level=("-O3", "-vectorize-loops", "-vectorize-slp"), model=STATIC)


@pytest.mark.parametrize(
    ("options", "model"),
    [
        ("", "pic"),
        ("-fno-pic", "pic"),  # a driver links -pie whatever the compiles were
        ("-no-pie", "static"),
        ("-nopie", "static"),
        ("-no-pie -pie", "pic"),
        ("-pie -no-pie", "static"),
        ("-static", "static"),
        ("-static -pie", "static"),
        ("-static-pie", "pic"),
        ("-shared", "pic"),
        ("-shared -no-pie", "pic"),
        ("-r", "pic"),
        ("-r -fno-pic", "static"),
        ("-r -fno-PIC -fPIC", "pic"),
        ("-Wl,-no-pie", "static"),
        ("-no-pie -Wl,--pie", "pic"),
        ("-no-pie -Xlinker --pic-executable", "pic"),
        ("-no-pie -Wl,-Bshareable", "pic"),
        ("-Wl,-mllvm,-relocation-model=static", "static"),
        ("-no-pie -Wl,-mllvm,-relocation-model=pic", "pic"),
    ],
)
def test_relocation_model_of_a_driver_line(options: str, model: str):
    words = derive(f"{DRIVER} {options} a.o")
    assert words[words.index("-mrelocation-model") + 1] == model
    assert words.count("-mrelocation-model") == 1


@pytest.mark.parametrize(
    ("options", "model"),
    [("", "static"), ("-pie", "pic"), ("--pie --no-pie", "static"), ("-shared", "pic"), ("-r", "pic")],
)
def test_relocation_model_of_an_lld_line(options: str, model: str):
    assert derive(f"ld.lld {options} a.o") == override(model=("-mrelocation-model", model))


@pytest.mark.parametrize(
    ("triple", "model"),
    [
        ("aarch64-unknown-linux-gnu", "pic"),
        ("x86_64-linux-android30", "pic"),
        ("x86_64-unknown-fuchsia", "pic"),
        ("x86_64-unknown-freebsd14", "static"),
        ("aarch64-none-elf", "static"),
    ],
)
def test_pie_is_the_default_of_some_drivers(triple: str, model: str):
    words = derive(f"{DRIVER} a.o", triple)
    assert words[1:3] == ("-triple", triple)
    assert words[words.index("-mrelocation-model") + 1] == model


@pytest.mark.parametrize(
    ("triple", "options", "cpu"),
    [
        (TRIPLE, "", "x86-64"),
        (TRIPLE, "-march=haswell -mtune=skylake", "haswell"),
        (TRIPLE, "-march=native", None),
        (TRIPLE, "-march=haswell -march=native", None),
        (TRIPLE, "-march=haswell -Wl,-plugin-opt=mcpu=znver4", "znver4"),
        (TRIPLE, "-Wl,-mllvm,-mcpu=znver4,-plugin-opt=mcpu=haswell", "znver4"),  # lld parses -mllvm last
        (TRIPLE, "-march=haswell -fno-lto", None),
        ("i686-unknown-linux-gnu", "", None),
        ("i686-unknown-linux-gnu", "-march=pentium4", "pentium4"),
        ("s390x-unknown-linux-gnu", "-march=z14", "z14"),
        ("aarch64-unknown-linux-gnu", "-march=armv8.2-a", None),
        ("aarch64-unknown-linux-gnu", "-mcpu=cortex-a55+crypto", "cortex-a55"),
        ("riscv64-unknown-linux-gnu", "-march=rv64gc -mcpu=sifive-u74", "sifive-u74"),
    ],
)
def test_cpu(triple: str, options: str, cpu: str | None):
    words = derive(f"{DRIVER} {options} a.o", triple)
    assert ("-target-cpu" in words) == (cpu is not None)
    if cpu is not None:
        assert words[words.index("-target-cpu") + 1] == cpu


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-mllvm -a -mllvm -b=1", ("-mllvm", "-a", "-mllvm", "-b=1")),
        ("--mllvm -a", ("-mllvm", "-a")),
        ("-mllvm=-a", ("-mllvm", "-a")),
        ("-mllvm -a=1 -mllvm -a=2", ("-mllvm", "-a=1", "-mllvm", "-a=2")),  # LLVM takes the last
        ("-plugin-opt=-a=1", ("-mllvm", "-a=1")),
        ("--plugin-opt=-a", ("-mllvm", "-a")),
        ("-mllvm -a -plugin-opt=-b", ("-mllvm", "-b", "-mllvm", "-a")),  # lld's order
        ("-mllvm --a", ("-mllvm", "--a")),
        ("-mllvm", ()),
        ("-mllvm -function-sections=0 -mllvm -data-sections=0", ()),
        ("-mllvm -frame-pointer=all -mllvm -disable-tail-calls", ()),
        ("-mllvm -lto-embed-bitcode=optimized", ()),
        ("-mllvm --code-model=large", ("-mcmodel=large",)),
        ("-mllvm -code-model=small -plugin-opt=-code-model=large", ("-mcmodel=small",)),
        ("-mllvm -mattr=+avx2,-fma", ("-target-feature", "+avx2", "-target-feature", "-fma")),
        ("-mllvm -mattr=+a -mllvm -mattr=+b", ("-target-feature", "+a", "-target-feature", "+b")),
        ("-mllvm -float-abi=hard", ("-mfloat-abi", "hard")),
        ("-mllvm -unique-section-names", ()),
        ("-mllvm -unique-section-names=0", ("-fno-unique-section-names",)),
        ("-mllvm -unique-section-names=false", ("-fno-unique-section-names",)),
        ("-mllvm -emulated-tls=true", ("-femulated-tls",)),
        ("-mllvm -emulated-tls -mllvm -emulated-tls=0", ("-fno-emulated-tls",)),
        ("-mllvm -vector-library=SVML", ("-fveclib=SVML",)),
        ("-mllvm -vector-library=LIBMVEC-X86", ("-fveclib=libmvec",)),
        ("--lto-basic-block-sections=all", ("-fbasic-block-sections=all",)),
        ("--lto-basic-block-sections=blocks.txt", ("-fbasic-block-sections=list=blocks.txt",)),
        ("--lto-basic-block-sections=labels", ("-fbasic-block-address-map",)),
        ("--lto-basic-block-address-map", ("-fbasic-block-address-map",)),
        ("--lto-unique-basic-block-section-names", ("-funique-basic-block-section-names",)),
        ("--lto-sample-profile=a=b.prof", ("-fprofile-sample-use=a=b.prof",)),
        ("-plugin-opt=sample-profile=a.prof", ("-fprofile-sample-use=a.prof",)),
        ("--lto-cs-profile-file=a.profdata --lto-newpm-passes=instcombine --lto-CGO3", ()),
        ("-plugin-opt=thinlto -plugin-opt=jobs=4 --thinlto-jobs=2 -O3 --gc-sections --icf=all @objects.rsp", ()),
        ("-o -shared -soname -pie -z -r", ()),  # values, not options
    ],
)
def test_options_of_an_lld_line(options: str, words: tuple[str, ...]):
    assert derive(f"ld.lld {options}") == override(*words, model=STATIC)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-mllvm -a", ()),  # the driver keeps it to itself
        ("-Xclang -O0 -o -r", ()),
        ("-mcmodel=large -ffast-math -mavx2 -fno-function-sections", ()),
        ("-Wl,-mllvm,-a,-mllvm -Wl,-b=1", ("-mllvm", "-a", "-mllvm", "-b=1")),
        ("-Xlinker -mllvm -Xlinker -a", ("-mllvm", "-a")),
        ("-femulated-tls", ("-femulated-tls",)),
        ("-femulated-tls -fno-emulated-tls", ("-fno-emulated-tls",)),
        ("-fsplit-machine-functions -fno-split-machine-functions", ()),
        ("-fstack-size-section", ("-fstack-size-section",)),
        ("-mbranches-within-32B-boundaries", ("-mllvm", "-x86-branches-within-32B-boundaries")),
        ("-mtls-dialect=gnu2", ("-enable-tlsdesc",)),
        ("-ggdb3 -glldb", ("-debugger-tuning=lldb",)),
        ("-ggdb2", ("-debugger-tuning=gdb",)),
        ("-fveclib=SVML", ("-fveclib=SVML",)),
        ("-fprofile-sample-use=a.prof", ("-fprofile-sample-use=a.prof",)),
        ("-fprofile-use=a.profdata", ()),
        ("-fno-global-isel", ("-mllvm", "-global-isel=0")),
    ],
)
def test_options_of_a_driver_line(options: str, words: tuple[str, ...]):
    found = derive(f"{DRIVER} {options}")
    assert tuple(word for word in found if word not in CPU) == override(*words)
    # -mllvm options come last in any case, behind the CPU.
    assert found == override(*CPU, *words)


@pytest.mark.parametrize(
    "line",
    [
        "ccache /usr/bin/clang++-22 -flto=thin a.o",
        "x86_64-linux-gnu-clang -flto=thin a.o",
        "env CC=gcc clang -flto=thin a.o",
        ": && clang++ -flto=thin a.o -o a && :",
        "clang++ -c -O3 a.c -o a.o && cd build && clang++ -flto=thin a.o",
        "clang++ -flto=thin a.o && clang++ -flto=thin b.o",
        "python -m ziglang cc -flto=thin a.o",
        "-flto=thin a.o",
        "-flto=thin -fuse-ld=/opt/llvm/bin/ld.lld a.o",
    ],
)
def test_the_command_is_found_among_others(line: str):
    assert derive(line) == override(*CPU)


@pytest.mark.parametrize("line", ["/usr/bin/ld.lld-22 -pie", "lld -flavor gnu -pie", "ld -pie", "-pie --lto-O2"])
def test_lld_is_known_by_name_or_by_its_options(line: str):
    assert derive(line) == override()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "expected a link command, found nothing"),
        ("&& ;", "expected a link command of clang or ld.lld, found '&& ;'"),
        ("make -j4 all", "expected a link command of clang or ld.lld, found 'make -j4 all'"),
        ("clang -O2 -c a.c", "expected a link command of clang or ld.lld, found one that does not link (-c)"),
        ("clang -cc1 -O2", "expected a link command of clang or ld.lld, found one that does not link (-cc1)"),
        (
            "clang -flto=thin a.o && clang -flto=thin -O3 b.o",
            "expected one link command, found 2 that do not generate code alike; give the one that made these modules",
        ),
        (
            "ld.lld --lto-Os a.o",
            "reading '--lto-Os' in the link command, expected a level from 0 to 3, found 's'",
        ),
        (
            "ld.lld -plugin-opt=O4",
            "reading '-plugin-opt=O4' in the link command, expected a level from 0 to 3, found '4'",
        ),
    ],
)
def test_bad_input_is_one_line(line: str, message: str):
    with pytest.raises(FormatError) as caught:
        derive(line)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "triple", "found"),
    [
        ("clang -fuse-ld=gold -flto=thin", TRIPLE, "'gold'"),
        ("clang --ld-path=/usr/bin/mold -flto=thin", TRIPLE, "'mold'"),
        ("ld.gold -plugin-opt=O2", TRIPLE, "'ld.gold'"),
        ("lld-link /opt:lldlto=2", TRIPLE, "'lld-link'"),
        ("clang -flto=thin", "arm64-apple-macosx11.0.0", "'arm64-apple-macosx11.0.0'"),
        ("clang -flto=thin", "x86_64-pc-windows-msvc19", "'x86_64-pc-windows-msvc19'"),
        ("clang -flto=thin", "wasm32-unknown-unknown", "'wasm32-unknown-unknown'"),
    ],
)
def test_other_linkers_and_formats_are_unsupported(line: str, triple: str, found: str):
    with pytest.raises(UnsupportedError, match=r"an override is derived from links .* only, found ") as caught:
        derive(line, triple)
    assert str(caught.value).endswith(found)


def test_the_last_linker_counts():
    assert derive("clang -flto=thin -fuse-ld=gold -fuse-ld=lld") == override(*CPU)


def test_no_triple():
    with pytest.raises(FormatError, match=r"^expected the target triple of the link's modules, found none$"):
        derive(DRIVER, "")


_WORDS = st.sampled_from(
    shlex.split("clang ld.lld && '' -Wl, -Wl,-mllvm -mllvm -Xlinker -O -O3 -plugin-opt= -plugin-opt=O -march= -r -")
)


@given(st.lists(_WORDS | st.text(max_size=8)))
def test_any_tokens_give_a_command_or_an_error_of_ours(tokens: list[str]):
    try:
        words = override_from_link_line(tokens, TRIPLE)
    except FormatError as error:
        assert "\n" not in str(error)  # noqa: PT017  (the other branch is as good)
    else:
        assert words[:4] == ("-cc1", "-triple", TRIPLE, "-emit-obj")


# --- against lld's backend

SOURCES = {
    "main.c": """
        int table[64]; extern _Thread_local int tls;
        int helper(int); double scale(double *, int); const char *name(int);
        static int twice(int x) { return helper(x) * 2; }
        int sum(int *p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i] * p[i]; return s; }
        int main(int argc, char **argv) {
          double d[8] = {1, 2, 3, 4, 5, 6, 7, 8};
          tls = argc;
          for (int i = 0; i < 64; i++) table[i] = twice(i + argc);
          return sum(table, 64) + (int)scale(d, 8) + name(argc)[0] + tls;
        }
        """,
    "parts/help.c": """
        static int counter; _Thread_local int tls = 3;
        int helper(int x) { counter += x; return x * x + counter; }
        double scale(double *d, int n) {
          double s = 0;
          for (int i = 0; i < n; i++) { d[i] = d[i] * 1.5 + 0.25; s += d[i]; }
          return s;
        }
        """,
    "parts/name.cpp": """
        struct Name { virtual ~Name() {} virtual const char *text(int k) const = 0; };
        struct Digit : Name {
          const char *text(int k) const override {
            switch (k) {
              case 0: return "zero"; case 1: return "one"; case 2: return "two"; case 3: return "three";
              case 4: return "four"; default: throw k;
            }
          }
        };
        static const char *get(const Name &n, int k) { try { return n.text(k); } catch (int) { return "many"; } }
        extern "C" const char *name(int k) { Digit digit; return get(digit, k); }
        """,
}


class ThinLtoBuild:
    """A ThinLTO build of SOURCES that kept what the backend read and what it wrote."""

    def __init__(self, llvm: Any, folder: Path, compile_options: str) -> None:
        self.llvm = llvm
        self.folder = folder
        self.names = [f"{Path(name).with_suffix('.o')}" for name in SOURCES]
        for name, text in SOURCES.items():
            source = folder / name
            source.parent.mkdir(exist_ok=True)
            source.write_text(text)
            compiler = llvm.clangxx if name.endswith("pp") else llvm.clang
            self.run(compiler, "-flto=thin", *compile_options.split(), "-c", name, "-o", self.object_of(name))

    @staticmethod
    def object_of(name: str) -> str:
        return str(Path(name).with_suffix(".o"))

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert not check or done.returncode == 0, f"{shlex.join(argv)}\n{done.stderr}"
        return done

    def triple(self) -> str:
        return self.run(self.llvm.clang, "-print-target-triple").stdout.strip()

    def link(self, line: str) -> list[str]:
        """Link as the line says, and give its tokens. Libraries stay away: only the backend's work is looked at."""
        program, *options = shlex.split(line)
        prefix = "" if program == "ld.lld" else "-Wl,"
        saved = ("--save-temps=import", "--save-temps=prelink", "--thinlto-emit-index-files")
        argv = [
            self.llvm.ld_lld if program == "ld.lld" else self.llvm.clangxx,
            *([] if program == "ld.lld" else [f"-B{self.llvm.lld_folder}", "-nostdlib"]),
            *options,
            *self.names,
            *("-o", "out"),
            *(f"{prefix}{option}" for option in (*saved, "--unresolved-symbols=ignore-all")),
            *([] if "-r" in options else [f"{prefix}--entry=main"]),
        ]
        self.run(*argv, check=False)  # the backend's objects are there even where the link then fails
        return argv

    def native(self, name: str) -> bytes:
        """Give the object that lld's backend made of an input."""
        return (self.folder / f"{Path(name).parent / 'out'}.lto.{Path(name).stem}.o").read_bytes()

    def replay(self, name: str, words: tuple[str, ...]) -> bytes:
        module = self.folder / f"{name}.3.import.bc"
        target = self.folder / f"{name}.replayed"
        index = self.folder / f"{name}.thinlto.bc"
        self.run(
            self.llvm.clang,
            *words,
            *("-x", "ir", str(module), f"-fthinlto-index={index}"),
            *("-mllvm", "-thinlto-assume-merged", "-o", str(target)),
        )
        return target.read_bytes()


@pytest.mark.llvm
@pytest.mark.parametrize(
    ("compile_options", "line"),
    [
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -O2"),
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -O1"),
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -O2 -Wl,--lto-O3"),
        ("-Os", "clang++ -fuse-ld=lld -flto=thin -Os -no-pie"),
        ("-O2 -fPIC -march=haswell", "clang++ -fuse-ld=lld -flto=thin -O3 -fPIC -shared -march=haswell"),
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -static"),
        ("-O2 -g", "clang++ -fuse-ld=lld -flto=thin -O2 -g -glldb -fno-function-sections"),
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -O2 -Wl,-mllvm,-inline-threshold=0 -Wl,-mllvm,-code-model=large"),
        ("-O2", "clang++ -fuse-ld=lld -flto=thin -r"),
        ("-O2", "ld.lld -pie --lto-O2"),
        ("-O2", "ld.lld -plugin-opt=O3 -mllvm -unique-section-names=0 -mllvm -mc-relax-all --lto-CGO3"),
    ],
)
def test_replay_gives_the_object_of_the_backend(llvm: Any, tmp_path: Path, compile_options: str, line: str):
    build = ThinLtoBuild(llvm, tmp_path, compile_options)
    words = override_from_link_line(build.link(line), build.triple())
    for name in build.names:
        assert build.replay(name, words) == build.native(name), name


@pytest.mark.llvm
def test_replay_of_level_0_comes_close(llvm: Any, tmp_path: Path):
    """What cc1 cannot say: the IR left alone, and code generated at level 2."""
    build = ThinLtoBuild(llvm, tmp_path, "-O2")
    words = override_from_link_line(build.link("clang++ -fuse-ld=lld -flto=thin -O0"), build.triple())
    backend, ours, level_0 = (
        sum(code_size(content(name)) for name in build.names)
        for content in (
            build.native,
            lambda name: build.replay(name, words),
            lambda name: build.replay(name, tuple("-O0" if word == "-O1" else word for word in words)),
        )
    )
    assert abs(ours - backend) < 0.15 * backend < abs(level_0 - backend)


def code_size(content: bytes) -> int:
    """Sum the executable sections of a 64-bit little-endian ELF file."""
    (e_shoff,) = struct.unpack_from("<Q", content, 0x28)
    e_shentsize, e_shnum = struct.unpack_from("<HH", content, 0x3A)
    sections = (struct.unpack_from("<IIQQQQ", content, e_shoff + index * e_shentsize) for index in range(e_shnum))
    return sum(sh_size for _, _, sh_flags, _, _, sh_size in sections if sh_flags & 4)


@pytest.mark.llvm
def test_every_translated_option_is_one_that_clang_takes(llvm: Any, tmp_path: Path):
    """Those that lld takes and clang does not would make each replay fail."""
    help_of_lld = subprocess.run(
        (llvm.ld_lld, "-mllvm", "-help-list-hidden"), cwd=tmp_path, capture_output=True, text=True, timeout=300
    ).stdout
    (tmp_path / "a.c").write_text("int f(void) { return 1; }")
    argv = (llvm.clang, "-c", "a.c", "-o", "a.o", "-mllvm", "-help-list-hidden")
    help_of_clang = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300).stdout
    only_lld = option_names(help_of_lld) - option_names(help_of_clang)
    assert {"function-sections", "code-model", "mcpu", "emulated-tls"} <= only_lld
    passed = {name for name in only_lld if "-mllvm" in derive(f"ld.lld -mllvm -{name}=1")}
    assert passed == set()


def option_names(text: str) -> set[str]:
    lines = (line.strip() for line in text.splitlines())
    words = (line.split()[0].lstrip("-") for line in lines if line.startswith("-"))
    return {word.partition("=")[0] for word in words}
