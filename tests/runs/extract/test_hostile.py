"""Hostile input and misuse: a row with a reason or one clear line; nothing outside the corpus is touched."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import Corpus, extract_corpus
from mlgo_corpus.builds.objects import Embedded
from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files import atomic
from mlgo_corpus.files.names import NameRegistry
from mlgo_corpus.runs.extract import module as extraction
from tests.conftest import EMBED, PACKAGE_ROOT, Llvm, run_checked
from tests.forked import run_cli
from tests.formats.objects.test_objfile import elf_file
from tests.runs.extract.test_bad_input import CLI
from tests.runs.extract.test_extract import files, reasons, rows
from tests.runs.extract.test_incremental import ar, put, real_objects, sections

pytestmark = pytest.mark.whole

Compile = Callable[..., Path]


def cli(
    *arguments: str | bytes | Path, limit: float = 60, through: str = "", **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run ``mlgo-corpus`` in a process of its own, which may not hang."""
    settings = {"PYTHONPATH": PACKAGE_ROOT, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    if not through and not options.keys() - {"cwd"}:
        words = [os.fsdecode(one) for one in arguments]
        done = run_cli(*words, cwd=options.get("cwd"), env={**os.environ, **settings}, timeout=limit)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, **settings}, **options}
    argv = (*(("sh", "-c", through, "sh") if through else ()), *CLI, *arguments)
    return subprocess.run(argv, timeout=limit, check=False, stdin=subprocess.DEVNULL, **options)


def one_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """Give what a failed command said on stderr: one line, that begins with the program's name."""
    text = done.stderr.decode()
    assert text.startswith("mlgo-corpus: error: "), text
    assert text.count("\n") == 1, text
    return text.removeprefix("mlgo-corpus: error: ").rstrip("\n")


@pytest.fixture(scope="module")
def small() -> list[bytes]:
    return real_objects()


@pytest.fixture
def build(small: list[bytes], tmp_path: Path) -> Path:
    """Three real objects, one in a folder."""
    for name, data in zip(("a.o", "b.o", "s/c.o"), small, strict=False):
        put(tmp_path / "build" / name, data)
    return tmp_path / "build"


def test_a_command_that_may_be_anothers_is_given_to_nobody(
    llvm22: Llvm, compile_c: Compile, small: list[bytes], tmp_path: Path
) -> None:
    """Defect 5: x/util.c, made without a command, got the one of y/util.c."""
    x = compile_c(llvm22, "int x(void) { return 1; }", "-Oz", "-fembed-bitcode=bitcode", name="x/util.c")
    y = compile_c(llvm22, "int YYY(void) { return 2; }", "-Oz", *EMBED, "-DYYY=y", name="y/util.c")
    z = compile_c(llvm22, "int z(void) { return 3; }", "-Oz", *EMBED, name="z.c")
    for name, parts in (("xyz", (x, y, z)), ("yxz", (y, x, z))):
        run_checked("ld", "-r", *map(str, parts), "-o", str(tmp_path / f"{name}.o"))
        report = extract_corpus([tmp_path / f"{name}.o"], tmp_path / name)
        found = rows(tmp_path / name)
        assert [row["reason"] for row in found] == ["unpaired_command", "unpaired_command", "ok"]
        assert found[0]["detail"] == "3 modules and 2 commands: it cannot be told which is this one's"
        assert report.bitcode_found == report.bitcode_explained


def test_preprocessed_sources_find_their_commands(llvm22: Llvm, tmp_path: Path) -> None:
    """Defect 22: the command names the .i file, the module the .c file of its line markers."""
    for name, level in (("one", "-O1"), ("two", "-O2")):
        (tmp_path / f"{name}.i").write_text(f'# 1 "{name}.c"\nint {name}(void) {{ return 1; }}\n')
        run_checked(llvm22.clang, level, *EMBED, "-c", f"{name}.i", "-o", f"{name}.o", cwd=tmp_path)
    run_checked("ld", "-r", "one.o", "two.o", "-o", "all.o", cwd=tmp_path)
    extract_corpus([tmp_path / "all.o"], tmp_path / "corpus")
    found = [
        (row["member"], row["reason"], row["main_file_name"], row["opt_level"]) for row in rows(tmp_path / "corpus")
    ]
    assert found == [("one.c", "ok", "one.i", "1"), ("two.c", "ok", "two.i", "2")]


def test_a_marker_is_a_row(llvm22: Llvm, compile_c: Compile, tmp_path: Path) -> None:
    """Defect 10: on Mach-O the marker is a section of one zero byte, and the object had no row at all."""
    target = ("-target", "x86_64-apple-macos11")
    compile_c(llvm22, "int f(void) { return 1; }", "-fembed-bitcode=marker", *target, output="in/marker.o")
    for size in (0, 1, 16):
        put(tmp_path / f"in/zeros{size}.o", elf_file([(".llvmbc", bytes(size)), (".llvmcmd", b"")]))
    report = extract_corpus([tmp_path / "in"], tmp_path / "corpus")
    found = [(row["module"], row["reason"], row["detail"]) for row in rows(tmp_path / "corpus")]
    told = "a bitcode section without bitcode: compiled with -fembed-bitcode=marker?"
    assert [row for row in found if row[0] != "zeros0.o"] == [
        (name, "no_bitcode", told) for name in ("marker.o", "zeros1.o", "zeros16.o")
    ]
    assert found[1][:2] == ("zeros0.o", "no_bitcode")
    assert report.bitcode_found == report.bitcode_explained > 0


def test_the_books_balance_for_bitcode_cut_anywhere(small: list[bytes], tmp_path: Path) -> None:
    """Defect 11: what a truncated -flto object lost was found, and never explained."""
    bitcode, _ = sections(small[0])
    for size in range(4, len(bitcode), 37):
        put(tmp_path / f"in/{size:05}.o", bitcode[:size])
    put(tmp_path / "in/two.o", bitcode + bitcode[:900])
    report = extract_corpus([tmp_path / "in"], tmp_path / "corpus")
    assert report.bitcode_found == report.bitcode_explained == sum(p.stat().st_size for p in tmp_path.glob("in/*"))
    assert report.counts["truncated"] == report.objects
    assert reasons(tmp_path / "corpus")["two.o/0"] == "raw_lto"


def fat(slices: list[tuple[int, int]], body: bytes) -> bytes:
    """Write a fat Mach-O file's header before ``body``, padded so that offsets count from the file's start."""
    archs = b"".join(struct.pack(">IIIII", 0x01000007, 3, offset, size, 0) for offset, size in slices)
    return struct.pack(">II", 0xCAFEBABE, len(slices)) + archs + body


def thin(names: list[bytes], table: bytes = b"") -> bytes:
    """Write a thin archive whose members' headers say ``names``."""
    header = "{:<12}{:<6}{:<6}{:<8}{:<10}`\n"
    archive = b"!<thin>\n"
    if table:
        archive += b"//".ljust(16) + header.format("", "", "", "", len(table)).encode() + table
        archive += b"\n" * (len(table) % 2)
    return archive + b"".join(name.ljust(16) + header.format(0, 0, 0, 644, 100).encode() for name in names)


def headers_over_one_payload(name: str, payload: bytes, count: int, *more: tuple[str, bytes]) -> bytes:
    """Write an ELF object with ``count`` sections that all have the same bytes."""
    data = bytearray(elf_file([(name, payload), *more, *[(name, b"")] * (count - 1)]))
    (table,) = struct.unpack_from("<Q", data, 40)
    first = table + 64
    for index in range(count - 1):
        at = first + 64 * (1 + len(more) + index)
        data[at + 24 : at + 40] = data[first + 24 : first + 40]
    return bytes(data)


def test_each_hostile_object_is_a_row_beside_a_good_one(build: Path, small: list[bytes], tmp_path: Path) -> None:
    """Defects 13, 23 and 24: each of these ended the run, or told what it must not."""
    bitcode, command = sections(small[0])
    inner = fat([(28, 64)], bytes(64))
    (tmp_path / "secret").write_text("root:x:0:0:the secret\n")
    objects = {
        "fat-self.o": fat([(0, 4096)], bytes(8192)),
        "fat-overlap.o": fat([(48, 4096), (4000, 4096)], bytes(8192)),
        "fat-fat.o": fat([(28, len(inner))], inner),
        "nul.a": thin([b"a\0b.o/"]),
        "text.a": thin([b"/0"], b"../secret/\n"),
        "folder.a": thin([b"s/"]),
        "again.a": thin([b"a.o/", b"./a.o/", b"a.o/"]),
        "comment.o": elf_file([(".comment", b"A" * 5000)]),
        "overlap.o": headers_over_one_payload(".llvmbc", bitcode, 500),
        "lto-overlap.o": headers_over_one_payload(".llvm.lto", bitcode, 500),
        "cmd-overlap.o": headers_over_one_payload(".llvmcmd", command, 500, (".llvmbc", bitcode)),
        "empty\n.o": b"",
    }
    for name, data in objects.items():
        put(build / name, data)
    report = extract_corpus([build], tmp_path / "corpus", jobs=2)
    found = {row["module"]: row for row in rows(tmp_path / "corpus")}
    told = {name: (row["reason"], row["detail"]) for name, row in found.items()}
    assert "embedded null " in told["nul.a/a%00b.o"][1]  # as each Python words it
    assert told == {
        **dict.fromkeys(("a.o", "b.o", "s/c.o"), ("ok", "")),
        "fat-self.o": ("malformed", "byte 0: the slice for x86_64 overlaps another, or the header"),
        "fat-overlap.o": ("malformed", "byte 4000: the slice for x86_64 overlaps another, or the header"),
        "fat-fat.o": ("malformed", "byte 28: a fat file inside a fat file"),
        "nul.a/a%00b.o": ("unreadable", told["nul.a/a%00b.o"][1]),
        "text.a/_up/secret": ("unsupported_format", "'../secret' is no object file"),
        "folder.a/s": ("unreadable", "Is a directory"),
        "again.a/a.o": ("ok", ""),
        "comment.o": ("no_bitcode", f"no bitcode section; made by {'A' * 1000}"),
        "overlap.o": ("malformed", "byte 64: section '.llvmbc' overlaps another"),
        "lto-overlap.o": ("malformed", "byte 64: section '.llvm.lto' overlaps another"),
        "cmd-overlap.o": ("malformed", "byte 64: section '.llvmcmd' overlaps another"),
        "empty%0A.o": ("truncated", "the file is empty"),
    }
    assert report.bitcode_found == report.bitcode_explained
    assert not any(b"the secret" in data for data in files(tmp_path / "corpus", state=True).values())


def test_two_fat_lto_sections_are_two_modules(small: list[bytes], tmp_path: Path) -> None:
    one, two = (sections(data)[0] for data in small[:2])
    put(tmp_path / "b/x.o", elf_file([(".llvm.lto", one), (".llvm.lto", two)]))
    extract_corpus([tmp_path / "b"], tmp_path / "corpus")
    assert [module.bitcode() for module in Corpus.open(tmp_path / "corpus")] == [one, two]


def test_a_command_section_of_nuls_beside_the_real_one(small: list[bytes], tmp_path: Path) -> None:
    bitcode, command = sections(small[0])
    for number, parts in enumerate(((bytes(8), command), (command, bytes(8)), (bytes(8), bytes(8)))):
        put(tmp_path / f"b/{number}.o", elf_file([(".llvmbc", bitcode), *((".llvmcmd", part) for part in parts)]))
    extract_corpus([tmp_path / "b"], tmp_path / "corpus")
    assert reasons(tmp_path / "corpus") == {"0.o": "ok", "1.o": "ok", "2.o": "no_command"}
    found = files(tmp_path / "corpus")
    assert [found.get(f"{number}.o.cmd") for number in range(3)] == [command, command, None]


def test_names_of_any_length(build: Path, small: list[bytes], tmp_path: Path) -> None:
    """An archive member's name of 6 kB; components as long as a file system takes, twice, with an index."""
    long = "n" * 6000 + ".o"
    table = f"{long}/\n".encode()
    member = b"/0".ljust(16) + f"{0:<12}{0:<6}{0:<6}{644:<8}{len(small[0]):<10}`\n".encode() + small[0]
    head = b"//".ljust(16) + f"{'':<32}{len(table):<10}`\n".encode() + table + b"\n" * (len(table) % 2)
    put(build / "lib.a", b"!<arch>\n" + head + member)
    put(build / ".modules.parquet.tmp/x.o", small[3])
    put(build / ".mlgo-corpus/y.o", small[4])
    entry = {"directory": str(build), "file": "y.c", "command": "cc -c y.c -o .mlgo-corpus/y.o"}
    put(tmp_path / "compile_commands.json", json.dumps([entry]).encode())
    report = extract_corpus([build, tmp_path / "compile_commands.json"], tmp_path / "corpus")
    assert (report.modules, report.failed) == (6, 0)
    (name,) = [name for name in reasons(tmp_path / "corpus") if name.startswith("lib.a/")]
    assert max(map(len, name.split("/"))) < 255 - len(".thinlto.bc")
    assert (tmp_path / f"corpus/{name}.bc").read_bytes() == sections(small[0])[0]
    assert reasons(tmp_path / "corpus")[".modules.parquet.tmp/x.o"] == "ok"
    assert reasons(tmp_path / "corpus")[".mlgo-corpus_/y.o"] == "ok"

    bitcode, _ = sections(small[0])
    for folder in ("p", "q"):
        stem = tmp_path / "local" / folder / ("l" * (255 - len(".3.import.bc")))
        put(stem.with_name(stem.name + ".3.import.bc"), bitcode)
        put(stem.with_name(stem.name + ".thinlto.bc"), bitcode)
    folders = [tmp_path / "local/p", tmp_path / "local/q"]
    assert extract_corpus(folders, tmp_path / "indexed", thinlto="local").counts == {"ok": 1, "renamed": 1}
    for module in Corpus.open(tmp_path / "indexed"):
        assert module.thinlto_index_path is not None
        assert module.thinlto_index_path.read_bytes() == module.bitcode() == bitcode


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "a\nb"], ids=ascii)
@pytest.mark.parametrize("key", ["directory", "output", "file"])
def test_names_that_no_file_can_have(build: Path, small: list[bytes], tmp_path: Path, text: str, key: str) -> None:
    """Defect 13: a directory with a NUL and --thinlto distributed; the same for every text and place."""
    bitcode, command = sections(small[0])
    indexed = elf_file([(".llvmbc", bitcode), (".llvmcmd", command + b"-fthinlto-index=a.thinlto.bc\0")])
    path = put(tmp_path / "a.o", indexed)
    put(tmp_path / "a.thinlto.bc", bitcode)
    good = {"directory": str(tmp_path), "file": "a.c", "output": str(put(tmp_path / "good.o", indexed))}
    bad = {"directory": f"/{text}" if key == "directory" else str(tmp_path), "file": "a.c", "output": str(path)}
    bad |= {} if key == "directory" else {key: text}
    listed = tmp_path / "compile_commands.json"
    listed.write_text(json.dumps([bad, good]))
    report = extract_corpus([listed], tmp_path / "corpus", thinlto="distributed")
    assert report.objects == 2
    reason, good_reason = reasons(tmp_path / "corpus").values()
    assert good_reason == "ok"
    assert reason in {"directory": ("missing_thinlto_index",), "output": ("malformed", "missing"), "file": ("ok",)}[key]


def test_any_exception_costs_one_row(build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)  # workers share the patch
    real = extraction.read_object
    poisoned = (build / "b.o").read_bytes()

    def failing(data: Any, *args: Any, **kwargs: Any) -> Iterator[Embedded]:
        if bytes(data) == poisoned:
            raise RecursionError("too\ndeep")
        return real(data, *args, **kwargs)

    monkeypatch.setattr(extraction, "read_object", failing)
    extract_corpus([build], tmp_path / "corpus", jobs=2)
    assert [(row["reason"], row["detail"]) for row in rows(tmp_path / "corpus")] == [
        ("ok", ""),
        ("malformed", "a defect of mlgo-corpus, please report it: RecursionError: too deep"),
        ("ok", ""),
    ]


def test_endless_paths_take_bounded_memory_and_time(small: list[bytes], tmp_path: Path) -> None:
    """Defect 14: every folder of a path of 60 kB was remembered, which is a gigabyte."""
    entries = [
        {"directory": str(tmp_path), "file": "a.c", "arguments": ["cc", "-c", "a.c", "-o", f"{'a/' * 30_000}{n}.o"]}
        for n in range(20)
    ]
    entries.append({"directory": str(put(tmp_path / "good.o", small[0]).parent), "file": "g.c", "output": "good.o"})
    (tmp_path / "compile_commands.json").write_text(json.dumps(entries))
    started = time.monotonic()
    tracemalloc.start()
    try:
        report = extract_corpus([tmp_path / "compile_commands.json"], tmp_path / "corpus")
        assert tracemalloc.get_traced_memory()[1] < 40e6
    finally:
        tracemalloc.stop()
    assert time.monotonic() - started < 10
    assert (report.modules, report.objects) == (1, 21)
    assert all(len(name) < 1100 for name in reasons(tmp_path / "corpus"))


def test_a_folder_that_must_give_way_moves_whole() -> None:
    """Defect 26: the modules below a name that is taken were spread over several folders."""
    registry = NameRegistry()
    asked = ["lib", "lib/a.o", "x/lib", "lib/s/b.o", "x/lib/c.o", "lib/a.o", "lib/s", "lib/s/d.o", "lib~2", "lib/e.o"]
    assert [registry.claim(name) for name in asked] == [
        "lib", "lib~2/a.o", "x/lib", "lib~2/s/b.o", "x/lib~2/c.o", "lib~2/a~2.o", "lib~2/s~2", "lib~2/s/d.o", "lib~2~2",
        "lib~2/e.o",
    ]  # fmt: skip


def test_required_commands_are_a_filter(build: Path, small: list[bytes], tmp_path: Path) -> None:
    """Defect 20."""
    bitcode, _ = sections(small[0])
    put(build / "raw.o", bitcode)
    put(build / "bare.o", elf_file([(".llvmbc", bitcode)]))
    report = extract_corpus([build], tmp_path / "corpus", require_command=True)
    found = [row for row in rows(tmp_path / "corpus") if row["status"] != "ok"]
    assert [(row["module"], row["status"], row["reason"], row["detail"]) for row in found] == [
        ("bare.o", "skipped", "filtered", "--require-command: no command is embedded beside the bitcode"),
        ("raw.o", "skipped", "filtered", "--require-command: bitcode of an LTO build: no command is embedded"),
    ]
    assert (report.modules, report.exit_code) == (3, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"jobs": jobs}, f"jobs {jobs}: expected at least 1") for jobs in (-1, 0)),
        ({"cmd_filters": "("}, r"cmd_filters \(: not a regular expression: missing \)"),
        ({"module_filter": "*"}, r"module_filter \*: not a regular expression: nothing to repeat"),
        ({"input_type": "tarball"}, "input_type tarball: expected compile-commands or params or aquery"),
        ({"thinlto": "both"}, "thinlto both: expected local or distributed"),
    ],
)
def test_bad_arguments_change_nothing(build: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    """Defects 12 and 25: jobs=-1 extracted nothing, and took that for the build's state."""
    extract_corpus([build], tmp_path / "corpus")
    before = files(tmp_path / "corpus", state=True)
    (build / "a.o").unlink()
    with pytest.raises(UsageError, match=message):
        extract_corpus([build], tmp_path / "corpus", **options)
    assert files(tmp_path / "corpus", state=True) == before


def test_one_text_is_a_list_of_one(build: Path, tmp_path: Path) -> None:
    """Defect 25: a str was taken for a list of its characters."""
    assert extract_corpus(str(build), tmp_path / "c1").modules == 3
    assert extract_corpus(build, tmp_path / "c2", cmd_filters="^-Oz$").modules == 3


@pytest.mark.parametrize("what", ["empty", "fifo", "text"])
def test_a_link_command_that_is_none(small: list[bytes], tmp_path: Path, what: str) -> None:
    """Defect 18: it turned out at the end, when the corpus was there, or never."""
    bitcode, _ = sections(small[0])
    put(tmp_path / "b/a.o.3.import.bc", bitcode)
    put(tmp_path / "b/a.o.thinlto.bc", bitcode)
    link, corpus = tmp_path / "link", tmp_path / "corpus"
    os.mkfifo(link) if what == "fifo" else link.write_text({"empty": "", "text": "Dear all, please"}[what])
    done = cli("extract", tmp_path / "b", "-o", corpus, "--thinlto", "local", "--thinlto-link-command", link)
    assert done.returncode == 2
    assert one_line(done).startswith({
        "empty": "--thinlto-link-command: expected a command, found nothing",
        "fifo": f"{link}: not a file",
        "text": "--thinlto-link-command: expected a link command of clang or ld.lld, found 'Dear all",
    }[what])  # fmt: skip
    assert not corpus.exists()


def test_a_limit_of_file_size_is_one_line(build: Path, tmp_path: Path) -> None:
    """Defect 15: SIGXFSZ, which Python ignores, comes as EFBIG from any write."""
    for limit in (0, 3000):
        corpus = tmp_path / f"corpus{limit}"
        restrict = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
        done = cli("extract", build, "--output", corpus, preexec_fn=restrict)
        assert (done.returncode, done.stdout) == (1, b"")
        assert "File too large" in one_line(done)
        assert not (corpus / "corpus_description.json").exists()
        assert cli("extract", build, "--output", corpus).returncode == 0
        assert len(Corpus.open(corpus)) == 3


def test_where_nothing_can_be_written_or_said(build: Path, tmp_path: Path) -> None:
    """Defects 15 and 17."""
    done = cli("extract", build, "--output", "o" * 300, cwd=tmp_path)
    assert done.returncode == 2
    assert one_line(done).endswith(f"{'o' * 300}: File name too long")
    with open("/dev/full", "wb") as full:
        for more in ((), ("--json",)):
            done = cli("extract", build, "--output", tmp_path / "full", *more, stdout=full)
            assert (done.returncode, one_line(done)) == (1, "No space left on device")
    for output, codes in (("relative", (2,)), (tmp_path / "absolute", (0, 2))):
        (tmp_path / "gone").mkdir()
        done = cli("extract", build, "--output", output, through='rmdir "$PWD" && exec "$@"', cwd=tmp_path / "gone")
        assert done.returncode in codes
        assert done.returncode == 0 or one_line(done).endswith("No such file or directory")

    done = cli("extract", tmp_path / "nowhere", "-o", tmp_path / "c", through='exec "$@" 2>&-')
    assert (done.returncode, done.stdout) == (2, b"")
    for arguments in ((build,), ("--no",)):
        assert cli("extract", *arguments, through='exec "$@" 2>&-').returncode == 2
    assert cli("extract", build, "-o", tmp_path / "c", through='exec "$@" 2>&- >&-').returncode == 0
    assert len(Corpus.open(tmp_path / "c")) == 3


@pytest.mark.parametrize("name", [b"x[/y]", b"w:smile:[red]x", b"non-\xff\xfe-utf8", b"a\nb", b"file:x", b"mock:x"])
def test_names_of_outputs_are_text_not_markup(build: Path, tmp_path: Path, name: bytes) -> None:
    """Defect 16: a traceback of rich's, or a smile."""
    os.makedirs(os.path.dirname(os.fsencode(tmp_path) + b"/" + name), exist_ok=True)
    done = cli("extract", build, "--output", name, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = name.replace(b"\xff\xfe", b"%FF%FE").replace(b"\n", b"\\n")
    assert done.stdout.startswith(shown + b": 3 modules from 3 objects")
    done = cli("extract", build, "--output", name, "--module-filter", "[/x]", cwd=tmp_path)
    assert done.returncode == 2
    assert "was extracted without --module-filter" in one_line(done)
    done = cli("extract", name + b"/none[/y]:smile:", "--output", "other", cwd=tmp_path)
    assert done.returncode == 2
    assert one_line(done).endswith("/none[/y]:smile:: no such file or folder")


def entry(name: str, *stale: str, **fields: Any) -> bytes:
    """Write a journal's line that claims modules."""
    record = {"name": name, "identity": "", "stamp": None, "companions": [], "rows": [[name, "", "", "ok", "ok", ""]],
              "bitcode_found": 0, "padding": 0, "stale": stale, **fields}  # fmt: skip
    return json.dumps(record, separators=(",", ":")).encode()


FORGED = {
    "garbage": b"\xff\xfe garbage",
    "list": b"[1, 2]",
    "options": b'{"options": [], "inputs": 7}',
    "types": entry("a.o", identity=1, stamp="x", companions=3, rows={"a": 1}),
    "short-row": entry("a.o", stamp=[1], rows=[["a.o"]]),
    "stale": entry("a.o", "../../victim", "a.o/../../../victim", "/etc/victim"),
    "numbers": entry("a.o", rows=[[1, 2, 3, "ok", "ok", 4]], stale=[None]),
    "up": entry("../../victim", "../../victim"),
    "nul": entry("a\0"),
    "root": entry("", rows=[["/victim", "", "", "ok", "ok", ""]]),
    "deep": b'{"name":' + b"[" * 100_000,
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("force", [False, True])
def test_a_journal_from_an_enemy(build: Path, tmp_path: Path, forged: str, force: bool) -> None:
    """Defect 15: what it names outside is left alone, what it says in other types is not believed."""
    corpus, line = tmp_path / "deep/corpus", FORGED[forged]
    extract_corpus([build], corpus)
    expected = files(corpus)
    victims = [put(tmp_path / name, b"mine") for name in ("victim.bc", "victim.cmd", "deep/victim.bc")]
    header, *rest = (corpus / ".mlgo-corpus/extract.jsonl").read_bytes().splitlines(keepends=True)
    for content in (b"".join([header, line + b"\n", *rest]), b"".join([line + b"\n", *rest]), line + b"\n"):
        for name in ("extract.jsonl", "extract.jsonl.new"):
            (corpus / f".mlgo-corpus/{name}").write_bytes(content)
        try:
            extract_corpus([build], corpus, force=force)
        except UsageError:  # of other options, as it seems
            extract_corpus([build], corpus, force=True)
        assert files(corpus) == expected
        assert [path.read_bytes() for path in victims] == [b"mine"] * 3


@pytest.mark.parametrize("name", ["lock", "extract.jsonl", "extract.jsonl.new", "tmp"])
def test_a_fifo_in_the_output_holds_nobody(build: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "corpus/.mlgo-corpus").mkdir(parents=True)
    os.mkfifo(tmp_path / "corpus/.mlgo-corpus" / name)
    done = cli("extract", build, "--output", tmp_path / "corpus")
    assert done.returncode == 0 or one_line(done)


LINKS = (
    ".mlgo-corpus", *(f".mlgo-corpus/extract.jsonl{suffix}" for suffix in ("", ".new", ".merged")), ".mlgo-corpus/lock",
    ".mlgo-corpus/modules.parquet.tmp", ".mlgo-corpus/tmp", "modules.parquet", "corpus_description.json",
    ".corpus_description.json.known.tmp", "s", "s/lib.a", "a.o.bc", "a.o.cmd",
)  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("how", ["again", "force", "stale", "lost"])
def test_links_in_the_output_lead_nowhere(
    build: Path, small: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, how: str
) -> None:
    """Defect 19: files outside were written through a link, or removed behind it."""
    put(build / "s/lib.a", ar({"x.o": small[3], "y.o": small[4]}))
    corpus = tmp_path / "corpus"
    extract_corpus([build], corpus)
    for name in ("a.o", "s/c.o"):
        put(build / name, small[5])
    put(build / "s/lib.a", ar({"x.o": small[5]}))
    monkeypatch.setattr(atomic, "temporary_for", lambda path: path.with_name(f".{path.name}.known.tmp"))
    if how == "stale":
        (build / "s/c.o").unlink()
    elif how == "lost":
        monkeypatch.setattr("mlgo_corpus.engine.pool._may_fork", lambda: True)  # workers share the patch
        monkeypatch.setattr(extraction, "read_object", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    victim, at = tmp_path / "victim", corpus / link
    if at.is_dir() and not at.is_symlink():
        at.rename(victim)  # with all that the corpus would write or remove there
    elif link == ".mlgo-corpus/tmp":
        put(victim / "1", b"mine")
    else:
        victim.write_bytes((at.read_bytes() if at.exists() else b"") + b"mine")
    at.unlink(missing_ok=True)
    at.symlink_to(victim)
    before = files(victim, state=True) if victim.is_dir() else victim.read_bytes()
    with contextlib.suppress(MlgoCorpusError):  # it may also do without the link
        extract_corpus([build], corpus, force=how == "force")
    assert (files(victim, state=True) if victim.is_dir() else victim.read_bytes()) == before
