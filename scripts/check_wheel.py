#!/usr/bin/env python3
"""Check the wheel and the sdist that a package index would get: ``make wheel`` runs it.

    python scripts/check_wheel.py DIST

The wheel must have every file of ``mlgo_corpus/`` that git tracks and nothing else, so data files and no tests; the
sdist every tracked file but `_NOT_SHIPPED`. The metadata must agree with the sources, and CHANGELOG.md must have the
version. Then the wheel is installed into a new virtual environment, where its command line must run and `doctor` find
nothing broken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "mlgo_corpus"
_DIST_INFO = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
# Tracked, and of no use without the repository.
_NOT_SHIPPED = {".ci/run"}
_ADDED_BY_BUILD = {"PKG-INFO"}


def differences(found: Iterable[str], wanted: Iterable[str], what: str) -> Iterator[str]:
    """Yield a line for each file that an archive lacks, or has and should not."""
    found, wanted = set(found), set(wanted)
    yield from (f"{what} lacks {name}" for name in sorted(wanted - found))
    yield from (f"{what} has {name}, which does not belong there" for name in sorted(found - wanted))


def wheel_problems(names: Iterable[str], tracked: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the wheel's files."""
    names = list(names)
    inside = [name for name in names if not PurePosixPath(name).parts[0].endswith(".dist-info")]
    about = {name.partition("/")[2] for name in names if name not in inside}
    yield from differences(inside, (name for name in tracked if name.startswith(f"{PACKAGE}/")), "the wheel")
    yield from differences(about, _DIST_INFO, "the wheel's dist-info")


def sdist_problems(names: Iterable[str], tracked: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the sdist's files, all of which are in one folder."""
    inside = {name.partition("/")[2] for name in names} - _ADDED_BY_BUILD
    yield from differences(inside, set(tracked) - _NOT_SHIPPED, "the sdist")


def metadata_problems(metadata: Message, project: dict[str, object], version: str, readme: str) -> Iterator[str]:
    """Yield what is wrong with the wheel's metadata, given the ``project`` table, the version and the README."""
    wanted = {
        "Name": project["name"],
        "Version": version,
        "Summary": project["description"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "Description-Content-Type": "text/markdown",
    }
    for name, value in wanted.items():
        if metadata[name] != value:
            yield f"metadata: {name} is {metadata[name]!r}, expected {value!r}"
    body = metadata.get_payload(decode=True)
    if not isinstance(body, bytes) or body.decode().strip() != readme.strip():
        yield "metadata: the description is not README.md"
    # An index refuses packages that need others by address.
    yield from (f"metadata: {item} is by address" for item in metadata.get_all("Requires-Dist", []) if " @ " in item)


def tracked_files() -> list[str]:
    """Return the files that git tracks."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return listed.rstrip("\0").split("\0")


def source_version() -> str:
    """Return the package's version, as its source has it."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / PACKAGE / "__init__.py").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{PACKAGE}/__init__.py: no __version__")
    return found[1]


def changelog_problems(changelog: str, version: str) -> Iterator[str]:
    """Yield what is wrong with the changelog."""
    if not re.search(rf"^## {re.escape(version)}(?![\w.])", changelog, re.MULTILINE):
        yield f"CHANGELOG.md has no section on {version}"


def installed_problems(wheel: Path) -> Iterator[str]:
    """Yield what goes wrong with the wheel in a virtual environment of its own."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    with tempfile.TemporaryDirectory(prefix="mlgo-corpus-wheel-") as folder:
        python, program = (Path(folder, "venv", "bin", name) for name in ("python", "mlgo-corpus"))
        where = f"import {PACKAGE}; print({PACKAGE}.__file__)"
        for argv in (
            (sys.executable, "-m", "venv", f"{folder}/venv"),
            (python, "-m", "pip", "install", "--disable-pip-version-check", "-q", wheel.resolve()),
            (python, "-c", where),
            (program, "--help"),
            (program, "--version"),
            (program, "doctor"),
        ):
            done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)
            words = " ".join(map(str, argv[1:]))
            if done.returncode != 0:
                yield f"installed: {words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
                return
            if argv[-1] == where and not done.stdout.startswith(folder):
                yield f"installed: the package is imported from {done.stdout.strip()}"
            if argv[-1] == "doctor":
                print(f"installed into a new environment: {done.stdout.splitlines()[-1]}")


def main() -> int:
    """Check the folder named on the command line; return the exit code."""
    dist = Path(sys.argv[1])
    wheels, sdists = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        print(f"{dist}: expected one wheel and one sdist, found {len(wheels)} and {len(sdists)}", file=sys.stderr)
        return 1
    tracked, version = tracked_files(), source_version()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with zipfile.ZipFile(wheels[0]) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(about))
    problems = [*wheel_problems(names, tracked), *metadata_problems(metadata, project, version, readme)]
    with tarfile.open(sdists[0]) as tar:
        problems += sdist_problems((member.name for member in tar if not member.isdir()), tracked)
    problems += changelog_problems((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    problems += installed_problems(wheels[0])
    for line in problems:
        print(line, file=sys.stderr)
    for path in (*wheels, *sdists):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    if not project.get("urls"):
        links = len(re.findall(r"\]\((?!https?:|#)", readme))
        print(f"note: {links} links of README.md are relative, and lead nowhere on an index's page without an address")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
