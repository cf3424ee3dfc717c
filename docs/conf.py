"""The documentation site: `make docs` builds docs/en and docs/ko, a site for each language."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from vitreous import __version__

project = "vitreous"
author = "the vitreous authors"
version = release = __version__
html_title = f"vitreous {__version__}"
language = "en"  # build.py sets it for each of the two folders of pages

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.katex",
    "sphinxext.opengraph",
    "from_program",
    "korean",
]
myst_heading_anchors = 3
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath", "html_image"]
myst_links_external_new_tab = True

# Lessons are notebooks with their outputs, which a test compares with what their cells compute today.
nb_execution_mode = "off"
nb_merge_streams = True
nb_code_prompt_show = "Code of the figure"
nb_code_prompt_hide = "Code of the figure"

smartquotes = False  # they make one dash of the two of an option

# KaTeX's style and fonts lie here, so that the site needs no network.
katex_css_path = "katex/katex.min.css"
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_use_rtype = False
napoleon_use_ivar = True

# What a link to a page shows where it is shared (Open Graph); build.py sets the address of each language.
ogp_site_name = "vitreous"
ogp_image = "_static/learn.png"
ogp_use_first_image = False
ogp_social_cards = {"enable": False}

templates_path = ["_templates"]
html_static_path = ["_static", "learn.png"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
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
    "top_of_page_buttons": ["edit"],
    "dark_css_variables": {"color-brand-primary": "#7fd6c8", "color-brand-content": "#7fd6c8"},
}
