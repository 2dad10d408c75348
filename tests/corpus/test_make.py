"""A corpus from loose bitcode files: what is a module, what is an index, which command it has, what is refused."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from mlgo_corpus import Corpus, corpus_stats, make_corpus, verify_corpus
from mlgo_corpus.errors import UsageError
from tests.cli.test_cli import mlgo
from tests.conftest import Llvm, run_checked
from tests.handmade import COMMAND, bitcode, corpus, files, manifest, put, row, rows, table

pytestmark = pytest.mark.whole

ARGS = ["-cc1", "-O2", "-emit-obj"]


def upstream_manifest(folder: Path, default_args: str) -> bytes:
    """Make a manifest as LLVM's make_corpus describes it, in the order of the names' bytes.

    Its modules are all ``**/*.bc`` without the suffix, its arguments those between spaces, and it knows no ThinLTO.
    """
    names = [str(path.relative_to(folder))[: -len(".bc")] for path in folder.glob("**/*.bc")]
    said = {
        "global_command_override": default_args.split(),
        "has_thinlto": False,
        "modules": sorted(names, key=os.fsencode),
    }
    return json.dumps(said, indent=2).encode()


def loose(folder: Path, *names: str) -> Path:
    for name in names:
        put(folder / f"{name}.bc", bitcode(os.fsencode(name)))
    return folder


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


NAMES = ("b", "a/x.o", "a", "a/x", "größe", ".hidden/y", "a b", "A", "z.bc/q", "line\nend")


def test_the_manifest_is_upstreams(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in", *(name for name in NAMES if name != "z.bc/q"), os.fsdecode(b"\xff"))
    expected = upstream_manifest(folder, "-cc1 -O2")
    report = make_corpus(folder, default_args="-cc1 -O2")
    assert (folder / "corpus_description.json").read_bytes() == expected
    assert (report.modules, report.failed, report.unchanged, report.has_thinlto) == (10, (), False, False)
    before = files(folder)
    again = make_corpus(folder, default_args=["-cc1", "-O2"])
    assert (again.modules, again.unchanged) == (10, True)
    assert files(folder) == before
    assert [module.command() for module in Corpus.open(folder)] == [("-cc1", "-O2")] * 10
    assert not [name for name in listing(folder) if name.endswith((".tmp", ".lock"))]


@pytest.mark.parametrize("placing", ["link", "copy", "reference"])
def test_another_folder_has_the_same(tmp_path: Path, placing: str) -> None:
    folder = loose(tmp_path / "in", *NAMES)
    report = make_corpus(folder, tmp_path / "out", default_args=ARGS, placing=placing)
    safe = {"line\nend": "line%0Aend", "z.bc/q": "z.bc_/q"}
    assert manifest(tmp_path / "out") == {
        "global_command_override": ARGS,
        "has_thinlto": False,
        "modules": [safe.get(name, name) for name in sorted(NAMES, key=os.fsencode)],
    }
    for name in NAMES:
        assert Corpus.open(tmp_path / "out")[safe.get(name, name)].bitcode() == bitcode(name.encode())
    assert (report.modules, report.without_command) == (len(NAMES), 0)
    assert listing(tmp_path) == ["in", "out"]
    assert make_corpus(folder, tmp_path / "out", default_args=ARGS, placing=placing).unchanged
    loose(folder, "new")
    with pytest.raises(UsageError, match=r"out: a corpus of other inputs or options is there; `force` replaces it$"):
        make_corpus(folder, tmp_path / "out", default_args=ARGS, placing=placing)
    made = make_corpus(folder, tmp_path / "out", default_args=ARGS, placing=placing, force=True)
    assert (made.modules, made.unchanged) == (len(NAMES) + 1, False)


def test_folders_may_be_deeper_than_calls(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in", "a.o")
    deep = os.path.join(folder, "b")
    os.mkdir(deep)
    for _ in range(1300):
        deep += "/d"
        os.mkdir(deep)
    try:
        assert make_corpus(folder, default_args=ARGS).modules == 1
        assert verify_corpus(folder).modules == 1
    finally:
        os.removedirs(deep)  # pytest removes folders by a call for each


def test_two_names_that_become_one(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in", "a%FF", os.fsdecode(b"a\xff"), "a%FF~2")
    make_corpus(folder, tmp_path / "out", default_args=ARGS)
    assert manifest(tmp_path / "out")["modules"] == ["a%FF", "a%FF~2", "a%FF~3"]
    assert sorted(files(tmp_path / "out")) == ["a%FF.bc", "a%FF~2.bc", "a%FF~3.bc", "corpus_description.json"]


def test_indexes_are_no_modules(tmp_path: Path) -> None:
    """LLVM's tool takes them for modules."""
    folder = loose(tmp_path / "in", "a", "b/c", "a.thinlto", "b/c.thinlto", "stray.thinlto", ".thinlto")
    for output in (None, tmp_path / "out"):
        report = make_corpus(folder, output, default_args=ARGS)
        assert (report.modules, report.has_thinlto, report.failed) == (2, True, ())
        assert manifest(output or folder)["modules"] == ["a", "b/c"]
        assert manifest(output or folder)["has_thinlto"] is True
        for module in Corpus.open(output or folder):
            assert module.thinlto_index_path is not None
            assert module.thinlto_index_path.read_bytes() == bitcode(f"{module.name}.thinlto".encode())
    assert "stray.thinlto.bc" not in listing(tmp_path / "out")


def test_a_module_without_the_index_that_others_have(tmp_path: Path) -> None:
    folder = loose(tmp_path, "a", "a.thinlto", "b")
    report = make_corpus(folder, default_args=ARGS)
    detail = "other modules have a ThinLTO index, and this one has none"
    assert report.failed == (("b", "missing_thinlto_index", detail),)
    assert manifest(folder)["modules"] == ["a"]
    assert [(one["module"], one["status"]) for one in rows(folder)] == [("a", "ok"), ("b", "failed")]


@pytest.mark.parametrize("command", [["<UNSPECIFIED>"], ["-cc1", "-O2"]])
def test_a_thinlto_corpus_of_llvm_s_tools_gets_a_table(tmp_path: Path, command: list[str]) -> None:
    folder = loose(tmp_path / "in", "a", "a.thinlto")
    said = {"global_command_override": command, "has_thinlto": True, "modules": ["a"]}
    put(folder / "corpus_description.json", json.dumps(said).encode())
    assert make_corpus(folder).modules == 1
    assert manifest(folder) == said
    assert [(one["module"], one["status"]) for one in rows(folder)] == [("a", "ok")]
    with pytest.raises(UsageError, match="no module has a command of its own"):
        make_corpus(folder, tmp_path / "out")


def test_modules_with_commands_of_their_own(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in", "a", "b")
    put(folder / "a.cmd", COMMAND)
    for output in (None, tmp_path / "out"):
        report = make_corpus(folder, output)
        assert (report.modules, report.without_command) == (2, 1)
        assert manifest(output or folder) == {"has_thinlto": False, "modules": ["a", "b"]}
        assert Corpus.open(output or folder)["a"].command()[:3] == ("-cc1", "-triple", "x86_64-pc-linux-gnu")
        assert [(one["module"], one["reason"], one["opt_level"]) for one in rows(output or folder)] == [
            ("a", "ok", "2"), ("b", "no_command", None),
        ]  # fmt: skip
    done = mlgo("make", "in", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == (
        "hint: 1 module without a command, and trainers refuse a corpus with such modules: "
        "--default-args gives one for all\n"
    )
    told = json.loads(mlgo("make", "in", "--json", cwd=tmp_path).stdout)
    assert [f"hint: {hint}\n" for hint in told["hints"]] == [done.stderr]


def test_real_bitcode(llvm22: Llvm, tmp_path: Path) -> None:
    """With the command that it is given, a compiler makes the object that it would have made at once."""
    (tmp_path / "f.c").write_text("int f(int x) { return x * 3; }\n")
    run_checked(llvm22.clang, "-O1", "-c", "f.c", "-o", "whole.o", cwd=tmp_path)
    (tmp_path / "in").mkdir()
    flags = ("-O1", "-Xclang", "-disable-llvm-passes", "-emit-llvm")
    run_checked(llvm22.clang, *flags, "-c", "f.c", "-o", "in/f.bc", cwd=tmp_path)
    make_corpus(tmp_path / "in", default_args=["-cc1", "-O1", "-emit-obj"])
    (found,) = rows(tmp_path / "in")
    assert (found["producer"], found["cmd_origin"]) == ("LLVM22.1.8", "override")
    assert found["target_triple"] == run_checked(llvm22.clang, "-print-target-triple").strip()
    (module,) = Corpus.open(tmp_path / "in")
    run_checked(llvm22.clang, *module.command(), "-x", "ir", module.bitcode_path, "-o", tmp_path / "again.o")
    symbols = [run_checked(llvm22.nm, "--defined-only", tmp_path / name) for name in ("whole.o", "again.o")]
    assert symbols[0] == symbols[1]


def test_what_is_no_module(tmp_path: Path) -> None:
    folder = loose(tmp_path / "in", "good")
    put(folder / "text.bc", b"no bitcode")
    put(folder / "empty.bc", b"")
    put(folder / "half.bc", bitcode()[:10])
    os.mkfifo(folder / "pipe.bc")
    (folder / "folder.bc").mkdir()
    (folder / "loop.bc").symlink_to("loop.bc")
    (folder / "lost.bc").symlink_to("nowhere")
    (folder / "round").symlink_to(".")
    (folder / "linked.bc").symlink_to("good.bc")
    expected = (
        ("empty", "malformed", "expected bitcode, found an empty file"),
        ("half", "truncated", "byte 4: reading a bitcode block header, expected 8 bytes, got 6"),
        ("loop", "missing", "cannot read loop.bc: Too many levels of symbolic links"),
        ("lost", "missing", "cannot read lost.bc: No such file or directory"),
        ("pipe", "unreadable", "cannot read pipe.bc: not a file"),
        ("text", "malformed", "expected bitcode, found other data"),
    )
    for output in (None, tmp_path / "out"):
        report = make_corpus(folder, output, default_args=ARGS)
        assert report.failed == expected
        assert manifest(output or folder)["modules"] == ["good", "linked"]
        found = [(one["module"], one["reason"], one["detail"]) for one in rows(output or folder)]
        assert [one for one in found if one[1] != "ok"] == list(expected)
        again = make_corpus(folder, output, default_args=ARGS)
        assert (again.failed, again.unchanged) == (expected, True)
    assert listing(tmp_path / "out") == ["corpus_description.json", "good.bc", "linked.bc", "modules.parquet"]
    assert not (tmp_path / "out/linked.bc").is_symlink()


def test_folders_that_cannot_be_made_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    loose(tmp_path / "indexes", "a.thinlto")
    put(tmp_path / "text/a.bc", b"text")
    loose(tmp_path / "bare", "a")
    put(loose(tmp_path / "kept", "a") / ".mlgo-corpus/lock", b"")
    for name, args, message in (
        ("nowhere", ARGS, "No such file or directory"),
        ("text/a.bc", ARGS, "Not a directory"),
        ("empty", ARGS, "no *.bc files in it; mlgo-corpus extract takes a build's objects"),
        ("indexes", ARGS, "no *.bc files in it; mlgo-corpus extract takes a build's objects"),
        ("text", ARGS, "none of 1 files is a module: a.bc: expected bitcode, found other data"),
        ("bare", None, "no module has a command of its own, a .cmd file; `default_args` sets one for all"),
        ("kept", ARGS, "is a corpus that extract keeps up to date; name another `output`"),
    ):
        before = files(tmp_path)
        with pytest.raises(UsageError) as caught:
            make_corpus(tmp_path / name, default_args=args)
        assert str(caught.value) == f"{tmp_path / name}: {message}"
        if name != "kept":
            with pytest.raises(UsageError) as caught:
                make_corpus(tmp_path / name, tmp_path / "out", default_args=args)
            assert str(caught.value) == f"{tmp_path / name}: {message}"
        assert files(tmp_path) == before
    with pytest.raises(UsageError, match=r"^default_args: expected a command, found nothing$"):
        make_corpus(tmp_path / "bare", default_args=[])


def test_outputs_that_are_refused(tmp_path: Path) -> None:
    folder = loose(tmp_path / "around/in", "a")
    corpus(tmp_path / "around", ["x"])
    with pytest.raises(UsageError) as caught:
        make_corpus(folder, folder, default_args=ARGS)
    assert str(caught.value) == (f"output {folder}: is {folder}; without `output` that folder itself becomes a corpus")
    for output in (folder / "below", tmp_path / "around"):
        with pytest.raises(UsageError) as caught:
            make_corpus(folder, output, default_args=ARGS, force=True)
        assert str(caught.value) == f"output {output}: overlaps {folder}; name a folder apart from it"
    assert (folder / "a.bc").exists()


def test_another_manifest_or_table_is_not_replaced_unasked(tmp_path: Path) -> None:
    folder = loose(tmp_path, "a", "b")
    make_corpus(folder, default_args=ARGS)
    with pytest.raises(UsageError, match=r"corpus_description.json: another manifest is there; `force` replaces it$"):
        make_corpus(folder, default_args=["-cc1"])
    assert manifest(folder)["global_command_override"] == ARGS
    make_corpus(folder, default_args=["-cc1"], force=True)
    assert manifest(folder)["global_command_override"] == ["-cc1"]
    table(folder, [row("a"), row("b"), row("left out", status="skipped")], made_by="combine")
    for damage in (False, True):
        if damage:
            put(folder / "modules.parquet", b"PAR1")
        before = (folder / "modules.parquet").read_bytes()
        with pytest.raises(UsageError, match=r"modules.parquet: another table is there; `force` replaces it$"):
            make_corpus(folder, default_args=["-cc1"])
        assert (folder / "modules.parquet").read_bytes() == before
    make_corpus(folder, default_args=["-cc1"], force=True)
    assert [one["module"] for one in rows(folder)] == ["a", "b"]
    (folder / "corpus_description.json").write_text("{")
    with pytest.raises(UsageError, match="another manifest is there"):
        make_corpus(folder, default_args=["-cc1"])


def test_a_corpus_without_a_table_gets_one(tmp_path: Path) -> None:
    """Its manifest stays as it is, in its order."""
    corpus(tmp_path, ["z", "a", "m"])
    before = (tmp_path / "corpus_description.json").read_bytes()
    assert not corpus_stats(tmp_path).from_table
    report = make_corpus(tmp_path)
    assert (report.modules, report.unchanged) == (3, False)
    assert (tmp_path / "corpus_description.json").read_bytes() == before
    assert corpus_stats(tmp_path).from_table
    assert make_corpus(tmp_path).unchanged


def test_what_other_verbs_have_found_out_stays(tmp_path: Path) -> None:
    corpus(tmp_path, ["a"])
    make_corpus(tmp_path)
    table(tmp_path, [{**one, "split": "train", "functions": 3} for one in rows(tmp_path)], made_by="make")
    assert make_corpus(tmp_path).unchanged
    assert [(one["split"], one["functions"]) for one in rows(tmp_path)] == [("train", 3)]
    put(tmp_path / "a.bc", bitcode(b"other"))
    assert not make_corpus(tmp_path).unchanged
    assert [(one["split"], one["functions"]) for one in rows(tmp_path)] == [(None, None)]


def test_names_of_a_manifest_play_no_part(tmp_path: Path) -> None:
    folder = loose(tmp_path, "a")
    (folder / "corpus_description.json").write_text('{"has_thinlto": false, "modules": ["../x"]}')
    make_corpus(folder, default_args=ARGS, force=True)
    assert manifest(folder)["modules"] == ["a"]


# As a user sees it


def test_what_a_person_sees(tmp_path: Path) -> None:
    loose(tmp_path / "in", "a", "b")
    put(tmp_path / "in/[red].bc", b"text")
    for again in ("", ", as before"):
        done = mlgo("make", "in", "--output", "out", "--default-args", "-cc1 '-DX=a b'", cwd=tmp_path)
        assert done.returncode == 1
        assert done.stdout.startswith("out: 2 modules in ")
        assert done.stdout.endswith(f" s{again}\n")
        assert done.stderr == "[red]: malformed: expected bitcode, found other data\n"
    assert manifest(tmp_path / "out")["global_command_override"] == ["-cc1", "-DX=a b"]
    loose(tmp_path / "in", "a.thinlto", "b.thinlto")
    (tmp_path / "in/[red].bc").unlink()
    done = mlgo("make", "in", "--default-args", "-cc1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("in: 2 modules with ThinLTO indexes in ")


def test_the_json_is_the_report(tmp_path: Path) -> None:
    loose(tmp_path / "in", "a")
    put(tmp_path / "in/b.bc", b"text")
    done = mlgo("make", "in", "--default-args", shlex.join(ARGS), "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert told.pop("seconds") > 0
    assert told == {
        "output": "in",
        "modules": 1,
        "has_thinlto": False,
        "without_command": 0,
        "failed": [["b", "malformed", "expected bitcode, found other data"]],
        "unchanged": False,
        "hints": [],
        "exit_code": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--default-args", "x"], "nowhere: No such file or directory"),
        (["in"], "in: no module has a command of its own, a .cmd file; --default-args sets one for all"),
        (["in", "--default-args", "'"], "--default-args: cannot be split as a shell would: No closing quotation"),
        (["in", "--default-args", " "], "--default-args: expected a command, found nothing"),
        (["in", "--default-args", "x", "--copy", "--reference"], "--copy and --reference: expected one of them"),
        (["in", "--default-args", "x", "--output", "file"], "file: expected a folder, found a file"),
        (["in", "--default-args", "x", "--output", "in/x"], "--output in/x: overlaps in; name a folder apart from it"),
        (["in", "--default-args", "x", "--copy"], "--copy: requires --output"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    loose(tmp_path / "in", "a")
    put(tmp_path / "file", b"")
    done = mlgo("make", *arguments, cwd=tmp_path)
    assert done.stderr == f"mlgo-corpus: error: {message}\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert files(tmp_path) == {"file": b"", "in/a.bc": bitcode(b"a")}
