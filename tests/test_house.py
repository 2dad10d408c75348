"""The rules of the house: where files are, what they import, and what they may say."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

import mlgo_corpus
from mlgo_corpus.cli.main import app
from tests.conftest import ROOT as CHECKOUT

PACKAGE = "mlgo_corpus"
ROOT = Path(mlgo_corpus.__file__).parent

# From the ground up: a module imports from its own folder and from those before it. Stages are the top-level modules.
FOLDERS = (
    "errors",
    "formats",
    "files",
    "builds",
    "corpus",
    "dataset",
    "engine",
    "compilers",
    "policies",
    "runs",
    "learn",
    "view",
)
STAGE, CLI = len(FOLDERS), len(FOLDERS) + 1

# What may be imported only in some layers, and what only when it is used.
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "subprocess": {"compilers", "engine", "runs"},
    "fcntl": {"files"},
    "gymnasium": {"environments"},  # whose classes are its; nothing else imports that file
}
NEVER_AT_IMPORT = frozenset(
    {"pyarrow", "lief", "ray", "jinja2", "vl_convert", "torch", "cma", "lightgbm", "jax", "tensorflow"}
)
TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def layer(module: str) -> int:
    """Give the layer of a module, named without the package: ``errors``, ``extract``, ``corpus.folder``."""
    first = module.partition(".")[0]
    if first in FOLDERS:
        return FOLDERS.index(first)
    return CLI if first in ("cli", "__main__") else STAGE


def iter_imports(tree: ast.AST, module: str) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield (imported module, names taken from it, whether it happens when the file is imported)."""
    package = [PACKAGE, *module.split(".")]
    if module not in PACKAGES:
        package.pop()

    def visit(node: ast.AST, *, at_import: bool) -> Iterator[tuple[str, tuple[str, ...], bool]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, (), at_import
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield name, tuple(alias.name for alias in node.names), at_import
        elif isinstance(node, ast.If) and ast.unparse(node.test) in TYPE_CHECKING:
            for child in node.body:
                yield from visit(child, at_import=False)
            for child in node.orelse:
                yield from visit(child, at_import=at_import)
        else:
            in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, at_import=at_import and not in_function)

    yield from visit(tree, at_import=True)


def violations(module: str, source: str, modules: frozenset[str]) -> list[str]:
    """List what a module imports and should not; ``modules`` are all those of the package."""
    own = layer(module)
    found = []
    for name, taken, at_import in iter_imports(ast.parse(source), module):
        top, _, rest = name.partition(".")
        if top in ONLY_IN and module.partition(".")[0] not in ONLY_IN[top]:
            found.append(f"{module}: {top} belongs elsewhere")
        if top in NEVER_AT_IMPORT and at_import:
            found.append(f"{module}: {top} is imported before it is used")
        if top != PACKAGE:
            continue
        targets = {".".join(filter(None, (rest, item))) for item in taken} & modules
        if not rest and taken:
            found += [
                f"{module}: {item} is imported from the package, not from its home"
                for item in taken
                if item not in modules and item != "__version__"
            ]
        if rest in modules and not targets:
            targets = {rest}
        for target in sorted(targets - {module}):
            if layer(target) > own or (layer(target) == own == STAGE):
                found.append(f"{module}: {target} is not below it")
    return found


def iter_modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts == ("__init__",):  # lazy: it names what is public and imports it on first use
            continue
        yield ".".join(parts).removesuffix(".__init__"), path


MODULES = dict(iter_modules())
PACKAGES = frozenset(module for module, path in MODULES.items() if path.name == "__init__.py")


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    assert violations(module, source, frozenset(MODULES)) == []


def test_public_names_are_those_of_the_stub() -> None:
    stub = ast.parse((ROOT / "__init__.pyi").read_text(encoding="utf-8"))
    names = {item.asname for node in stub.body if isinstance(node, ast.ImportFrom) for item in node.names}
    assert set(mlgo_corpus.__all__) == set(dir(mlgo_corpus)) == {"__version__", *names}
    for name in names:
        assert getattr(mlgo_corpus, str(name)).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mlgo_corpus.nothing


def test_paths_may_be_text_wherever_users_give_them() -> None:
    functions = [item for name in mlgo_corpus.__all__ if inspect.isfunction(item := getattr(mlgo_corpus, name))]
    paths = {
        f"{function.__name__}({parameter.name})": parameter.annotation
        for function in functions
        for parameter in inspect.signature(function).parameters.values()
        if re.search(r"\bPath\b", parameter.annotation)
    }
    assert len(paths) > 60
    assert [place for place, annotation in paths.items() if not re.search(r"\bstr\b", annotation)] == []


def test_the_walk_meets_every_layer() -> None:
    assert {layer(module) for module in MODULES} == set(range(CLI + 1))


KNOWN = frozenset(
    {"errors", "formats", "formats.objfile", "corpus", "corpus.folder", "compilers", "compilers.find"}
    | {"extract", "logs", "cli", "cli.main", "cli.console"}
)


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("formats.objfile", "from mlgo_corpus.corpus.folder import Corpus", "corpus.folder is not below it"),
        ("formats.objfile", "from mlgo_corpus.corpus import folder", "corpus.folder is not below it"),
        ("formats.objfile", "from ..corpus import folder", "corpus.folder is not below it"),
        ("formats.objfile", "import mlgo_corpus.compilers.find", "compilers.find is not below it"),
        ("formats.objfile", "def f():\n import mlgo_corpus.extract", "extract is not below it"),
        ("errors", "from mlgo_corpus.formats import objfile", "formats.objfile is not below it"),
        ("compilers.find", "from mlgo_corpus import extract", "extract is not below it"),
        ("compilers.find", "from mlgo_corpus import Corpus", "Corpus is imported from the package"),
        ("logs", "from mlgo_corpus.extract import extract_corpus", "extract is not below it"),
        ("extract", "from mlgo_corpus.cli.console import out", "cli.console is not below it"),
        ("extract", "import subprocess", "subprocess belongs elsewhere"),
        ("cli.main", "from subprocess import run", "subprocess belongs elsewhere"),
        ("extract", "from rich.table import Table", "rich belongs elsewhere"),
        ("corpus.folder", "import typer", "typer belongs elsewhere"),
        ("corpus.folder", "import pyarrow as pa", "pyarrow is imported before it is used"),
        ("corpus.folder", "try:\n import ray\nexcept ImportError: pass", "ray is imported before it is used"),
        ("corpus.folder", "class C:\n import lief", "lief is imported before it is used"),
        ("corpus.folder", "if TYPE_CHECKING: pass\nelse:\n import lief", "lief is imported before it is used"),
    ],
)
def test_what_may_not_be_imported_is_found(module: str, source: str, found: str) -> None:
    (violation,) = violations(module, source, KNOWN)
    assert violation.startswith(f"{module}: {found}")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("formats.objfile", "from mlgo_corpus.errors import FormatError"),
        ("formats.objfile", "from mlgo_corpus.formats import cmdline"),
        ("formats.objfile", "def f():\n import lief"),
        ("corpus.folder", "if TYPE_CHECKING:\n import pyarrow as pa"),
        ("corpus.folder", "import typing\nif typing.TYPE_CHECKING:\n import lief"),
        ("extract", "from mlgo_corpus import __version__\nfrom mlgo_corpus.compilers.find import run_tool"),
        ("cli.main", "import typer\nfrom mlgo_corpus.cli import console\nfrom mlgo_corpus.extract import E"),
        ("compilers.find", "import subprocess"),
    ],
)
def test_what_may_be_imported_is_not_reported(module: str, source: str) -> None:
    assert violations(module, source, KNOWN) == []


# Circles, folders, names, options


@cache
def graph() -> dict[str, frozenset[str]]:
    """Return the modules that each module imports, wherever in its file that happens."""
    found = {}
    for module, path in MODULES.items():
        targets = set()
        for name, taken, _ in iter_imports(ast.parse(path.read_text(encoding="utf-8")), module):
            top, _, rest = name.partition(".")
            if top == PACKAGE:
                named = {".".join(filter(None, (rest, item))) for item in taken} & MODULES.keys()
                targets |= named or ({rest} & MODULES.keys())
        found[module] = frozenset(targets - {module})
    return found


def circle(edges: dict[str, frozenset[str]]) -> list[str]:
    """Return the modules of a circle, or nothing."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for target in sorted(edges.get(module, ())):
            if found := visit(target, [*path, module]):
                return found
        done.add(module)
        return []

    return next(filter(None, (visit(module, []) for module in sorted(edges))), [])


def test_imports_make_no_circle() -> None:
    assert circle(graph()) == []
    edges = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"b"})}
    assert circle(edges) == ["b", "c"]


# One file per verb and one per stage: as many as there are.
VERBS = ("", "cli")


def test_a_folder_has_at_most_fifteen_files() -> None:
    counts = Counter(module.rpartition(".")[0] for module in MODULES if module not in PACKAGES)
    counts.update(PACKAGES)
    assert {folder: count for folder, count in counts.items() if count > 15 and folder not in VERBS} == {}


def test_no_three_siblings_share_a_stem() -> None:
    for folder in {module.rpartition(".")[0] for module in MODULES}:
        names = [module.rpartition(".")[2] for module in MODULES if module.rpartition(".")[0] == folder]
        stems = Counter(name[:5] for name in names if name not in ("", folder))
        assert [stem for stem, count in stems.items() if count > 2] == [], folder


@cache
def words() -> dict[str, set[Path]]:
    """Return the files in which each word is, of the package and of all that uses it."""
    found = defaultdict(set)
    folders = ("mlgo_corpus", "tests", "benchmarks", "examples", "docs", "scripts")
    for path in (path for folder in folders for path in (CHECKOUT / folder).rglob("*")):
        if path.suffix in (".py", ".pyi", ".md"):
            for word in set(re.findall(r"\w+", path.read_text(encoding="utf-8"))):
                found[word].add(path)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_a_public_name_is_used_elsewhere(module: str) -> None:
    path = MODULES[module]
    names: list[str] = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names += [target.id for target in targets if isinstance(target, ast.Name)]
    assert [name for name in names if not name.startswith("_") and words()[name] == {path}] == []


def options() -> set[str]:
    """Return all options of our command line."""
    found: set[str] = set()
    commands = [typer.main.get_command(app)]
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        found.update(name for item in command.params for name in item.opts if name.startswith("--"))
    return found


# Options of other programs that are called as ours are: clang's and LLVM's, and Bazel's.
OTHERS = {
    "compilers.confinement": {"--version"},
    "compilers.devmode.installed": {"--version"},
    "compilers.devmode.probe": {"--version"},
    "compilers.probe": {"--version"},
    "formats.commands.buildfiles": {"--output"},
    "formats.commands.driverline": {"--output", "--language"},
    "formats.commands.linkline": {"--output"},
    "formats.commands.linkwords": {"--output", "--language"},
    "formats.commands.replay": {"--version", "--output"},
}


def test_below_the_command_line_nobody_speaks_of_options() -> None:
    pattern = re.compile(
        r"(?<![\w-])(" + "|".join(map(re.escape, sorted(options(), key=len, reverse=True))) + r")(?![\w-])"
    )
    found = []
    for module, path in MODULES.items():
        if layer(module) == CLI:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                named = set(pattern.findall(node.value)) - OTHERS.get(module, set())
                found += [f"{module}:{node.lineno}: {name}" for name in sorted(named)]
    assert found == []
