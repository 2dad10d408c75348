"""The objects behind compilation databases, link lines, action graphs, folders and plain paths."""

from __future__ import annotations

import json
import os
import shlex
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.builds.inputs import BuildObject, InputType, iter_build_objects, iter_thinlto_local
from mlgo_corpus.errors import FormatError, UsageError
from tests.conftest import EMBED, Llvm, run_checked

ELF = b"\x7fELF\2\1\1" + bytes(9)


@pytest.fixture(autouse=True)
def _work_in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(path: str | Path, content: bytes | str | list[Any] | dict[str, Any] = ELF) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list | dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def objects(*inputs: str | Path, **options: Any) -> list[BuildObject]:
    return list(iter_build_objects([Path(item) for item in inputs], **options))


def names(*inputs: str | Path, **options: Any) -> list[str]:
    found = objects(*inputs, **options)
    assert [item for item in found if item.problem is not None] == []
    return [item.name for item in found]


def command(output: str, directory: str = ".", **others: object) -> dict[str, object]:
    return {"directory": directory, "file": "a.c", "command": f"cc -c a.c -o {shlex.quote(output)}", **others}


# --- compilation databases


def test_names_are_the_text_after_o_and_paths_open(tmp_path: Path) -> None:
    there = str(tmp_path / "elsewhere")
    database = write(
        "build/compile_commands.json",
        [
            command("./x.o"),
            command("sub/y z.o", "inner"),
            command(f"{there}/deep/a.o", there),
            command("b.o", there),
            command("/outside/c.o", there),
            command(f"{there}/../d.o", there),
        ],
    )
    assert objects(database) == [
        BuildObject("build/././x.o", "./x.o", "build/."),
        BuildObject("build/inner/sub/y z.o", "sub/y z.o", "build/inner", source="inner/sub/y z.o"),
        BuildObject(f"{there}/deep/a.o", "deep/a.o", there, source=f"{there}/deep/a.o"),
        BuildObject(f"{there}/b.o", "b.o", there, source=f"{there}/b.o"),
        BuildObject("/outside/c.o", "/outside/c.o", there),
        BuildObject(f"{there}/../d.o", f"{there}/../d.o", there),
    ]


def test_sources_of_a_database_are_relative_to_the_build_and_so_never_ambiguous(tmp_path: Path) -> None:
    for folder in ("b", "ext"):
        Path(folder).mkdir()
    Path("link").symlink_to("b")
    folders = [str(tmp_path / name) for name in ("b", "ext", "link")]
    database = write("b/compile_commands.json", [command("e.o", folder) for folder in folders])
    for build_dir, expected in {
        None: ["e.o", f"{tmp_path}/ext/e.o", "e.o"],
        Path("."): ["b/e.o", "ext/e.o", "link/e.o"],
        Path("ext"): [f"{tmp_path}/b/e.o", "e.o", f"{tmp_path}/b/e.o"],
    }.items():
        found = objects(database, build_dir=build_dir)
        assert [item.name for item in found] == ["e.o"] * 3
        assert [item.source or item.name for item in found] == expected


def test_a_database_in_the_current_folder() -> None:
    database = write("compile_commands.json", [command("x.o", "")])
    assert objects(database) == [BuildObject("x.o", "x.o", ".")]


def test_a_folder_given_as_compile_commands_is_where_the_database_is() -> None:
    write("build/compile_commands.json", [command("x.o")])
    assert names("build", input_type=InputType.COMPILE_COMMANDS) == ["x.o"]
    Path("other").mkdir()
    with pytest.raises(UsageError, match=r"^other/compile_commands.json: no such file or folder"):
        objects("other", input_type=InputType.COMPILE_COMMANDS)


def test_parameter_files_of_entries_are_relative_to_their_folders() -> None:
    write("build/inner/a.rsp", '-O2 -c "a b.c" -o out/a.o')
    entries = [command("", "inner", command=text) for text in ("clang @a.rsp", "clang @no.rsp", "clang @\0")]
    database = write("build/compile_commands.json", entries)
    assert [(item.name, item.source, item.detail) for item in objects(database)] == [
        ("out/a.o", "inner/out/a.o", ""),
        ("a.c", None, "compile_commands.json: entry 1: the command has neither -c nor -o, and no.rsp cannot be read"),
        ("a.c", None, "compile_commands.json: entry 2: the command has neither -c nor -o, and \\x00 cannot be read"),
    ]


def test_problems_of_entries_are_objects_too() -> None:
    database = write("cc.json", [{**command("x.i"), "arguments": ["cc", "-E", "a.c"]}, {"file": "b\n.c"}, 7])
    assert [(item.name, item.problem, item.detail) for item in objects(database)] == [
        ("a.c", "no_output", "cc.json: entry 0: the command has -E, which makes no object"),
        ("b\n.c", "malformed", "cc.json: entry 1: has no 'directory'"),
        ("entry 2", "malformed", "cc.json: entry 2: expected an object, found a number"),
    ]


def test_a_path_listed_twice_is_given_once(tmp_path: Path) -> None:
    write("build/x.o")
    database = write("build/cc.json", [command("x.o"), command("./x.o"), command("../build/x.o"), command("y.o")])
    assert names(database, "build/x.o", tmp_path / "build", "build/x.o") == ["x.o", "y.o"]


def test_names_that_no_file_can_have_are_malformed() -> None:
    database = write(
        "cc.json",
        b'[{"directory": "/b", "file": "a.c", "arguments": ["cc", "-c", "-oa\\u0000.o"]},'
        b' {"directory": "/b", "file": "a.c", "arguments": ["cc", "-c", "-ob\\ud800.o"]},'
        b' {"directory": "/b", "file": "\\ud800.c", "arguments": ["cc", "-E"]},'
        b' {"directory": "/b", "file": "a.c", "arguments": ["cc", "-c", "-oc\xe9.o"]}]',
    )
    found = objects(database)
    assert [(item.name, item.problem) for item in found] == [
        ("a\\x00.o", "malformed"),
        ("b\\ud800.o", "malformed"),
        ("\\ud800.c", "no_output"),
        ("c\udce9.o", None),
    ]
    assert found[0].detail == found[1].detail == "no file can have this name"
    assert os.fsencode(found[3].path) == b"/b/c\xe9.o"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "cc.json",
            b'[{"file" 1}]',
            "found invalid JSON: line 1, column 10: Expecting ':' delimiter (read as compile-",
        ),
        ("cc.json", b"", "found invalid JSON: line 1, column 1: Expecting value (read as compile-commands; "),
        ("cc.json", b"[1]", "found a list that begins with a number (read as compile-commands; `input_type` "),
        ("aq", b'{"x": 1}', 'found an object with "x" (read as aquery; `input_type` compile-commands|params|'),
        ("link.txt", b"clang x.c -lm", "(.o .obj .lo .a .rlib .bc), found none among 3 words (read as params; "),
        ("empty", b"", "found none among 0 words (read as params; `input_type` "),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_one_line(name: str, content: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        iter_build_objects([write(name, content)])
    assert str(caught.value).startswith(f"{name}: expected ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_input_type_overrides_content() -> None:
    assert names(write("x.json", "a.o b.o"), input_type=InputType.PARAMS) == ["a.o", "b.o"]
    assert names(write("x.txt", "text"), input_type=InputType.OBJECT) == ["x.txt"]
    with pytest.raises(FormatError, match=r"read as aquery; `input_type`"):
        objects("x.json", input_type=InputType.AQUERY)
    with pytest.raises(UsageError, match=r"^x.json: expected a folder \(`input_type` folder\), found a file"):
        objects("x.json", input_type=InputType.FOLDER)
    with pytest.raises(UsageError, match=r"^\.: expected a file \(`input_type` object\), found a folder"):
        objects(".", input_type=InputType.OBJECT)


# --- link lines


def test_parameter_files_start_from_their_own_folder_if_the_objects_are_there() -> None:
    write("out/a.o")
    params = write("out/x.params", "-o\nx\na.o\nsub/b.a\n-lm\n")
    assert objects(params) == [BuildObject("out/a.o", "a.o", "out"), BuildObject("out/sub/b.a", "sub/b.a", "out")]


def test_or_from_the_current_one_or_from_a_parent(tmp_path: Path) -> None:
    write("here.o")
    assert objects(write("out/x.params", "lost.o here.o")) == [
        BuildObject("lost.o", "lost.o", "."),
        BuildObject("here.o", "here.o", "."),
    ]
    # CMake's link.txt: paths are relative to the build, two folders up.
    write("build/CMakeFiles/x.dir/a.c.o")
    link = write("build/CMakeFiles/x.dir/link.txt", "/usr/bin/cc CMakeFiles/x.dir/a.c.o -o x libz.a")
    build = str(tmp_path / "build")
    assert objects(link) == [
        BuildObject(f"{build}/CMakeFiles/x.dir/a.c.o", "CMakeFiles/x.dir/a.c.o", build),
        BuildObject(f"{build}/libz.a", "libz.a", build),
    ]


def test_or_from_the_current_one_if_there_are_none() -> None:
    # A name that is in no folder above: those are looked into, too.
    assert objects(write("out/x.params", "only-listed.o")) == [BuildObject("only-listed.o", "only-listed.o", ".")]


def test_build_dir_decides(tmp_path: Path) -> None:
    write("out/a.o")
    params = write("out/x.params", f"a.o {tmp_path}/exec/b.o /c.o")
    Path("exec").mkdir()
    assert objects(params, build_dir=Path("exec")) == [
        BuildObject("exec/a.o", "a.o", "exec"),
        BuildObject(f"{tmp_path}/exec/b.o", "b.o", "exec"),
        BuildObject("/c.o", "/c.o", "exec"),
    ]
    with pytest.raises(UsageError, match=r"^nowhere: expected the build's folder, found none"):
        objects(params, build_dir=Path("nowhere"))


def test_nested_parameter_files() -> None:
    write("a.o")
    write("deep/two.rsp", "'c d.o' @../x.params @gone.rsp @three.rsp")
    write("one.rsp", "b.o @deep/two.rsp")
    write("three.rsp", "-O2")
    os.mkfifo("gone.fifo")
    params = write("x.params", "a.o @one.rsp @gone.rsp @one.rsp @gone.fifo e.o")
    assert [(item.name, item.problem, item.detail) for item in objects(params)] == [
        ("a.o", None, ""),
        ("b.o", None, ""),
        ("c d.o", None, ""),
        ("../x.params", "missing", "parameter file ../x.params does not exist"),
        ("gone.rsp", "missing", "parameter file gone.rsp does not exist"),
        ("gone.fifo", "unreadable", "parameter file gone.fifo cannot be read: not a file"),
        ("e.o", None, ""),
    ]


def test_parameter_files_that_name_themselves_end() -> None:
    write("b.rsp", "listed-b.o @x.params @./b.rsp")
    found = objects(write("x.params", "listed-a.o @b.rsp"))
    assert [(item.name, item.problem, item.detail) for item in found] == [
        ("listed-a.o", None, ""),
        ("listed-b.o", None, ""),
        ("x.params", "malformed", "parameter file x.params names itself"),
        ("./b.rsp", "malformed", "parameter file ./b.rsp names itself"),
    ]


def test_nesting_has_a_limit() -> None:
    for level in range(40):
        write(f"{level}.rsp", f"{level}.o @{level + 1}.rsp")
    *found, last = objects(Path("0.rsp"), input_type=InputType.PARAMS)
    assert [item.name for item in found] == [f"{level}.o" for level in range(17)]
    assert (last.name, last.problem) == ("17.rsp", "malformed")
    assert last.detail == "parameter files nest more than 16 deep"


def test_aquery(tmp_path: Path) -> None:
    write("out/disk.params", "d.o @nul\0l.rsp")
    graph = {
        "actions": [
            {"mnemonic": "CppLink", "arguments": ["ld", "@out/x.params", "-o", "x"], "targetId": 1,
             "paramFiles": [{"execPath": "out/x.params", "arguments": ["a b.o", "libc.a"]}]},
            {"mnemonic": "CppLink", "targetId": 1},
            {"mnemonic": "CppLink", "arguments": ["ld", "-Wl,@out/disk.params", "a b.o"]},
            {"mnemonic": "CppLink", "arguments": ["ld", "@out/disk.params", "@out/lost.params"]},
        ],
        "targets": [{"id": 1, "label": "//x"}],
    }  # fmt: skip
    found = objects(write("aquery.json", graph))
    assert [(item.path, item.name, item.directory, item.problem) for item in found] == [
        ("a b.o", "a b.o", ".", None),
        ("libc.a", "libc.a", ".", None),
        ("aquery.json", "//x", ".", "malformed"),
        ("d.o", "d.o", ".", None),
        ("nul\0l.rsp", "nul\\x00l.rsp", ".", "unreadable"),
        ("out/lost.params", "out/lost.params", ".", "missing"),
    ]
    assert found[2].detail == "aquery.json: action 1: expected a list of strings as 'arguments'"
    assert objects("aquery.json", build_dir=tmp_path)[0] == BuildObject(f"{tmp_path}/a b.o", "a b.o", f"{tmp_path}")


# --- objects given directly


def test_direct_objects_keep_their_names(tmp_path: Path) -> None:
    for name in ("a.o", "sub/b.a", "prog", "empty.o", "text.o", "c.bc"):
        write(name, {"empty.o": b"", "text.o": b"[text", "c.bc": b"BC\xc0\xde"}.get(name, ELF))
    given = ["a.o", "sub/b.a", "prog", "empty.o", "text.o", "c.bc"]
    assert objects(*given) == [BuildObject(name, name, ".") for name in given]
    assert objects(tmp_path / "sub" / "b.a") == [BuildObject(f"{tmp_path}/sub/b.a", "sub/b.a", ".")]
    os.chdir("sub")
    assert names(tmp_path / "a.o") == [f"{tmp_path}/a.o"]
    assert names("../a.o") == ["../a.o"]


def test_inputs_that_cannot_be_used_raise_before_the_first_object() -> None:
    write("a.o")
    with pytest.raises(UsageError, match=r"^lost.o: no such file or folder$"):
        iter_build_objects([Path("a.o"), Path("lost.o")])
    with pytest.raises(UsageError, match=r"^a.o/b: cannot be read: Not a directory$"):
        iter_build_objects([Path("a.o/b")])
    with pytest.raises(UsageError, match=r"^x\0y: cannot be read: .*embedded null "):  # as each Python words it
        iter_build_objects([Path("x\0y")])
    os.mkfifo("fifo")
    with pytest.raises(UsageError, match=r"^fifo: expected a file or a folder, found a FIFO; save it as a file first$"):
        iter_build_objects([Path("fifo")])
    with pytest.raises(UsageError, match=r"^/dev/null: .* found a device;"):
        iter_build_objects([Path("/dev/null")])


# --- folders


def test_what_counts_as_an_object_in_a_folder() -> None:
    taken = {
        "a.o": b"text, but named like an object",
        "a.pic.o": b"",
        "b.obj": ELF, "c.lo": ELF, "d.a": b"!<arch>\n", "e.lib": b"", "f.rlib": b"", "g.so": ELF, "g.so.1.2": ELF,
        "h.dylib": b"", "i.dll": b"", "j.exe": b"",
        "prog": ELF, "prog.x86-64": ELF, "kernel.ko": ELF, "mach": b"\xcf\xfa\xed\xfe", "thin": b"!<thin>\n",
        "fat": b"\xca\xfe\xba\xbe\0\0\0\2", "raw": b"BC\xc0\xde", "wrapped": b"\xde\xc0\x17\x0b",
    }  # fmt: skip
    left = {
        "a.c": ELF, "a.cc": ELF, "a.h": ELF, "a.txt": ELF, "a.json": ELF, "a.py": ELF, "a.d": ELF, "a.cmake": ELF,
        "loose.bc": b"BC\xc0\xde", "x.3.import.bc": b"BC\xc0\xde", "libx.la": b"# a libtool library", "x.dwo": ELF,
        "README": b"text", "empty": b"", "Java": b"\xca\xfe\xba\xbe\0\0\0\x34", "dos": b"MZ" + bytes(100),
        "x.deb": b"!<arch>\n",
    }  # fmt: skip
    for name, content in {**taken, **left}.items():
        write(f"build/{name}", content)
    assert names("build") == sorted(taken)
    assert objects("build")[0] == BuildObject("build/a.o", "a.o", "build")
    assert objects("build", build_dir=Path("."))[0].directory == "."


def test_the_order_is_that_of_the_paths_bytes() -> None:
    paths = ["a-b.o", "a.o", "a/z.o", "a/é.o", "a0.o", "B.o", "é.o", "z/z/z.o", "\U00010000.o", "\udcff.o", "\ue000.o"]
    for path in reversed(paths):
        write(f"build/{path}")
    assert names("build") == sorted(paths, key=os.fsencode)


def test_symbolic_links_are_followed_but_each_folder_is_walked_once(tmp_path: Path) -> None:
    write("build/real/x.o")
    write("outside/y.o")
    write("beside.o")
    Path("build/a-link").symlink_to("real")
    Path("build/loop").symlink_to("loop")
    Path("build/real/up").symlink_to("..")
    Path("build/real/further-up").symlink_to("../..")
    Path("build/root").symlink_to("/")
    Path("build/out").symlink_to(tmp_path / "outside")
    Path("build/f.o").symlink_to("real/x.o")
    assert names("build") == ["a-link/x.o", "f.o", "out/y.o"]
    assert names("build/real", "build", "outside") == ["x.o", "f.o", "out/y.o"]


def test_special_files_are_never_opened() -> None:
    Path("b").mkdir()
    os.mkfifo("b/fifo")
    os.mkfifo("b/fifo.o")
    Path("b/gone.o").symlink_to("nowhere")
    Path("b/gone").symlink_to("nowhere")
    Path("b/self.o").symlink_to("self.o")
    Path("b/null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("b/socket")
        found = objects("b")
    assert [(item.name, item.problem, item.detail) for item in found] == [
        ("fifo.o", "unreadable", "not a regular file"),
        ("gone.o", "missing", "a symbolic link to nothing"),
        ("self.o", "missing", "a symbolic link to nothing"),
    ]


def test_the_corpus_and_version_control_are_not_entered() -> None:
    for path in ("b/x.o", "b/corpus/x.o", "b/.git/x.o", "b/sub/.hg/x.o", "b/.libs/y.o"):
        write(path)
    Path("b/again").symlink_to("corpus")
    assert names("b", exclude=Path("b/sub/../corpus")) == [".libs/y.o", "x.o"]
    assert names("b", exclude=Path("b/none")) == [".libs/y.o", "again/x.o", "x.o"]
    with pytest.raises(UsageError, match=r"^b/corpus: expected a build, found the corpus that is to be written$"):
        objects("b/corpus", exclude=Path("b/corpus"))


def test_what_may_not_be_read_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission is refused by hand, because root is never refused."""
    for path in ("b/a/x.o", "b/c/x.o", "b/secret", "b/z.o"):
        write(path)
    scandir, open_ = os.scandir, os.open

    def refuse(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def refusing(path: str, *rest: Any) -> Any:
            if str(path) == name:
                raise PermissionError(13, "Permission denied", path)
            return function(path, *rest)

        return refusing

    monkeypatch.setattr(os, "scandir", refuse(scandir, "b/a"))
    monkeypatch.setattr(os, "open", refuse(open_, "b/secret"))
    assert objects("b") == [
        BuildObject("b/a", "a", "b", "unreadable", "the folder cannot be read: Permission denied"),
        BuildObject("b/c/x.o", "c/x.o", "b"),
        BuildObject("b/secret", "secret", "b", "unreadable", "cannot be read: Permission denied"),
        BuildObject("b/z.o", "z.o", "b"),
    ]
    monkeypatch.setattr(os, "scandir", refuse(scandir, "b"))
    (found,) = objects("b")
    assert (found.name, found.problem) == ("b", "unreadable")
    with pytest.raises(UsageError, match=r"^b/secret: cannot be read: Permission denied$"):
        objects("b/secret")


def test_names_that_are_not_utf_8_survive() -> None:
    write(os.fsdecode(b"b/d\xff/x\xe9.o"))
    (found,) = objects("b")
    assert os.fsencode(found.name) == b"d\xff/x\xe9.o"
    assert Path(found.path).read_bytes() == ELF


@pytest.fixture
def deep_folder(tmp_path: Path) -> Iterator[Path]:
    """3000 folders in each other, an object halfway: further down than a path can reach (PATH_MAX is 4096)."""
    for depth in range(3000):
        os.mkdir("d")
        os.chdir("d")
        if depth == 1499:
            write("x.o")
    os.chdir(tmp_path)
    yield Path("d")
    os.chdir(tmp_path)
    run_checked("rm", "-r", "d")  # pytest cannot clean up what it cannot name


@pytest.mark.whole
def test_deep_folders_are_walked_as_far_as_paths_reach(deep_folder: Path) -> None:
    unreachable, found = objects(deep_folder)
    assert (unreachable.problem, unreachable.detail) == ("unreadable", "the folder cannot be read: File name too long")
    assert unreachable.name.startswith("d/" * 2000)
    assert found.name == "d/" * 1499 + "x.o"


def test_objects_come_before_the_whole_folder_is_read() -> None:
    write("b/a/x.o")
    write("b/b/x.o")
    found = iter_build_objects([Path("b")])
    assert next(found).name == "a/x.o"
    write("b/b/y.o")
    assert [item.name for item in found] == ["b/x.o", "b/y.o"]


@pytest.mark.whole
def test_memory_is_bounded_by_the_largest_folder() -> None:
    for folder in range(20):
        Path(f"b/{folder}").mkdir(parents=True)
        for number in range(500):
            Path(f"b/{folder}/a_name_of_ordinary_length_{number}.o").touch()
    tracemalloc.start()
    try:
        assert sum(1 for _ in iter_build_objects([Path("b")])) == 10_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000  # 10 000 hashes, and the entries of one folder


# --- local ThinLTO


def test_thinlto_local() -> None:
    for name in ("a.o.3.import.bc", "sub/b.3.import.bc", "a.o.thinlto.bc", "a.o.bc", "corpus/c.3.import.bc", "d.o"):
        write(f"b/{name}", b"BC\xc0\xde")
    os.mkfifo("b/f.3.import.bc")
    found = list(iter_thinlto_local([Path("b"), Path("b/sub")], exclude=Path("b/corpus")))
    assert found == [
        BuildObject("b/a.o.3.import.bc", "a.o", "b"),
        BuildObject("b/f.3.import.bc", "f", "b", "unreadable", "not a regular file"),
        BuildObject("b/sub/b.3.import.bc", "sub/b", "b"),
    ]
    with pytest.raises(UsageError, match=r"^b/d.o: expected a folder that holds NAME.3.import.bc files, found a file$"):
        iter_thinlto_local([Path("b/d.o")])
    with pytest.raises(UsageError, match=r"found none$"):
        iter_thinlto_local([Path("lost")])


# --- real builds


def test_a_real_compile_commands_with_spaces(llvm: Llvm, tmp_path: Path) -> None:
    entries = []
    for name in ("plain.c", "with space.c", 'it\'s "quoted".c', "default.c"):
        source = write(f"src/{name}", b"int f(void) { return 1; }\n").absolute()
        output = [] if name == "default.c" else ["-o", f"obj dir/{name}.o"]
        argv = [llvm.clang, *EMBED, f'-DTEXT="{name}"', "-c", str(source), *output]
        Path("build/obj dir").mkdir(parents=True, exist_ok=True)
        run_checked(*argv, cwd=tmp_path / "build")
        entries.append({"directory": str(tmp_path / "build"), "file": str(source), "command": shlex.join(argv)})
    found = objects(write("build/compile_commands.json", entries))
    assert [item.name for item in found] == [
        "obj dir/plain.c.o", "obj dir/with space.c.o", "obj dir/it's \"quoted\".c.o", "default.o",
    ]  # fmt: skip
    assert all(Path(item.path).read_bytes().startswith(b"\x7fELF") for item in found)
    walked = objects("build")
    assert sorted(item.name for item in walked) == sorted(item.name for item in found)


@settings(deadline=None)
@given(st.lists(st.text("ab.-_ '\"\\é\udcff", min_size=1, max_size=8).map(lambda text: f"{text}.o"), unique=True))
def test_every_name_survives_a_database(outputs: list[str]) -> None:
    entries = [command(output, "/b") for output in outputs]
    Path("cc.json").write_bytes(json.dumps(entries, ensure_ascii=False).encode("utf-8", "surrogateescape"))
    assert names("cc.json") == outputs


def test_a_link_to_a_neighbour_is_that_neighbour() -> None:
    for path in ("build/libx.so.1.2", "build/sub/y.o"):
        write(path)
    Path("build/libx.so").symlink_to("libx.so.1.2")
    Path("build/libx.so.1").symlink_to("libx.so.1.2")
    Path("build/elsewhere.o").symlink_to("sub/y.o")
    Path("build/dangling.so").symlink_to("libx.so.9")
    assert [(item.name, item.problem) for item in objects("build")] == [
        ("dangling.so", "missing"),
        ("elsewhere.o", None),
        ("libx.so.1.2", None),
        ("sub/y.o", None),
    ]


def test_cmakes_probes_are_no_part_of_the_project() -> None:
    for path in (
        "build/CMakeFiles/3.25.1/CompilerIdC/a.out",
        "build/CMakeFiles/3.25.1/CompilerIdCXX/CMakeCXXCompilerId.o",
        "build/CMakeFiles/3.25.1/CMakeDetermineCompilerABI_C.bin",
        "build/CMakeFiles/CMakeScratch/TryCompile-x/a.o",
        "build/CMakeFiles/_CMakeLTOTest-CXX/bin/CMakeFiles/foo.dir/foo.cpp.o",
        "build/CMakeFiles/app.dir/main.c.o",
        "build/sub/CMakeFiles/lib.dir/CompilerIdle.c.o",
    ):
        write(path)
    assert names("build") == ["CMakeFiles/app.dir/main.c.o", "sub/CMakeFiles/lib.dir/CompilerIdle.c.o"]
