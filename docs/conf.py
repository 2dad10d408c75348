"""Sphinx configuration for the pages in this folder: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent / "_ext")]

from mlgo_corpus import __version__  # noqa: E402 - this checkout's, installed or not

project = "mlgo-corpus"
author = "the authors of mlgo-corpus"
copyright = "the authors of mlgo-corpus, Apache-2.0"  # noqa: A001 - Sphinx's name for it
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference", "searchpage"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext"]
smartquotes = False  # -- begins an option
default_role = "literal"  # `name` in a docstring is code

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# The build fetches nothing, so names of other packages do not resolve; ours must.
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!mlgo_corpus\.).*"),
    (r"py:.*", r"mlgo_corpus\.(formats|files|builds|corpus|dataset|engine|compilers|policies|runs|learn)\..*"),
]

html_theme = "furo"
html_title = f"mlgo-corpus {release}"
html_copy_source = False
html_show_sourcelink = False
html_use_index = True
# Only fonts that every machine has: nothing is fetched.
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"
