#!/usr/bin/env python3
"""Make the policy that comes with the package, of Debian's sources: fetch, build, search, train, evaluate.

    python scripts/make_policy.py FOLDER [--name inlining-1.0] [--compiler clang-22] [--jobs 2] [--extended | --project]

``make policy`` runs it. It needs apt-get with sources of Debian 12, clang, CMake, make, and the extra ``learn``; on two
cores it takes most of an hour. What is in FOLDER already is not made again, so that it goes on after an interruption.
The same sources, compiler and version of LightGBM give the same policy, byte for byte.

With ``--extended``, it makes a policy for extended clangs (``toolchain extend``), which also needs LLVM's headers:
``python scripts/make_policy.py FOLDER --extended --name inlining-2.0``. Its first searches begin with the decisions of
`TEACHER`; the one in the package is older, with 300 trees and one round of searches. With ``--project`` instead, the
clangs also tell how many modules of a project have a function, as ``inlining-3.0`` wants to know.

No project is in `TRAINING` or `VALIDATION` that policies are judged by: re2, abseil, flatbuffers, bzip2, cJSON, sqlite,
zstd, LLVM, nor what is derived from one.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mlgo_corpus import build_corpus, evaluate_corpus, extend_toolchain, load_policy, search_corpus, train_policy
from mlgo_corpus.compilers.devmode.apt import fetch_tarballs
from mlgo_corpus.files.markdown import markdown_table
from mlgo_corpus.runs.evaluate.sums import SizeChange

BUDGETS: Final = (16, 16)
"""The most compiles of each module, in each round of searches.

After the first one searches begin with the decisions of what the one before taught, and teach what is kept.
"""
TEACHER: Final = "inlining-1.0"
EXTENDED_BUDGETS: Final = (20, 20)
LICENCE: Final = "Apache-2.0"
SIZE: Final = {"trees": 360, "leaves": 23}
TUNED_ON: Final = ("ninja-build", "hunspell")
"""Those of `VALIDATION` that the threshold is tuned on."""
RESULTS: Final = """\
## Results

Projects that nothing was trained on, by clang 22 at -Oz, against LLVM's own decisions, with 95 % intervals by module
and product. The threshold was tuned on the first two; the last two are C, in which it does not decide.
"""


@dataclass(frozen=True)
class Project:
    """A source package, and how it is built.

    Attributes:
        package: Debian's name of it.
        tarball: the name of the original sources.
        sha256: their digest.
        options: CMake's; None where there is a ``configure``.
        target: what of it is built; all by default.
        sample: how many modules are searched; all if None.
    """

    package: str
    tarball: str
    sha256: str
    options: str | None = ""
    target: str = "all"
    sample: str | None = None

    def command(self, folder: Path) -> str:
        """Return the shell command that builds it in a folder, whose name does not become part of any text."""
        source, tree = folder / "source" / self.package, folder / "build" / self.package
        flags = f"-Oz -ffile-prefix-map={folder}=."
        if self.options is None:
            flags = f"CFLAGS='{flags}' CXXFLAGS='{flags} -std=c++14'"
            return f"mkdir -p {tree} && cd {tree} && {flags} {source}/configure --quiet && make -j2"
        flags = f"-DCMAKE_C_FLAGS_MINSIZEREL='{flags}' -DCMAKE_CXX_FLAGS_MINSIZEREL='{flags}'"
        # Some want a policy that CMake 4 no longer has; older ones do not know the variable.
        flags += " -DCMAKE_POLICY_VERSION_MINIMUM=3.5"
        configure = f"cmake -S {source} -B {tree} -DCMAKE_BUILD_TYPE=MinSizeRel {flags} {self.options}"
        return f"{configure} && cmake --build {tree} --parallel 2 --target {self.target}"


TRAINING: Final = (
    Project(
        "leveldb",
        "leveldb_1.23.orig.tar.gz",
        "9a37f8a6174f09bd622bc723b55881dc541cd50747cbd08831c2a82d620f6d76",
        "-DLEVELDB_BUILD_TESTS=OFF -DLEVELDB_BUILD_BENCHMARKS=OFF",
    ),
    Project(
        "yaml-cpp",
        "yaml-cpp_0.7.0+dfsg.orig.tar.xz",
        "dc63708605404e0b963e0ca3a9619d1c8270eda2839603e6fa0384e5e51e5312",
        "-DYAML_CPP_BUILD_TESTS=OFF",
    ),
    Project(
        "snappy",
        "snappy_1.1.9.orig.tar.gz",
        "75c1fbb3d618dd3a0483bff0e26d0a92b495bbe5059c8b4f1c962b478b6e06e7",
        "-DSNAPPY_BUILD_TESTS=OFF -DSNAPPY_BUILD_BENCHMARKS=OFF -DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "tinyxml2",
        "tinyxml2_9.0.0+dfsg.orig.tar.xz",
        "96510f47a5db537f70dff3e83dd71fd2180cbba4aa76c589a549467e7f34bc9b",
    ),
    Project(
        "double-conversion",
        "double-conversion_3.2.1.orig.tar.gz",
        "e40d236343cad807e83d192265f139481c51fc83a1c49e406ac6ce0a0ba7cd35",
    ),
    Project(
        "libjsoncpp",
        "libjsoncpp_1.9.5.orig.tar.gz",
        "f409856e5920c18d0c2fb85276e24ee607d2a09b5e7d5f0a371368903c275da2",
        "-DJSONCPP_WITH_POST_BUILD_UNITTEST=OFF -DBUILD_STATIC_LIBS=OFF -DBUILD_OBJECT_LIBS=OFF",
    ),
    Project(
        "pugixml",
        "pugixml_1.13.orig.tar.gz",
        "5c5ad5d7caeb791420408042a7d88c2c6180781bf218feca259fd9d840a888e1",
        "-DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "muparser",
        "muparser_2.3.3.orig.tar.gz",
        "91d26d8274ae9cd9c776ee58250aeddc6b574f369eafd03b25045b858a2b8177",
        "-DENABLE_OPENMP=OFF",
    ),
    Project(
        "box2d",
        "box2d_2.4.1.orig.tar.gz",
        "d6b4650ff897ee1ead27cf77a5933ea197cbeef6705638dd181adc2e816b23c2",
        "-DBOX2D_BUILD_TESTBED=OFF -DBOX2D_BUILD_UNIT_TESTS=OFF -DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "libebml",
        "libebml_1.4.4.orig.tar.xz",
        "82dc5f83356cc9340aee76ed7512210b3a4edf5f346bc9c2c7044f55052687a7",
        "-DBUILD_SHARED_LIBS=ON",
    ),
    Project("gperf", "gperf_3.1.orig.tar.gz", "1f88819b78187350e7e6ca24b5e15cbf4083659773508d3f018b9b525e9d1cb8", None),
    Project(
        "googletest",
        "googletest_1.12.1.orig.tar.gz",
        "81964fe578e9bd7c94dfdb09c8e4d6e6759e19967e397dbea48d1c10e45d0df2",
    ),
    Project(
        "fmtlib",
        "fmtlib_9.1.0+ds1.orig.tar.gz",
        "84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583",
        "-DFMT_DOC=OFF -DFMT_TEST=OFF -DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "protobuf",
        "protobuf_3.21.12.orig.tar.gz",
        "930c2c3b5ecc6c9c12615cf5ad93f1cd6e12d0aba862b572e076259970ac3a53",
        "-Dprotobuf_BUILD_TESTS=OFF -Dprotobuf_WITH_ZLIB=OFF -Dprotobuf_BUILD_SHARED_LIBS=ON",
        target="libprotobuf",
        sample="14",
    ),
    Project(
        "capnproto",
        "capnproto_0.9.2.orig.tar.gz",
        "4031e9c9158fce1979baf3c5234315c1be74b273c0be9f6c4aaf4d0dfda52542",
        "-DBUILD_TESTING=OFF -DWITH_OPENSSL=OFF -DBUILD_SHARED_LIBS=ON",
        target="capnp",
        sample="10",
    ),
)
VALIDATION: Final = (
    Project(
        "ninja-build",
        "ninja-build_1.11.1.orig.tar.gz",
        "31747ae633213f1eda3842686f83c2aa1412e0f5691d1c14dbbcc67fe7400cea",
        "-DBUILD_TESTING=OFF",
    ),
    Project(
        "hunspell",
        "hunspell_1.7.1.orig.tar.gz",
        "b2d9c5369c2cc7f321cb5983fda2dbf007dce3d9e17519746840a6f0c4bf7444",
        None,
    ),
    Project(
        "benchmark",
        "benchmark_1.7.1.orig.tar.gz",
        "6430e4092653380d9dc4ccb45a1e2dc9259d581f4866dc0759713126056bc1d7",
        "-DBENCHMARK_ENABLE_TESTING=OFF -DCMAKE_CXX_FLAGS=-Wno-c2y-extensions -DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "google-glog",
        "google-glog_0.6.0.orig.tar.gz",
        "8a83bf982f37bb70825df71a9709fa90ea9f4447fb3c099e1d720a439d88bad6",
        "-DWITH_GFLAGS=OFF -DWITH_GTEST=OFF -DWITH_UNWIND=OFF -DBUILD_TESTING=OFF",
    ),
    Project(
        "gflags",
        "gflags_2.2.2.orig.tar.gz",
        "34af2f15cf7367513b352bdcd2493ab14ce43692d2dcd9dfc499492966c64dcf",
        "-DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "taglib",
        "taglib_1.13.orig.tar.gz",
        "58f08b4db3dc31ed152c04896ee9172d22052bc7ef12888028c01d8b1d60ade0",
        "-DBUILD_SHARED_LIBS=ON",
    ),
    Project(
        "jansson",
        "jansson_2.14.orig.tar.gz",
        "c739578bf6b764aa0752db9a2fdadcfe921c78f1228c7ec0bb47fa804c55d17b",
        "-DJANSSON_BUILD_DOCS=OFF",
    ),
    Project("libyaml", "libyaml_0.2.5.orig.tar.gz", "fa240dbf262be053f3898006d502d514936c818e422afdcf33921c63bed9bf2e"),
)


def say(text: str) -> None:
    """Print a line with the time since the start."""
    print(f"{time.monotonic() - BEGIN:6.0f} s  {text}", flush=True)


BEGIN: Final = time.monotonic()


def fetch(projects: Sequence[Project], folder: Path) -> None:
    """Fetch the sources of projects, and check that they are those that the policy was made of."""
    packages = [project.package for project in projects if not (folder / project.tarball).is_file()]
    folder.mkdir(exist_ok=True)
    if packages:
        fetch_tarballs(packages, folder)
        say(f"fetched {', '.join(packages)}")
    for project in projects:
        if (found := hashlib.sha256((folder / project.tarball).read_bytes()).hexdigest()) != project.sha256:
            sys.exit(f"{folder / project.tarball}: expected the sha256 {project.sha256}, found {found}")


def unpack(project: Project, folder: Path) -> None:
    """Unpack a project's sources."""
    source = folder / "source" / project.package
    if not source.is_dir():
        part = source.with_name(f".{project.package}")
        with tarfile.open(folder / "tarballs" / project.tarball) as opened:
            opened.extractall(part, filter="data")
        tops = list(part.iterdir())
        (tops[0] if len(tops) == 1 else part).rename(source)


def corpus_of(project: Project, folder: Path, compiler: str) -> Path:
    """Build a project, and return its corpus."""
    corpus = folder / "corpora" / project.package
    if not (corpus / "corpus_description.json").is_file():
        unpack(project, folder)
        with (folder / f"{project.package}.log").open("wb") as log:
            words = ("sh", "-c", f"({project.command(folder)}) 2>&1")
            report = build_corpus(words, corpus, compiler=compiler, build_dir=folder, stdout=log.fileno())
        if report.exit_code:
            sys.exit(f"{project.package} cannot be built: see {folder / project.package}.log")
        say(f"built {project.package} in {report.build_seconds:.0f} s")
    return corpus


def change(sizes: SizeChange) -> str:
    """Return a change in words, with its interval."""
    if sizes.change is None:
        return "-"
    low, high = sizes.interval or (sizes.change, sizes.change)
    return f"{100 * sizes.change:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"


def main() -> None:
    """Make the policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default="inlining-1.0")
    parser.add_argument("--compiler", default="clang-22")
    parser.add_argument("--jobs", type=int)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--extended", action="store_true")
    kinds.add_argument("--project", action="store_true")
    given = parser.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    say("fetching, building, searching, training, evaluating: most of an hour on two cores")
    projects = (*TRAINING, *VALIDATION)
    fetch(projects, folder / "tarballs")
    corpora = {project: corpus_of(project, folder, given.compiler) for project in projects}
    how = {"compiler": given.compiler, "jobs": given.jobs}
    budgets, start = BUDGETS, "default"
    asks = dict.fromkeys(TRAINING, given.compiler)
    if given.extended or given.project:
        budgets, start = EXTENDED_BUDGETS, TEACHER
        for project in TRAINING:
            place = folder / "clangs" / (project.package if given.project else "all")
            place.parent.mkdir(exist_ok=True)
            if not place.is_dir():
                known = corpora[project] if given.project else None
                extend_toolchain(place, compiler=given.compiler, corpus=known)
            asks[project] = str(place)

    policy = folder / given.name
    validation = [corpora[project] for project in VALIDATION if project.package in TUNED_ON]
    options = {**SIZE, "languages": ["C++"], "validation": validation, "name": given.name, "force": True, **how}
    for number, budget in enumerate(budgets, 1):
        data = []
        for project in TRAINING:
            data.append(folder / f"found-{number}" / project.package)
            data[-1].parent.mkdir(exist_ok=True)
            by = {**how, "compiler": asks[project], "start": start, "also": ("default",)}  # what it learns is its own
            report = search_corpus(corpora[project], data[-1], budget=budget, sample=project.sample, **by)
            say(f"searched {project.package}: {report.baseline_text_size} to {report.text_size} bytes")
        learned = policy if number == len(budgets) else folder / f"round-{number}" / given.name
        learned.parent.mkdir(exist_ok=True)
        trained = train_policy(data, learned, **options)
        say(f"trained on {trained.decisions} decisions; threshold {trained.probability:g}")
        start = str(learned)
    rows = []
    for project in VALIDATION:
        evaluated = evaluate_corpus(
            corpora[project], folder / "evaluated" / project.package, policies=[str(policy)], force=True, **how
        )
        (one,) = evaluated.policies
        products = [change(item.sizes) for item in one.products]
        rows.append((project.package, change(one.objects), *products, f"{one.grew} of {one.objects.modules}"))
        say(f"evaluated {project.package}: {change(one.objects)}")
    heading = ("project", "objects", "linked", "with gc and folding", "modules that grew")
    found = load_policy(policy)
    card = f"{found.card}\n{RESULTS}\n\n{markdown_table(heading, rows)}\n"
    replace(found, card=card, licence=LICENCE).save(policy, force=True)
    say(f"{policy}: {sum(path.stat().st_size for path in policy.iterdir())} bytes")


if __name__ == "__main__":
    main()
