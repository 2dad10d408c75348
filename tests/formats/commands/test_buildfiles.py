"""Compilation databases, link lines and action graphs, read from bytes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.commands.buildfiles import (
    CompileCommand,
    InputType,
    LinkInput,
    has_object_suffix,
    is_object,
    link_inputs,
    parse_aquery,
    parse_compile_commands,
    parse_response_file,
    sniff_input,
    split_command,
)
from tests.conftest import Llvm

# Any text but NUL, which no argument holds, and surrogates other than those that stand for a byte.
ARGUMENT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)


def database(*entries: object) -> bytes:
    return json.dumps(entries).encode()


def entry(*arguments: str, file: str | None = "/src/a.c", **others: object) -> dict[str, object]:
    fields: dict[str, object] = {"directory": "/b", "arguments": list(arguments), **others}
    return fields if file is None else {**fields, "file": file}


def read_one(value: object) -> CompileCommand:
    """Return the entry without its command, of which `test_an_entry_has_its_command` says more."""
    (command,) = parse_compile_commands(database(value))
    return replace(command, arguments=())


def test_an_entry_has_its_command() -> None:
    entries = [
        {"directory": "/b", "file": "a.c", "command": "cc -c 'a b.c' -o x.o"},
        {"directory": "/b", "file": "a.c", "arguments": ["cc", "-c", "a b.c"]},
        {"directory": "/b", "file": "a.c", "command": "cc -E a.c"},
    ]
    found = [command.arguments for command in parse_compile_commands(json.dumps(entries).encode())]
    assert found == [("cc", "-c", "a b.c", "-o", "x.o"), ("cc", "-c", "a b.c"), ()]


# --- compilation databases


@pytest.mark.parametrize(
    ("script", "kept", "folder", "output"),
    [
        (": && cc -O2 -c a.c -o x.o && :", "cc -O2 -c a.c -o x.o", "", "x.o"),
        ("cd /w/sub && cc -Oz -c ../a.c -o x.o", "cc -Oz -c ../a.c -o x.o", "/w/sub", "/w/sub/x.o"),
        ("mkdir -p one && cd one && cd ../two ; cc -c ../a.c", "cc -c ../a.c", "one/../two", "one/../two/a.o"),
        ("cd sub && cc -c a.c -o /x.o || exit 1", "cc -c a.c -o /x.o", "sub", "/x.o"),
        ("cc -c a.c -fPIC -o .libs/a.o && cc -c a.c -o a.o && cd x", "cc -c a.c -o a.o", "", "a.o"),
        ("sh -c true && cc -c a.c && objcopy -c", "cc -c a.c", "", "a.o"),
        ("/bin/sh -c 'cd sub && cc -c a.c'", "cc -c a.c", "sub", "sub/a.o"),
    ],
)
def test_of_a_script_the_compile_is_kept(script: str, kept: str, folder: str, output: str) -> None:
    (found,) = parse_compile_commands(database({"directory": "/b", "file": "/src/a.c", "command": script}))
    assert found == CompileCommand(0, "/b", "/src/a.c", output, arguments=tuple(kept.split()), folder=folder)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("cc -c a.c -o x.o", "x.o"),
        ("cc -c a.c -ox.o", "x.o"),
        ("cc -c a.c --output=x.o", "x.o"),
        ("cc -c a.c --output x.o", "x.o"),
        ("cc -c a.c -o x.o -oy.o", "y.o"),
        ("cc -c a.c", "a.o"),
        ("cc --compile a.c", "a.o"),
        ("cc -c -emit-llvm a.c", "a.bc"),
        ("cc -c -flto a.c", "a.o"),
        ("cc a.c -o prog", "prog"),  # compiles and links: the linked file holds the bitcode
        ("nasm -f elf64 a.asm -o a.o", "a.o"),
        ("cc -c a.c -mllvm -opt-bisect-limit=3", "a.o"),
        ("cc -c a.c -Xclang -opaque-pointers -MT -odd.o -MD -MF a.d", "a.o"),
        ("cc -c a.c -object-file-name=z -o x.o -object-file-name=z", "x.o"),
        ("cc a.c -Xlinker -S -Xlinker -E -o prog", "prog"),
        ("nvcc -Xcompiler=-fPIC -c a.cu -o x.o", "x.o"),
        ("cc -xc -c a.c -o x.o", "x.o"),
        ("cc -x c -c a.c -o x.o", "x.o"),
        ("cc -c -o x.o -- -oy.c", "x.o"),
        ("cc @includes.rsp -c a.c -o x.o", "x.o"),
        ("clang-cl /c a.c /Fox.obj", "x.obj"),
        ("clang-cl.exe -c a.c -Fox.obj", "x.obj"),
        (r"C:\llvm\CLANG-CL.EXE /c a.c /Fo:x", "x.obj"),
        ("/usr/bin/clang-cl-22 /c a.c /Fo: x", "x.obj"),
        ("/opt/bin/clang-cl /c a.c /Foout/", "out/a.obj"),
        ("cl /c a.c /oz.obj", "z.obj"),
        ("cl /c a.c -o z", "z.obj"),
        ("cl /c a.c /Fox.obj /oz.obj", "z.obj"),
        ("cl /c a.c /Fo", "a.obj"),
        ("cl /c a.c", "a.obj"),
        ("cl /c /I /opt/include /Foq.obj a.c", "q.obj"),
        ("cl /c a.c /Foq.obj /link /out:x", "q.obj"),
        ("ccache X=1 clang-cl /c a.c", "a.obj"),
        ("clang --driver-mode=cl /c a.c", "a.obj"),
        ("ccache clang -c a.c", "a.o"),
    ],
)
def test_the_object_of_a_command(arguments: str, output: str) -> None:
    words = arguments.split()
    assert read_one(entry(*words)) == CompileCommand(0, "/b", "/src/a.c", output)


@pytest.mark.parametrize(
    ("file", "output"),
    [("/s/a.b.cc", "a.b.o"), ("dir.d/noext", "noext.o"), (".hid.c", ".hid.o"), ("a.", "a.o"), ("s/ü ö.c", "ü ö.o")],
)
def test_clangs_default_name_replaces_the_last_suffix(file: str, output: str) -> None:
    assert read_one(entry("cc", "-c", file, file=file)).output == output


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        ("cc -E a.c -o a.i", "the command has -E, which makes no object"),
        ("cc -c -S a.c -o a.s", "the command has -S, which makes no object"),
        ("cc -M a.c -c", "the command has -M, which makes no object"),
        ("cc -MM a.c", "the command has -MM, which makes no object"),
        ("cc -fsyntax-only a.c -o a.o", "the command has -fsyntax-only, which makes no object"),
        ("cc --precompile a.cppm -o a.pcm", "the command has --precompile, which makes no object"),
        ("cc -emit-ast a.c", "the command has -emit-ast, which makes no object"),
        ("cc -Xclang -emit-pch -o h.pch -c h.cxx", "the command has -emit-pch, which makes no object"),
        ("cc -x c++-header -o h.gch -c h.hxx.cxx", "the command has -x c++-header, which makes no object"),
        ("cc -c a.c -o -", "the command writes to -"),
        ("cc -c a.c -o /dev/null", "the command writes to /dev/null"),
        ("cc a.c", "the command has neither -c nor -o"),
        ("cc -O2 @sub/a.rsp", "the command has neither -c nor -o, and sub/a.rsp cannot be read"),
        ("cl /EP a.c /c", "the command has -EP, which makes no object"),
        ("cl /Zs a.c /c", "the command has -Zs, which makes no object"),
        ("cl a.c", "the command has neither -c nor -o"),
    ],
)
def test_commands_that_make_no_object(arguments: str, detail: str) -> None:
    found = read_one(entry(*arguments.split()))
    assert (found.problem, found.detail, found.output) == ("no_output", detail, None)


def test_an_empty_command_makes_no_object() -> None:
    for value in ({"command": ""}, {"arguments": []}, {"command": "", "output": "x.o"}):
        found = read_one({"directory": "/b", "file": "a.c", **value})
        assert (found.problem, found.detail) == ("no_output", "the command is empty: a target that stands for others")
    assert read_one({"directory": "/b", "arguments": [], "output": "x.o"}).output == "x.o"


def test_what_the_source_tells_about_a_command() -> None:
    linked = read_one(entry("cc", "a.o", "b.o", "-o", "prog", file="a.o"))  # its objects have entries of their own
    assert (linked.problem, linked.detail) == ("no_output", "the command links a.o")
    header = read_one(entry("cc", "-c", "a.hpp", file="a.hpp"))
    assert (header.problem, header.detail) == ("no_output", "the command precompiles a header")


def test_output_comes_from_the_command_then_from_the_entry_then_from_clang() -> None:
    assert read_one(entry("cc", "-c", "a.c", "-o", "x.o", output="y.o")).output == "x.o"
    assert read_one(entry("cc", "-c", "a.c", output="y.o")).output == "y.o"
    assert read_one(entry("cc", "a.c", output="y.o")).output == "y.o"
    assert read_one({"directory": "/b", "file": "a.c", "output": "y.o"}).output == "y.o"
    assert read_one({**entry("cc", "-c", "a.c", "-oa"), "command": "cc -c a.c -ob"}).output == "a"


def test_parameter_files_are_read_where_the_command_names_no_object() -> None:
    files = {("/b/", "@r"): ("-O2", "@s"), ("/b/", "@s"): ("-c", "-o", "x.o"), ("/b/sub", "@r"): ("-o", "y.o")}
    asked = []

    def read(folder: str, word: str) -> tuple[str, ...] | None:
        asked.append((folder, word))
        return files.get((folder, word))

    def output(*arguments: str) -> str | None:
        (found,) = parse_compile_commands(database(entry(*arguments)), read)
        return found.output

    assert output("cc", "-c", "a.c", "-o", "z.o", "@r") == "z.o"
    assert asked == []
    assert output("cc", "a.c", "@r") == "x.o"
    assert output("cc", "-c", "a.c", "@r") == "x.o"
    assert output("sh", "-c", "cd sub && cc -c a.c @r") == "sub/y.o"
    assert output("cc", "-c", "a.c", "@gone") == "a.o"
    assert asked == [*[("/b/", "@r"), ("/b/", "@s")] * 2, ("/b/sub", "@r"), ("/b/", "@gone")]


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (7, "expected an object, found a number"),
        (["cc"], "expected an object, found a list"),
        ({"file": "a.c", "command": "cc -c a.c"}, "has no 'directory'"),
        ({"directory": "/b", "file": "a.c"}, "has no 'command', no 'arguments' and no 'output'"),
        ({"directory": "/b", "arguments": ["cc", "-c"]}, "has no 'file', and its command no -o"),
        ({"directory": 3, "file": "a.c", "command": "cc"}, "expected a string as 'directory', found a number"),
        (entry("cc", "-c", output=["x"]), "expected a string as 'output', found a list"),
        ({"directory": "/b", "command": True}, "expected a string as 'command', found true or false"),
        ({"directory": "/b", "arguments": "cc -c"}, "expected a list of strings as 'arguments'"),
        ({"directory": "/b", "arguments": ["cc", None]}, "expected a list of strings as 'arguments'"),
        (entry("cc", "-c", "a.c", "-o"), "the command ends after -o"),
        (entry("cl", "/c", "a.c", "/Fo:"), "the command ends after /Fo:"),
        *(
            (entry(*text.split()), f"expected a plain 'cd FOLDER &&' before the compile, found {found!r}")
            for text, found in {
                "cd $HERE && cc -c a.c": "cd $HERE",
                "cd - && cc -c a.c": "cd -",
                "cd /w; cc -c a.c": "cd /w; cc",
                "(cd /w && cc -c a.c)": "(cd /w",
            }.items()
        ),
        ({"directory": "/b", "command": "cc 'a"}, "'command' cannot be split: a ' is not closed"),
        ({"directory": "/b", "command": "cc a\\"}, "'command' cannot be split: it ends in a backslash"),
    ],
)
def test_a_malformed_entry_is_its_own_problem(value: object, detail: str) -> None:
    good = entry("cc", "-c", "a.c")
    first, second, third = parse_compile_commands(database(good, value, good))
    assert (second.index, second.problem, second.detail) == (1, "malformed", detail)
    assert (first.output, third.output, third.index) == ("a.o", "a.o", 2)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "found invalid JSON: line 1, column 1: Expecting value"),
        (b'[\n {"file": "a.c" "b"}]', "found invalid JSON: line 2, column 17: "),
        (b'{"a": 1, "b": 2}', 'found an object with "a", "b"'),
        (b'"text"', "found a string"),
        (b"null", "found null"),
        (b"[1, 2]", "found a list that begins with a number"),
        (b'[{"name": 1}]', 'found a list that begins with an object with "name"'),
        (b"[" * 100_000, "found JSON beyond the limits: "),
        (b"[" + b"1" * 5000 + b"]", "found JSON beyond the limits: "),
    ],
)
def test_what_is_no_compilation_database_is_refused_at_once(data: bytes, found: str) -> None:
    assert list(parse_compile_commands(b" []\n")) == []  # an empty one is one
    with pytest.raises(FormatError) as caught:
        parse_compile_commands(data)
    assert str(caught.value).startswith("expected a compilation database (a JSON list of objects with ")
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_latin_1_bytes_and_byte_order_marks_survive() -> None:
    text = '[{"directory": "/b", "file": "é.c", "command": "cc -DX=é -c é.c -o é.o"}]'
    (found,) = parse_compile_commands(text.encode("latin-1"))
    assert found.output is not None
    assert os.fsencode(found.output) == b"\xe9.o"
    for encoding in ("utf-8-sig", "utf-16"):
        assert [item.output for item in parse_compile_commands(text.encode(encoding))] == ["é.o"]


# --- words


@settings(deadline=None)
@given(st.lists(ARGUMENT, min_size=1))
def test_split_command_undoes_shlex_join(words: list[str]) -> None:
    assert split_command(shlex.join(words)) == tuple(words)


@settings(deadline=None)
@given(st.text("ab '\"\\\t\n$`", max_size=20))
@example("a b'c d")
@example('a"b\\"c')
def test_split_command_agrees_with_shlex(command: str) -> None:
    # They differ where shlex keeps backslashes that a shell takes away: \$ and \` in double quotes, \ before newline.
    try:
        expected = tuple(shlex.split(command))
    except ValueError:
        with pytest.raises(ValueError, match=r"a ['\"] is not closed|it ends in a backslash"):
            split_command(command)
    else:
        if not any(f"\\{escaped}" in command for escaped in "$`\n"):
            assert split_command(command) == expected


@pytest.mark.parametrize(
    "command",
    [
        r"""cc "-DA=\"x y\"" '-DB="q"' -DC=\"z\" a\ b.c""",
        r'''cc "\$HOME \` \\ \x"''',
        'cc a\\\nb \\\n c "d\\\ne" \\\n',
        "cc '' \"\" a''b",
        "  cc\t-c  a.c  ",
    ],
)
def test_split_command_agrees_with_the_shell(command: str) -> None:
    script = f"set -- {command}\nprintf '%s\\0' \"$@\""
    run = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert split_command(command) == tuple(run.stdout.decode().split("\0")[:-1])


@settings(deadline=None)
@given(st.lists(ARGUMENT, max_size=6), ARGUMENT.filter(bool))
def test_arguments_and_command_name_the_same_object(flags: list[str], name: str) -> None:
    words = ["cc", *flags, "-o", f"{name}.o", "-c", "a.c"]
    as_list = read_one(entry(*words))
    as_text = read_one({"directory": "/b", "file": "/src/a.c", "command": shlex.join(words)})
    assert as_list == as_text


def quote(word: str, style: str) -> str:
    if style == "plain":
        return "".join(f"\\{c}" if c in " \t\r\n\f\v'\"\\" else c for c in word) or "''"
    mark = {"single": "'", "double": '"'}[style]
    return mark + word.replace("\\", "\\\\").replace(mark, f"\\{mark}") + mark


@settings(deadline=None)
@given(
    st.lists(st.tuples(ARGUMENT, st.sampled_from(["plain", "single", "double"]))),
    st.sampled_from([" ", "\n", "\r\n", "\t \v\f"]),
)
def test_response_files_round_trip(words: list[tuple[str, str]], separator: str) -> None:
    text = separator.join(["first", *(quote(word, style) for word, style in words)])
    assert parse_response_file(text.encode()) == ("first", *(word for word, _ in words))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (rb"a\ b", ("a b",)), (rb"""'c\'d "e'""", ("c'd \"e",)), (rb'''"f\"g 'h"''', ("f\"g 'h",)),
        (rb"""i'j 'k''l"m" '' """, ("ij klm", "")), (b"a 'b c", ("a", "b c")), (b"a\\", ("a\\",)), (b"'a\\", ("a\\",)),
        (b"a\\\nb", ("a\nb",)), (b"\xff.o", ("\udcff.o",)), ("a.o b.o".encode("utf-16"), ("a.o", "b.o")), (b"", ()),
    ],
)  # fmt: skip
def test_response_file_quoting_is_that_of_gnu(data: bytes, words: tuple[str, ...]) -> None:
    assert parse_response_file(data) == words


# --- link lines


def inputs_of(line: str) -> list[str]:
    return [f"@{item.path}" if item.nested else item.path for item in link_inputs(line.split())]


@pytest.mark.parametrize(
    ("line", "inputs"),
    [
        ("clang++-22 a.o -o prog b.obj c.lo libd.a libe.rlib f.bc", "a.o b.obj c.lo libd.a libe.rlib f.bc"),
        ("ld.lld -r -x a.o b.pic.o -o c.o", "a.o b.pic.o"),
        ("a.o -o x.o", "a.o"),
        ("a.o --output x.o x.o", "a.o"),
        ("-soname a.o -h b.o -Map c.o --Map d.o -rpath e.o --dynamic-linker f.o -I g.o h.o", "h.o"),
        ("--version-script a.o -T b.o -z c.o -m d.o -L e.a -l f.a -lg.a -l:h.a -Li.a j.o", "j.o"),
        ("--out-implib x.a -object_path_lto y.o -MT z.o -Xclang w.o -mllvm v.o -R u.o a.o", "a.o"),
        ("-Wl,--start-group,liba.a,libb.a,--end-group -Wl,-soname,x.o -Wl,-o,y.o c.o", "liba.a libb.a c.o"),
        ("-Xlinker -soname -Xlinker x.o -Xlinker a.o", "a.o"),
        ("--start-lib a.o b.o --end-lib --whole-archive c.a -force_load d.a", "a.o b.o c.a d.a"),
        ("libx.so libx.so.1 x.dylib -lc a.o script.ld", "a.o"),
        ("@a.params -Wl,@b.params a.o @", "@a.params @b.params a.o"),
        ("-rpath @loader_path/x -install_name @rpath/y.o -Wl,-rpath,@executable_path/z a.o", "a.o"),
        ("lld-link /out:x.lib /IMPLIB:y.lib /DEFAULTLIB:z.lib kernel32.lib sub/w.lib a.obj", "sub/w.lib a.obj"),
        ("/usr/bin/llvm-ar-22 qc libx.a a.o b.o /usr/bin/ranlib libx.a", "a.o b.o"),
        ("x86_64-linux-gnu-gcc-ar --thin -rcs sub/libx.a a.o", "a.o"),
        ("rcsD libx.lo a.o", "a.o"),
        ("-r libx.a a.o", "libx.a a.o"),
        ("armlink libx.a a.o", "libx.a a.o"),
        ("cc -o", ""),
        ("", ""),
    ],
)
def test_inputs_of_link_lines(line: str, inputs: str) -> None:
    assert inputs_of(line) == inputs.split()


# --- Bazel


def action(*arguments: str, mnemonic: str = "CppLink", **others: object) -> dict[str, object]:
    return {"mnemonic": mnemonic, "arguments": list(arguments), **others}


def test_every_cpplink_action_counts_and_no_other() -> None:
    graph = {
        "artifacts": [],
        "actions": [
            action("clang", "a.o", "-o", "x", targetId=1),
            action("clang", "-c", "b.c", "-o", "b.o", mnemonic="CppCompile"),
            action("ar", "rcs", "liby.a", "b.o", mnemonic="CppArchive"),
            action("ar", "rcsD", "libz.a", "c.o", targetId=2),
            "strange",
        ],
        "targets": [{"id": 1, "label": "//x:x"}, 7],
    }
    first, second = parse_aquery(json.dumps(graph).encode())
    assert (first.index, first.label, first.inputs) == (0, "//x:x", (LinkInput("a.o"),))
    assert (second.index, second.label, second.inputs) == (3, "", (LinkInput("c.o"),))


def test_embedded_param_files_take_the_place_of_their_references() -> None:
    files = [
        {"execPath": "out/a.params", "arguments": ["-o", "x", "a.o", "@out/deep.params"]},
        {"execPath": "out/b.params", "arguments": ["b.o"]},
        {"execPath": 3, "arguments": ["c.o"]},
    ]
    graph = {"actions": [action("ld", "@out/a.params", "-Wl,@out/b.params", "@out/c.params", "x", paramFiles=files)]}
    (found,) = parse_aquery(json.dumps(graph).encode())
    nested = (LinkInput("out/deep.params", nested=True), LinkInput("out/c.params", nested=True))
    assert found.inputs == (LinkInput("a.o"), nested[0], LinkInput("b.o"), nested[1])


@pytest.mark.parametrize("arguments", [None, [], "a.o", ["a.o", 7]])
def test_an_action_without_arguments_is_a_problem(arguments: object) -> None:
    graph = {"actions": [{"mnemonic": "CppLink", "arguments": arguments, "paramFiles": 1}], "targets": 1}
    (found,) = parse_aquery(json.dumps(graph).encode())
    assert (found.inputs, found.problem) == ((), "malformed")
    assert found.detail == "expected a list of strings as 'arguments'"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "(an object with actions), found a list"),
        (b'{"x": 1}', '(an object with actions), found an object with "x"'),
        (b'{"actions": {}}', '(an object with actions), found an object with "actions"'),
        (b"{", "(an object with actions), found invalid JSON: line 1, column 2: "),
        (b'{"actions": [{}, {}]}', "expected an action with the mnemonic CppLink, found none among 2"),
    ],
)
def test_what_is_no_action_graph_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_aquery(data)
    assert message in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["cc", "-c", "-o", "/b", "a.c", "CppLink", "@a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["directory", "file", "command", "arguments", "output", "actions", "mnemonic", "paramFiles"]
            ),
            inner,
        )
    ),
)


@settings(deadline=None)
@given(JSON)
def test_any_json_is_read_or_refused(value: object) -> None:
    data = json.dumps(value).encode()
    try:
        for found in parse_compile_commands(data):
            assert (found.output is None) <= (found.problem is not None)
    except FormatError:
        assert not isinstance(value, list) or value
    with contextlib.suppress(FormatError):
        assert all(link.inputs == () or link.problem is None for link in parse_aquery(data))


# --- telling inputs apart

PE = b"MZ" + bytes(58) + (128).to_bytes(4, "little") + bytes(64) + b"PE\0\0"


@pytest.mark.parametrize(
    "head",
    [
        b"\x7fELF\2\1\1", b"!<arch>\n", b"!<thin>\n", b"BC\xc0\xde\x35", b"\xde\xc0\x17\x0b\0", PE,
        b"\xcf\xfa\xed\xfe\x07", b"\xfe\xed\xfa\xce\0", b"\xca\xfe\xba\xbe\0\0\0\2", b"\xca\xfe\xba\xbf\0\0\0\2",
    ],
)  # fmt: skip
def test_objects_are_known_by_their_magic(head: bytes) -> None:
    assert is_object(head)
    assert sniff_input(head, "prog") is InputType.OBJECT


@pytest.mark.parametrize(
    "head",
    [b"", b"MZ", PE[:-1], b"MZ" + bytes(200), b"\xca\xfe\xba\xbe\0\0\0\x34", b"\xca\xfe\xba\xbe", b"!<arch", b"text"],
)
def test_other_files_are_no_objects(head: bytes) -> None:
    assert not is_object(head)


@pytest.mark.parametrize(
    "name", ["a.o", "a.pic.o", "a.OBJ", "a.lo", "a.a", "a.lib", "a.so", "a.so.1.2", "a.dll", "a.exe"]
)
def test_object_suffixes(name: str) -> None:
    assert has_object_suffix(name)
    assert sniff_input(b'[{"a": 1}]', name) is InputType.OBJECT


def test_other_suffixes() -> None:
    assert not any(map(has_object_suffix, ("a.c", "a.bc", "a.so.txt", "o", "a.o\n", "a.o.d", "a.la")))


@pytest.mark.parametrize(
    ("head", "name", "expected"),
    [
        (b'[\n{"directory"', "x", InputType.COMPILE_COMMANDS),
        (b"[]", "x", InputType.COMPILE_COMMANDS),
        (b"[", "x", InputType.COMPILE_COMMANDS),
        (b"nonsense", "x.JSON", InputType.COMPILE_COMMANDS),
        (b' {\n "artifacts": [', "x", InputType.AQUERY),
        (b"\xef\xbb\xbf{}", "x", InputType.AQUERY),
        ('[{"directory"'.encode("utf-16"), "x", InputType.COMPILE_COMMANDS),
        (b"a.o\nb.o\n", "x-2.params", InputType.PARAMS),
        (b"[x] a.o", "x", InputType.PARAMS),
        (b"", "x", InputType.PARAMS),
        (b"d\x86\x02\0\0", "x", InputType.OBJECT),  # COFF for x86-64, under another name
    ],
)
def test_inputs_are_told_apart_by_content(head: bytes, name: str, expected: InputType) -> None:
    assert sniff_input(head, name) is expected


# --- clang itself


@pytest.mark.parametrize(
    "flags",
    [
        "-c", "--compile", "-c -emit-llvm", "-c -flto", "-c -o x.o -oy.o", "-c --output=z.o", "-c --output z.o",
        "-c -otput.o", "-c --target=x86_64-pc-windows-msvc", "-c -MD -MT -odd", "-S -c", "-E -c -o x.i",
        "-fsyntax-only -c", "-c -M", "-c -x c-header -o h.pch", "-c -Xclang -emit-pch -o h.pch",
        "-c -mllvm -opt-bisect-limit=-1",
    ],
)  # fmt: skip
def test_clang_writes_the_object_that_is_named(llvm: Llvm, tmp_path: Path, flags: str) -> None:
    check_against_clang(llvm, tmp_path, [llvm.clang, *flags.split()])


@pytest.mark.parametrize(
    "flags",
    [
        "/c", "-c", "/c /Fox", "/c /Fo:x", "/c /Fo: x", "/c /Fox.y", "/c /Foout/", "/c /Fo", "/c /oz", "/c /o z.obj",
        "/c -oz /Foq", "/c /Foq -oz", "/c -flto", "/c -I /opt/include", "/c /FA", "/c /E", "/c /P", "/c /Zs", "/c /EP",
    ],
)  # fmt: skip
def test_clang_cl_writes_the_object_that_is_named(llvm: Llvm, tmp_path: Path, flags: str) -> None:
    driver = [llvm.clang, "--driver-mode=cl", "--target=x86_64-pc-windows-msvc"]
    check_against_clang(llvm, tmp_path, [*driver, *flags.split()])


def check_against_clang(llvm: Llvm, folder: Path, command: list[str]) -> None:
    (folder / "s.x").mkdir()
    (folder / "b" / "out").mkdir(parents=True)
    (folder / "s.x" / "a.b.c").write_text("int f(void) { return 1; }\n")
    command = [*command, "../s.x/a.b.c"]
    subprocess.run(command, cwd=folder / "b", check=True, capture_output=True)
    written = {str(path.relative_to(folder / "b")) for path in (folder / "b").rglob("*") if path.is_file()}
    objects = {name for name in written if not name.endswith((".s", ".asm", ".i", ".d", ".pch", ".gch"))}
    found = read_one(entry(*command, file="../s.x/a.b.c"))
    assert ({found.output} if found.problem is None else set()) == objects
