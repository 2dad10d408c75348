"""Two directives that write reference pages from the code: the verbs with their options, and the public names.

``verbs`` writes a section for every verb of the command line. ``public-api`` writes an autodoc entry for every name in
``mlgo_corpus.__all__``. Neither takes arguments.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import typer.main
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import mlgo_corpus
from mlgo_corpus.cli.main import app


def iter_verbs(command: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every verb with its name as typed: ``extract``, ``toolchain list``."""
    for name, sub in command.commands.items():
        if hasattr(sub, "commands"):
            yield from iter_verbs(sub, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", sub


def verb_lines(name: str, command: Any) -> Iterator[str]:
    """Yield the lines that describe a verb in Markdown, as ``--help`` does."""
    context = command.make_context(f"mlgo-corpus {name}", [], resilient_parsing=True)
    usage = command.get_usage(context).removeprefix("Usage: ")
    yield from (f"## {name}", "", "```text", *usage.splitlines(), "```", "")
    for paragraph in inspect.cleandoc(command.help or "").replace("\f", "").split("\n\n"):
        is_command = paragraph.startswith("mlgo-corpus ")
        yield from (("```text", paragraph, "```", "") if is_command else (cell(paragraph), ""))
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    if arguments:
        yield from ("| argument | |", "| --- | --- |")
        for one in arguments:
            shown, text = one.get_help_record(context)
            yield f"| {code(shown)} | {cell(text)} |"
        yield ""
    yield from ("| option | |", "| --- | --- |")
    for one in options:
        shown, text = one.get_help_record(context)
        yield f"| {code(shown)} | {cell(text)} |"
    yield ""


def code(text: str) -> str:
    """Return an option's text as code for a table cell."""
    return f"`{' '.join(text.split())}`".replace("|", r"\|")


def cell(text: str) -> str:
    """Return a help text for a table cell, with Markdown escaped."""
    text = " ".join(text.split())
    for letter in r"\`*_<>[]|$":
        text = text.replace(letter, f"\\{letter}")
    return text


class Verbs(SphinxDirective):
    """``verbs``: a section for each verb."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Write the sections."""
        text = "\n".join(
            line for name, verb in iter_verbs(typer.main.get_command(app)) for line in verb_lines(name, verb)
        )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class PublicApi(SphinxDirective):
    """``public-api``: an entry for each public name, for use within ``eval-rst``."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Write the entries."""
        lines: list[str] = []
        for name in sorted(set(mlgo_corpus.__all__) - {"__version__"}, key=str.casefold):
            public = getattr(mlgo_corpus, name)
            kind = "autofunction"
            if inspect.isclass(public):
                kind = "autoexception" if issubclass(public, BaseException) else "autoclass"
            lines += [f".. {kind}:: mlgo_corpus.{name}"]
            lines += ["   :members:", ""] if kind == "autoclass" else [""]
        for owner in sorted({one for one in mlgo_corpus._HOME.values() if one.count(".") == 1}):
            module = importlib.import_module(owner)
            for name, value in vars(module).items():  # the types in their reports
                is_theirs = inspect.isclass(value) and value.__module__ == owner and name[0] != "_"
                if is_theirs and getattr(mlgo_corpus, name, None) is not value:
                    lines += [f".. autoclass:: {owner}.{name}", "   :members:", ""]
        return self.parse_text_to_nodes(StringList(lines, source="mlgo_corpus.__all__"))


def find_public(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a public name under ``mlgo_corpus`` that a signature names by its home module."""
    target = node.get("reftarget", "")
    name = target.rpartition(".")[2]
    if node.get("refdomain") != "py" or not target.startswith("mlgo_corpus.") or name not in mlgo_corpus.__all__:
        return None
    document, kind = node.get("refdoc", "index"), node["reftype"]
    return env.domains["py"].resolve_xref(env, document, app.builder, kind, f"mlgo_corpus.{name}", node, contnode)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives with Sphinx."""
    app.add_directive("verbs", Verbs)
    app.add_directive("public-api", PublicApi)
    app.connect("missing-reference", find_public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
