"""Sphinx settings of both languages; ``build.sh`` gives the language and the folder of its pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "RLinf"
author = "The RLinf authors"
html_title = "RLinf"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml", "generated", "chinese_search"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# The meaning of attributes stands once, with the class.
napoleon_use_ivar = True

html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["copy.js"]
# Furo's own parts, and the link to the other language.
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
