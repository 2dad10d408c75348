"""Extraction of real objects: faithful to the byte, deterministic, incremental."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, extract_corpus
from mlgo_corpus.errors import UsageError
from tests.conftest import EMBED, Llvm, run_checked, unpack

Compile = Callable[..., Path]

SOURCES = {
    "one.c": "int shared(int); int one(int x) { return shared(x) + 1; }\n",
    "two.c": "int shared(int); int two(int x) { return shared(x) * 2; }\n",
    "three.c": "int shared(int x) { return x ^ 3; } int one(int), two(int); int main(void) { return one(1) + two(2); }",
}


def rows(corpus: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(corpus / "modules.parquet").to_pylist()
    return found


def reasons(corpus: Path) -> dict[str, str]:
    return {row["module"]: row["reason"] for row in rows(corpus)}


def files(folder: Path, *, state: bool = False) -> dict[str, bytes]:
    """Every file of a corpus by its path; the extraction's own state holds times and is left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (state or ".mlgo-corpus" not in path.parts)
    }


def read_like_upstream(corpus: Path) -> dict[str, tuple[bytes, list[bytes]]]:
    """Load a corpus as ml-compiler-opt does: the manifest, then each module's bitcode and its options."""
    description = json.loads((corpus / "corpus_description.json").read_text(encoding="utf-8"))
    assert "global_command_override" not in description
    assert description["modules"]
    loaded = {}
    for name in description["modules"]:
        options = (corpus / f"{name}.cmd").read_bytes().split(b"\0")
        assert options[0] == b"-cc1"
        loaded[name] = ((corpus / f"{name}.bc").read_bytes(), [option for option in options if option])
    return loaded


def compile_sources(llvm: Llvm, compile_c: Compile, *flags: str) -> list[Path]:
    return [compile_c(llvm, text, "-Oz", *EMBED, *flags, name=name) for name, text in SOURCES.items()]


def dump_section(llvm: Llvm, path: Path, section: str) -> bytes:
    dump = path.with_name(path.name + ".dump")
    run_checked(llvm.objcopy, f"--dump-section={section}={dump}", str(path), str(path.with_name(path.name + ".copy")))
    return dump.read_bytes()


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """Real objects, of Lua and zlib."""
    folder = tmp_path / "build"
    for archive in ("lua-clang22", "zlib-clang19"):
        unpack(archive, folder)
    return folder


@pytest.mark.parametrize("archive", ["lua-clang19", "lua-clang22", "zlib-clang19"])
def test_real_objects_come_out_as_objcopy_dumps_them(llvm22: Llvm, tmp_path: Path, archive: str) -> None:
    unpack(archive, tmp_path / "build")
    report = extract_corpus([tmp_path / "build"], tmp_path / "corpus")
    objects = sorted((tmp_path / "build").rglob("*.o"))
    assert report.modules == len(objects) == len(Corpus.open(tmp_path / "corpus"))
    assert report.counts == {"ok": len(objects)}
    assert report.exit_code == 0
    loaded = read_like_upstream(tmp_path / "corpus")
    for path in objects:
        name = str(path.relative_to(tmp_path / "build"))
        bitcode, command = dump_section(llvm22, path, ".llvmbc"), dump_section(llvm22, path, ".llvmcmd")
        assert (tmp_path / "corpus" / f"{name}.bc").read_bytes() == bitcode
        assert (tmp_path / "corpus" / f"{name}.cmd").read_bytes() == command
        assert loaded[name][0] == bitcode
        module = Corpus.open(tmp_path / "corpus")[name]
        assert [os.fsencode(option) for option in module.command()] == loaded[name][1]


def test_the_table_says_what_the_objects_say(llvm22: Llvm, build: Path, tmp_path: Path) -> None:
    extract_corpus([build], tmp_path / "corpus")
    table = {row["module"]: row for row in rows(tmp_path / "corpus")}
    bitcode = dump_section(llvm22, build / "lua/lvm.o", ".llvmbc")
    command = dump_section(llvm22, build / "lua/lvm.o", ".llvmcmd")
    symbols = run_checked(llvm22.nm, "--defined-only", tmp_path / "corpus/lua/lvm.o.bc").splitlines()
    defined = [line for line in symbols if line.split()[1] in "tT"]
    assert table["lua/lvm.o"] == {
        "module": "lua/lvm.o",
        "source": "lua/lvm.o",
        "member": None,
        "status": "ok",
        "reason": "ok",
        "detail": "",
        "bitcode_bytes": len(bitcode),
        "cmd_bytes": len(command),
        "bitcode_sha256": hashlib.sha256(bitcode).hexdigest(),
        "cmd_sha256": hashlib.sha256(command).hexdigest(),
        "cmd_origin": "embedded",
        "target_triple": "x86_64-pc-linux-gnu",
        "producer": "LLVM22.1.8",
        "ir_stage": "pre-opt",
        "opt_level": "z",
        "main_file_name": "lvm.c",
        "duplicate_of": None,
        "functions": len(defined),
        "split": None,
    }
    assert table["zlib/adler32.o"]["producer"] == "LLVM19.1.7"
    metadata = json.loads(pq.read_schema(tmp_path / "corpus/modules.parquet").metadata[b"mlgo_corpus"])
    assert metadata["tool"] == "mlgo-corpus"
    assert len(metadata["corpus_digest"]) == 64


def test_a_command_without_a_level_is_at_0_and_hinted_at(llvm: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    for name, flags in {"plain.c": (), "none.c": ("-O0",), "fast.c": ("-O2",)}.items():
        compile_c(llvm, "int f(void) { return 1; }", *flags, *EMBED, name=f"build/{name}")
    report = extract_corpus([tmp_path / "build"], tmp_path / "corpus", jobs=1)
    assert {row["module"]: row["opt_level"] for row in rows(tmp_path / "corpus")} == {
        "fast.o": "2",
        "none.o": "0",
        "plain.o": "0",
    }
    assert report.unoptimised == 2
    (hint,) = report.hints
    assert hint.startswith("2 of 3 modules are compiled at -O0 (optnone): nothing to decide; build with -DCMAKE_BUILD_")


@pytest.mark.parametrize(
    "how", ["archive", "bsd-archive", "thin-archive", "executable", "shared", "relocatable", "lld"]
)
def test_three_sources_give_three_modules(llvm: Llvm, compile_c: Compile, tmp_path: Path, how: str) -> None:
    objects = compile_sources(llvm, compile_c, "-fPIC")
    out = tmp_path / "out"
    out.mkdir()
    target = out / ("libthree.a" if "archive" in how else "three")
    names = [str(path) for path in objects]
    if how == "archive":
        run_checked(llvm.ar, "rc", str(target), *names)
    elif how == "bsd-archive":
        run_checked(llvm.ar, "--format=bsd", "rc", str(target), *names)
    elif how == "thin-archive":
        run_checked(llvm.ar, "--thin", "rc", str(target), *names)
    elif how == "relocatable":
        run_checked("ld", "-r", *names, "-o", str(target))
    else:
        flags = {"executable": [], "shared": ["-shared"], "lld": [f"-B{llvm.lld_folder}", "-fuse-ld=lld"]}[how]
        run_checked(llvm.clang, *flags, *names, "-o", str(target))
    report = extract_corpus([target], tmp_path / "corpus", input_type="object")
    suffix = ".o" if "archive" in how else ".c"
    corpus = Corpus.open(tmp_path / "corpus")
    assert report.modules == 3
    assert report.bitcode_found == report.bitcode_explained
    for module, path in zip(corpus, objects, strict=True):
        if how != "thin-archive":  # there, members are named as the archive refers to them
            assert module.name.endswith(f"{target.name}/{path.stem}{suffix}")
        assert module.bitcode() == dump_section(llvm, path, ".llvmbc")
        assert module.command_path.read_bytes() == dump_section(llvm, path, ".llvmcmd")
        text = run_checked(llvm.dis, str(module.bitcode_path), "-o", "-")
        assert f'source_filename = "{path.stem}.c"' in text
        command = module.command()
        assert command[command.index("-main-file-name") + 1] == f"{path.stem}.c"


@pytest.mark.parametrize(
    ("target", "triple"),
    [
        ("x86_64-apple-macos11", "x86_64-apple-macosx11.0.0"),
        ("arm64-apple-macos11", "arm64-apple-macosx11.0.0"),
        ("x86_64-pc-windows-msvc", "x86_64-pc-windows-msvc19.33.0"),
        ("aarch64-linux-gnu", "aarch64-unknown-linux-gnu"),
        ("mips-linux-gnu", "mips-unknown-linux-gnu"),
        ("i686-pc-windows-gnu", "i686-pc-windows-gnu"),
        ("armv7-linux-gnueabihf", "armv7-unknown-linux-gnueabihf"),
    ],
)
def test_every_container(llvm: Llvm, compile_c: Compile, tmp_path: Path, target: str, triple: str) -> None:
    path = compile_c(llvm, SOURCES["one.c"], "-Oz", *EMBED, "-target", target, name="out/one.c")
    report = extract_corpus([path.parent], tmp_path / "corpus")
    (module,) = Corpus.open(tmp_path / "corpus")
    text = run_checked(llvm.dis, str(module.bitcode_path), "-o", "-")
    assert f'target triple = "{triple}"' in text
    assert module.command()[:3] == ("-cc1", "-triple", triple)
    (row,) = rows(tmp_path / "corpus")
    assert row["target_triple"] == triple
    assert (row["main_file_name"], row["reason"]) == ("one.c", "ok")
    assert report.bitcode_found == report.bitcode_explained
    if "apple" in target:  # the wrapper came off
        assert report.bitcode_found > report.bitcode_bytes
    assert module.bitcode()[:4] == b"BC\xc0\xde"
    # The module can be compiled again by its own command.
    again = tmp_path / "again.o"
    command = [option for option in module.command() if option != "-fembed-bitcode=all"]
    run_checked(llvm.clang, *command, "-x", "ir", str(module.bitcode_path), "-o", str(again))
    assert again.stat().st_size > 100


def test_a_fat_file_gives_a_module_per_architecture(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    import struct

    parts = [
        compile_c(llvm22, SOURCES["one.c"], *EMBED, "-target", f"{arch}-apple-macos11", output=f"{arch}.o").read_bytes()
        for arch in ("x86_64", "arm64")
    ]
    # llvm-lipo would put the embedded bitcode in the place of its object, so the file is put together here.
    offsets = [4096, 4096 + (len(parts[0]) + 4095) // 4096 * 4096]
    header = struct.pack(">II", 0xCAFEBABE, 2)
    for (cpu, subtype), offset, part in zip([(0x01000007, 3), (0x0100000C, 0)], offsets, parts, strict=True):
        header += struct.pack(">IIIII", cpu, subtype, offset, len(part), 12)
    fat = header.ljust(4096, b"\0") + parts[0].ljust(offsets[1] - 4096, b"\0") + parts[1]
    (tmp_path / "fat.o").write_bytes(fat)
    assert run_checked(llvm22.lipo, "-archs", str(tmp_path / "fat.o")).split() == ["x86_64", "arm64"]
    extract_corpus([tmp_path / "fat.o"], tmp_path / "corpus")
    assert [(row["member"], row["target_triple"]) for row in rows(tmp_path / "corpus")] == [
        ("x86_64", "x86_64-apple-macosx11.0.0"),
        ("arm64", "arm64-apple-macosx11.0.0"),
    ]


def test_other_ways_to_hold_bitcode(llvm22: Llvm, gcc: str, compile_c: Compile, tmp_path: Path) -> None:
    text = SOURCES["one.c"]
    raw = compile_c(llvm22, text, "-O2", "-flto", output="out/raw.o")
    compile_c(llvm22, text, "-O2", "-flto=thin", output="out/thin.o")
    fat = compile_c(llvm22, text, "-O2", "-flto=thin", "-ffat-lto-objects", output="out/fat.o")
    compile_c(llvm22, text, "-O2", "-fembed-bitcode", output="out/post.o")
    compile_c(llvm22, text, "-O2", "-fembed-bitcode=bitcode", output="out/only.o")
    compile_c(llvm22, text, "-O2", "-fembed-bitcode=marker", output="out/marker.o")
    compile_c(llvm22, text, "-O2", output="out/plain.o")
    compile_c(llvm22, text, "-O2", "-flto", *EMBED, "-target", "x86_64-apple-macos11", output="out/wrapped.o")
    (tmp_path / "asm.s").write_text("f: ret\n")
    run_checked(llvm22.clang, "-c", "asm.s", "-o", "out/asm.o", cwd=tmp_path)
    run_checked(gcc, "-c", "a.c", "-o", "out/gcc.o", cwd=tmp_path)
    run_checked(gcc, "-c", "-flto", "a.c", "-o", "out/gcclto.o", cwd=tmp_path)
    report = extract_corpus([tmp_path / "out"], tmp_path / "corpus")
    assert reasons(tmp_path / "corpus") == {
        "asm.o": "no_bitcode",
        "fat.o": "raw_lto",
        "gcc.o": "no_bitcode",
        "gcclto.o": "no_bitcode",
        "marker.o": "no_bitcode",
        "only.o": "no_command",
        "plain.o": "no_bitcode",
        "post.o": "post_opt_ir",
        "raw.o": "raw_lto",
        "thin.o": "raw_lto",
        "wrapped.o": "raw_lto",
    }
    corpus = tmp_path / "corpus"
    details = {row["module"]: row["detail"] for row in rows(corpus)}
    assert details["gcc.o"].startswith("no bitcode section; made by GCC: (")
    assert details["plain.o"].endswith("compiled without -Xclang -fembed-bitcode=all")
    assert details["gcclto.o"] == "a GCC LTO object: GIMPLE, not LLVM bitcode"
    assert details["asm.o"] == "no bitcode section; no compiler has signed it: assembly?"
    assert (corpus / "raw.o.bc").read_bytes() == raw.read_bytes()
    assert (corpus / "fat.o.bc").read_bytes() == dump_section(llvm22, fat, ".llvm.lto")
    assert (corpus / "wrapped.o.bc").read_bytes()[:4] == b"BC\xc0\xde"
    assert not list(corpus.glob("raw.o.cmd"))
    table = {row["module"]: row for row in rows(corpus)}
    assert table["raw.o"]["cmd_origin"] == "none"
    assert table["raw.o"]["target_triple"] == "x86_64-pc-linux-gnu"
    assert (table["post.o"]["ir_stage"], table["post.o"]["status"]) == ("post-opt", "ok")
    assert report.without_command == 5
    assert report.bitcode_found == report.bitcode_explained
    assert any("`command_override`" in hint for hint in report.hints)

    extract_corpus([tmp_path / "out"], tmp_path / "strict", require_command=True)
    assert Corpus.open(tmp_path / "strict").names == ("post.o",)
    extract_corpus([tmp_path / "out"], tmp_path / "override", command_override="-cc1 -O2")
    overridden = Corpus.open(tmp_path / "override")
    assert overridden.global_command_override == ("-cc1", "-O2")
    assert overridden["raw.o"].command() == ("-cc1", "-O2")


def test_modules_without_a_command_between_others(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    one = compile_c(llvm22, SOURCES["one.c"], "-Oz", *EMBED, name="one.c")
    two = compile_c(llvm22, SOURCES["two.c"], "-Oz", "-fembed-bitcode=bitcode", name="two.c")
    three = compile_c(llvm22, SOURCES["three.c"], "-Oz", *EMBED, name="three.c")
    run_checked("ld", "-r", str(one), str(two), str(three), "-o", str(tmp_path / "all.o"))
    extract_corpus([tmp_path / "all.o"], tmp_path / "corpus")
    assert [(row["member"], row["reason"], row["main_file_name"]) for row in rows(tmp_path / "corpus")] == [
        ("one.c", "ok", "one.c"),
        ("two.c", "no_command", None),
        ("three.c", "ok", "three.c"),
    ]


def test_commands_that_cannot_be_paired_are_given_to_nobody(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    objects = compile_sources(llvm22, compile_c)
    commands = [dump_section(llvm22, path, ".llvmcmd") for path in objects]
    run_checked("ld", "-r", *map(str, objects), "-o", str(tmp_path / "all.o"))
    (tmp_path / "swapped").write_bytes(commands[1] + commands[0] + commands[2])
    swap = f"--update-section=.llvmcmd={tmp_path / 'swapped'}"
    run_checked(llvm22.objcopy, swap, str(tmp_path / "all.o"), str(tmp_path / "x.o"))
    report = extract_corpus([tmp_path / "x.o"], tmp_path / "corpus")
    assert [row["reason"] for row in rows(tmp_path / "corpus")] == ["unpaired_command"] * 3
    assert report.bitcode_found == report.bitcode_explained
    assert report.exit_code == 1


def test_duplicate_members_of_an_archive_get_two_names(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    first = compile_c(llvm22, SOURCES["one.c"], *EMBED, name="x/same.c")
    second = compile_c(llvm22, SOURCES["two.c"], *EMBED, name="y/same.c")
    run_checked(llvm22.ar, "qc", str(tmp_path / "lib.a"), str(first), str(second))
    extract_corpus([tmp_path / "lib.a"], tmp_path / "corpus")
    found = rows(tmp_path / "corpus")
    assert [(Path(row["module"]).name, row["member"], row["reason"]) for row in found] == [
        ("same.o", "same.o", "ok"),
        ("same~2.o", "same.o", "renamed"),
    ]
    corpus = Corpus.open(tmp_path / "corpus")
    assert [module.bitcode() for module in corpus] == [
        dump_section(llvm22, path, ".llvmbc") for path in (first, second)
    ]


def test_a_compilation_database(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    flags = ["-Oz", *EMBED]
    compile_c(llvm22, SOURCES["one.c"], *flags, name="src dir/one.c", output="obj dir/one.o")
    compile_c(llvm22, SOURCES["two.c"], *flags, name="two.c", output="sub/two.o")
    compile_c(llvm22, SOURCES["three.c"], *flags, "-D", "Q='\"\xff\n{}'", name="three.c", output="three.o")
    entries = [
        {
            "directory": str(tmp_path),
            "file": "src dir/one.c",
            "command": shlex.join(["clang", *flags, "-c", "src dir/one.c", "-o", "obj dir/one.o"]),
        },
        {"directory": str(tmp_path / "sub"), "file": "../two.c", "arguments": ["clang", "-c", "../two.c"]},
        {
            "directory": str(tmp_path),
            "file": "three.c",
            "arguments": ["clang", "-c", "three.c", f"-o{tmp_path}/three.o"],
        },
        {"directory": str(tmp_path), "file": "never.c", "arguments": ["clang", "-c", "never.c", "-o", "never.o"]},
        {"directory": str(tmp_path), "file": "h.h", "arguments": ["clang", "-fsyntax-only", "h.h"]},
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    report = extract_corpus([tmp_path / "compile_commands.json"], tmp_path / "corpus")
    assert reasons(tmp_path / "corpus") == {
        "obj dir/one.o": "ok",
        "two.o": "ok",
        "three.o": "ok",
        "never.o": "missing",
        "h.h": "no_output",
    }
    assert [row["source"] for row in rows(tmp_path / "corpus")][:2] == ["obj dir/one.o", "sub/two.o"]
    assert report.exit_code == 1
    assert "Q='\"\xff\n{}'".encode() in (tmp_path / "corpus/three.o.cmd").read_bytes()
    assert "Q='\"\xff\n{}'" in Corpus.open(tmp_path / "corpus")["three.o"].command()


def test_objects_outside_the_build_stay_inside_the_corpus(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    one = compile_c(llvm22, SOURCES["one.c"], *EMBED, output="outside/a.o")
    compile_c(llvm22, SOURCES["two.c"], *EMBED, output="build/a.o")
    (tmp_path / "build/x").mkdir()
    entries = [
        {"directory": str(tmp_path / "build"), "file": "a.c", "arguments": ["cc", "-c", "a.c", "-o", name]}
        for name in ("../outside/a.o", "a.o", str(one), "x/../a.o")
    ]
    (tmp_path / "build/compile_commands.json").write_text(json.dumps(entries))
    before = files(tmp_path)
    extract_corpus([tmp_path / "build/compile_commands.json"], tmp_path / "corpus")
    names = Corpus.open(tmp_path / "corpus").names
    assert names == ("_up/outside/a.o", "a.o")  # the others are the same two files again
    after = {name: data for name, data in files(tmp_path).items() if not name.startswith("corpus/")}
    assert after == before


def test_one_name_for_two_objects(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    for folder, text in (("p", SOURCES["one.c"]), ("q", SOURCES["two.c"])):
        compile_c(llvm22, text, *EMBED, name=f"{folder}/f.c", output=f"{folder}/f.o")
    entries = [
        {"directory": str(tmp_path / folder), "file": "f.c", "arguments": ["cc", "-c", "f.c", "-o", "f.o"]}
        for folder in ("p", "q")
    ]
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    extract_corpus([tmp_path / "compile_commands.json"], tmp_path / "corpus")
    assert [(row["module"], row["source"], row["reason"]) for row in rows(tmp_path / "corpus")] == [
        ("f.o", "p/f.o", "ok"),
        ("f~2.o", "q/f.o", "renamed"),
    ]


def test_the_result_does_not_depend_on_the_workers(build: Path, tmp_path: Path) -> None:
    (build / "broken.o").write_bytes((build / "lua/lvm.o").read_bytes()[:5000])
    reports = [extract_corpus([build], tmp_path / f"c{jobs}", jobs=jobs) for jobs in (1, 2, 7)]
    first = files(tmp_path / "c1")
    assert len(first) == 2 * reports[0].modules + 2
    for jobs in (2, 7):
        assert files(tmp_path / f"c{jobs}") == first


def test_the_result_does_not_depend_on_the_file_system(build: Path, tmp_path: Path) -> None:
    again = tmp_path / "again/build"
    for path in sorted(build.rglob("*.o"), reverse=True):
        target = again / path.relative_to(build)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    extract_corpus([build], tmp_path / "c1")
    extract_corpus([again], tmp_path / "c2")
    assert files(tmp_path / "c1") == files(tmp_path / "c2")


def test_a_tree_of_gcc_s_is_told_of_build(gcc: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(int x) { return x; }\n")
    run_checked(gcc, "-O2", "-c", "a.c", "-o", "a.o", cwd=tmp_path)
    report = extract_corpus([tmp_path / "a.o"], tmp_path / "corpus")
    (hint,) = report.hints
    assert hint.startswith(f"1 object is without bitcode, such as {tmp_path}/a.o: clean, and put 'mlgo-corpus build' ")


def test_filters(build: Path, tmp_path: Path) -> None:
    report = extract_corpus([build], tmp_path / "c1", module_filter=r"^lua/l[a-c]")
    kept = {
        path for path in (f"lua/{item.name}" for item in (build / "lua").iterdir()) if path[4:6] in ("la", "lb", "lc")
    }
    assert set(Corpus.open(tmp_path / "c1").names) == kept
    assert report.counts["filtered"] == len(list(build.rglob("*.o"))) - len(kept)
    assert report.bitcode_found == report.bitcode_explained
    extract_corpus([build], tmp_path / "c2", cmd_filters=["^-Oz$", "^l(vm|api)[.]c$"])
    assert Corpus.open(tmp_path / "c2").names == ("lua/lapi.o", "lua/lvm.o")
    report = extract_corpus([build], tmp_path / "c3", cmd_filters=["^nothing$"])
    assert (report.modules, report.exit_code) == (0, 1)
    assert "the filters left out all of the" in report.hints[0]


def test_dedup_keeps_the_first(llvm22: Llvm, build: Path, tmp_path: Path) -> None:
    members = [str(build / "zlib" / name) for name in ("adler32.o", "crc32.o")]
    run_checked(llvm22.ar, "rc", str(build / "zlib/libz.a"), *members)
    plain = extract_corpus([build], tmp_path / "plain")
    assert plain.duplicates == 2
    assert any("`dedup`" in hint for hint in plain.hints)
    assert plain.modules == len(list(build.rglob("*.o"))) + 2
    for jobs in (1, 2):
        report = extract_corpus([build], tmp_path / f"dedup{jobs}", dedup=True, jobs=jobs)
        assert (report.modules, report.duplicates) == (plain.modules - 2, 2)
    assert files(tmp_path / "dedup1") == files(tmp_path / "dedup2")
    table = {row["module"]: row for row in rows(tmp_path / "dedup1")}
    left_out = table["zlib/libz.a/adler32.o"]
    assert (left_out["status"], left_out["reason"], left_out["duplicate_of"]) == (
        "skipped",
        "duplicate",
        "zlib/adler32.o",
    )
    assert not (tmp_path / "dedup1/zlib/libz.a").exists()
    # Brought up to date after the kept one is gone, the other takes its place.
    (build / "zlib/adler32.o").unlink()
    report = extract_corpus([build], tmp_path / "dedup1", dedup=True)
    assert "zlib/libz.a/adler32.o" in Corpus.open(tmp_path / "dedup1").names
    assert (tmp_path / "dedup1/zlib/libz.a/adler32.o.bc").exists()


def test_only_what_changed_is_read_again(llvm22: Llvm, build: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    first = extract_corpus([build], corpus)
    stamps = {name: (corpus / name).stat().st_mtime_ns for name in files(corpus)}
    again = extract_corpus([build], corpus)
    assert (again.unchanged, again.modules, again.removed) == (first.objects, first.modules, 0)
    assert again.counts == first.counts
    assert (again.bitcode_bytes, again.bitcode_found) == (first.bitcode_bytes, first.bitcode_found)

    time.sleep(0.01)
    os.utime(build / "lua/lapi.o")  # touched, not changed
    shutil.copy(build / "lua/lgc.o", build / "lua/lvm.o")  # changed
    (build / "lua/lzio.o").unlink()  # gone
    shutil.copy(build / "lua/lmem.o", build / "lua/new.o")  # new
    report = extract_corpus([build], corpus)
    assert report.unchanged == first.objects - 3
    assert report.removed == 1
    assert not (corpus / "lua/lzio.o.bc").exists()
    assert not (corpus / "lua/lzio.o.cmd").exists()
    assert (corpus / "lua/lvm.o.bc").read_bytes() == (corpus / "lua/lgc.o.bc").read_bytes()
    assert (corpus / "lua/lapi.o.bc").stat().st_mtime_ns == stamps["lua/lapi.o.bc"]
    extract_corpus([build], tmp_path / "fresh")
    assert files(corpus) == files(tmp_path / "fresh")


def test_a_file_missing_from_the_corpus_is_made_again(build: Path, tmp_path: Path) -> None:
    extract_corpus([build], tmp_path / "corpus")
    before = files(tmp_path / "corpus")
    (tmp_path / "corpus/lua/lvm.o.cmd").unlink()
    (tmp_path / "corpus/lua/lgc.o.bc").write_bytes(b"short")
    report = extract_corpus([build], tmp_path / "corpus")
    assert report.unchanged == report.objects - 2
    assert files(tmp_path / "corpus") == before


def test_what_another_version_made_is_read_again(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = tmp_path / "corpus"
    extract_corpus([build], corpus)
    before = files(corpus)
    monkeypatch.setattr("mlgo_corpus.runs.extract.run.__version__", "99")
    assert extract_corpus([build], corpus).unchanged == 0
    assert {name: data for name, data in files(corpus).items() if name != "modules.parquet"} == {
        name: data for name, data in before.items() if name != "modules.parquet"
    }
    assert extract_corpus([build], corpus).unchanged > 0


def test_another_extraction_is_not_mixed_in(build: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    extract_corpus([build / "lua"], corpus)
    before = files(corpus, state=True)
    with pytest.raises(UsageError, match="was extracted from other inputs, or with another `build_dir`; name another"):
        extract_corpus([build / "zlib"], corpus)
    with pytest.raises(UsageError, match="was extracted without `module_filter`; name another"):
        extract_corpus([build / "lua"], corpus, module_filter="x")
    assert files(corpus, state=True) == before
    report = extract_corpus([build / "zlib"], corpus, force=True)
    assert report.modules == len(list((build / "zlib").iterdir()))
    assert "lvm.o.bc" not in files(corpus)
    extract_corpus([build / "zlib"], tmp_path / "fresh")
    assert files(corpus) == files(tmp_path / "fresh")


def test_an_extraction_without_modules_gives_way_to_another(build: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    (tmp_path / "compile_commands.json").write_text(
        '[{"directory": ".", "file": "a.c", "command": "cc -c a.c"}]'  # nothing is built yet
    )
    assert extract_corpus([tmp_path / "compile_commands.json"], corpus).counts == {"missing": 1}
    assert extract_corpus([build / "lua"], corpus, module_filter="no such module").modules == 0
    extract_corpus([build / "lua"], corpus)
    extract_corpus([build / "lua"], tmp_path / "fresh")
    assert files(corpus) == files(tmp_path / "fresh")


def test_what_is_no_corpus_is_not_written_into(build: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not empty, and no corpus; name another `output`"):
        extract_corpus([build], tmp_path / "mine")
    assert files(tmp_path / "mine", state=True) == {"thesis.txt": b"years of work"}
    extract_corpus([build], tmp_path / "mine", force=True)
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"
    with pytest.raises(UsageError, match=r"thesis.txt: not a folder"):
        extract_corpus([build], tmp_path / "mine/thesis.txt")


def test_a_corpus_inside_the_build_is_not_read_as_input(build: Path) -> None:
    first = extract_corpus([build], build / "corpus")
    again = extract_corpus([build], build / "corpus")
    assert (again.objects, again.unchanged) == (first.objects, first.objects)


def test_mixed_inputs(llvm22: Llvm, build: Path, tmp_path: Path) -> None:
    (tmp_path / "link.params").write_text(f"-o\napp\n{build}/lua/lvm.o\n{build}/lua/lgc.o\n-lm\n")
    report = extract_corpus(
        [tmp_path / "link.params", build / "zlib", build / "lua/lapi.o", build / "lua/lvm.o"], tmp_path / "corpus"
    )
    assert report.modules == 3 + len(list((build / "zlib").iterdir()))
    names = Corpus.open(tmp_path / "corpus").names
    assert [Path(name).name for name in names[:2]] == ["lvm.o", "lgc.o"]
    assert "adler32.o" in names


def test_custom_sections(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    path = compile_c(llvm22, SOURCES["one.c"], *EMBED)
    other = tmp_path / "other.o"
    run_checked(
        llvm22.objcopy, "--rename-section=.llvmbc=.bits", "--rename-section=.llvmcmd=.line", str(path), str(other)
    )
    assert extract_corpus([other], tmp_path / "c1").counts == {"no_bitcode": 1}
    extract_corpus([other], tmp_path / "c2", bitcode_section=".bits", cmd_section=".line")
    (module,) = Corpus.open(tmp_path / "c2")
    assert module.bitcode() == dump_section(llvm22, path, ".llvmbc")
    assert module.command()[0] == "-cc1"
    assert extract_corpus([path], tmp_path / "c3", bitcode_section=".bits").hints == (
        f"1 object is without that section, such as {path}, but with bitcode in the usual one: leave out "
        "`bitcode_section`",
    )


def test_import_libraries_of_windows(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "lib.def").write_text("LIBRARY x.dll\nEXPORTS\n  f\n")
    tool = llvm22.tool("llvm-dlltool")
    run_checked(tool, "-m", "i386:x86-64", "-d", "lib.def", "-l", "x.lib", cwd=tmp_path)
    report = extract_corpus([tmp_path / "x.lib"], tmp_path / "corpus")
    assert (report.counts, report.failed, report.hints) == ({"no_bitcode": 4}, 0, ())
    assert {row["detail"] for row in rows(tmp_path / "corpus")} == {"part of an import library: the code is in a DLL"}


def test_progress_reaches_the_total(build: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = extract_corpus([build], tmp_path / "corpus", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (report.objects, report.objects)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.whole
def test_duplicates_are_not_read_again(build: Path, tmp_path: Path) -> None:
    shutil.copytree(build / "lua", build / "more")
    first = extract_corpus([build], tmp_path / "corpus", dedup=True)
    before = files(tmp_path / "corpus")
    again = extract_corpus([build], tmp_path / "corpus", dedup=True)
    assert again.unchanged == again.objects == first.objects
    assert (again.duplicates, again.counts) == (first.duplicates, first.counts)
    assert files(tmp_path / "corpus") == before
    # An object that comes first now takes the place of the one that was kept.
    shutil.copy(build / "lua/lvm.o", build / "aaa.o")
    extract_corpus([build], tmp_path / "corpus", dedup=True)
    extract_corpus([build], tmp_path / "fresh", dedup=True)
    assert files(tmp_path / "corpus") == files(tmp_path / "fresh")
    assert "aaa.o" in Corpus.open(tmp_path / "corpus").names
    (build / "aaa.o").unlink()
    (build / "lua/lvm.o").unlink()
    extract_corpus([build], tmp_path / "corpus", dedup=True)
    extract_corpus([build], tmp_path / "fresher", dedup=True)
    assert files(tmp_path / "corpus") == files(tmp_path / "fresher")
    assert "more/lvm.o" in Corpus.open(tmp_path / "corpus").names
