"""What the doctor finds on this machine, and on machines where this or that is missing or broken."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mlgo_corpus import __version__
from mlgo_corpus.cli.main import app
from mlgo_corpus.compilers.probe import Toolchain
from mlgo_corpus.doctor import Diagnosis, Finding, Group, State, diagnose
from mlgo_corpus.errors import UsageError
from tests.conftest import PACKAGE_ROOT, Llvm
from tests.forked import run_cli

pytestmark = pytest.mark.whole


def mlgo(*arguments: str, env: Mapping[str, str] = {}, setting: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT, "COLUMNS": "120", "NO_COLOR": "1", **env}
    if not setting:
        return run_cli(*arguments, env=environment)
    argv = ["bash", "-c", f'{setting}; exec "$@"', "bash", sys.executable, "-m", "mlgo_corpus.cli.main", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlgo_corpus.compilers.probe.probe_toolchains", lambda *_, **__: ())


def found_compilers(monkeypatch: pytest.MonkeyPatch, *toolchains: Toolchain) -> None:
    monkeypatch.setattr("mlgo_corpus.compilers.probe.probe_toolchains", lambda *_, **__: toolchains)


def named(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.name: finding for finding in diagnosis.findings}


def test_a_system_that_was_never_tested(nothing_found: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = named(diagnose())["system"]
    assert (ready.state, ready.remedy) == (State.READY, "")
    assert ready.found.startswith("Linux ")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    found = named(diagnose())["system"]
    assert (found.state, found.found[:7]) == (State.LIMITED, "Darwin ")
    assert found.found.endswith("; tested on Linux only")
    assert "use Linux" in found.remedy


def test_this_machine(llvm22: Llvm) -> None:
    done = mlgo("doctor", "--json", "--compiler", llvm22.clang)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["version"], result["exit_code"]) == (__version__, 0)
    assert result["toolchains"][0]["version"].startswith("22.")
    found = {finding["name"]: finding for finding in result["findings"]}
    assert found["pyarrow"]["found"] == version("pyarrow")
    sessions = ("trace (inlining, own policies), search, evaluate", "toolchain wrap")
    for name in ("build", "verify --rebuild", *sessions, "ir2native"):
        assert found[name]["state"] == "ready"
        assert f"clang {result['toolchains'][0]['version']}" in found[name]["found"]
    assert {finding["state"] for finding in result["findings"]} <= {"ready", "limited", "missing"}
    for finding in result["findings"]:
        assert bool(finding["remedy"]) == (finding["state"] != "ready"), finding


def test_a_clang_without_llvms_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clang = tmp_path / "bin" / "clang"
    header = tmp_path / "include" / "llvm" / "Config" / "llvm-config.h"
    header.parent.mkdir(parents=True)
    found_compilers(
        monkeypatch, Toolchain((str(clang),), "PATH", binary=clang, version="21.1.5", interactive=("inlining",))
    )

    def extensible() -> Finding:
        return named(diagnose(cache=tmp_path))["toolchain extend, inlining-3.0"]

    assert (extensible().state, extensible().remedy) == (State.MISSING, "apt-get install llvm-21-dev")
    for version_there, state in (("21.1.4", State.MISSING), ("21.1.5", State.READY)):
        header.write_text(f'#define LLVM_VERSION_STRING "{version_there}"\n')
        assert extensible().state == state
    newer = Toolchain(("clang-22",), "PATH", binary=tmp_path / "clang-22", version="22.1.8", interactive=("inlining",))
    older = Toolchain((str(clang),), "PATH", binary=clang, version="21.1.5", interactive=("inlining",))
    found_compilers(monkeypatch, newer, older)
    assert (extensible().state, extensible().found) == (State.LIMITED, "clang 21.1.5, not for LLVM 22")
    assert extensible().remedy == "apt-get install llvm-22-dev"


def test_it_is_readable(llvm22: Llvm) -> None:
    done = mlgo("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"mlgo-corpus {__version__}"
    assert any(line.split()[:2] == ["pyarrow", "ready"] for line in lines)
    assert any(llvm22.clang in line and " yes " in line for line in lines)


def test_it_fits_into_80_columns(llvm22: Llvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = Toolchain((f"/opt/{'long/' * 20}clang",), "PATH", version="22.1.8", embeds_bitcode=True)
    found_compilers(monkeypatch, found)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "/opt/long/long/" in done.stdout


@pytest.mark.usefixtures("nothing_found")
def test_a_machine_without_compilers(tmp_path: Path) -> None:
    diagnosis = diagnose(cache=tmp_path)
    found = named(diagnosis)
    for name in ("build", "verify --rebuild", "trace (inlining, own policies), search, evaluate", "ir2native"):
        assert (found[name].state, found[name].found) == (State.MISSING, "no compiler")
        assert "install clang" in found[name].remedy
    assert next(one for one in diagnosis.findings if one.name.startswith("extract, ")).state == State.READY
    assert diagnosis.exit_code == 0


def test_what_no_compiler_here_can_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One embeds but does nothing else, one writes two tasks' logs, one does not work."""
    plain = Toolchain(("clang-16",), "PATH", version="16.0.6", embeds_bitcode=True)
    logs = Toolchain(("c",), "built", version="19.1.7", training_logs=("regalloc-eviction", "regalloc-priority"))
    bad = Toolchain(("clang-22",), "PATH", version="22.1.0", opt=Path("/opt"), problem="exit code 1")
    found_compilers(monkeypatch, plain, bad)
    found = named(diagnose(cache=tmp_path))
    assert (found["build"].state, found["build"].found) == (State.READY, "clang 16.0.6")
    assert found["ir2native"].found == "no compiler here has an opt of its version beside it"
    assert found["trace (inlining, own policies), search, evaluate"].found == "no compiler here holds live sessions"
    assert found["toolchain wrap"].state == State.MISSING
    assert found["toolchain extend, inlining-3.0"].remedy == "apt-get install llvm-22-dev"
    registers = found["trace (LLVM's register allocation)"]
    assert registers.state == State.MISSING
    assert registers.remedy.startswith("mlgo-corpus toolchain build")
    found_compilers(monkeypatch, plain, logs)
    registers = named(diagnose(cache=tmp_path))["trace (LLVM's register allocation)"]
    assert (registers.state, registers.found) == (State.READY, "clang 19.1.7")


def test_a_development_mode_compiler_older_than_the_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it says to do is what helps: there is no newer one."""
    both = ("regalloc-eviction", "regalloc-priority")
    newer = Toolchain(("clang-22",), "PATH", version="22.1.0", embeds_bitcode=True)
    logs = Toolchain(("c",), "built", version="19.1.7", training_logs=both, reads_bitcode=(17, 18, 19, 20))
    remedy = "build the corpus with 'mlgo-corpus build --compiler clang-19'"
    found_compilers(monkeypatch, newer, logs)
    registers = named(diagnose(cache=tmp_path))["trace (LLVM's register allocation)"]
    assert (registers.state, registers.remedy) == (State.LIMITED, remedy)
    assert registers.found == "clang 19.1.7, which reads no corpus of LLVM 22"
    found_compilers(monkeypatch, newer)
    registers = named(diagnose(cache=tmp_path))["trace (LLVM's register allocation)"]
    assert (registers.state, registers.remedy) == (
        State.MISSING,
        f"mlgo-corpus toolchain build (about a minute, once), and {remedy}",
    )


def test_one_log_of_two_is_not_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found_compilers(monkeypatch, Toolchain(("c",), "built", version="19.1.7", training_logs=("regalloc-eviction",)))
    assert named(diagnose(cache=tmp_path))["trace (LLVM's register allocation)"].state == State.MISSING


@pytest.mark.usefixtures("nothing_found")
def test_extras_that_are_not_installed_are_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in ("ray", "ziglang", "vl_convert") else real(name)
    )
    diagnosis = diagnose(cache=tmp_path)
    found = named(diagnosis)
    assert (found["ray"].state, found["ray"].remedy) == (State.MISSING, "pip install 'mlgo-corpus[ray]'")
    assert (found["demo"].state, found["demo"].found) == (State.MISSING, "no ziglang")
    assert found["report"].remedy == "pip install 'mlgo-corpus[report]'"
    assert found["--engine ray"].remedy == "pip install 'mlgo-corpus[ray]'"
    assert diagnosis.exit_code == 0


@pytest.mark.usefixtures("nothing_found")
@pytest.mark.parametrize(("module", "package"), [("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")])
def test_a_report_needs_two_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, package: str
) -> None:
    assert named(diagnose(cache=tmp_path))["report"].state == State.READY
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else real(name))
    found = named(diagnose(cache=tmp_path))["report"]
    assert (found.state, found.found) == (State.MISSING, f"no {package}")
    assert found.remedy == "pip install 'mlgo-corpus[report]'"


@pytest.mark.parametrize("package", ["lief", "numpy", "pyarrow", "google-crc32c"])
def test_a_package_that_cannot_be_imported(tmp_path: Path, package: str) -> None:
    (tmp_path / f"{package.replace('-', '_')}.py").write_text(
        "raise ImportError('libfoo.so.1:\\n cannot open [shared] object file')\n"
    )
    done = mlgo("doctor", "--json", env={"PYTHONPATH": f"{tmp_path}:{PACKAGE_ROOT}"})
    assert done.returncode == 1, done.stderr
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found[package] == {
        "group": "package",
        "name": package,
        "state": "broken",
        "found": "libfoo.so.1: cannot open [shared] object file",
        "remedy": f"pip install --force-reinstall {package}",
    }
    assert [finding["state"] for finding in found.values()].count("broken") == 2
    if package == "numpy":  # which most of it needs
        done = mlgo("doctor", env={"PYTHONPATH": f"{tmp_path}:{PACKAGE_ROOT}"})
        assert done.returncode == 1
        assert "cannot open [shared] object file" in " ".join(done.stdout.split())
        assert done.stdout.splitlines()[-1] == "2 things broken: see above"


@pytest.mark.parametrize(("variable", "name"), [("MLGO_CORPUS_CACHE", "cache"), ("TMPDIR", "temporary files")])
@pytest.mark.usefixtures("nothing_found")
def test_folders_that_cannot_be_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, name: str
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "in it"
    if name == "cache":
        diagnosis = diagnose(cache=folder)
    else:
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(folder))
        diagnosis = diagnose(cache=tmp_path)
    assert named(diagnosis)[name] == Finding(
        Group.MACHINE,
        name,
        State.BROKEN,
        f"{folder}: Not a directory",
        f"set {variable} to a folder that can be written to",
    )
    assert diagnosis.exit_code == 1


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gettempdir() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", gettempdir)
    diagnosis = diagnose(cache=tmp_path)
    assert [finding for finding in diagnosis.findings if finding.state == State.BROKEN] == [
        Finding(
            Group.MACHINE,
            "temporary files",
            State.BROKEN,
            "No usable temporary directory found in ['/tmp']",
            "set TMPDIR to a folder that can be written to",
        ),
        Finding(Group.VERB, "all that run compilers", State.BROKEN, "without temporary files"),
    ]


@pytest.mark.usefixtures("nothing_found")
def test_a_cache_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    found = named(diagnose(cache=tmp_path / "a" / "b"))["cache"]
    assert found.state == State.READY
    assert found.found.startswith(f"{tmp_path}/a/b, ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nothing_found")
def test_a_disk_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Usage:
        free = 12_000_000

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage)
    found = named(diagnose(cache=tmp_path))["cache"]
    assert (found.state, found.found) == (State.LIMITED, f"{tmp_path}, 0.0 GB free")
    assert found.remedy.startswith("make room, or set MLGO_CORPUS_CACHE")


def test_few_open_files() -> None:
    done = mlgo("doctor", "--json", setting="ulimit -n 100")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    (found,) = (finding for finding in findings if finding["name"] == "open files")
    assert (found["state"], found["found"]) == ("limited", "at most 100")
    assert "open files" not in mlgo("doctor", "--json", setting="ulimit -n 4096").stdout


def test_a_compiler_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such program"):
        diagnose("/nowhere/clang", cache=tmp_path)
    done = mlgo("doctor", env={"MLGO_CORPUS_COMPILER": "/nowhere/clang"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "mlgo-corpus: error: /nowhere/clang: no such program (from MLGO_CORPUS_COMPILER)\n"
    said = mlgo("--version", env={"MLGO_CORPUS_COMPILER": "/nowhere/clang"})
    assert said.returncode == 0
    assert said.stdout.splitlines()[2:] == ["no compiler: /nowhere/clang: no such program (from MLGO_CORPUS_COMPILER)"]


def test_a_version_names_the_compilers(llvm22: Llvm) -> None:
    done = mlgo("--version", env={"MLGO_CORPUS_COMPILER": llvm22.clang})
    assert done.returncode == 0
    first, second, compiler, *_ = done.stdout.splitlines()
    assert first == f"mlgo-corpus {__version__}"
    assert second.endswith(f"numpy {version('numpy')}, pyarrow {version('pyarrow')}, lief {version('lief')}")
    assert re.fullmatch(rf"clang 22\.\d+\.\d+: {re.escape(llvm22.clang)}", compiler)
