"""Which modules are linked with each other, by what is known of a build's links."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.corpus import products
from mlgo_corpus.corpus.folder import write_manifest
from mlgo_corpus.corpus.open import open_corpus
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.formats.objects.footprints import Exports


def link(name: str, directory: str = "/b") -> products.LinkRecord:
    return products.LinkRecord(name, "program", "c", "clang", directory, ("a.o", "-o", name), f"/b/{name}")


def read(folder: Path, *links: products.LinkRecord) -> tuple[products.LinkRecord, ...]:
    write_manifest(folder / "corpus_description.json", [], has_thinlto=False, override=None)
    products.write_links(folder / "links.jsonl", links)
    return products.read_links(open_corpus(folder))


def test_two_links_of_one_name_are_an_error(tmp_path: Path) -> None:
    assert read(tmp_path, link("one"), link("two")) == (link("one"), link("two"))
    with pytest.raises(CorpusError, match=r"links\.jsonl: line 4: not a link: a link above has its name; build again$"):
        read(tmp_path, link("one"), link("two"), link("one"))


def test_a_path_of_a_link_has_a_bounded_depth(tmp_path: Path) -> None:
    deepest = "/d" * 200
    assert read(tmp_path, link("one", deepest)) == (link("one", deepest),)
    with pytest.raises(
        CorpusError, match=r"line 2: not a link: expected a path of at most 200 components; build again$"
    ):
        read(tmp_path, link("one", f"{deepest}/d"))


def test_members_of_an_archive_are_there_once(tmp_path: Path) -> None:
    members = tuple(products._Member(f"{name}.o", name * 64, f"{name}.o") for name in "abc")
    other = tuple(products._Member(f"{name}.o", name * 64, None, f"/b/{name}.o") for name in "bc")

    def item(name: str, its: tuple[products._Member, ...], taken: tuple[int, ...] | None) -> products.LinkedFile:
        return products.LinkedFile(name, f"/b/{name}", "there", members=its, taken=taken)

    links = [
        replace(link("one"), inputs=(item("x.a", members, (0, 2)), item("y.a", other, None))),
        replace(link("two"), inputs=(item("y.a", tuple(map(replace, other)), ()), item("z.a", (), None))),
        replace(link("three"), inputs=(item("x.a", members, (1,)),)),
    ]
    found = read(tmp_path, *links)
    assert found == tuple(links)
    assert found[0].inputs[0].members is found[2].inputs[0].members
    assert found[0].inputs[1].members is found[1].inputs[0].members
    lines = [json.loads(line) for line in (tmp_path / "links.jsonl").read_text().splitlines()]
    told = [(len(one["members"]), one["members_of"], one["taken"]) for line in lines[1:] for one in line["inputs"]]
    assert told == [(3, None, [0, 2]), (2, None, None), (0, 1, []), (0, None, None), (0, 0, [1])]
    assert [one.name for one in found[0].inputs[0].without_untaken().members] == ["a.o", "c.o"]
    (renamed, *_) = products.links_among(found, "all/", {"all/b.o"})
    assert [one.module for one in renamed.inputs[0].members] == [None, "all/b.o", None]
    # Of the modules that it takes; and so it is of a corpus that is made of that one.
    (tmp_path / "part").mkdir()
    (again,) = products.links_among(read(tmp_path / "part", renamed), "", {"all/b.o"})
    assert (found[0].absent, renamed.absent, again.absent) == (0, 2, 2)
    for change, why in (
        ({"members_of": 2}, "expected a number below 2"),
        ({"taken": [3]}, "expected a number below 3"),
    ):
        damaged = [*lines[:3], {**lines[3], "inputs": [{**lines[3]["inputs"][0], **change}]}]
        (tmp_path / "links.jsonl").write_text("".join(json.dumps(line) + "\n" for line in damaged))
        with pytest.raises(CorpusError, match=f"line 4: not a link: {why}; build again$"):
            products.read_links(open_corpus(tmp_path))
    # As records were before: each input has its members, and each of these tells whether it is taken.
    for line in lines[1:]:
        for one in line["inputs"]:
            number, taken = one.pop("members_of"), one.pop("taken")
            its = one["members"] if number is None else (members, other)[number]
            its = [each if isinstance(each, dict) else asdict(each) for each in its]
            one["members"] = [{**each, "taken": None if taken is None else at in taken} for at, each in enumerate(its)]
    lines[0]["format"] = "mlgo-links-1"
    (tmp_path / "links.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert products.read_links(open_corpus(tmp_path)) == tuple(links)


@pytest.mark.parametrize(
    ("kind", "words", "exports"),
    [
        ("shared", (), Exports.CALLS),
        ("shared", ("-Wl,-soname,lib.so.1", "-rdynamic"), Exports.CALLS),
        ("shared", ("-Wl,-soname,lib.so.1", "-Wl,-Bsymbolic"), Exports.NAMES),
        ("shared", ("-Wl,-z,now,-Bsymbolic-functions,-z,relro",), Exports.NAMES),
        ("shared", ("-Wl,-Bsymbolic-non-weak-functions",), Exports.CALLS),
        ("shared", ("-Wl,--dynamic-list=some.list",), Exports.NAMES),
        ("shared", ("-Wl,-z,now,--version-script=lib.map",), Exports.NOTHING),
        ("shared", ("--version-script", "lib.map"), Exports.NOTHING),
        ("shared", ("-Wl,--exclude-libs,ALL",), Exports.NOTHING),
        ("program", (), Exports.NOTHING),
        ("program", ("-Wl,-export-dynamic-symbol=a,-ENTRY",), Exports.NOTHING),
        ("program", ("-Wl,--dynamic-list=some.list",), Exports.NOTHING),
        ("program", ("-rdynamic",), Exports.NAMES),
        ("program", ("-rdynamic", "-Wl,--exclude-libs,ALL"), Exports.NOTHING),
        ("program", ("-Wl,--export-dynamic",), Exports.NAMES),
        ("program", ("-Wl,-z,now,-E",), Exports.NAMES),
        ("relocatable", ("-rdynamic",), Exports.NOTHING),
    ],
)
def test_what_is_exported_of_modules(tmp_path: Path, kind: str, words: tuple[str, ...], exports: Exports) -> None:
    def item(name: str) -> products.LinkedFile:
        return products.LinkedFile(name, f"/b/{name}", "there", modules=(name,))

    other = replace(link("other"), inputs=(item("a.o"), item("c.o")))
    one = link("one")
    one = replace(one, kind=kind, arguments=(*one.arguments, *words), inputs=(item("a.o"), item("b.o")))
    read(tmp_path, other, one)
    found = products.LinkedModules.read(open_corpus(tmp_path))
    assert [found.exports(name) for name in ("a.o", "b.o", "c.o", "d.o")] == [exports, exports, 0, 0]


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("12345678"), min_size=1, unique=True)))
def test_modules_of_products_that_have_one_in_common(built: dict[str, list[str]]) -> None:
    linked = products.LinkedModules({module: tuple(names) for module, names in built.items()})
    found = {module: linked.group(module) for module in built}
    assert linked.group("other") == "of None" not in found.values()
    together = {(one, other) for one in built for other in built if set(built[one]) & set(built[other])}
    for _ in built:  # the closure, step by step
        together |= {(one, last) for one, middle in together for first, last in together if middle == first}
    assert {(one, other) for one in found for other in found if found[one] == found[other]} == together


def test_a_corpus_without_links(tmp_path: Path) -> None:
    write_manifest(tmp_path / "corpus_description.json", ["a.o"], has_thinlto=False, override=None)
    found = products.LinkedModules.read(open_corpus(tmp_path))
    assert (found.products, found.group("a.o"), found.exports("a.o")) == ({}, "of None", Exports.NOTHING)
