"""Links of a real build are run again; the same commands run by hand, and cmp, are the oracles."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlgo_corpus import (
    Corpus,
    RelinkReport,
    build_corpus,
    combine_corpora,
    dedup_corpus,
    pack_corpus,
    relink_corpus,
    split_corpus,
    trace_corpus,
    unpack_corpus,
)
from mlgo_corpus.compilers.find import find_zig
from mlgo_corpus.corpus.products import products_of, read_links
from mlgo_corpus.errors import CorpusError, UsageError
from mlgo_corpus.runs.links.module import Store
from mlgo_corpus.runs.links.table import PRODUCTS_NAME, ProductRow, iter_product_rows
from tests.conftest import PACKAGE_ROOT, Llvm, run_checked
from tests.handmade import corpus as handmade_corpus

CODE = """
int {name}(int x);
static int {name}_inner(int x) {{ int s = x; for (int i = 0; i < x; i++) s = s * 31 + i * {number}; return s; }}
int {name}_unused(int x) {{ return {name}_inner(x) / 7; }}
int {name}(int x) {{ return {name}_inner(x + {number}) + {name}_inner(x) {more}; }}
"""
MAIN = "int {calls}(int);\nint main(int count, char **words) {{ (void)words; return {calls}(count) & 1; }}\n"
FUNCTIONS = {"a": "b", "b": "", "base": "", "mid": "base", "c": "", "gone": "", "part1": "part2", "part2": ""}
MAINS = {"main": "a", "user": "mid", "parted": "part1", "responded": "gone", "lost": "c", "once": "c"}
# What the build does once all objects are there, but for what is deleted.
LINKS = """
ar rc liba.a a.o
ranlib liba.a
ar rcT libthin.a b.o c.o
cc -shared -Wl,-soname,libbase.so.1 -Wl,--version-script,base.map -o libbase.so.1.0 base.o
ln -sf libbase.so.1.0 libbase.so.1
ln -sf libbase.so.1 libbase.so
cc -shared -o libmid.so mid.o -L. -lbase
cc -Oz -DNDEBUG -Wl,-Map,prog.map -o prog main.o liba.a libthin.a
cc -o ../tree/user user.o libmid.so -Wl,-rpath-link,. -Wl,-rpath,$ORIGIN
cc -r -o part.o part1.o part2.o
cc -o parted parted.o part.o
cc -fuse-ld=lld -o lldprog main.o $PWD/liba.a -L$PWD -lthin -Wl,--build-id=sha1
cc -o responded @words.rsp
"""
BUILD = f"""set -e
cc -Oz -ffunction-sections -fPIC -c {" ".join(f"{name}.c" for name in (*FUNCTIONS, *MAINS))}
{LINKS.replace("$ORIGIN", "'$ORIGIN'")}
rm gone.o
ar rc libtmp.a c.o
cc -o lost lost.o libtmp.a
rm libtmp.a
cc -O1 -ffunction-sections -o once once.c c.o
"""


@dataclass(frozen=True)
class Built:
    """A build's tree and its corpus."""

    work: Path
    corpus: Path

    def links(self) -> list[dict[str, Any]]:
        """Return the record's lines, each with all members."""
        found = [json.loads(line) for line in (self.corpus / "links.jsonl").read_text().splitlines()[1:]]
        lists: list[Any] = []
        for item in (item for link in found for item in link["inputs"]):
            if item["members"]:
                lists.append(item["members"])
            elif item["members_of"] is not None:
                item["members"], item["members_of"] = lists[item["members_of"]], None
        return found


def sources(work: Path) -> None:
    for number, (name, calls) in enumerate(FUNCTIONS.items()):
        more = f"+ {calls}(x)" if calls else ""
        head = f"int {calls}(int);" if calls else ""
        (work / f"{name}.c").write_text(head + CODE.format(name=name, number=number + 3, more=more))
    for name, calls in MAINS.items():
        (work / f"{name}.c").write_text(MAIN.format(calls=calls))
    (work / "base.map").write_text("BASE { global: base; local: *; };\n")
    (work / "words.rsp").write_text("gone.o 'responded.o'\n")


@pytest.fixture(scope="module", autouse=True)
def _cache(known: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLGO_CORPUS_CACHE", str(known(tmp_path_factory.mktemp("cache"), Llvm(22).clang)))
        for name in ("CC", "CXX", "MLGO_CORPUS_COMPILER"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, llvm22: Llvm) -> Built:
    folder = tmp_path_factory.mktemp("built")
    work = folder / "tree"
    work.mkdir()
    sources(work)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        report = build_corpus(("sh", "-c", BUILD), folder / "corpus", compiler=llvm22.clang, stdout=2)
    assert (report.exit_code, report.links) == (0, 13)
    return Built(work, folder / "corpus")


@pytest.fixture(scope="module")
def objects(built: Built, llvm22: Llvm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other objects of all modules, compiled by hand."""
    folder = tmp_path_factory.mktemp("objects")
    for name in (*FUNCTIONS, *MAINS):
        target = folder / ("once/once.c" if name == "once" else f"{name}.o")
        target.parent.mkdir(exist_ok=True)
        run_checked(
            llvm22.clang, "-O3", "-ffunction-sections", "-fPIC", "-c", f"{name}.c", "-o", target, cwd=built.work
        )
    return folder


def rows_of(report: RelinkReport) -> dict[str, ProductRow]:
    found = {row.product: row for row in iter_product_rows(report.output / PRODUCTS_NAME)}
    assert len(found) == report.products
    for row in found.values():
        if row.path is not None:
            product = report.output / row.path
            assert sha256(product.read_bytes()).hexdigest() == row.sha256
    return found


def size_of(llvm: Llvm, path: Path) -> int:
    return int(run_checked(llvm.size, path).splitlines()[1].split()[0])


def linked_by_hand(built: Built, llvm: Llvm, objects: Path, folder: Path, *flags: str) -> Path:
    """Run the build's links in a copy of its tree with other objects."""
    work = folder / "tree"
    shutil.copytree(built.work, work, symlinks=True)
    for item in objects.glob("*.o"):
        shutil.copy(item, work)
    for name in ("liba.a", "libthin.a"):
        (work / name).unlink()
    for line in LINKS.split("\n"):
        words = line.replace("$PWD", str(work)).split()
        if words:
            program = {"cc": llvm.clang, "ar": llvm.ar, "ranlib": llvm.tool("llvm-ranlib")}.get(words[0], words[0])
            more = flags if words[0] == "cc" and "-r" not in words else ()
            run_checked(program, *words[1:], *more, cwd=work)
    return work


def test_what_is_recorded(built: Built) -> None:
    links = {link["name"]: link for link in built.links()}
    assert {name: link["kind"] for name, link in links.items()} == {
        **dict.fromkeys(("liba.a", "libthin.a", "libtmp.a"), "archive"),
        **dict.fromkeys(("libbase.so.1.0", "libmid.so"), "shared"),
        **dict.fromkeys(("prog", "user", "parted", "lldprog", "responded", "lost", "once"), "program"),
        "part.o": "relocatable",
    } | {"libtmp.a": "archive"}
    prog = links["prog"]
    assert (prog["driver"], prog["directory"], prog["output"]) == ("c", str(built.work), str(built.work / "prog"))
    assert prog["arguments"][-4:] == ["prog", "main.o", "liba.a", "libthin.a"]
    assert prog["sha256"] == sha256((built.work / "prog").read_bytes()).hexdigest()
    main, whole, thin = prog["inputs"]
    assert (main["word"], main["state"], main["modules"]) == ("main.o", "there", ["main.o"])
    assert [(one["name"], one["module"], one["path"]) for one in whole["members"]] == [("a.o", "a.o", None)]
    assert [(one["module"], one["path"]) for one in thin["members"]] == [
        ("b.o", str(built.work / "b.o")),
        ("c.o", str(built.work / "c.o")),
    ]
    responded = {one["word"]: one for one in links["responded"]["inputs"]}
    assert links["responded"]["arguments"] == ["-o", "responded", "gone.o", "responded.o"]
    assert {word: one["state"] for word, one in responded.items()} == {"gone.o": "kept", "responded.o": "there"}
    (base,) = (one for one in links["libmid.so"]["inputs"] if one["word"] == "-lbase")
    assert base["path"] == str(built.work / "libbase.so")
    assert [one["state"] for one in links["lost"]["inputs"]] == ["there", "missing"]
    assert [(one["state"], one["modules"]) for one in links["once"]["inputs"]] == [
        ("source", ["once/once.c"]),
        ("there", ["c.o"]),
    ]


def test_who_links_what(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(os.path.relpath(built.corpus))
    monkeypatch.chdir("/")
    found = products_of(corpus)
    assert found["main.o"] == ("prog", "lldprog")
    assert found["part1.o"] == found["part2.o"] == ("parted",)
    assert found["base.o"] == ("libbase.so.1.0",)
    assert found["b.o"] == ("prog", "lldprog")
    assert found["c.o"] == ("once",)  # of libthin.a, which they link, they need b.o only
    assert found["gone.o"] == ("responded",)


MEMBERS = {
    "main": "int one(void); __attribute__((weak)) int maybe(void); int main(void) { return one() + (maybe ? 1 : 0); }",
    "one": "int two(void); int one(void) { return two() + 1; }",
    "two": "int two(void) { return 2; }",
    "maybe": "int maybe(void) { return 3; }",
    "asked": "int asked(void) { return 4; }",
    "again": "int two(void); int one(void) { return two(); }",
    "unused": "int unused(void) { return 5; }",
}
TAKING = """
cc -Oz -c *.c
ar rc liball.a one.o maybe.o asked.o again.o unused.o main.o
ar rcT libtwo.a two.o unused.o
cc -o plain main.o liball.a libtwo.a
cc -o of_library two.o -L. -lall -ltwo
cc -o asking main.o -Wl,-u,asked liball.a -Wl,--undefined=unused -L. -ltwo
cc -o wholly main.o again.o -Wl,--push-state,--whole-archive -L. -ltwo -Wl,--pop-state liball.a
cc -o grouped main.o -Wl,--start-group libtwo.a liball.a -Wl,--end-group
"""


@pytest.mark.parametrize("linker", ["bfd", "lld"])
def test_the_members_that_a_link_takes_are_those_whose_functions_it_has(
    llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linker: str
) -> None:
    work = tmp_path / "tree"
    work.mkdir()
    for name, text in MEMBERS.items():
        (work / f"{name}.c").write_text(f"int is_{name}(void) {{ return 1; }}\n{text}\n")
    monkeypatch.chdir(work)
    build = f"set -e\n{TAKING.replace('-o', f'-fuse-ld={linker} -o')}"
    report = build_corpus(("sh", "-c", build), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    assert (report.exit_code, report.links) == (0, 7)
    known = {}
    for link in read_links(Corpus.open(tmp_path / "corpus")):
        members = {
            (item.path[-5:-2], one.name.removesuffix(".o")): at in (item.taken or ())
            for item in link.inputs
            for at, one in enumerate(item.members)
        }
        assert all(item.taken is not None for item in link.inputs if item.members)
        if members:
            symbols = re.findall(r" T is_(\w+)", run_checked(llvm22.nm, link.output))
            here = {word.removesuffix(".o") for word in link.arguments}
            taken = {place for place, is_taken in members.items() if is_taken}
            assert sorted(name for _, name in taken) == sorted(set(symbols) - here), link.name
            known[link.name] = taken
    assert known == {
        "plain": {("all", "one"), ("two", "two")},
        "of_library": {("all", "main"), ("all", "one")},
        "asking": {("all", "one"), ("all", "asked"), ("all", "unused"), ("two", "two")},
        "wholly": {("two", "two"), ("two", "unused")},
        "grouped": {("all", "one"), ("two", "two")},
    }


def test_thin_archives_of_equal_bytes_have_other_members(
    llvm22: Llvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "tree"
    for folder, calls in (("x", "aa"), ("y", "bb")):
        (work / folder).mkdir(parents=True)
        (work / folder / "one.c").write_text(f"int {calls}(void); int one(void) {{ return {calls}(); }}\n")
    for name, text in (
        ("main", MEMBERS["main"]),
        ("aa", "int aa(void) { return 1; }"),
        ("bb", "int bb(void) { return 2; }"),
    ):
        (work / f"{name}.c").write_text(f"{text}\n")
    monkeypatch.chdir(work)
    build = """set -e
cc -Oz -c main.c aa.c bb.c
ar rc libboth.a aa.o bb.o
for folder in x y; do (cd $folder && cc -Oz -c one.c && ar rcT libone.a one.o); done
for folder in x y; do cc -o of_$folder main.o $folder/libone.a libboth.a; done
"""
    build_corpus(("sh", "-c", build), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    assert (work / "x" / "libone.a").read_bytes() == (work / "y" / "libone.a").read_bytes()
    found = products_of(Corpus.open(tmp_path / "corpus"))
    assert {name: found.get(name) for name in ("aa.o", "bb.o")} == {"aa.o": ("of_x",), "bb.o": ("of_y",)}
    rows = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "out", objects=work))
    made = {name: (row.replaced, row.missing, row.identical) for name, row in rows.items()}
    assert made == {"of_x": (4, 0, True), "of_y": (4, 0, True)}


def test_the_same_objects_give_the_same_products(built: Built, llvm22: Llvm, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in built.work.iterdir()}
    report = relink_corpus(built.corpus, tmp_path / "out")
    rows = rows_of(report)
    failed = {name: (row.reason, row.detail) for name, row in rows.items() if row.reason != "ok"}
    assert {name: reason for name, (reason, _) in failed.items()} == {
        "lost": "missing_file",
        "once": "no_object_of_source",
    }
    assert failed["lost"][1] == "libtmp.a: it was not there when the build had ended"
    for name, row in rows.items():
        product = built.work / name
        assert row.original_sha256 == sha256(product.read_bytes()).hexdigest()
        assert row.original_text_size == size_of(llvm22, product)
        if name not in failed:
            assert row.path is not None
            assert (tmp_path / "out" / row.path).read_bytes() == product.read_bytes(), name
            assert (row.identical, row.original_from, row.replaced) == (True, "build", 0)
    assert (report.products, report.linked, report.identical, report.exit_code) == (9, 7, 7, 1)
    assert rows["prog"].dropped == ("-Wl,-Map,prog.map",)
    assert rows["user"].argv is not None
    assert str(tmp_path) not in " ".join(rows["user"].argv)
    assert {path: path.stat().st_mtime_ns for path in built.work.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    subprocess.run([tmp_path / "out" / str(rows["prog"].path)], check=False, timeout=120)


@pytest.mark.parametrize("flags", [(), ("-Wl,--gc-sections",), ("-fuse-ld=lld", "-Wl,--gc-sections,--icf=all")])
def test_other_objects_are_linked(
    built: Built, llvm22: Llvm, objects: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    report = relink_corpus(built.corpus, tmp_path / "out", objects=objects, ld_flags=flags)
    rows = rows_of(report)
    (tmp_path / "hand").mkdir()
    work = linked_by_hand(built, llvm22, objects, tmp_path / "hand", *flags)
    for name in ("prog", "user", "libbase.so.1.0", "libmid.so", "parted", "lldprog", "responded"):
        row = rows[name]
        assert (row.reason, row.missing) == ("ok", 0), row
        assert sha256((work / name).read_bytes()).hexdigest() == row.sha256, name
        assert row.text_size == size_of(llvm22, work / name)
        assert row.original_from == ("link" if flags else "build")
    once = rows["once"]
    own = (None, None) if flags else ("build", size_of(llvm22, built.work / "once"))
    assert (once.original_from, once.original_text_size) == own
    assert {name: row.replaced for name, row in rows.items() if row.reason == "ok"} == {
        "prog": 4, "user": 1, "libbase.so.1.0": 1, "libmid.so": 1, "parted": 3, "lldprog": 4, "responded": 2,
        "once": 2,
    }  # fmt: skip
    if flags:
        (tmp_path / "own").mkdir()
        tree = linked_by_hand_own(built, llvm22, tmp_path / "own", flags)
        for name in ("prog", "libmid.so"):
            assert rows[name].original_sha256 == sha256((tree / name).read_bytes()).hexdigest()


def linked_by_hand_own(built: Built, llvm: Llvm, folder: Path, flags: tuple[str, ...]) -> Path:
    """Run the build's links in a copy of its tree, whose deleted object is compiled again."""
    own = folder / "objects"
    own.mkdir()
    run_checked(llvm.clang, "-Oz", "-ffunction-sections", "-fPIC", "-c", built.work / "gone.c", "-o", own / "gone.o")
    return linked_by_hand(built, llvm, own, folder, *flags)


def test_a_trace_keeps_objects_to_link(built: Built, llvm22: Llvm, tmp_path: Path) -> None:
    trace_corpus(built.corpus, tmp_path / "data", policy="never", compiler=llvm22.clang, keep_objects=tmp_path / "kept")
    rows = rows_of(relink_corpus(built.corpus, tmp_path / "out", objects=tmp_path / "kept"))
    (tmp_path / "hand").mkdir()
    work = linked_by_hand(built, llvm22, tmp_path / "kept", tmp_path / "hand")
    for name in ("prog", "libmid.so", "responded"):
        assert rows[name].text_size == size_of(llvm22, work / name)
        assert (rows[name].replaced, rows[name].missing) == (rows[name].modules, 0)
        assert not rows[name].identical  # no bitcode is embedded


LINKED_BY_LD = """set -e
cc -Oz -fPIC -c a.c b.c main.c
ld -i -v -melf_x86_64 -o ab.o a.o b.o
echo -shared -o libab.so a.o b.o >words
ld @words
cc -o prog main.o ab.o
ld -shared -b binary -o data.so words
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="its ld is not recorded")
def test_links_by_the_linker_itself_are_links(llvm22: Llvm, objects: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sources(work)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        build_corpus(("sh", "-c", LINKED_BY_LD), tmp_path / "corpus", compiler=llvm22.clang, stdout=2)
    links = read_links(Corpus.open(tmp_path / "corpus"))
    assert [(one.name, one.kind, one.driver) for one in links] == [
        ("ab.o", "relocatable", "ld"),
        ("libab.so", "shared", "ld"),
        ("prog", "program", "c"),
        ("data.so", "shared", "ld"),
    ]
    rows = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "trusted", trust_corpus=True))
    assert {name: row.identical for name, row in rows.items()} == {"libab.so": True, "prog": True, "data.so": True}
    rows = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "out"))
    assert {name: row.identical for name, row in rows.items()} == {"libab.so": True, "prog": True, "data.so": None}
    assert rows["data.so"].reason == "refused_option"
    rows = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "other", objects=objects, ld_flags="-Wl,-s"))
    del rows["data.so"]
    assert {name: (row.replaced, row.missing) for name, row in rows.items()} == {"libab.so": (2, 0), "prog": (3, 0)}
    for flag, reason in (("-s", "linker_error"), ("-L.", "linker_error"), ("-fuse-ld=lld", "ok"), ("-O1", "ok")):
        report = relink_corpus(tmp_path / "corpus", tmp_path / "flag", ld_flags=flag, force=True)
        row = rows_of(report)["libab.so"]
        assert (rows_of(report)["prog"].reason, row.reason) == ("ok", reason), row.detail
        assert row.detail.startswith(f"{flag}: the build ran the linker itself") == (reason != "ok")
    for name in ("a.o", "b.o", "main.o"):
        shutil.copy(objects / name, work)
    run_checked("ld", "-shared", "-o", "libab.so", "a.o", "b.o", "-s", cwd=work)
    run_checked("ld", "-r", "-o", "ab.o", "a.o", "b.o", cwd=work)
    run_checked(llvm22.clang, "-o", "prog", "main.o", "ab.o", "-Wl,-s", cwd=work)
    for name, row in rows.items():
        assert row.sha256 == sha256((work / name).read_bytes()).hexdigest()


def test_objects_that_are_missing_are_named(built: Built, objects: Path, tmp_path: Path) -> None:
    (tmp_path / "some").mkdir()
    for name in ("main.o", "b.o"):
        shutil.copy(objects / name, tmp_path / "some")
    report = relink_corpus(built.corpus, tmp_path / "out", objects=tmp_path / "some")
    row = rows_of(report)["prog"]
    assert (row.modules, row.replaced, row.missing, row.missing_modules) == (4, 2, 2, ("a.o", "c.o"))
    assert {"a.o", "c.o"} <= set(report.missing_modules)


def test_objects_that_something_unseen_joined_are_named(built: Built, objects: Path, tmp_path: Path) -> None:
    corpus = changed(built, tmp_path, lambda _: None, "parted")
    row = rows_of(relink_corpus(corpus, tmp_path / "out", objects=objects))["parted"]
    assert (row.reason, row.modules, row.replaced, row.missing_modules) == ("ok", 3, 1, ("part1.o", "part2.o"))


def test_a_folder_without_any_object_is_refused(built: Built, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected the corpus's objects, found none of any module; `keep_objects`"):
        relink_corpus(built.corpus, tmp_path / "out", objects=built.corpus)
    assert not (tmp_path / "out").exists()


def test_the_store_never_writes_to_a_file_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.o"
    own.write_bytes(b"of the build")
    settings = SimpleNamespace(work=tmp_path, corpus=None, objects=tmp_path / "objects", object_names={})
    store = Store(settings)  # type: ignore[arg-type]
    digest = sha256(b"of the build").hexdigest()
    link = os.link

    def at_once(source: str, target: Path) -> None:  # as when another thread adds the same file
        link(source, target)
        link(source, store.folder / digest)

    monkeypatch.setattr("os.link", at_once)
    assert store.original(str(own), digest, "own.o") == store.folder / digest
    monkeypatch.undo()
    added = [store.put(b"%d" % number) for number in range(3)]
    assert sorted(store.folder.iterdir()) == sorted([*added, store.folder / digest])
    assert own.read_bytes() == b"of the build"


@pytest.mark.parametrize("name", ["{}/secret.o", "../secret.o", "a/../../secret.o", "", "\0", "\ud800"])
def test_modules_of_links_stay_in_the_folder_of_objects(tmp_path: Path, name: str) -> None:
    (tmp_path / "objects/a").mkdir(parents=True)
    (tmp_path / "secret.o").write_bytes(b"secret")
    settings = SimpleNamespace(work=tmp_path, corpus=None, objects=tmp_path / "objects", object_names={})
    assert Store(settings).object_of(name.format(tmp_path)) is None  # type: ignore[arg-type]


def changed(built: Built, folder: Path, change: Callable[[dict[str, Any]], None], name: str = "prog") -> Path:
    """Make a corpus that has only one of the links, which is changed."""
    corpus = folder / "corpus"
    corpus.mkdir()
    shutil.copy(built.corpus / "corpus_description.json", corpus)
    (link,) = (link for link in built.links() if link["name"] == name)
    change(link)
    head = {"format": "mlgo-links-2", "links": 1}
    (corpus / "links.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(link)}\n")
    return corpus


HOSTILE = (
    "-fplugin=./x.so", "-Wl,-plugin,x.so", "-Wl,--plugin=x.so", "-B.", "-fuse-ld=/tmp/ld", "--ld-path=./ld", "-specs=x",
    "--config=x", "@words", "-Wl,@words", "-wrapper", "--sysroot=/", "-Wl,-plugin-opt=-stats", "-###", "-Wl,--unknown",
    "--gcc-toolchain=/tmp", "-Wl,-plugin", "-Xlinker", "-fpass-plugin=x.so", "-Wl,-mllvm,-load=x.so", "-ccc-gcc-name",
)  # fmt: skip


@pytest.mark.parametrize("word", HOSTILE)
def test_words_that_would_run_or_load_something_are_refused(built: Built, tmp_path: Path, word: str) -> None:
    corpus = changed(built, tmp_path, lambda link: link["arguments"].append(word))
    row = rows_of(relink_corpus(corpus, tmp_path / "out"))["prog"]
    assert (row.reason, row.path, row.argv) == ("refused_option", None, None)
    assert word.removeprefix("-Wl,").split(",")[0].split("=")[0] in row.detail
    assert "`trust_corpus` runs it" in row.detail


LISTS = (
    "-u @words", "-e @words", "-z @words", "-l @words", "-Xlinker -h -Xlinker @words", "-Wl,-h,@words",
    "-Wl,-z -Wl,@words",
)  # fmt: skip
LISTS_OF_LD = ("-h @words", "-e @words", "-u @words", "-l @words", "-m @words", "--wrap @words")


@pytest.mark.parametrize(
    ("driver", "words"),
    [(driver, words) for driver in ("c", "c++") for words in LISTS] + [("ld", words) for words in LISTS_OF_LD],
)
def test_a_file_of_words_is_refused_as_a_value_too(built: Built, tmp_path: Path, driver: str, words: str) -> None:
    def change(link: dict[str, Any]) -> None:
        link.update(driver=driver, arguments=["-o", "prog", "main.o", *words.split()])

    row = rows_of(relink_corpus(changed(built, tmp_path, change), tmp_path / "out"))["prog"]
    assert (row.reason, row.path, row.argv) == ("refused_option", None, None)
    assert "@words: it" in row.detail


@pytest.mark.parametrize("words", [["--", "{}"], ["-T{}"], ["-L", "{}"]], ids=" ".join)
@pytest.mark.parametrize("name", ["@x", "-fplugin=x"])
def test_files_whose_names_look_like_options_are_files(
    built: Built, tmp_path: Path, words: list[str], name: str
) -> None:
    def change(link: dict[str, Any]) -> None:
        item = {**link["inputs"][0], "word": name, "path": f"{link['directory']}/{name}"}
        link.update(arguments=["main.o", *(word.format(name) for word in words)], inputs=[link["inputs"][0], item])

    row = rows_of(relink_corpus(changed(built, tmp_path, change), tmp_path / "out"))["prog"]
    assert row.argv is not None
    assert not any(word.startswith((name, f"-L{name}")) for word in row.argv)


@pytest.mark.parametrize(
    "words",
    [
        ("-Wl,-Map={}",),
        ("-Wl,-Map,{}",),
        ("-Xlinker", "-Map", "-Xlinker", "{}"),
        ("-Wl,--dependency-file={}",),
        ("-Wl,--reproduce={}",),
        ("-Wl,--out-implib,{}",),
        ("-o", "{}"),
        ("-o{}",),
        ("-MF", "{}"),
        ("-fuse-ld=lld", "-Wl,--why-extract={}", "-Wl,--print-archive-stats={}", "-Wl,--time-trace-file={}"),
        ("-Wl,-o,{}",),
    ],
    ids=" ".join,
)
def test_nothing_is_written_elsewhere(built: Built, tmp_path: Path, words: tuple[str, ...]) -> None:
    canary = tmp_path / "canary"
    canary.write_text("sings")
    added = [word.format(canary) for word in words]
    corpus = changed(built, tmp_path, lambda link: link["arguments"].extend(added))
    report = relink_corpus(corpus, tmp_path / "out")
    assert rows_of(report)["prog"].reason in ("ok", "refused_option")
    assert canary.read_text() == "sings"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["canary", "corpus", "out"]


def test_files_that_were_not_linked_are_not_read(built: Built, tmp_path: Path) -> None:
    secret = tmp_path / "secret.o"
    shutil.copy(built.work / "b.o", secret)

    def without_a_record(link: dict[str, Any]) -> None:
        link["arguments"].append(str(secret))

    row = rows_of(relink_corpus(changed(built, tmp_path, without_a_record), tmp_path / "out"))["prog"]
    assert (row.reason, row.detail) == ("missing_file", f"{secret}: the corpus has no record of this input")

    def with_another_digest(link: dict[str, Any]) -> None:
        link["inputs"][0]["path"] = str(secret)
        link["inputs"][0]["sha256"] = "0" * 64

    (tmp_path / "two").mkdir()
    row = rows_of(relink_corpus(changed(built, tmp_path / "two", with_another_digest), tmp_path / "out2"))["prog"]
    assert (row.reason, row.detail) == ("changed_file", f"main.o: not the file that was linked: {secret}")


def test_paths_stay_in_the_folders(built: Built, tmp_path: Path) -> None:
    def leave(link: dict[str, Any]) -> None:
        link["name"] = "../../../escaped"
        link["directory"] = f"{built.work}/x/../../../../../../../.."
        link["arguments"] = ["-o", "p", "../../../../../../../main.o", "-L../../../../../../..", "-nostdlib"]
        link["inputs"] = [{**link["inputs"][0], "word": "../../../../../../../main.o"}]

    report = relink_corpus(changed(built, tmp_path, leave), tmp_path / "out")
    row = rows_of(report)["../../../escaped"]
    assert row.path is None or row.path.startswith("products/_up/")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out"]


def test_a_record_that_was_cut_is_an_error(built: Built, tmp_path: Path) -> None:
    corpus = changed(built, tmp_path, lambda _: None)
    data = (corpus / "links.jsonl").read_bytes()
    opened = Corpus.open(corpus)
    whole = read_links(opened)
    for length in range(len(data)):
        (corpus / "links.jsonl").write_bytes(data[:length])
        if data[length:] == b"\n":
            assert read_links(opened) == whole
            continue
        with pytest.raises(CorpusError, match=r"links\.jsonl: (?:line \d+|expected \d+ links)"):
            read_links(opened)
    (corpus / "links.jsonl").unlink()
    with pytest.raises(CorpusError, match="no record of how its build linked"):
        relink_corpus(corpus, tmp_path / "out")


@pytest.mark.parametrize("value", [None, 1, [], {}, "x\0", "relative", {"x": 1}, -1, "\ud800"], ids=repr)
def test_a_record_of_other_values_is_an_error_or_a_row(built: Built, tmp_path: Path, value: Any) -> None:
    lines = (built.corpus / "links.jsonl").read_text().splitlines()
    number = next(number for number, line in enumerate(lines) if '"name": "prog"' in line)
    link = json.loads(lines[number])
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    shutil.copy(built.corpus / "corpus_description.json", corpus)
    places = [(link, key) for key in link] + [(link["inputs"][1], key) for key in link["inputs"][1]]
    places += [(link["inputs"][1]["members"][0], key) for key in link["inputs"][1]["members"][0]]
    for where, key in places:
        before, where[key] = where[key], value
        (corpus / "links.jsonl").write_text("\n".join([*lines[:number], json.dumps(link), *lines[number + 1 :], ""]))
        where[key] = before
        told = ""
        try:
            read = len(read_links(Corpus.open(corpus)))
        except CorpusError as error:
            read, told = 0, str(error)
        at = r"\d+" if value == [] and key in ("members", "inputs") else number + 1  # the line that has the same
        assert read == len(lines) - 1 or re.search(rf"links\.jsonl: line {at}: not a link", told)


def test_an_input_that_changed_is_a_row(built: Built, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(built.work, work, symlinks=True)
    corpus = tmp_path / "corpus"
    shutil.copytree(built.corpus, corpus)
    links = corpus / "links.jsonl"
    links.write_text(links.read_text().replace(str(built.work), str(work)))
    (work / "main.o").write_bytes((work / "b.o").read_bytes())
    (work / "part2.o").unlink()
    (work / "prog").unlink()
    rows = rows_of(relink_corpus(corpus, tmp_path / "out"))
    assert (rows["prog"].reason, rows["prog"].original_from) == ("changed_file", "record")
    assert rows["prog"].detail == f"main.o: not the file that was linked: {work}/main.o"
    assert rows["prog"].original_text_size is not None
    assert rows["parted"].reason == "ok"  # the part itself is there
    assert rows["user"].identical is True


def test_the_linker_s_errors_are_rows(built: Built, tmp_path: Path) -> None:
    report = relink_corpus(built.corpus, tmp_path / "out", ld_flags="-Wl,--no-such-option")
    row = rows_of(report)["prog"]
    assert (row.reason, row.exit_code, row.status, row.path) == ("linker_error", 1, "failed", None)
    assert "no-such-option" in row.detail
    assert "no-such-option" in (row.stderr_tail or "")
    assert (report.linked, report.exit_code) == (0, 1)
    late = rows_of(relink_corpus(built.corpus, tmp_path / "late", timeout=0.001))["prog"]
    assert late.reason == "timeout"


def test_a_linker_script_among_the_inputs_is_told(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int one(void); int main(void) { return one(); }")
    (tmp_path / "one.c").write_text("int one(void) { return 1; }")
    (tmp_path / "libs.a").write_text("INPUT(libone.a)")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        script = "cc -c main.c one.c; ar rc libone.a one.o; cc main.o -L. -ls -o prog"
        build_corpus(("sh", "-c", script), "corpus", compiler=llvm22.clang, stdout=2)
    row = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "out"))["prog"]
    assert row.reason == "linker_error"
    assert row.detail.endswith("; -ls is a linker script, and the files that it names are not followed")


def test_zig_is_not_asked_for_its_linker(built: Built, tmp_path: Path) -> None:
    if find_zig() is None:
        pytest.skip("ziglang is not installed")
    with pytest.raises(UsageError, match="name another clang with `compiler`"):
        relink_corpus(built.corpus, tmp_path / "out", compiler=f"{sys.executable} -m ziglang cc")


def test_a_link_may_have_many_words_and_names_that_are_not_utf8(llvm22: Llvm, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    (tmp_path / "none.c").write_text("")
    folder = "objects-of-a-part-of-a-project-whose-name-is-long-enough"
    copies = f"mkdir {folder}; for i in $(seq 1000); do ln none.o {folder}/the-object-number-$i.o; done"
    script = f"cc -c main.c none.c; {copies}; mv main.o \"$(printf 'main\\377.o')\"; cc main*.o {folder}/*.o -o program"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        build_corpus(("sh", "-c", script), "corpus", compiler=llvm22.clang, stdout=2)
    (row,) = rows_of(relink_corpus(tmp_path / "corpus", tmp_path / "linked")).values()
    assert (row.product, row.reason, row.identical) == ("program", "ok", True)
    assert row.argv is not None
    assert "main%FF.o" in row.argv
    assert sum(map(len, row.argv)) > 64 << 10


def test_another_compiler_links_both_sides(built: Built, llvm19: Llvm, objects: Path, tmp_path: Path) -> None:
    report = relink_corpus(built.corpus, tmp_path / "out", objects=objects, compiler=llvm19.clang)
    rows = rows_of(report)
    assert {row.original_from for row in rows.values() if row.reason == "ok"} == {"link", None}
    assert rows["once"].original_text_size is None
    assert "name it with `compiler`" in report.hints[0]


SLOW_CLANG = """#!/bin/sh
case "$*" in
    *probe.c*) exec {clang} "$@" ;;
    *) echo ' "{linker}" ".relinked-product"' >&2 ;;
esac
"""


def test_an_interrupted_relink_leaves_nothing(built: Built, llvm22: Llvm, tmp_path: Path) -> None:
    linker, clang, place = tmp_path / "linker", tmp_path / "clang", tmp_path / "place"
    # It is asked for its version first, to see that it starts.
    linker.write_text('#!/bin/sh\n[ "$1" = --version ] || { echo $$ >pid; exec sleep 300; }\n')
    clang.write_text(SLOW_CLANG.format(clang=llvm22.clang, linker=linker))
    for program in (linker, clang):
        program.chmod(0o755)
    place.mkdir()
    command = (sys.executable, "-m", "mlgo_corpus.cli.main", "relink", built.corpus, "--output", place / "out")
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    process = subprocess.Popen([*command, "--compiler", clang, "--jobs", "2"], env=env, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 60
        while len(pids := [path for path in place.rglob("pid") if path.read_text().endswith("\n")]) < 2:
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.02)
        running = [int(path.read_text()) for path in pids]
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert b"interrupted; nothing is kept" in said
    assert list(place.iterdir()) == []
    assert not [pid for pid in running if Path(f"/proc/{pid}").exists()]


def test_a_folder_that_is_there_is_replaced_only_on_demand(built: Built, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "mine").mkdir(parents=True)
    with pytest.raises(UsageError, match="not an earlier relink"):
        relink_corpus(built.corpus, out, force=True)
    (out / "mine").rmdir()
    relink_corpus(built.corpus, out)
    with pytest.raises(UsageError, match="`force` replaces it"):
        relink_corpus(built.corpus, out)
    (out / "products" / "prog").write_text("old")
    assert rows_of(relink_corpus(built.corpus, out, force=True))["prog"].identical
    for inside in (built.corpus / "out", built.corpus.parent):
        with pytest.raises(UsageError, match="name another `output`"):
            relink_corpus(built.corpus, inside)


def test_a_later_build_replaces_the_links_that_it_repeats(llvm22: Llvm, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    sources(work)
    corpus = tmp_path / "corpus"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        for script in (
            "cc -O1 -c b.c c.c && ar rc libb.a b.o && cc -shared -o libc1.so c.o",
            "cc -O2 -c c.c && cc -shared -o libc1.so c.o -Wl,-soname,x && mv libc1.so libmoved.so && false",
        ):
            build_corpus(("sh", "-c", script), corpus, compiler=llvm22.clang, stdout=2)
    archive, shared = read_links(Corpus.open(corpus))
    assert (archive.name, shared.name, shared.sha256) == ("libb.a", "libc1.so", None)
    assert shared.arguments[-1] == "-Wl,-soname,x"
    row = rows_of(relink_corpus(corpus, tmp_path / "out"))["libc1.so"]
    assert (row.reason, row.original_sha256, row.identical) == ("ok", None, None)
    assert row.sha256 == sha256((work / "libmoved.so").read_bytes()).hexdigest()


def test_a_packed_corpus_has_its_links(built: Built, tmp_path: Path) -> None:
    pack_corpus(built.corpus, tmp_path / "packed")
    assert (tmp_path / "packed" / "links.jsonl").read_bytes() == (built.corpus / "links.jsonl").read_bytes()
    assert rows_of(relink_corpus(tmp_path / "packed", tmp_path / "out"))["prog"].identical
    unpack_corpus(tmp_path / "packed", tmp_path / "again")
    assert read_links(Corpus.open(tmp_path / "again")) == read_links(Corpus.open(built.corpus))


def test_a_combined_corpus_has_the_links_of_all(built: Built, objects: Path, tmp_path: Path) -> None:
    handmade_corpus(tmp_path / "plain", ["x.o"])
    both = [built.corpus, f"one={built.corpus}", tmp_path / "plain"]
    combine_corpora(both, tmp_path / "all")
    found = products_of(Corpus.open(tmp_path / "all"))
    expected = {
        f"{folder}/{module}": tuple(f"{folder}/{name.lstrip('/')}" for name in names)
        for folder in ("corpus", "one")
        for module, names in products_of(Corpus.open(built.corpus)).items()
    }
    # Both builds wrote the same files. Objects of `-r` that are equal count as those of the last build, too.
    assert found == expected | {f"one/{name}": ("corpus/parted", "one/parted") for name in ("part1.o", "part2.o")}
    # Of modules that are the same, the one that is left is in the products of all.
    dropped = {one.module: one.kept for one in dedup_corpus(tmp_path / "all", tmp_path / "each").dropped}
    assert dropped["one/main.o"] == "corpus/main.o"
    shared: dict[str, set[str]] = {}
    for name, products in found.items():
        shared.setdefault(dropped.get(name, name), set()).update(products)
    left = products_of(Corpus.open(tmp_path / "each"))
    assert {name: set(products) for name, products in left.items()} == shared
    (tmp_path / "objects").mkdir()
    for folder in ("corpus", "one"):
        (tmp_path / "objects" / folder).symlink_to(objects)
    theirs = rows_of(relink_corpus(built.corpus, tmp_path / "theirs", objects=objects))
    mine = rows_of(relink_corpus(tmp_path / "all", tmp_path / "mine", objects=tmp_path / "objects"))
    # What the build deleted, only its own corpus has; all that is replaced is not needed.
    assert {name: (row.reason, row.sha256, row.replaced) for name, row in mine.items()} == {
        f"{folder}/{name.lstrip('/')}": (row.reason, row.sha256, row.replaced)
        for folder in ("corpus", "one")
        for name, row in theirs.items()
    }
    assert len({row.path for row in mine.values() if row.reason == "ok"}) == 2 * 8
    assert combine_corpora(both, tmp_path / "all").unchanged
    again = tmp_path / "again"
    shutil.copytree(built.corpus, again)
    lines = (again / "links.jsonl").read_text().splitlines()
    (again / "links.jsonl").write_text("\n".join([lines[0].replace("13", "12"), *lines[1:-1], ""]))
    both[1] = f"one={again}"
    with pytest.raises(UsageError, match="`force` replaces it"):
        combine_corpora(both, tmp_path / "all")
    combine_corpora(both, tmp_path / "all", force=True)
    assert len(read_links(Corpus.open(tmp_path / "all"))) == 13 + 12


def test_a_part_of_a_corpus_has_the_links_of_its_modules(built: Built, objects: Path, tmp_path: Path) -> None:
    split_corpus(built.corpus, output=tmp_path / "sides", fractions=(0.4, 0.3, 0.3), min_instructions=1000)
    dedup_corpus(built.corpus, tmp_path / "few", ignore_commands=True)
    whole = products_of(Corpus.open(built.corpus))
    for folder in (*(tmp_path / "sides" / name for name in ("train", "validation", "test")), tmp_path / "few"):
        part = Corpus.open(folder)
        assert products_of(part) == {module: whole[module] for module in part.names if module in whole} != {}
    modules = Corpus.open(tmp_path / "sides/test").names
    rows = rows_of(relink_corpus(tmp_path / "sides/test", tmp_path / "out", objects=objects))
    counts = Counter(product for module in modules for product in whole.get(module, ()))
    assert {name: row.modules for name, row in rows.items()} == counts
    assert {row.missing for row in rows.values()} == {0}
