"""Whether a policy makes the same objects, byte for byte, wherever it decides: each compile of builds in each way.

    python benchmarks/runtimes.py COMPILE_COMMANDS.JSON... --policy POLICY [--compiler clang-19]
        [--release FOLDER] [--devmode FOLDER] [--jobs 2]

The ways: numpy, in a session of Python's; the clang of ``toolchain wrap``, which is made here; FOLDER/bin/clang with
the policy linked in (``toolchain build --mode release``); and FOLDER/bin/clang in development mode, with the policy's
shared object, whose training log is read: numpy has to decide as it says. All have to be of one LLVM. Compile commands
are those of the databases; their compiler is replaced, and what they make goes to a temporary folder. The policy is
asked in all languages. Exit code 1: some objects differ, which are named.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlgo_corpus import InteractiveSession, LearnedPolicy, compile_policy, read_log, temporary_channel, wrap_toolchain
from mlgo_corpus.compilers.choose import choose_for_build
from mlgo_corpus.compilers.driver import drivers_of
from mlgo_corpus.formats.logs.tasks import INLINING, find_task, for_clang
from mlgo_corpus.policies.keyed import growth_options
from mlgo_corpus.policies.learned import named_policy

_TIMEOUT_S = 3600.0
# Options whose value is a file that a compile writes.
_OUTPUTS = {"-o": "it.o", "-MF": "it.d", "-MT": "it.o"}


@dataclass(frozen=True)
class Compile:
    """A compile: its words without the compiler's, the folder that it runs in, and whether it is of C++."""

    words: tuple[str, ...]
    folder: str
    cxx: bool

    @property
    def source(self) -> str:
        """The file that it compiles, as far as one can tell."""
        return next((word for word in self.words if word.rpartition(".")[2] in ("c", "cc", "cpp", "cxx")), "?")


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("databases", nargs="+", type=Path)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--compiler", default="clang-19")
    parser.add_argument("--release", type=Path)
    parser.add_argument("--devmode", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    policy = replace(named_policy(given.policy)[1], languages=())
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        ways = Ways(policy, given.compiler, given.release, given.devmode, Path(name))
        for database in given.databases:
            compiles = tuple(iter_compiles(database))
            with ThreadPoolExecutor(given.jobs) as pool:
                results = list(pool.map(ways.compare, compiles))
            counts = sum(results, Counter[str]())
            print(f"{database}: {counts.pop('decisions')} decisions of numpy in {len(compiles)} compiles")
            for way, count in sorted(counts.items()):
                print(f"  {way}: {count}")
            bad += sum(count for way, count in counts.items() if way.endswith("other"))
    sys.exit(bool(bad))


class Ways:
    """The ways to compile with a policy."""

    def __init__(
        self, policy: LearnedPolicy, compiler: str, release: Path | None, devmode: Path | None, folder: Path
    ) -> None:
        self.policy = policy
        self.task = find_task(policy.task)
        policy.save(folder / "policy")
        stock = drivers_of(choose_for_build(compiler))
        self.stock = (stock.c, stock.cxx)
        wrapped = wrap_toolchain(folder / "policy", folder / "wrapped", compiler=compiler, cache=folder).wrapped.clang
        compile_policy(folder / "policy", folder / "model")
        self.folder = folder
        self.grows = growth_options(()) if self.task.name == INLINING else ()
        self.others: dict[str, tuple[str, tuple[str, ...]]] = {"wrapped": (str(wrapped), ())}
        if release is not None:
            options = for_clang((f"{self.task.advisor}=release", *self.grows))
            self.others["release mode"] = (str(release.absolute() / "bin" / "clang"), options)
        if devmode is not None:
            options = for_clang(
                (*self.task.log_options("@log"), *self.task.model_options(str(folder / "model")), *self.grows)
            )
            self.others["development mode"] = (str(devmode.absolute() / "bin" / "clang"), options)

    def compare(self, compile_: Compile) -> Counter[str]:
        """Compile in each way; return how many objects were as numpy's, or others."""
        counts: Counter[str] = Counter()
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            scratch = Path(name)
            run((*self.stock[compile_.cxx], *placed(compile_.words, scratch)), compile_.folder)
            plain = (scratch / "it.o").read_bytes()
            expected, counts["decisions"] = self.by_numpy(compile_, scratch)
            counts["plain: other object than numpy's, as it should be sometimes"] = plain != expected
            for way, (program, options) in self.others.items():
                (scratch / "it.o").unlink()
                options = tuple(word.replace("@log", str(scratch / "log")) for word in options)
                words = (program + "++" * compile_.cxx, *placed(compile_.words, scratch), *options)
                run(words, compile_.folder)
                alike = (scratch / "it.o").read_bytes() == expected
                if way == "development mode":
                    decided = self.logged(scratch / "log")
                    counts["development mode: decisions in the log, all numpy's"] += max(decided, 0)
                    alike &= decided >= 0
                counts[f"{way}: {'same' if alike else 'other'}"] += 1
                if not alike:
                    print(f"{way}: other: {compile_.folder}: {compile_.source}", flush=True)
        return counts

    def by_numpy(self, compile_: Compile, scratch: Path) -> tuple[bytes, int]:
        """Compile, deciding by numpy; return the object, and the number of decisions."""
        count = 0
        with temporary_channel() as base:
            options = for_clang((*self.task.channel_options(str(base), default=False), *self.grows))
            argv = (*self.stock[compile_.cxx], *placed(compile_.words, scratch), *options)
            with InteractiveSession(argv, base, timeout=_TIMEOUT_S, cwd=Path(compile_.folder)) as session:
                for observation in session:
                    session.advise(self.policy.advise(observation.record))
                    count += 1
        return (scratch / "it.o").read_bytes(), count

    def logged(self, log: Path) -> int:
        """Return the number of decisions in a log; -1 if one is not numpy's."""
        if not log.exists():
            return 0
        columns = read_log(log).to_numpy()
        found = columns[self.task.decision].ravel()
        expected = self.policy.decide({spec.name: columns[spec.name] for spec in self.policy.features})
        return len(found) if np.array_equal(found, expected) else -1


def iter_compiles(database: Path) -> Iterator[Compile]:
    """Yield the compiles of a database."""
    for entry in json.loads(database.read_bytes()):
        program, *words = entry.get("arguments") or shlex.split(entry["command"])
        if "-c" in words:
            cxx = Path(program).name.rstrip("-.0123456789").endswith("++")
            yield Compile(tuple(words), entry["directory"], cxx)


def placed(words: Sequence[str], folder: Path) -> list[str]:
    """Return a compile's words with its outputs in a folder."""
    made = list(words)
    for index, word in enumerate(made[:-1]):
        if word in _OUTPUTS:
            made[index + 1] = str(folder / _OUTPUTS[word])
    return made if "-o" in made else [*made, "-o", str(folder / "it.o")]


def run(words: Sequence[str], folder: str) -> None:
    """Run a compile, which has to be silent."""
    env = {**os.environ, "CCACHE_DISABLE": "1"}
    done = subprocess.run((*words, "-w"), cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        sys.exit(f"{shlex.join(words)}: exit code {done.returncode}\n{done.stderr}")


if __name__ == "__main__":
    main()
