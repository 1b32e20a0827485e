"""Sphinx's configuration; `python examples/site` lays the sources out and calls it."""

import sys
import warnings
from pathlib import Path

import graphattn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from formulas import not_enumerated  # noqa: E402 beside this file
from members import INTERNAL, of_property  # noqa: E402

project, author = "graphattn", "the graphattn authors"
copyright = "the graphattn authors, MIT"
release = version = graphattn.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",  # beside this file
]
root_doc = "index"
exclude_patterns = [
    "sg_execution_times.rst",
    "gallery_in/**",
    "story_in/**",
    "**/sg_execution_times.rst",
]
templates_path = [str(HERE / "_templates")]
nitpicky = False
autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_google_docstring = True
napoleon_use_ivar = True  # attributes of a NamedTuple are described once
napoleon_custom_sections = [("Source", "notes_style")]
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries = False
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "substitution"]
myst_substitutions = {"version": version}
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]  # functions in sphinx_gallery_conf

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_extra_path = [str(HERE / "play")]  # a page of its own
html_static_path = [str(HERE / "_static")]
html_css_files = ["site.css"]
html_title = "graphattn"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
}
html_sidebars = {"index": [], "zoo": [], "patterns/*": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


sphinx_gallery_conf = {
    "examples_dirs": ["story_in", "gallery_in"],
    "gallery_dirs": ["story", "gallery"],
    "filename_pattern": r"/story_in/",  # examples are shown; `make examples` runs them
    "ignore_pattern": r"__init__",
    "backreferences_dir": "reference/backreferences",
    "doc_module": ("graphattn",),
    "reference_url": {"graphattn": None},
    "image_scrapers": ("scrapers.svg",),
    "within_subsection_order": "FileNameSortKey",
    "remove_config_comments": True,
    "show_signature": False,
    "download_all_examples": False,
    "abort_on_example_error": False,
    "only_warn_on_example_error": False,
    "plot_gallery": "True",
    "min_reported_time": 0,
    "show_memory": False,
    "capture_repr": (),
    "matplotlib_animations": False,
}
warnings.filterwarnings("ignore")


def setup(app):
    """Docstrings as Napoleon is to read them, which runs at priority 500."""

    def process(app, what, name, obj, options, lines):
        text = not_enumerated("\n".join(lines))
        if what == "property":
            text = of_property(text)
        lines[:] = text.splitlines()

    def skip(app, what, name, obj, skipped, options):
        return name in INTERNAL or None  # None: as Sphinx has it

    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-skip-member", skip)
