"""Names of modules and members that lead elsewhere, clash or are no names: nothing is written outside the output."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mlgo_corpus import Corpus, convert_logs, pack_corpus, trace_corpus
from mlgo_corpus.compilers.probe import probe_compiler
from mlgo_corpus.errors import MlgoCorpusError
from tests import handmade
from tests.conftest import DATA
from tests.formats.objects.test_archive import write_bsd, write_gnu
from tests.runs.extract.test_incremental import database, real_objects
from tests.runs.trace.test_bad_input import COMMAND, cache_of, module, write_fake

from .mutations import check_one_line
from .verbs import Place

PARTS = (
    "", ".", "..", "...", "x", "X", "evil", "a", "a.bc", "a.cmd", "a.thinlto", "a~2", "a%2F", "é", "e\u0301", "K", "k",
    "\u212a", "\u202e", "\ud800", "\udcff", "a\nb", "a\rb", "a\0b", "a\x1b[2Jb", " ", "-o", "--force", "~", "$HOME",
    "C:", "C:\\evil", "con", "nul.o", "corpus_description.json", "modules.parquet", ".mlgo-corpus", "README.md",
    "long~", "_up", "x" * 255, "x" * 256, "é" * 130, "data", "dataset.json", "observations", ".tmp.bc",
)  # fmt: skip
STARTS = ("", "", "", "", "", "/", "../", "../../", "../../../../", "./", "//", "/nonexistent/", "file:///", "s3://b/")


def prepare(folder: Path) -> None:
    """Write the objects to extract."""
    for number, data in enumerate(real_objects(number=3)):
        handmade.put(folder / f"objects/{number}", data)


def fake_clang(folder: Path) -> Path:
    """Make the fake compiler a program whose abilities are known, once."""
    program = folder / "fake/clang"
    if program.exists():
        return program
    program.parent.mkdir()
    write_fake(program)
    probe_compiler(str(program), cache=program.parent)
    return program


def check(prepared: Path, rng: random.Random, folder: Path) -> None:
    place = Place(folder)
    names = [_name(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.3:
        names += [f"{names[0]}/{_name(rng)}", f"{names[0]}.bc"]
    rng.choice((_extract, _make, _corpora, _corpora, _packed, _logs, _trace))(prepared, rng, place, names)


def _name(rng: random.Random) -> str:
    return rng.choice(STARTS) + "/".join(rng.choice(PARTS) for _ in range(rng.randint(1, 3)))


def _extract(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    """Extract members of these names, and objects that a compilation database says have them."""
    objects = [path.read_bytes() for path in sorted((prepared / "objects").iterdir())]
    members = [(name, rng.choice(objects)) for name in names]
    given = handmade.put(place.work / "in/x.a", rng.choice((write_gnu, write_bsd))(_encodable(members)))
    handmade.put(place.work / "in/evil", objects[0])
    if rng.random() < 0.5:
        given = database(place.work / "in/compile_commands.json", [place.work / "in/evil", given])
        entries = json.loads(given.read_bytes())
        for name in names:
            entries.append(
                {"directory": str(place.work / "in"), "file": "f.c", "output": name, "command": "clang -c f.c"}
            )
        given.write_text(json.dumps(entries))
    output = place.work / "out"
    place.run("extract", given, "--jobs", "1", "--output", output, output=output)
    place.run("extract", given, "--jobs", "1", "--output", output, output=output)
    if output.exists():
        _check_corpus(output)


def _encodable(members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Leave out the names that no file system gives: ar holds bytes."""
    return [(name, data) for name, data in members if "\ud800" not in name]


def _check_corpus(folder: Path) -> None:
    corpus = Corpus.open(folder)
    names = [item.name for item in corpus]
    assert len(set(names)) == len(names), names
    for item in corpus:
        assert (folder / f"{item.name}.bc").resolve().is_relative_to(folder.resolve()), item.name


def _make(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    """Make a corpus of files of these names."""
    given = place.work / "in"
    handmade.put(given / "good.bc", handmade.bitcode())
    for name in names:
        _put(given, f"{name}.bc", handmade.bitcode())
    if rng.random() < 0.5:
        place.run("make", given, output=given)
    else:
        place.run("make", given, "--output", place.work / "out", "--copy", output=place.work / "out")


def _put(folder: Path, name: str, data: bytes) -> None:
    """Write a file if there can be one of this name in the folder."""
    try:
        path = (folder / name.lstrip("/")).absolute()
        if Path(os.path.normpath(path)).is_relative_to(folder) and not os.path.lexists(path):
            handmade.put(path, data)
    except (OSError, ValueError):
        pass


def _corpus(rng: random.Random, folder: Path, names: list[str]) -> Path:
    """Write a corpus whose manifest, and perhaps table, has these names; where there can be files, there are."""
    handmade.corpus(folder, ["good"])
    for name in names:
        for suffix, data in ((".bc", handmade.bitcode(b"x")), (".cmd", handmade.COMMAND)):
            _put(folder, name + suffix, data)
    manifest = {"has_thinlto": False, "modules": ["good", *names]}
    (folder / "corpus_description.json").write_text(json.dumps(manifest))
    if rng.random() < 0.5:
        storable = [name for name in names if name.isprintable()]
        handmade.table(folder, [handmade.row(name, handmade.bitcode(b"x")) for name in ("good", *storable)])
    return folder


def _corpora(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    given = _corpus(rng, place.work / "in", names)
    output = place.work / "out"
    how = rng.choice((["--copy"], ["--link"], ["--reference"], []))
    verb = rng.choice(("combine", "combine", "split", "dedup", "pack", "verify", "stats"))
    if verb == "combine":
        place.run(verb, given, _corpus(rng, place.work / "other", names), "-o", output, *how, output=output)
    elif verb in ("split", "dedup"):
        index = [given / "functions.parquet"]
        place.run(verb, given, "--jobs", "1", "-o", output, *how, output=output, also=index)
    elif verb == "pack":
        place.run(verb, given, "--jobs", "1", "-o", output, output=output)
        if output.exists():
            place.run("unpack", output, "--jobs", "1", "-o", place.work / "back", output=place.work / "back")
    else:
        place.run(verb, given)


def _packed(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    """Unpack a corpus whose rows have been given these names."""
    handmade.corpus(place.work / "in", [f"m{number}" for number in range(len(names) + 1)])
    packed = place.work / "packed"
    pack_corpus(place.work / "in", packed, jobs=1)
    for path in sorted(packed.rglob("*.parquet")):
        _rename_modules(path, names)
    output = place.work / "out"
    place.run("unpack", packed, "--jobs", "1", "-o", output, output=output)
    place.run("stats", packed)
    place.run("combine", packed, "-o", place.work / "folder", output=place.work / "folder")


def _rename_modules(path: Path, names: list[str]) -> None:
    table = pq.ParquetFile(path).read()
    if "module" in table.schema.names:
        at = table.schema.names.index("module")
        old = table.column(at).to_pylist()
        new = {f"m{number}": name for number, name in enumerate(names) if "\ud800" not in name and "\udcff" not in name}
        kind = table.schema.field(at).type
        renamed = pa.array([new.get(name, name) for name in old], pa.string()).cast(kind)
        pq.write_table(table.set_column(at, table.schema.field(at), renamed), path)


def _logs(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    """Convert logs, and write them again under these names."""
    log = (DATA / "training-logs/inlining.linit.log").read_bytes()
    for number in range(len(names)):
        handmade.put(place.work / f"in/m{number}.log", log)
    dataset = place.work / "dataset"
    convert_logs([place.work / "in"], dataset, jobs=1)
    for path in sorted(dataset.rglob("*.parquet")):
        _rename_modules(path, names)
    place.run("parquet-to-logs", dataset, "-o", place.work / "out", output=place.work / "out")
    place.run("export", dataset, "--jobs", "1", "-o", place.work / "records", output=place.work / "records")


def _trace(prepared: Path, rng: random.Random, place: Place, names: list[str]) -> None:
    """Trace a corpus of these names, and keep logs and objects under them."""
    given = place.work / "in"
    for name in ("good", *names):
        _put(given, f"{name}.bc", module())
        _put(given, f"{name}.cmd", COMMAND)
    (given / "corpus_description.json").write_text(json.dumps({"has_thinlto": False, "modules": ["good", *names]}))
    fake = fake_clang(prepared)
    outputs = [place.work / name for name in ("out", "logs", "objects")]
    with place.only(*outputs):
        try:
            trace_corpus(
                given,
                outputs[0],
                via=rng.choice(("interactive", "training-log")),
                compiler=str(fake),
                cache=cache_of(place.folder, fake),
                keep_logs=outputs[1],
                keep_objects=outputs[2],
                jobs=1,
                timeout=20.0,
            )
        except MlgoCorpusError as error:
            check_one_line(error)
