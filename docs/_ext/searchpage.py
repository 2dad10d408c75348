"""Give Sphinx's own page of search results the name ``find.html``, for ``search.html`` is a page of ours."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

_OURS, _RESULTS, _TEMPLATE = "search", "find", "search.html"


class _Builder(StandaloneHTMLBuilder):
    """The usual builder, in which pages of ours and Sphinx's do not have the same name."""

    def handle_page(self, pagename: str, addctx: dict[str, Any], templatename: str = "page.html", **how: Any) -> None:
        """Write a page."""
        super().handle_page(_RESULTS if templatename == _TEMPLATE else pagename, addctx, templatename, **how)


def _link_results(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:  # noqa: ARG001 - an event's signature
    """Lead the field for a search to its results; links between pages of ours are not made by templates."""
    pathto = context["pathto"]
    context["pathto"] = lambda name, *how, **more: pathto(_RESULTS if name == _OURS else name, *how, **more)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the builder and the links."""
    app.add_builder(_Builder, override=True)
    app.connect("html-page-context", _link_results)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
