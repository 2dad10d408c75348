"""Splitting real corpora: what is equal by LLVM's own text stays on one side, and everything is written or nothing."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import Corpus, combine_corpora, extract_corpus, report_page, split_corpus
from mlgo_corpus.corpus.split.components import MIN_INSTRUCTIONS
from mlgo_corpus.corpus.split.sides import SIDES
from mlgo_corpus.errors import CorpusError, MlgoCorpusError, UsageError
from mlgo_corpus.formats.ir.text import body_digest, parse_module
from tests.cli.test_cli import mlgo
from tests.conftest import EMBED, PACKAGE_ROOT, Llvm, run_checked, unpack
from tests.forked import start

pytestmark = pytest.mark.whole

# A line of a body that is an instruction, and neither of debug information nor within a switch.
INSTRUCTION = re.compile(r"^  (?! |\]|#dbg|call void @llvm\.dbg\.|tail call void @llvm\.dbg\.)\S", re.MULTILINE)
# A function long enough to count, in two modules that have nothing else in common.
SHARED = """
static int shared(const int *a, int n, int k) {
  int s = 0;
  for (int i = 0; i < n; i++) s += a[i] * k + (a[i] >> 3);
  return s;
}
"""
SOURCES = {
    "first.c": "int g1, g2;\nstruct s { int a; char b; };\n"
    + SHARED
    + "int first(int *a) { return shared(a, 3, 4) + g1; }",
    "second.c": SHARED.replace("shared", "renamed") + "int second(int *a, int n) { return renamed(a, n, n) - 1; }",
    "third.c": "int third(const char *s) { int n = 0; while (*s) n += *s++ != 'x'; return n; }",
    "fourth.c": "int fourth(int a, int b) { switch (a) { case 1: return b; case 7: return a * b; } return b % 9; }",
}


@pytest.fixture(scope="module")
def all_three(tmp_path_factory: pytest.TempPathFactory, llvm22: Llvm) -> Path:
    """Lua by two clangs, and zlib: modules of the same source share some bodies."""
    folder = tmp_path_factory.mktemp("split")
    for name in ("lua-clang19", "lua-clang22", "zlib-clang19"):
        unpack(name, folder / "objects" / name)
        extract_corpus([folder / "objects" / name], folder / name)
    combine_corpora([folder / "lua-clang19", folder / "lua-clang22", folder / "zlib-clang19"], folder / "all")
    return folder / "all"


@pytest.fixture
def corpus(all_three: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(all_three, tmp_path / "corpus"))


@pytest.fixture
def small(compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path) -> Path:
    objects = [compile_c(llvm22, text, "-O1", *EMBED, name=f"o/{name}") for name, text in SOURCES.items()]
    extract_corpus(objects, tmp_path / "small")
    return tmp_path / "small"


def bodies(llvms: dict[str, Llvm], corpus: Corpus, least: int, tmp_path: Path) -> dict[str, set[bytes]]:
    """Give the digests of each module's bodies of so many instructions, by the text that its own LLVM prints.

    A newer LLVM would print what it makes of old intrinsics.
    """
    found = {}
    for module in corpus:
        llvm = next(llvm for word, llvm in llvms.items() if word in module.name)
        run_checked(llvm.dis, module.bitcode_path, "-o", tmp_path / "text.ll")
        text = parse_module((tmp_path / "text.ll").read_text("latin-1"))
        found[module.name] = {
            body_digest(function)
            for function in text.functions
            if sum(map(bool, INSTRUCTION.findall(function.body))) >= least
        }
    return found


def sides_of(corpus: Path) -> dict[str, str | None]:
    rows = pq.read_table(corpus / "modules.parquet", columns=["module", "split"]).to_pylist()
    return {row["module"]: row["split"] for row in rows}


@pytest.fixture(scope="module")
def of_llvms_text(
    llvm19: Llvm, llvm22: Llvm, all_three: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, set[bytes]]:
    """The bodies of each module that are long enough for a split."""
    llvms = {"clang19": llvm19, "clang22": llvm22}
    return bodies(llvms, Corpus.open(all_three), MIN_INSTRUCTIONS, tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_body_of_llvms_text_is_on_two_sides(of_llvms_text: dict[str, set[bytes]], corpus: Path, seed: int) -> None:
    report = split_corpus(corpus, seed=seed)
    assert report.min_instructions == MIN_INSTRUCTIONS
    sides = defaultdict(set)
    side_of = sides_of(corpus)
    for name, digests in of_llvms_text.items():
        for digest in digests:
            sides[digest].add(side_of[name])
    assert len(sides) > 1500
    assert {frozenset(one) for one in sides.values() if len(one) > 1} == set()
    assert report.shared_bodies > 100
    assert (report.leakage.modules, report.leakage.functions) == (0.0, 0.0)
    assert report.random_leakage.modules > 0.1
    assert sum(report.modules.values()) == 83
    assert not report.off


def test_each_side_is_a_corpus_and_the_table_says_the_same(corpus: Path) -> None:
    report = split_corpus(corpus)
    everything = Corpus.open(corpus)
    side_of = sides_of(corpus)
    names: list[str] = []
    for side in SIDES:
        opened = Corpus.open(corpus / f"corpus_description.{side}.json")
        assert len(opened) == report.modules[side]
        assert [name for name in everything.names if side_of[name] == side] == list(opened.names)
        assert sum(len(module.bitcode()) for module in opened) == report.bitcode_bytes[side]
        assert opened.has_thinlto == everything.has_thinlto
        manifest = {"has_thinlto": False, "modules": list(opened.names)}
        assert (corpus / f"corpus_description.{side}.json").read_text() == json.dumps(manifest, indent=2)
        names += opened.names
    assert sorted(names) == sorted(everything.names)


def test_the_rest_of_the_table_stays_as_it_was(corpus: Path) -> None:
    before = pq.read_table(corpus / "modules.parquet")
    split_corpus(corpus)
    after = pq.read_table(corpus / "modules.parquet")
    assert after.drop(["split"]).equals(before.drop(["split"]))
    said, was = (json.loads(table.schema.metadata[b"mlgo_corpus"]) for table in (after, before))
    assert said.pop("split")["seed"] == 0
    assert said == was


@pytest.mark.parametrize("weigh", ["functions", "bitcode", "modules"])
def test_the_sides_get_their_shares_of_what_is_weighed(corpus: Path, weigh: str) -> None:
    report = split_corpus(corpus, weigh=weigh, seed=1, jobs=1)
    weighed = report.amounts[weigh]
    total = sum(weighed.values())
    for side, wanted in zip(SIDES, (0.8, 0.1, 0.1), strict=True):
        assert weighed[side] / total == pytest.approx(wanted, abs=0.03)
    assert (report.weigh, report.far, report.off) == (weigh, (), False)
    said = json.loads(pq.read_schema(corpus / "modules.parquet").metadata[b"mlgo_corpus"])["split"]
    assert said["weigh"] == weigh
    table = pq.read_table(corpus / "functions.parquet", columns=["module"])["module"].to_pylist()
    side_of = sides_of(corpus)
    assert report.functions == {side: sum(side_of[name] == side for name in table) for side in SIDES}


def test_a_side_with_next_to_nothing_is_told(compile_c: Callable[..., Path], llvm22: Llvm, tmp_path: Path) -> None:
    many = "".join(f"int f{n}(int x) {{ return x + {n}; }}\n" for n in range(200))
    sources = {"many.c": many, "one.c": "int one;int o(void) { return one; }", "two.c": "int two;"}
    objects = [compile_c(llvm22, text, "-O1", *EMBED, name=f"o/{name}") for name, text in sources.items()]
    made = tmp_path / "corpus"
    extract_corpus(objects, made, jobs=1)
    report = split_corpus(made, fractions=(0.34, 0.33, 0.33), weigh="modules", jobs=1)
    assert not report.off
    assert "functions" in report.hardly
    done = mlgo("split", made, "--fractions", "0.34,0.33,0.33", "--weigh", "modules")
    assert "% of the functions, not 33.0%" in done.stderr
    assert "--weigh functions divides by functions instead of modules" in done.stderr
    report = split_corpus(made, fractions=(0.34, 0.33, 0.33), force=True, jobs=1)
    assert [one.side for one in report.far] == ["train", "validation", "test"]
    assert report.heaviest == pytest.approx(200 / 201)
    (hint,) = report.hints
    assert hint.startswith("the shares are not as requested; one group has 100% of the functions: no module shares")
    done = mlgo("split", made, "--fractions", "0.34,0.33,0.33")
    assert "hint: the shares are not as requested; one group has 100% of the functions: no module shares" in done.stderr
    assert "only a larger corpus can be divided better" in done.stderr
    page = report_page([made], tmp_path / "page.html")
    (told,) = [one for one in page.sections[0]["call_outs"] if "The split is far" in one["text"]]
    assert "train has 99.5 % of the functions, not 34.0 %" in told["text"].replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_a_shared_function_ties_its_modules_whatever_it_is_called(small: Path) -> None:
    for seed in range(6):
        report = split_corpus(small, fractions=(0.5, 0.25, 0.25), seed=np.int64(seed), force=True)  # type: ignore[arg-type]
        sides = {name.rpartition("/")[2]: side for name, side in sides_of(small).items()}
        assert sides["first.o"] == sides["second.o"] == "train"
        assert {sides["third.o"], sides["fourth.o"]} == {"validation", "test"}
        assert (report.groups, report.largest_group, report.shared_bodies) == (3, 2, 1)


def test_small_bodies_and_common_ones_need_not_count(small: Path) -> None:
    assert split_corpus(small, min_instructions=1000).groups == 4
    report = split_corpus(small, max_component=np.float32(0.25), force=True)  # type: ignore[arg-type]
    assert (report.groups, report.limit, report.ignored_bodies) == (4, 1, 1)
    done = mlgo("split", small, "--max-component", "0.25", "--force")
    assert "in 4 groups that have no function in common but those that were ignored, in" in done.stdout
    assert "leaks" not in done.stderr  # both modules that have the ignored body are in train
    done = mlgo("split", small, "--max-component", "0.25", "--fractions", "0.34,0.33,0.33", "--force")
    assert (
        "hint: what was ignored leaks: more than half as many functions as in a random split are train's, too; "
        "a larger --max-component ignores fewer\n" in done.stderr
    )
    assert split_corpus(small, max_component=0.5, force=True).limit is None


def test_projects_can_be_kept_together(of_llvms_text: dict[str, set[bytes]], corpus: Path) -> None:
    done = mlgo("split", corpus)
    assert ("--by-project divides by what was combined" in done.stderr) == ("not as requested" in done.stderr)
    done = mlgo("split", corpus, "--by-project", "--fractions", "0.4,0.3,0.3", "--force", "--json")
    leakage = json.loads(done.stdout)["leakage"]
    sides = sides_of(corpus)
    by_project = {(name.partition("/")[0], side) for name, side in sides.items()}
    assert {project for project, _ in by_project} == {"lua-clang19", "lua-clang22", "zlib-clang19"}
    assert sorted(str(side) for _, side in by_project) == ["test", "train", "validation"]
    known = set().union(*(of_llvms_text[name] for name, side in sides.items() if side == "train"))
    others = [name for name, side in sides.items() if side != "train"]
    assert leakage["modules"] == sum(bool(of_llvms_text[name] & known) for name in others) / len(others) > 0
    assert "in 3 projects, in" in mlgo("split", corpus, "--by-project", "--fractions", "0.4,0.3,0.3").stdout
    done = mlgo("split", corpus, "--by-project", "--fractions", "0.9,0.05,0.05", "--force")
    assert "a project is on one side, so only more projects can be divided better" in done.stderr


def test_a_bound_without_end_has_a_page_too(small: Path, tmp_path: Path) -> None:
    split_corpus(small)
    table = pq.read_table(small / "modules.parquet")
    about = {"mlgo_corpus": '{"split": {"min_instructions": Infinity}}'}
    pq.write_table(table.replace_schema_metadata(about), small / "modules.parquet")
    (section,) = report_page([small], tmp_path / "r.html").sections
    assert section["data"]["modules"] == 4


def test_a_group_larger_than_its_side_is_told(small: Path) -> None:
    done = mlgo("split", small, "--fractions", "0.34,0.33,0.33", "--min-instructions", "0")
    assert done.returncode == 0
    assert "hint: the shares are not as requested" in done.stderr
    assert "--max-component" in done.stderr


def test_three_corpora_and_the_corpus_stays_as_it_was(corpus: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in corpus.iterdir() if path.is_file()}
    report = split_corpus(corpus, output=tmp_path / "sides")
    split_in_place = split_corpus(corpus)
    for side in SIDES:
        made = Corpus.open(tmp_path / "sides" / side)
        there = Corpus.open(corpus / f"corpus_description.{side}.json")
        assert made.names == there.names
        for module in made:
            assert module.bitcode() == there[module.name].bitcode()
            assert module.command() == there[module.name].command()
            assert module.bitcode_path.samefile(there[module.name].bitcode_path)  # hard links
        assert set(sides_of(tmp_path / "sides" / side).values()) == {side}
    assert report.modules == split_in_place.modules
    assert report.output == tmp_path / "sides"
    assert before.keys() == {"corpus_description.json", "modules.parquet"}
    assert split_corpus(corpus, output=tmp_path / "sides").unchanged
    with pytest.raises(UsageError, match="a corpus of other inputs or options is there; `force` replaces it"):
        split_corpus(corpus, output=tmp_path / "sides", seed=5)
    assert not split_corpus(corpus, output=tmp_path / "sides", seed=5, force=True, placing="copy").unchanged


def test_another_split_wants_force(corpus: Path) -> None:
    assert not split_corpus(corpus).unchanged
    assert split_corpus(corpus).unchanged
    manifest = (corpus / "corpus_description.test.json").read_bytes()
    with pytest.raises(UsageError, match="has another split already; `force` replaces it"):
        split_corpus(corpus, seed=1)
    assert (corpus / "corpus_description.test.json").read_bytes() == manifest
    assert not split_corpus(corpus, seed=1, force=True).unchanged
    assert (corpus / "corpus_description.test.json").read_bytes() != manifest


def test_a_corpus_without_a_table_gets_one(corpus: Path) -> None:
    report = split_corpus(corpus)
    sides = sides_of(corpus)
    (corpus / "modules.parquet").unlink()
    again = split_corpus(corpus)
    assert sides_of(corpus) == sides
    assert again.bitcode_bytes == report.bitcode_bytes


def test_a_module_that_cannot_be_read_is_on_no_side(small: Path) -> None:
    broken, missing = sorted(Corpus.open(small).names)[:2]
    path = small / f"{broken}.bc"
    path.write_bytes(path.read_bytes()[:100])
    (small / f"{missing}.bc").unlink()
    report = split_corpus(small, fractions=(0.5, 0.5, 0.0))
    assert {name for name, _ in report.problems} == {broken, missing}
    assert sides_of(small)[broken] is None
    assert sides_of(small)[missing] is None
    assert sum(report.modules.values()) == 2
    done = mlgo("split", small, "--fractions", "0.5,0.5,0", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problems"] == [list(one) for one in report.problems]


def test_functions_are_read_once_and_again_where_bitcode_changes(small: Path) -> None:
    read: list[int] = []
    split_corpus(small, progress=lambda done, _: read.append(done))
    assert read == [1, 2, 3, 4]
    read.clear()
    split_corpus(small, progress=lambda done, _: read.append(done))
    assert read == []
    table = pq.read_table(small / "functions.parquet")
    assert set(table["function"].to_pylist()) >= {"first", "second", "third", "fourth", "shared", "renamed"}
    assert (
        table["bitcode_sha256"].to_pylist()[0] == pq.read_table(small / "modules.parquet")["bitcode_sha256"][0].as_py()
    )


def test_a_split_stays_until_an_extraction_changes_the_corpus(
    compile_c: Callable[..., Path], llvm22: Llvm, small: Path, tmp_path: Path
) -> None:
    objects = [tmp_path / "o" / name.replace(".c", ".o") for name in SOURCES]
    split_corpus(small, fractions=(0.5, 0.25, 0.25))
    before = pq.read_table(small / "modules.parquet")
    assert not extract_corpus(objects, small).split_removed
    after = pq.read_table(small / "modules.parquet")
    assert after.equals(before)
    assert after.schema.metadata[b"mlgo_corpus"] == before.schema.metadata[b"mlgo_corpus"]
    compile_c(llvm22, "int third(void) { return 0; }", "-O1", *EMBED, name="o/third.c")
    report = extract_corpus(objects, small)
    assert report.split_removed
    assert "its split was removed" in " ".join(report.hints)
    assert list(small.glob("corpus_description.*.json")) == []
    assert set(sides_of(small).values()) == {None}
    assert not extract_corpus(objects, small).split_removed


def test_what_is_no_request_is_told(small: Path) -> None:
    with pytest.raises(UsageError, match=r"^fractions 0\.5: expected three numbers whose sum is 1"):
        split_corpus(small, fractions=0.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"^jobs 0: expected at least 1$"):
        split_corpus(small, jobs=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fractions", "0.8,0.1"), "--fractions 0.8,0.1: expected three numbers whose sum is 1"),
        (("--fractions", "a,b,c"), "--fractions a,b,c: expected three numbers"),
        (("--weigh", "decisions"), "'decisions' is not one of"),
        (("--max-component", "0"), "--max-component 0: expected more than 0, and at most 1"),
        (("--max-component", "nan"), "--max-component nan: expected more than 0, and at most 1"),
        (
            ("--by-project", "--max-component", "0.1"),
            "--max-component 0.1: --by-project keeps no groups that share bodies",
        ),
        (("--by-project",), "was not combined of several corpora, by which it could be divided"),
        (("--link", "--copy", "--output", "x"), "--link and --copy: expected one of them"),
        (("--output", "{corpus}/sub"), "overlaps"),
        (("--seed", "-1"), "--seed: -1 is not in the range x>=0"),
    ],
)
def test_bad_requests_write_nothing(small: Path, arguments: tuple[str, ...], message: str) -> None:
    before = sorted(small.iterdir())
    done = mlgo("split", small, *(text.format(corpus=small) for text in arguments))
    assert done.returncode == 2
    assert message in done.stderr
    assert sorted(small.iterdir()) == before
    assert "Traceback" not in done.stderr


def test_bad_corpora_are_told(small: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="not a corpus"):
        split_corpus(tmp_path)
    with pytest.raises(UsageError, match="is one side of a split"):
        split_corpus(
            _written(small / "corpus_description.train.json", (small / "corpus_description.json").read_bytes())
        )
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "corpus_description.json").write_text('{"has_thinlto": false, "modules": []}')
    with pytest.raises(UsageError, match="has no modules"):
        split_corpus(empty)
    for module in Corpus.open(small):
        module.bitcode_path.write_bytes(b"no bitcode")
    with pytest.raises(MlgoCorpusError, match="no module can be read"):
        split_corpus(small)


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_a_damaged_table_of_functions_is_made_anew(small: Path) -> None:
    split_corpus(small)
    wanted = pq.read_table(small / "functions.parquet")
    (small / "functions.parquet").write_bytes(b"PAR1 damaged")
    assert split_corpus(small).unchanged
    assert pq.read_table(small / "functions.parquet").equals(wanted)


def test_kills_at_random_moments_leave_whole_files(corpus: Path, tmp_path: Path) -> None:
    generator = random.Random(7)
    env = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    modules = pq.read_table(corpus / "modules.parquet", columns=["module"]).to_pylist()
    for round_ in range(12):
        if round_ % 3 == 0:
            (corpus / "functions.parquet").unlink(missing_ok=True)
        with start("split", corpus, "--force", "--seed", str(round_), env=env) as process:
            time.sleep(generator.uniform(0, 1.5))
            process.kill()
        assert pq.read_table(corpus / "modules.parquet", columns=["module"]).to_pylist() == modules
        for side in SIDES:
            if (path := corpus / f"corpus_description.{side}.json").exists():
                Corpus.open(path)
    report = split_corpus(corpus, force=True)
    assert sum(report.modules.values()) == len(modules)
    assert [name for name in os.listdir(corpus) if name.endswith(".tmp")] == []
    assert os.listdir(tmp_path) == ["corpus"]
