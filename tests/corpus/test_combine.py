"""One corpus from several, and a manifest for a folder of corpora: what comes along, and what is refused."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlgo_corpus import Corpus, combine_corpora, combine_in_place, corpus_stats, dedup_corpus, extract_corpus
from mlgo_corpus.corpus.folder import UNSPECIFIED_OVERRIDE
from mlgo_corpus.corpus.groups import ModuleLabels
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from tests.cli.test_cli import mlgo
from tests.conftest import unpack
from tests.handmade import COMMAND, bitcode, corpus, files, manifest, put, row, rows, table

pytestmark = pytest.mark.whole


def upstream_manifest(root: Path) -> bytes:
    """Combine as LLVM's combine_training_corpus describes it, in the order of the folders' names.

    Module names are joined to the name of their folder; everything else has to be the same; ``modules`` comes last.
    """
    names: list[str] = []
    rest: dict[str, Any] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(str(root)), "*/corpus_description.json"))):
        said = json.loads(Path(path).read_text(encoding="utf-8"))
        names += [os.path.join(os.path.basename(os.path.dirname(path)), name) for name in said.pop("modules")]
        assert rest in ({}, said)
        rest = said
    return json.dumps({**rest, "modules": names}, indent=2).encode()


def listing(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# In one folder, as LLVM's tool does it


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"has_thinlto": True},
        {"global_command_override": ["-cc1", "-O2", "größe", 'a "b"']},
        {"global_command_override": []},
        {"made": {"by": "somebody", "at": [1, 2.5, None]}, "zebra": "x", "apple": True},
    ],
)
def test_the_manifest_of_a_folder_is_upstreams(tmp_path: Path, settings: dict[str, Any]) -> None:
    for name, modules in {"zlib": ["b.o", "a/a.o"], "a b": [], "größe": ["ü.o"], "lua.5": ["x.o", "x.o"]}.items():
        corpus(tmp_path / name, modules, **settings)
    corpus(tmp_path / ".hidden", ["h.o"], **settings)
    corpus(tmp_path / "deep/er", ["d.o"], **settings)
    put(tmp_path / "file", b"")
    report = combine_in_place(tmp_path)
    data = (tmp_path / "corpus_description.json").read_bytes()
    assert data == upstream_manifest(tmp_path)
    assert report.corpora == (("a b", 0), ("größe", 1), ("lua.5", 1), ("zlib", 2))
    assert (report.modules, report.unchanged, report.failed) == (4, False, ())
    assert [len(module.bitcode()) > 4 for module in Corpus.open(tmp_path)] == [True] * 4
    assert combine_in_place(tmp_path).unchanged
    assert listing(tmp_path) == sorted(
        [".hidden", "a b", "corpus_description.json", "deep", "file", "größe", "lua.5", "zlib"]
    )


def test_a_folder_whose_name_is_no_utf8(tmp_path: Path) -> None:
    corpus(tmp_path / os.fsdecode(b"\xff"), ["a.o"])
    combine_in_place(tmp_path)
    assert (tmp_path / "corpus_description.json").read_bytes() == upstream_manifest(tmp_path)
    assert [module.bitcode() for module in Corpus.open(tmp_path)] == [bitcode(b"a.o")]


def test_another_manifest_is_not_replaced_unasked(tmp_path: Path) -> None:
    corpus(tmp_path / "one", ["a"])
    combine_in_place(tmp_path)
    corpus(tmp_path / "two", ["b"])
    before = files(tmp_path)
    with pytest.raises(UsageError) as caught:
        combine_in_place(tmp_path)
    assert str(caught.value) == f"{tmp_path}/corpus_description.json: another manifest is there; `force` replaces it"
    assert files(tmp_path) == before
    assert combine_in_place(tmp_path, force=True).modules == 2
    assert manifest(tmp_path)["modules"] == ["one/a", "two/b"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", "a/../../b", "a\0b", "\ud800"])
def test_a_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    corpus(tmp_path / "one", ["a"])
    (tmp_path / "one/corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": ["a", name]}))
    with pytest.raises(CorpusError) as caught:
        combine_in_place(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/one/corpus_description.json: {name}: this module name ")
    assert not (tmp_path / "corpus_description.json").exists()


def test_a_folder_that_holds_no_corpora(tmp_path: Path) -> None:
    message = "no folder in it has a corpus_description.json; `root` is the folder that holds the corpora"
    with pytest.raises(UsageError, match=message):
        combine_in_place(tmp_path)
    with pytest.raises(UsageError, match=message):
        combine_in_place(corpus(tmp_path / "corpus", ["a"]))
    with pytest.raises(UsageError, match=r"/nowhere: No such file or directory$"):
        combine_in_place(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"/a.bc: Not a directory$"):
        combine_in_place(tmp_path / "corpus/a.bc")


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    corpus(tmp_path / "one", ["a"])
    put(tmp_path / "two/corpus_description.json", b'{"modules": ["a"')
    with pytest.raises(CorpusError, match=r"/two/corpus_description.json: not JSON: "):
        combine_in_place(tmp_path)
    with pytest.raises(CorpusError, match=r"/two/corpus_description.json: not JSON: "):
        combine_corpora([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    assert listing(tmp_path) == ["one", "two"]


# Into a new one


def test_real_corpora(tmp_path: Path) -> None:
    """All that the corpora had is in the new one, under their names, and what they say of it is the same."""
    for name in ("lua-clang19", "zlib-clang19"):
        unpack(name, tmp_path / "build" / name)
        put(tmp_path / "build" / name / "broken.o", b"\x7fELF")
        extract_corpus([tmp_path / "build" / name], tmp_path / "in" / name)
    report = combine_corpora([tmp_path / "in/zlib-clang19", tmp_path / "in/lua-clang19"], tmp_path / "made")
    expected: dict[str, bytes] = {}
    for name in ("lua-clang19", "zlib-clang19"):
        for path, data in files(tmp_path / "in" / name).items():
            if path.endswith((".bc", ".cmd")):
                expected[f"{name}/{path}"] = data
    found = files(tmp_path / "made")
    del found["corpus_description.json"]
    assert found == expected
    said = []
    for name in ("zlib-clang19", "lua-clang19"):
        said += [{**one, "module": f"{name}/{one['module']}"} for one in rows(tmp_path / "in" / name)]
    assert rows(tmp_path / "made") == said
    combine_in_place(tmp_path / "in")
    assert sorted(manifest(tmp_path / "made")["modules"]) == sorted(manifest(tmp_path / "in")["modules"])
    parts = [corpus_stats(tmp_path / "in" / name) for name in ("zlib-clang19", "lua-clang19")]
    whole = corpus_stats(tmp_path / "made")
    assert (whole.modules, whole.bitcode_bytes) == (
        sum(part.modules for part in parts), sum(part.bitcode_bytes for part in parts),
    )  # fmt: skip
    assert (report.modules, report.left_out, report.failed) == (whole.modules, 2, ())
    again = combine_corpora([tmp_path / "in/zlib-clang19", tmp_path / "in/lua-clang19"], tmp_path / "made")
    assert again.unchanged
    assert (again.modules, again.left_out, again.corpora) == (whole.modules, 2, report.corpora)


@pytest.mark.parametrize("placing", ["link", "copy", "reference"])
def test_thinlto_and_an_override(tmp_path: Path, placing: str) -> None:
    for name in ("one", "two"):
        corpus(
            tmp_path / name, ["b.o", "a.o"], commands={"a.o": None, "b.o": None},
            has_thinlto=True, global_command_override=list(UNSPECIFIED_OVERRIDE),
        )  # fmt: skip
    combine_corpora([tmp_path / "two", tmp_path / "one"], tmp_path / "made", placing=placing)
    assert manifest(tmp_path / "made") == {
        "global_command_override": ["<UNSPECIFIED>"],
        "has_thinlto": True,
        "modules": ["two/b.o", "two/a.o", "one/b.o", "one/a.o"],
    }
    for module in Corpus.open(tmp_path / "made"):
        folder, _, name = module.name.partition("/")
        assert module.bitcode() == (tmp_path / folder / f"{name}.bc").read_bytes()
        index = module.thinlto_index_path
        assert index is not None
        assert index.read_bytes() == bitcode(b"index of " + name.encode())


def test_references_need_the_originals(tmp_path: Path) -> None:
    corpus(tmp_path / "one", ["a.o"])
    combine_corpora([tmp_path / "one"], tmp_path / "made", placing="reference")
    assert listing(tmp_path / "made") == [".mlgo-corpus", "corpus_description.json", "modules.parquet", "one"]
    assert os.readlink(tmp_path / "made/one") == str(tmp_path / "one")
    (module,) = Corpus.open(tmp_path / "made")
    assert module.bitcode() == bitcode(b"a.o")
    (tmp_path / "one").rename(tmp_path / "moved")
    with pytest.raises(CorpusError, match=r"^one/a.o: cannot read a.o.bc: No such file or directory$"):
        module.bitcode()
    assert corpus_stats(tmp_path / "made").modules == 1
    report = combine_corpora([tmp_path / "made"], tmp_path / "again", placing="copy")
    assert report.failed == (("made/one/a.o", "cannot read a.o.bc: No such file or directory"),)
    (tmp_path / "moved").rename(tmp_path / "one")
    report = combine_corpora([tmp_path / "made"], tmp_path / "again", placing="copy")
    assert (report.failed, report.unchanged, report.modules) == ((), False, 1)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a/corpus", "b/corpus"], ["a", "b"]),
        (["a/corpus", "b/other"], ["corpus", "other"]),
        (["a/corpus", "a/corpus"], ["corpus", "corpus~2"]),
        (["a/corpus", "b/corpus", "a/corpus"], ["a", "b", "a~2"]),
        (["x=a/corpus", "b/corpus"], ["x", "b"]),
        (["x=a/corpus", "x=b/corpus"], ["x", "x~2"]),
        (["..=a/corpus", "modules.parquet=b/corpus", "x.bc=b/other"], ["_up", "modules.parquet_", "x.bc_"]),
        (["a/corpus/corpus_description.json", "a/corpus/corpus_description.train.json"], ["corpus", "corpus~2"]),
        (["k=v", "y=k=v"], ["k=v", "y"]),
        ([".modules.parquet.tmp=a/corpus", "corpus_description.json=b/corpus"], [
            ".modules.parquet.tmp", "corpus_description.json_",
        ]),
        (["link/corpus", "b/corpus"], ["link", "b"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("placing", ["link", "reference"])
def test_what_a_corpus_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], names: list[str], placing: str
) -> None:
    for name in ("a/corpus", "b/corpus", "b/other", "k=v"):
        corpus(tmp_path / name, ["m.o"])
    shutil.copy(tmp_path / "a/corpus/corpus_description.json", tmp_path / "a/corpus/corpus_description.train.json")
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    report = combine_corpora(given, "made", placing=placing)
    assert [name for name, _ in report.corpora] == names
    assert report.failed == ()
    assert manifest(tmp_path / "made")["modules"] == [f"{name}/m.o" for name in names]
    assert [module.bitcode() for module in Corpus.open("made")] == [bitcode(b"m.o")] * len(names)
    assert len(rows(tmp_path / "made")) == len(names)


def test_rows_come_along(tmp_path: Path) -> None:
    """With the names changed in them; what was left out is counted; a side of a split is one no more."""
    a, b = bitcode(b"a"), bitcode(b"b")
    one = corpus(tmp_path / "one", {"a": a, "b": b})
    dropped = row("c", a, status="skipped", reason="duplicate", duplicate_of="a")
    table(one, [row("b", b, split="test"), dropped, row("a", a, split="train"), row("gone", b)])
    report = combine_corpora([one], tmp_path / "made")
    assert (report.modules, report.left_out) == (2, 1)
    assert [(one["module"], one["status"], one["duplicate_of"], one["split"]) for one in rows(tmp_path / "made")] == [
        ("one/b", "ok", None, None),
        ("one/c", "skipped", "one/a", None),
        ("one/a", "ok", None, None),
    ]
    assert manifest(tmp_path / "made")["modules"] == ["one/a", "one/b"]  # in the manifest's order


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize("placing", ["link", "copy", "reference"])
def test_modules_that_cannot_be_had(tmp_path: Path, has_table: bool, placing: str) -> None:
    names = ["good", "lost", "pipe", "loop", "../good", "/etc/passwd"]
    one = corpus(tmp_path / "one", ["good"])
    (one / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": names}))
    os.mkfifo(one / "pipe.bc")
    (one / "loop.bc").symlink_to("loop.bc")
    if has_table:
        table(one, [row(name, bitcode(name.encode())) for name in names])
    report = combine_corpora([one], tmp_path / "made", placing=placing)
    assert report.modules == 1
    assert sorted(report.failed) == [
        ("one/../good", "this module name leaves the corpus folder"),
        ("one//etc/passwd", "this module name leaves the corpus folder"),
        ("one/loop", "cannot read loop.bc: Too many levels of symbolic links"),
        ("one/lost", "cannot read lost.bc: No such file or directory"),
        ("one/pipe", "cannot read pipe.bc: not a file"),
    ]
    assert report.left_out == 0
    assert manifest(tmp_path / "made")["modules"] == ["one/good"]
    found = {one["module"]: (one["status"], one["reason"]) for one in rows(tmp_path / "made")}
    assert found == {
        "one/good": ("ok", "ok"),
        "one/lost": ("failed", "missing"),
        "one/pipe": ("failed", "unreadable"),
        "one/loop": ("failed", "missing"),
        "one/../good": ("failed", "missing"),
        "one//etc/passwd": ("failed", "missing"),
    }
    assert listing(tmp_path) == ["made", "one"]
    again = combine_corpora([one], tmp_path / "made", placing=placing)
    assert (again.unchanged, len(again.failed)) == (False, 5)


def test_files_that_are_no_bitcode(tmp_path: Path) -> None:
    one = corpus(tmp_path / "one", {"a": bitcode(), "b": b"no bitcode", "c": bitcode()[:-1]})
    report = combine_corpora([one], tmp_path / "made")
    assert report.failed == (
        ("one/b", "expected bitcode, found other data"),
        ("one/c", "byte 12: reading bitcode block 8, expected 4 bytes, got 3"),
    )
    assert [(one["module"], one["reason"]) for one in rows(tmp_path / "made")] == [
        ("one/a", "ok"), ("one/b", "malformed"), ("one/c", "truncated"),
    ]  # fmt: skip
    assert not (tmp_path / "made/one/b.bc").exists()


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"gr\xfc.o")
    one = corpus(tmp_path / "one", [name])
    for has_table in (False, True):
        if has_table:
            table(one, [row("gr%FC.o", bitcode())])
        combine_corpora([one], tmp_path / f"made-{has_table}")
        assert manifest(tmp_path / f"made-{has_table}")["modules"] == [f"one/{name}"]
        assert [module.bitcode() for module in Corpus.open(tmp_path / f"made-{has_table}")] == [bitcode(b"gr\xfc.o")]
        assert [one["module"] for one in rows(tmp_path / f"made-{has_table}")] == ["one/gr%FC.o"]


def test_empty_corpora(tmp_path: Path) -> None:
    corpus(tmp_path / "one", [])
    report = combine_corpora([tmp_path / "one"], tmp_path / "made")
    assert (report.modules, report.corpora) == (0, (("one", 0),))
    assert len(Corpus.open(tmp_path / "made")) == 0
    assert combine_corpora([tmp_path / "one"], tmp_path / "made").unchanged


def test_a_damaged_table(tmp_path: Path) -> None:
    one = corpus(tmp_path / "one", ["a"])
    put(one / "modules.parquet", b"PAR1")
    with pytest.raises(CorpusError, match=r"one/modules\.parquet: cannot be read: "):
        combine_corpora([one], tmp_path / "made")
    assert listing(tmp_path) == ["one"]
    (one / "modules.parquet").unlink()
    os.mkfifo(one / "modules.parquet")
    assert combine_corpora([one], tmp_path / "made").modules == 1


def test_a_table_with_holes(tmp_path: Path) -> None:
    one = corpus(tmp_path / "one", ["a"])
    table(one, [row(None, status="failed"), row("a", bitcode(b"a")), row(None)])
    report = combine_corpora([one], tmp_path / "made")
    assert (report.modules, report.left_out, report.failed) == (1, 1, ())


def test_a_manifest_without_thinlto_is_combined_as_one_that_says_false(tmp_path: Path) -> None:
    one, two = corpus(tmp_path / "in/one", ["a"]), corpus(tmp_path / "in/two", ["b"])
    (one / "corpus_description.json").write_text('{"modules": ["a"]}')
    combine_corpora([one, two], tmp_path / "made")
    combine_in_place(tmp_path / "in")
    for folder in (tmp_path / "made", tmp_path / "in"):
        assert manifest(folder) == {"has_thinlto": False, "modules": ["one/a", "two/b"]}
    corpus(tmp_path / "in/three", ["c"], has_thinlto=True)
    with pytest.raises(UsageError, match="has_thinlto: one has false, three has true"):
        combine_corpora([one, tmp_path / "in/three"], tmp_path / "other")


CONFLICTS = [
    (
        {"has_thinlto": True},
        {},
        "has_thinlto: one has true, two has false",
    ),
    (
        {"global_command_override": ["-cc1", "a b"]},
        {},
        "global_command_override: one has -cc1 'a b', two has none",
    ),
    (
        {"global_command_override": []},
        {"global_command_override": ["-O2"] * 40, "has_thinlto": True},
        "has_thinlto: one has false, two has true; global_command_override: one has an empty command, two has "
        + " ".join(["-O2"] * 40)[:57]
        + "...",
    ),
]


@pytest.mark.parametrize(("first", "second", "message"), CONFLICTS)
def test_corpora_that_do_not_agree(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], message: str) -> None:
    one, two = corpus(tmp_path / "in/one", ["a"], **first), corpus(tmp_path / "in/two", ["b"], **second)
    with pytest.raises(UsageError) as caught:
        combine_corpora([one, two], tmp_path / "made")
    whole = f"the corpora differ in settings that apply to all modules: {message}; combine only corpora that agree"
    assert str(caught.value) == whole
    with pytest.raises(UsageError) as caught:
        combine_in_place(tmp_path / "in")
    assert set(str(caught.value).split(": ", 1)[1].split("; ")) == set(whole.split(": ", 1)[1].split("; "))
    assert listing(tmp_path) == ["in"]
    assert listing(tmp_path / "in") == ["one", "two"]


def test_keys_of_others_have_to_agree_in_place(tmp_path: Path) -> None:
    corpus(tmp_path / "one", ["a"], origin={"url": "x"})
    corpus(tmp_path / "two", ["b"])
    with pytest.raises(UsageError, match=r'origin: one has {"url": "x"}, two has none; combine'):
        combine_in_place(tmp_path)
    assert combine_corpora([tmp_path / "one", tmp_path / "two"], tmp_path / "made").modules == 2


def test_no_corpora_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^expected the folders of corpora, found none$"):
        combine_corpora([], tmp_path / "made")
    with pytest.raises(UsageError, match=r"^placing foo: expected one of link, copy, reference$"):
        combine_corpora(["one"], tmp_path / "made", placing="foo")
    for wrong in (None, Corpus.open(corpus(tmp_path / "some", ["a"]))):
        with pytest.raises(UsageError, match=r"^corpus: expected the folder of a corpus, or a URL, found "):
            combine_corpora([wrong], tmp_path / "made")  # type: ignore[list-item]
    with pytest.raises(CorpusError, match=r"/x=y: not a corpus: there is no such folder$"):
        combine_corpora([f"{tmp_path}/x=y"], tmp_path / "made")
    with pytest.raises(CorpusError, match=r"^y: not a corpus: there is no such folder$"):
        combine_corpora(["x=y"], tmp_path / "made")
    with pytest.raises(UsageError, match=r"overlaps"):
        combine_corpora([corpus(tmp_path / "one", ["a"])], tmp_path / "one/made")


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    corpora = [corpus(tmp_path / "one", ["a", "b"]), corpus(tmp_path / "two", ["c"])]
    combine_corpora(corpora, tmp_path / "made", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


# As a user sees it


def test_what_a_person_sees(tmp_path: Path) -> None:
    corpus(tmp_path / "one", ["a", "b"])
    table(tmp_path / "one", [row("a"), row("b"), row("x", status="skipped", reason="no_bitcode")])
    corpus(tmp_path / "two", ["c"])
    for again in ("", ", as before"):
        done = mlgo("combine", "one", "two", "--output", "made", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        first, *rest = done.stdout.splitlines()
        assert first.startswith("made: 3 modules of 2 corpora in ")
        assert first.endswith(f" s{again}")
        assert rest == ["  one/ 2 modules", "  two/ 1 module", "1 row of what the corpora had left out came along"]
    done = mlgo("combine", "one", "--output", "made", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr == "mlgo-corpus: error: made: a corpus of other inputs or options is there; --force replaces it\n"
    )
    done = mlgo("combine", "one", "--output", "made", "--force", "--copy", cwd=tmp_path)
    assert done.returncode == 0
    done = mlgo("combine", "--root", ".", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["  made/ 2 modules", "  one/ 2 modules", "  two/ 1 module"]


def test_failures_are_named_and_counted(tmp_path: Path) -> None:
    corpus(tmp_path / "[red]", {f"{number}": None for number in range(7)})
    corpus(tmp_path / "two", ["c"])
    done = mlgo("combine", "[red]", "two", "--output", "made", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        *(f"[red]/{number}: cannot read {number}.bc: No such file or directory" for number in range(5)),
        "and 2 more",
    ]
    assert len(rows(tmp_path / "made")) == 8


def test_the_json_is_the_report(tmp_path: Path) -> None:
    corpus(tmp_path / "one", {"a": bitcode(), "b": None})
    done = mlgo("combine", "one", "--output", "made", "--reference", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    told = json.loads(done.stdout)
    assert told.pop("seconds") > 0
    assert told == {
        "output": "made",
        "corpora": {"one": 2},
        "modules": 1,
        "left_out": 0,
        "failed": [["one/b", "cannot read b.bc: No such file or directory"]],
        "copied": 0,
        "unchanged": False,
        "hints": [],
        "exit_code": 1,
    }
    done = mlgo("combine", "--root", ".", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["corpora"] == {"made": 1, "one": 2}


def test_a_module_remembers_its_project(tmp_path: Path) -> None:
    for name in ("lua", "zlib", "musl"):
        corpus(tmp_path / name, {"src/a.o": bitcode(name.encode()), "b.o": bitcode(b"b" + name.encode())})
    combine_corpora([tmp_path / "lua", tmp_path / "zlib"], tmp_path / "two")
    combine_corpora([tmp_path / "two", tmp_path / "musl"], tmp_path / "three")
    dedup_corpus(tmp_path / "three", tmp_path / "distinct")
    for made in ("three", "distinct"):
        opened = Corpus.open(tmp_path / made)
        labels = ModuleLabels.of(opened)
        assert {name: labels.project(name) for name in opened.names} == {
            **dict.fromkeys(("two/lua/src/a.o", "two/lua/b.o"), "two/lua"),
            **dict.fromkeys(("two/zlib/src/a.o", "two/zlib/b.o"), "two/zlib"),
            **dict.fromkeys(("musl/src/a.o", "musl/b.o"), "musl"),
        }
    assert ModuleLabels.of(Corpus.open(tmp_path / "lua")).project("src/a.o") is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "expected CORPUS... --output DIR, or --root DIR"),
        (["one"], 2, "expected CORPUS... --output DIR, or --root DIR"),
        (["--output", "x"], 2, "expected CORPUS... --output DIR, or --root DIR"),
        (
            ["one", "--root", "."], 2,
            "--root DIR: expected alone; without it: mlgo-corpus combine CORPUS... --output DIR",
        ),
        (["one", "--output", "x", "--link", "--copy"], 2, "--link and --copy: expected one of them"),
        (["one", "--output", "one"], 2, "--output one: is the input itself; name another folder"),
        (["one", "--output", "one/a.bc"], 2, "--output one/a.bc: overlaps one; name a folder apart from it"),
        (["one", "--output", "file"], 2, "file: expected a folder, found a file"),
        (["one", "--output", "full"], 2, "full: is not a corpus, and not empty; name another folder"),
        (["full", "--output", "x"], 2, "full: not a corpus: it has no corpus_description.json"),
        (["nowhere", "--output", "x"], 2, "nowhere: not a corpus: there is no such folder"),
        (["one", "--output", "file/x"], 2, "TMP/file: cannot write there: File exists"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    corpus(tmp_path / "one", ["a"])
    put(tmp_path / "file", b"")
    put(tmp_path / "full/x", b"")
    done = mlgo("combine", *arguments, cwd=tmp_path)
    assert done.stderr.startswith(f"mlgo-corpus: error: {message.replace('TMP', str(tmp_path))}")
    assert done.stderr.count("\n") == 1
    assert (done.returncode, done.stdout) == (code, "")
    assert listing(tmp_path) == ["file", "full", "one"]
    assert (tmp_path / "one/a.cmd").read_bytes() == COMMAND


def test_errors_are_this_packages(tmp_path: Path) -> None:
    with pytest.raises(MlgoCorpusError, match=r"/x+: cannot write there: File name too long$"):
        combine_corpora([corpus(tmp_path / "one", ["a"])], tmp_path / ("x" * 254))
