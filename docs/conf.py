"""The documentation site: `make docs` builds it, English and Korean, into build/docs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from vitreous import __version__

project = "vitreous"
author = "the vitreous authors"
version = release = __version__
html_title = f"vitreous {__version__}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "from_program",
]
exclude_patterns = ["extensions"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
napoleon_use_ivar = True

language = "en"
locale_dirs = ["locale"]
gettext_compact = False  # one file of messages for each page
gettext_uuid = False
gettext_location = False
gettext_last_translator = ""
gettext_language_team = ""

templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme = "furo"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#00665c",
        "color-brand-content": "#00665c",
        "font-stack": "system-ui, 'Noto Sans', 'Noto Sans KR', "
        "'Apple SD Gothic Neo', 'Malgun Gothic', sans-serif",
    },
    "dark_css_variables": {"color-brand-primary": "#7fd6c8", "color-brand-content": "#7fd6c8"},
}
