"""The rules of the house: where files are, what they import, and what they may say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlgo_corpus

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
    "view",
    "runs",
)
STAGE, CLI = len(FOLDERS), len(FOLDERS) + 1

# What may be imported only in some layers, and what only when it is used.
ONLY_IN = {
    "typer": {"cli"},
    "rich": {"cli"},
    "subprocess": {"compilers", "engine", "runs"},
    "fcntl": {"files"},
}
NEVER_AT_IMPORT = frozenset(
    {"pyarrow", "lief", "ray", "jinja2", "vl_convert", "torch", "lightgbm", "jax", "tensorflow"}
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
