"""What `make wheel` finds wrong with archives, and with the files that they are made of."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mlgo_corpus
from tests.conftest import ROOT

TRACKED = ["LICENSE", ".ci/run", "mlgo_corpus/__init__.py", "mlgo_corpus/data/probe.bc", "tests/test_wheel.py"]
DIST_INFO = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"]
WHEEL = [*TRACKED[2:4], *(f"mlgo_corpus-0.1.0.dist-info/{name}" for name in DIST_INFO)]
SDIST = [f"mlgo_corpus-0.1.0/{name}" for name in (*TRACKED, "PKG-INFO") if name != ".ci/run"]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_wheel", ROOT / "scripts" / "check_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_whole_archives_have_no_problems(check: Any) -> None:
    assert list(check.wheel_problems(WHEEL, TRACKED)) == []
    assert list(check.sdist_problems(SDIST, TRACKED)) == []


def test_each_missing_and_each_extra_file_is_named(check: Any) -> None:
    strange = "which does not belong there"
    without_data = [name for name in WHEEL if not name.endswith(".bc")]
    assert list(check.wheel_problems(without_data, TRACKED)) == ["the wheel lacks mlgo_corpus/data/probe.bc"]
    with_tests = [*WHEEL, "tests/test_wheel.py", "mlgo_corpus/left.over"]
    assert list(check.wheel_problems(with_tests, TRACKED)) == [
        f"the wheel has mlgo_corpus/left.over, {strange}",
        f"the wheel has tests/test_wheel.py, {strange}",
    ]
    no_command = [name for name in WHEEL if not name.endswith("entry_points.txt")]
    assert list(check.wheel_problems(no_command, TRACKED)) == ["the wheel's dist-info lacks entry_points.txt"]
    assert list(check.sdist_problems(SDIST[1:], TRACKED)) == ["the sdist lacks LICENSE"]
    assert list(check.sdist_problems([*SDIST, "mlgo_corpus-0.1.0/.ci/run"], TRACKED)) == [
        f"the sdist has .ci/run, {strange}"
    ]


def test_metadata_agrees_with_the_sources(check: Any) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = Message()
    for name, value in {
        "Name": "mlgo-corpus",
        "Version": "0.1.0",
        "Summary": project["description"],
        "Requires-Python": ">=3.11",
        "License-Expression": "Apache-2.0",
        "Description-Content-Type": "text/markdown",
        "Requires-Dist": "numpy>=1.26",
    }.items():
        metadata[name] = value
    metadata.set_payload("# The text\n")
    assert list(check.metadata_problems(metadata, project, "0.1.0", "# The text\n")) == []
    metadata["Requires-Dist"] = "lief @ https://example.org/lief.whl"
    assert list(check.metadata_problems(metadata, project, "0.2.0", "# Another text\n")) == [
        "metadata: Version is '0.1.0', expected '0.2.0'",
        "metadata: the description is not README.md",
        "metadata: lief @ https://example.org/lief.whl is by address",
    ]


def test_this_version_has_its_section_and_its_files_are_shipped(check: Any) -> None:
    assert check.source_version() == mlgo_corpus.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert list(check.changelog_problems(changelog, mlgo_corpus.__version__)) == []
    assert list(check.changelog_problems(changelog, "0.1")) != []
    assert list(check.changelog_problems(changelog, "9.9.9")) == ["CHANGELOG.md has no section on 9.9.9"]
    # hatchling adds these by itself.
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    listed = {*tool["hatch"]["build"]["targets"]["sdist"]["include"]}
    tops = {name.partition("/")[0] for name in check.tracked_files()} - {".ci", ".gitignore", "pyproject.toml"}
    assert tops == listed


def test_a_folder_without_archives(tmp_path: Path) -> None:
    argv = (sys.executable, ROOT / "scripts" / "check_wheel.py", tmp_path)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    expected = f"{tmp_path}: expected one wheel and one sdist, found 0 and 0\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_the_targets_are_those_that_help_lists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert {*phony.split()} == {*re.findall(r"^([a-z]+):.*## ", makefile, re.MULTILINE), "lint"}
