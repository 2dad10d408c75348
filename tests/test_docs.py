"""README.md and docs/ are true: what they show runs and prints what is shown, they are complete, no link is dead.

How a page's blocks are run is told in `docpages`.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlgo_corpus import read_log
from mlgo_corpus.builds.objects import Reason
from mlgo_corpus.builds.originals import OriginalReason
from mlgo_corpus.corpus.certificate import Outcome
from mlgo_corpus.corpus.verify import VerifyReason
from mlgo_corpus.dataset.logtable import LogReason
from mlgo_corpus.dataset.reasons import RELINK_REASONS, SIZES_REASONS, TRACE_REASONS
from mlgo_corpus.dataset.sizes.table import IR2NATIVE_COLUMNS, PROPERTIES
from mlgo_corpus.formats.objects.symbols import LabelStatus
from mlgo_corpus.runs.extract.module import status_of
from tests.conftest import Llvm
from tests.docpages import (
    DOCS,
    LANGUAGES,
    ROOT,
    Shell,
    check_arguments,
    fits,
    iter_blocks,
    mlgo_corpus_commands,
    page_text,
    pages,
    prepare_compilers,
    prose,
    shell_commands,
    transcript,
    verb_options,
)

# Blocks that do not run here, by their page and first line, and why not. Their commands are parsed all the same.
NOT_RUN: dict[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "make check"): "pip fetches packages, and the checks run all tests that are quick",
    ("README.md", "make demo"): "takes minutes; test_demo.py runs the demo",
    ("README.md", "python3 -m venv .venv && . .venv/bin/activate"): "pip fetches packages",
    ("docs/install.md", "python3 -m venv .venv && . .venv/bin/activate"): "pip fetches packages",
    (
        "docs/corpora.md",
        "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=...",
    ): "wants a bucket; test_remote.py has one",
    ("docs/cluster.md", "mlgo-corpus trace corpus --output inlining --engine ray --ray-address head:6379"): (
        "wants a cluster; engine/test_ray.py has one"
    ),
    ("docs/cluster.md", "from mlgo_corpus import SharedWorkers, Tracer"): (
        "wants a cluster; shared/test_workers.py has one"
    ),
    (
        "docs/recipes.md",
        "mlgo-corpus build --output corpus -- pip wheel --no-binary pyyaml --no-cache-dir pyyaml",
    ): "pip fetches a package",
    ("docs/coming-from.md", "mlgo-corpus trace corpus --output embedded --compiler clang-22 \\"): (
        "wants a vocabulary of IR2Vec; trace/test_embeddings.py makes one"
    ),
    (
        "docs/recipes.md",
        "bazel build -c opt --copt=-Oz --copt=-Xclang --copt=-fembed-bitcode=all //...",
    ): "Bazel fetches its toolchains",
    (
        "docs/recipes.md",
        "./configure CC=clang CXX=clang++ AR=llvm-ar CFLAGS='-Oz -Xclang -fembed-bitcode=all' "
        "CXXFLAGS='-Oz -Xclang -fembed-bitcode=all'",
    ): "configure takes long; test_build_verb.py does the same by hand",
    ("docs/training.md", "$ python examples/torch_dataset.py inlining --vocab vocab --split corpus"): (
        "wants PyTorch; test_torch_example.py runs it"
    ),
    (
        "docs/policies.md",
        "mlgo-corpus toolchain build --mode release --policy small-1.0 --output /opt/small-19 --install",
    ): ("installs packages and takes minutes; test_devmode.py makes the like"),
    ("docs/traces.md", "mlgo-corpus toolchain build --install --output /opt/devmode-19"): (
        "installs packages and takes minutes; test_devmode.py uses what it makes"
    ),
}

# Options of other programs that the pages name by themselves.
OTHERS_OPTIONS = {
    "--input": "extract_ir's; those with an underscore are other tools', too",
    "--verbosity": "extract_ir's",
    "--parallelism": "generate_vocab's",
    "--quiet": "generate_default_trace's",
    "--no-binary": "pip's",
    "--no-cache-dir": "pip's",
}


def runnable(page: str) -> bool:
    return any(block.language in ("console", "sh", "python", "pycon") for block in iter_blocks(page_text(page)))


@pytest.fixture(scope="session")
def compilers(llvm19: Llvm, llvm22: Llvm, shared_folder: Path, known: Callable[..., Path]) -> Path:
    """The compilers of all pages, with what was found out about them; for all processes."""
    folder = shared_folder / "page-compilers"
    prepare_compilers(llvm22, folder, known)
    return folder


def run_page(page: str, compilers: Path, folder: Path) -> None:
    shell = Shell(compilers, folder)
    for block in iter_blocks(page_text(page)):
        if (page, block.text.partition("\n")[0]) not in NOT_RUN:
            try:
                shell.run_block(block)
            except AssertionError as error:
                raise AssertionError(f"{page}:{block.line}: {error}") from None


@pytest.mark.parametrize("page", [page for page in pages() if runnable(page)])
def test_what_a_page_shows_runs(page: str, llvm19: Llvm, compilers: Path, gcc: str, tmp_path: Path) -> None:
    run_page(page, compilers, tmp_path)


def test_blocks_that_are_not_run_are_still_there() -> None:
    there = {(page, block.text.partition("\n")[0]) for page in pages() for block in iter_blocks(page_text(page))}
    assert set(NOT_RUN) <= there
    assert all(NOT_RUN.values())


@pytest.mark.parametrize("page", pages())
def test_every_command_is_one_that_the_command_line_takes(page: str) -> None:
    for block in iter_blocks(page_text(page)):
        assert block.language in LANGUAGES or block.language.startswith("{"), f"{page}:{block.line}: {block.language}"
        if block.language in ("console", "sh"):
            for arguments in mlgo_corpus_commands(shell_commands(block)):
                try:
                    check_arguments(arguments)
                except Exception as error:
                    raise AssertionError(f"{page}:{block.line}: mlgo-corpus {arguments}: {error}") from error
        else:
            assert "mlgo-corpus " not in block.text or block.language == "text", f"{page}:{block.line}"


@pytest.mark.parametrize("page", pages())
def test_every_command_is_in_a_fence(page: str) -> None:
    """What is indented is code, too, and would not be run."""
    in_list = False
    for line in prose(page_text(page)).splitlines():
        in_list = bool(re.match(r" *([-*]|\d+\.) ", line)) or (in_list and (line.startswith(" ") or not line))
        assert in_list or not line.startswith("    "), f"{page}: {line}"


@pytest.mark.parametrize("page", pages())
def test_prose_names_verbs_and_options_that_exist(page: str) -> None:
    verbs = verb_options()
    every = set().union(*verbs.values()) | {"--help", "--version", "--install-completion", "--show-completion"}
    for code in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page_text(page))):
        words = code.split()
        if words[0] == "mlgo-corpus" and len(words) > 1 and words[1][0] not in "-V":
            name = next((one for one in (" ".join(words[1:3]), words[1]) if one in verbs), None)
            assert name is not None, f"{page}: {code}"
            mine = verbs[name] | {"--help"}
            mine_only = words[: words.index("--")] if "--" in words else words
            for option in re.findall(r"(?:^| )(--[a-z0-9-]+)", " ".join(mine_only)):
                assert option in mine, f"{page}: {code}: {name} has no {option}"
        elif words[0].startswith("--") and "_" not in words[0] and words[0] not in OTHERS_OPTIONS:
            assert words[0].partition("=")[0] in every, f"{page}: {code}"


def test_every_verb_is_in_the_readme_s_table_once() -> None:
    rows = [line for line in page_text("README.md").splitlines() if line.startswith("| `mlgo-corpus ")]
    shown = [re.match(r"\| `mlgo-corpus ([a-z0-9 -]+?)(?= [A-Z\-\[.]|`)", row) for row in rows]
    assert sorted(match[1] for match in shown if match) == sorted(verb_options())


def test_readme_is_short_and_shows_how_to_start() -> None:
    lines = page_text("README.md").splitlines()
    assert len(lines) <= 220
    assert "make demo" in lines[:40]
    assert any(block.language == "console" and transcript(block.text) for block in iter_blocks("\n".join(lines)))


def table_rows(page: str, heading: str) -> dict[str, list[str]]:
    """Give the rows of the tables below a heading, by the words in code in the first cell."""
    section = re.split(rf"^#+ {re.escape(heading)}$", page_text(page), flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            for word in re.findall(r"`([^`]+)`", cells[0]):
                assert word not in found, f"{page}: {heading}: {word} is there twice"
                found[word] = cells
    return found


# What ml-compiler-opt has, by the heading of "Coming from" that says what to use here. Facts of August 2026.
UPSTREAM = {
    "generate_default_trace": "--keys_file --policy_path --key_filter --compilation_timeout launcher_path "
    "ir2vec_vocab_path clang_path llvm_size_path",
    "tools and benchmark": "bc_hyperparam_tuning combine_tfa_policies combine_training_corpus compile_corpus_trace "
    "extract_ir feature_importance feature_importance_graphs generate_default_trace generate_test_model "
    "generate_tfrecord generate_vocab make_corpus merge_best_trajectory profgen regalloc_trace/compile_corpus "
    "regalloc_trace/extract_functions regalloc_trace/group_functions sparse_bucket_generator strip_tfa_tflite "
    "tflite_to_cpp benchmark_chromium benchmark_llvm_test_suite benchmark_report benchmark_report_converter "
    "filter_tests list_gtests",
    "rl and env": "env.MLGOEnvironmentBase MLGOTask.get_cmdline clang_session compute_relative_rewards "
    "compilation_runner corpus.Corpus log_reader train_bc train_locally best_trajectory local_worker_manager",
    "imitation_learning": "generate_bc_trajectories weighted_bc_trainer --persistent_objects_path",
    "es": "es_trainer blackbox_learner blackbox_evaluator inlining_worker regalloc_trace_worker policy_utils",
}


@pytest.mark.parametrize("heading", UPSTREAM)
def test_each_tool_of_upstream_has_its_row(heading: str) -> None:
    rows = table_rows("docs/coming-from.md", heading)
    assert set(UPSTREAM[heading].split()) - set(rows) == set()
    assert all(any(cell.strip() for cell in cells[1:]) for cells in rows.values())


FORMATS = "docs/formats.md"


def test_the_formats_are_as_the_code_says() -> None:
    """The page's tables were written by ``docs/_ext/columns.py``, which is to be run again where this fails."""
    spec = importlib.util.spec_from_file_location("columns", DOCS / "_ext" / "columns.py")
    assert spec is not None
    assert spec.loader is not None
    columns = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(columns)
    assert columns.rewritten(page_text(FORMATS)) == page_text(FORMATS)


def test_every_reason_is_documented() -> None:
    rows = table_rows(FORMATS, "Reasons of extract")
    assert set(rows) == {str(reason) for reason in Reason}
    for reason in Reason:
        assert rows[reason][1] == status_of(reason)
    assert set(table_rows(FORMATS, "Reasons of logs")) == set(LogReason)
    assert set(table_rows(FORMATS, "Reasons of verify")) == set(VerifyReason)
    assert set(table_rows(FORMATS, "Outcomes of a rebuild")) == {*Outcome, *OriginalReason}
    assert set(table_rows(FORMATS, "Reasons of a trace")) == set(TRACE_REASONS)
    assert set(table_rows(FORMATS, "Reasons of ir2native")) == set(SIZES_REASONS)
    assert set(table_rows(FORMATS, "Reasons of relink")) == set(RELINK_REASONS)
    assert set(table_rows(FORMATS, "Status of a function")) == set(LabelStatus)


def columns_of(path: Path) -> dict[str, str]:
    """Give the columns of a Parquet file, and their types as a reader would call them."""

    def name(kind: pa.DataType) -> str:
        if pa.types.is_dictionary(kind):
            return name(kind.value_type)
        if pa.types.is_list(kind):
            return f"list of {name(kind.value_type)}"
        return str(kind).removeprefix("large_")

    return {field.name: name(field.type) for field in pq.read_schema(path)}


def shown_columns(heading: str) -> dict[str, str]:
    return {column: cells[1] for column, cells in table_rows(FORMATS, heading).items()}


def test_real_files_have_the_columns_that_are_shown(compilers: Path, tmp_path: Path) -> None:
    shell = Shell(compilers, tmp_path)
    verbs = """
    mlgo-corpus build --output corpus --compiler clang -- make -s prog
    mlgo-corpus split corpus
    mlgo-corpus verify corpus --output verify.parquet
    mlgo-corpus verify corpus --rebuild --build-dir . --compiler clang
    mlgo-corpus pack corpus --output packed
    mlgo-corpus trace corpus --output trace --compiler clang
    mlgo-corpus search corpus --output found --compiler clang --budget 3
    mlgo-corpus relink corpus --output linked --compiler clang
    mlgo-corpus ir2native corpus --output sizes --compiler clang
    mlgo-corpus logs-to-parquet logs --output logged
    """
    done = shell.run(verbs, strict=True)
    assert done.returncode == 0, done.stderr
    for path, heading in {
        "corpus/modules.parquet": "Columns of modules.parquet",
        "corpus/functions.parquet": "Columns of functions.parquet",
        "verify.parquet": "Columns of verify's table",
        "corpus/rebuild.parquet": "Columns of rebuild.parquet",
        "trace/modules.parquet": "Columns of a trace's modules.parquet",
        "found/search.parquet": "Columns of search.parquet",
        "linked/products.parquet": "Columns of products.parquet",
        "trace/contexts.parquet": "Columns of contexts.parquet",
        "logged/contexts.parquet": "Columns of contexts.parquet",
        "logged/modules.parquet": "Columns of modules.parquet of logs",
        "sizes/modules.parquet": "Columns of the table's modules.parquet",
    }.items():
        found = columns_of(shell.work / path)
        assert found == shown_columns(heading), path
        assert list(found) == list(shown_columns(heading)), path

    packed = columns_of(next((shell.work / "packed/data").glob("*.parquet")))
    both = shown_columns("Columns of modules.parquet") | shown_columns("Columns of a packed corpus")
    left_out = {"status", "detail", "duplicate_of", "bitcode_mtime_ns", "command_mtime_ns"}
    assert packed == {name: kind for name, kind in both.items() if name not in left_out}

    for folder in ("trace", "logged"):
        observations = columns_of(next((shell.work / folder / "observations").glob("*.parquet")))
        features = table_rows(FORMATS, "Features of inlining")
        only_newer = {"callee_embedding", "caller_embedding", "delta_size"}
        assert list(observations) == [
            *shown_columns("Columns of observations"),
            *(name for name in features if name not in only_newer),
            *(shown_columns("Columns of calls") if folder == "trace" else ()),
        ]
        kinds = shown_columns("Columns of calls")
        assert all(observations[name] == kinds[name] for name in kinds if name in observations)
        assert {kind for name, kind in observations.items() if name not in kinds} == {"string", "int64"}

    flips = columns_of(shell.work / "found/flips.parquet")
    shown_first = shown_columns("Columns of flips.parquet")
    assert {name: flips[name] for name in list(flips)[: len(shown_first)]} == shown_first
    assert set(flips) - set(shown_first) <= set(features)

    functions = columns_of(next((shell.work / "sizes/functions").glob("*.parquet")))
    shown = {*table_rows(FORMATS, "Columns of every table of functions")}
    groups = (f"Columns of the group {group}" for group in ("context", "operands"))
    shown |= {*(name for group in groups for name in table_rows(FORMATS, group)), *PROPERTIES, *IR2NATIVE_COLUMNS}
    assert set(functions) == shown
    assert len(PROPERTIES) == 49


def test_eviction_and_priority_have_the_columns_that_are_shown() -> None:
    for task in ("regalloc-eviction", "regalloc-priority"):
        log = read_log(ROOT / "tests" / "data" / "training-logs" / f"{task}.lvm.log")
        features = table_rows(FORMATS, f"Features of {task}")
        on_request = {"instructions", "instructions_mapping", "mbb_frequencies", "mbb_mapping"}
        names = [spec.name for spec in (*log.features, *([log.score] if log.score else []))]
        assert sorted(names) == sorted(set(features) - on_request)


def test_every_folder_has_its_row() -> None:
    text = page_text("docs/code.md")
    for path in (ROOT / "mlgo_corpus").rglob("__init__.py"):
        folder = path.parent.relative_to(ROOT / "mlgo_corpus")
        assert folder.name in ("", "data") or f"`{folder.name}/`" in text, folder


def test_what_is_wrong_in_a_page_is_noticed(compilers: Path, tmp_path: Path) -> None:
    assert fits("a 1\nb\nc 3\n", "a 2\n...\nc 4")
    for shown in ("a 1\nb", "a 1", "b\na 1\nc 3", "a 1\nb\nc 3\nd", "a x\nc 3"):
        assert not fits(shown, "a 2\n...\nc 4"), shown
    text = "A=1 mlgo-corpus stats c 2>&1 | head && mlgo-corpus dump x > y\nmlgo-corpus trace \\\n  c --json"
    assert list(mlgo_corpus_commands(text)) == [["stats", "c"], ["dump", "x"], ["trace", "c", "--json"]]
    check_arguments(["trace", "c", "--output", "d"])
    for arguments in (["nothing"], ["trace", "c"], ["trace", "c", "--output", "d", "--frob"], ["toolchain", "frob"]):
        with pytest.raises(Exception, match=r"no verb|Missing parameter|No such option"):
            check_arguments(arguments)
    page = "```console\n$ cd logs && false\n$ echo $? $PWD && export A=5\n1 {0}/logs\n$ echo word $A >&2\nword 7\n```\n"
    page += "```python\nimport os\nassert os.getcwd().endswith('logs')\n```\n```pycon\n>>> x = 1\n>>> x + 1\n3\n```"
    shell = Shell(compilers, tmp_path)
    blocks = list(iter_blocks(page.format(shell.work)))
    assert [block.language for block in blocks] == ["console", "python", "pycon"]
    for block in blocks:
        shell.run_block(block)
    for wrong in ("```console\n$ echo a\nb\n```", "```sh\nfalse\ntrue\n```", "```pycon\n>>> x\n'a'\n```"):
        with pytest.raises(AssertionError):
            shell.run_block(next(iter_blocks(wrong)))


def test_the_pythons_that_are_named_are_those_of_the_metadata() -> None:
    project = tomllib.loads(page_text("pyproject.toml"))["project"]
    classified = {name.rpartition(" ")[2] for name in project["classifiers"] if ":: Python :: 3." in name}
    (row,) = [line for line in page_text("docs/install.md").splitlines() if line.startswith("| Python |")]
    tested, others = row.split("|")[2:4]
    assert set(re.findall(r"\b3\.\d+", tested)) == classified == {"3.11", "3.12", "3.13"}
    assert re.findall(r"\b3\.\d+", others) == ["3.14"]
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    for page in ("README.md", "docs/install.md"):
        assert "nothing was ever run" in page_text(page)


# -- the built pages -----------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The anchors of a page, and where it leads to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.actions: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (href := values.get("href")) is not None:
            self.links.append(href)
        elif tag == "form" and (action := values.get("action")) is not None:
            self.actions.append(action)
        elif tag in ("script", "img", "iframe", "source"):
            self.assets += [src for name in ("src", "srcset") if (src := values.get(name))]
        elif tag == "link" and (href := values.get("href")) is not None:
            self.assets.append(href)


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if any(find_spec(name) is None for name in ("sphinx", "myst_parser", "furo")):
        pytest.skip("Sphinx, MyST and furo are not installed (pip install -e '.[docs]')")
    folder = tmp_path_factory.mktemp("docs") / "html"
    # Documents are trees with many cycles, which all stay to the end: searching for more is a fifth of the time.
    build = "import gc, sys; gc.disable(); from sphinx.cmd.build import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", build, "-W", "-n", "-q", "-b", "html", "-d", f"{folder}-trees", DOCS, folder]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@cache
def page_at(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def iter_html(folder: Path) -> Iterator[tuple[Path, Page]]:
    for path in sorted(folder.rglob("*.html")):
        yield path, page_at(path)


@pytest.mark.whole
def test_no_link_of_the_built_pages_is_dead(html: Path) -> None:
    built = dict(iter_html(html))
    assert {path.stem for path in DOCS.glob("*.md")} <= {path.stem for path in built}
    assert "--budget" in (html / "search.html").read_text(encoding="utf-8")  # not the page of Sphinx's own search
    assert "find.html" in built[html / "search.html"].actions == built[html / "index.html"].actions
    dead = []
    for path, page in built.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in ("https", "mailto"), f"{path.name}: {link}"
                assert parts.scheme == "mailto" or re.fullmatch(r"[\w.-]+\.[a-z]+", parts.netloc), link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target not in built:
                dead += [] if target.is_file() else [f"{path.name}: {link}"]
            elif parts.fragment and unquote(parts.fragment) not in built[target].anchors:
                dead.append(f"{path.name}: {link}")
    assert not dead


@pytest.mark.whole
def test_the_built_pages_fetch_nothing_from_elsewhere(html: Path) -> None:
    for path, page in iter_html(html):
        for asset in page.assets:
            assert not urlsplit(asset).netloc, f"{path.name}: {asset}"
    for path in html.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(@import\s|url\(\s*['\"]?)(https?:)?//", text), path.name


@pytest.mark.whole
def test_the_built_reference_has_every_verb_option_and_public_name(html: Path) -> None:
    import mlgo_corpus

    verbs = (html / "cli.html").read_text(encoding="utf-8")
    anchors = Page(verbs).anchors
    for verb, options in verb_options().items():
        assert verb.replace(" ", "-") in anchors
        section = verbs.partition(f'id="{verb.replace(" ", "-")}"')[2].partition("<section")[0]
        for option in options:
            assert re.search(rf"<code[^>]*>.*{option}\b", section), f"{verb} {option}"
    anchors = page_at(html / "python.html").anchors
    for name in mlgo_corpus.__all__:
        assert f"mlgo_corpus.{name}" in anchors or name == "__version__"


@pytest.mark.whole
def test_links_of_the_markdown_lead_to_files(html: Path) -> None:
    """As a page of a code-hosting site shows them, and to headings that are there."""
    for page in pages():
        for link in re.findall(r"\]\(([^()\s]+)\)", prose(page_text(page))):
            parts = urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", f"{page}: {link}"
                continue
            target = ((ROOT / page).parent / parts.path).resolve() if parts.path else ROOT / page
            assert target.exists(), f"{page}: {link}"
            if parts.fragment:
                built = html / f"{target.stem}.html"
                assert built.exists(), f"{page}: {link}"
                assert parts.fragment in page_at(built).anchors, f"{page}: {link}"
