"""Write a page: one self-contained HTML file, which loads nothing and runs only its own scripts."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final

from mlgo_corpus.errors import UsageError
from mlgo_corpus.view.blocks import Figure, Heading, Section
from mlgo_corpus.view.figures import CONFIG

# The command that installs the libraries needed for pages.
_INSTALL: Final = "pip install 'mlgo-corpus[report]'"

# The bundle's own code, in addition to Vega, Vega-Lite and Vega-Embed.
_SNIPPET = "window.vegaEmbed=vegaEmbed;"
# Characters that end a script or begin a comment in HTML. JSON has them only in strings, where escapes mean the same.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@dataclass(frozen=True, slots=True)
class Page:
    """A page to be written: its title, the program that makes it, its sections."""

    title: str
    maker: str
    sections: tuple[Section, ...]


def check_libraries() -> None:
    """Check that the libraries that pages need are installed.

    Raises:
        UsageError: a library is missing; the message says how to install it.
    """
    try:
        import jinja2  # noqa: F401
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise UsageError(f"a report needs {error.name}, which is not installed: {_INSTALL}") from error


def render(page: Page) -> bytes:
    """Return the page as HTML in UTF-8.

    The template escapes all text; specifications of charts are JSON that cannot end its script. The page's content
    security policy lists the scripts by their digests, so nothing else runs even if some text were not escaped, and
    nothing can be fetched.
    """
    import jinja2
    from markupsafe import Markup

    folder = resources.files("mlgo_corpus.view") / "data"
    script = (folder / "page.js").read_text(encoding="utf-8")
    scripts = (_bundle(), script)
    if any("</script" in text.lower() or "<!--" in text for text in scripts):
        raise UsageError("the bundle of vl-convert-python cannot be embedded in a page: install another version of it")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    # Our own text, and JSON that cannot end a script; the template escapes everything else.
    ours = {
        "css": (folder / "page.css").read_text(encoding="utf-8"),
        "charts": embedded({"config": CONFIG, "charts": _charts(page.sections)}),
    }
    text = template.render(
        page=page,
        policy=_policy(scripts),
        scripts=[Markup(script) for script in scripts],  # noqa: S704
        headings=_headings,
        **{name: Markup(value) for name, value in ours.items()},  # noqa: S704
    )
    return text.encode("utf-8", "replace")


@cache  # making it takes two seconds
def _bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_SNIPPET)
    return bundle.replace("\r\n", "\n").replace("\r", "\n")


def _policy(scripts: Sequence[str]) -> str:
    digests = (base64.b64encode(sha256(text.encode()).digest()).decode() for text in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def embedded(value: Any) -> str:
    """Return JSON that can be embedded in a script of HTML, whatever text is in it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True).translate(_IN_SCRIPT)


def _charts(sections: Sequence[Section]) -> dict[str, Any]:
    return {block.name: block.spec for section in sections for block in section.blocks if isinstance(block, Figure)}


def _headings(section: Section) -> list[Heading]:
    return [block for block in section.blocks if isinstance(block, Heading)]
