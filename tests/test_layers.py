"""The folders of the package are layers, and imports point down only.

errors <- formats <- store <- view <- run <- stages (the top-level modules) <- cli
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlgo_corpus

PACKAGE = "mlgo_corpus"
ROOT = Path(mlgo_corpus.__file__).parent

ERRORS, FORMATS, STORE, VIEW, RUN, STAGE, CLI = range(7)
FOLDERS = {"formats": FORMATS, "files": STORE, "corpus": STORE, "store": STORE, "view": VIEW, "engine": RUN, "run": RUN}
FOLDERS["cli"] = CLI

# What may be imported only in some layers, and what only when it is used.
ONLY_IN = {"typer": CLI, "rich": CLI, "subprocess": RUN}
NEVER_AT_IMPORT = frozenset({"pyarrow", "lief", "ray", "jinja2", "vl_convert"})
TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def layer(module: str) -> int:
    """Give the layer of a module, named without the package: ``errors``, ``extract``, ``store.corpus``."""
    first = module.partition(".")[0]
    if first in FOLDERS:
        return FOLDERS[first]
    return {"errors": ERRORS, "__main__": CLI}.get(first, STAGE)


def iter_imports(tree: ast.AST, module: str) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield (imported module, names taken from it, whether it happens when the file is imported)."""
    package = [PACKAGE, *module.split(".")]
    if module not in FOLDERS:
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
        if top in ONLY_IN and ONLY_IN[top] != own:
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
                if item not in modules and item not in FOLDERS and item != "__version__"
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


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    source = MODULES[module].read_text(encoding="utf-8")
    assert violations(module, source, frozenset(MODULES)) == []


def test_the_walk_meets_every_layer() -> None:
    assert {layer(module) for module in MODULES} == {ERRORS, FORMATS, STORE, VIEW, RUN, STAGE, CLI}


KNOWN = frozenset(
    {"errors", "formats", "formats.objfile", "store", "store.corpus", "run", "run.toolchain"}
    | {"extract", "logs", "cli", "cli.main", "cli.console"}
)


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("formats.objfile", "from mlgo_corpus.store.corpus import Corpus", "store.corpus is not below it"),
        ("formats.objfile", "from mlgo_corpus.store import corpus", "store.corpus is not below it"),
        ("formats.objfile", "from ..store import corpus", "store.corpus is not below it"),
        ("formats.objfile", "import mlgo_corpus.run.toolchain", "run.toolchain is not below it"),
        ("formats.objfile", "def f():\n import mlgo_corpus.extract", "extract is not below it"),
        ("errors", "from mlgo_corpus.formats import objfile", "formats.objfile is not below it"),
        ("run.toolchain", "from mlgo_corpus import extract", "extract is not below it"),
        ("run.toolchain", "from mlgo_corpus import Corpus", "Corpus is imported from the package"),
        ("logs", "from mlgo_corpus.extract import extract_corpus", "extract is not below it"),
        ("extract", "from mlgo_corpus.cli.console import out", "cli.console is not below it"),
        ("extract", "import subprocess", "subprocess belongs elsewhere"),
        ("cli.main", "from subprocess import run", "subprocess belongs elsewhere"),
        ("extract", "from rich.table import Table", "rich belongs elsewhere"),
        ("store.corpus", "import typer", "typer belongs elsewhere"),
        ("store.corpus", "import pyarrow as pa", "pyarrow is imported before it is used"),
        ("store.corpus", "try:\n import ray\nexcept ImportError: pass", "ray is imported before it is used"),
        ("store.corpus", "class C:\n import lief", "lief is imported before it is used"),
        ("store.corpus", "if TYPE_CHECKING: pass\nelse:\n import lief", "lief is imported before it is used"),
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
        ("store.corpus", "if TYPE_CHECKING:\n import pyarrow as pa"),
        ("store.corpus", "import typing\nif typing.TYPE_CHECKING:\n import lief"),
        ("extract", "from mlgo_corpus import __version__\nfrom mlgo_corpus.run.toolchain import run_tool"),
        ("cli.main", "import typer\nfrom mlgo_corpus.cli import console\nfrom mlgo_corpus.extract import E"),
        ("run.toolchain", "import subprocess"),
    ],
)
def test_what_may_be_imported_is_not_reported(module: str, source: str) -> None:
    assert violations(module, source, KNOWN) == []
