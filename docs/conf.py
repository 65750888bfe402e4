"""The documentation as a site: `make docs`. The pages are those of the repository, where they lie."""

import inspect
import re
from pathlib import Path

from docutils import nodes

from toposcale import __version__

project = "toposcale"
release = version = __version__
copyright = author = "the toposcale authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
templates_path = [str(Path(__file__).parent / "_templates")]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/tutorials/*.md",
    "docs/api/*.rst",
    "studies/*.md",
    "studies/*/*.md",
    "studies/*/*/results.md",
    "config/README.md",
    "examples/README.md",
    "results/README.md",
]
exclude_patterns = [".*", "build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "amsmath"]
nitpicky = True  # a link that leads nowhere is an error
nitpick_ignore_regex = [("py:.*", ".*")]  # types in docstrings are prose, such as "ndarray of shape (n, d)"

# docs/api/ is generated from the docstrings of what a module lists in __all__.
autosummary_ignore_module_all = False
autosummary_imported_members = True
autodoc_typehints = "none"  # the docstrings state types, shapes and units
autodoc_mock_imports = ["lightning", "transformers"]  # seconds each, for the base classes of the callbacks
napoleon_google_docstring = False
napoleon_custom_sections = ["Functions", "Subpackages", ("Attributes", "params_style")]
default_role = "code"
suppress_warnings = ["ref.footnote"]  # a source that the text of a docstring does not cite

html_theme = "furo"
html_title = "toposcale"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

DEFAULT_RUN = Path(__file__).parents[1] / "results/default"
html_extra_path = [
    str(DEFAULT_RUN / name) for name in ("report.html", "explorer.html") if (DEFAULT_RUN / name).exists()
]


MARKUP = re.compile(r"`[^`]*`|\[(\d+)\]_\b|(?<=\.\. )\[(\d+)\]|[|*]|_\b")
"""Code in backticks, a reference to a footnote, the footnote, and what reStructuredText takes for markup."""


def escape_markup(app, what, name, obj, options, lines):
    """Escape markup, since docstrings are text with code in single backticks, and give footnotes labels of their own."""

    def escaped(match):
        if number := match[1] or match[2]:
            return f"[#{name}-{number}]" + "_" * bool(match[1])
        return match[0] if match[0].startswith("`") else "\\" + match[0]

    is_code = re.compile(r"\s*(>>>|\.\.\. )(?!\[)")
    lines[:] = [line if is_code.match(line) else MARKUP.sub(escaped, line) for line in lines]


def skip_fields(app, what, name, obj, skip, options):
    """Leave out the fields of a NamedTuple: the docstring of its class describes them."""
    return (inspect.getdoc(obj) or "").startswith("Alias for field number") or None


def link_the_default_run(app, docname, source):
    """Link the report and the explorer of the default run, copied into the site where there is one, in the gallery."""
    if docname == "docs/gallery" and html_extra_path:
        links = (f'<a href="../{Path(path).name}">{Path(path).stem}</a>' for path in html_extra_path)
        source[0] += f"\n## The whole run\n\nOf the run next to which this site was built: {', '.join(links)}.\n"


def list_the_rules(app, docname, source):
    """Write the rules of the workflow as a table: GitHub draws Mermaid, here that needs a script from the network."""
    if docname == "docs/rulegraph":
        names = dict(re.findall(r"(id\d+)\[(\w+)\]", source[0]))
        needed = {name: [] for name in names.values()}
        for first, second in re.findall(r"(id\d+) --> (id\d+)", source[0]):
            needed[names[second]].append(f"`{names[first]}`")
        rows = [f"| `{name}` | {', '.join(sorted(rules))} |" for name, rules in sorted(needed.items())]
        text = source[0].partition("```mermaid")[0]
        source[0] = text + "\n".join(["| rule | reads what these make |", "| --- | --- |", *rows]) + "\n"


def break_lines_of_code(app, doctree, docname):
    """Keep an option in one line; let a long name in a table break after a dot, an underscore or a slash."""
    for literal in doctree.findall(nodes.literal):
        if re.fullmatch(r"--?[\w-]+", literal.astext()):
            literal["classes"].append("nowrap")
    for literal in [code for entry in doctree.findall(nodes.entry) for code in entry.findall(nodes.literal)]:
        first, *others = re.split(r"(?<=[\w}][._/])(?=[a-z{])", literal.astext())
        literal.children = [nodes.Text(first)]
        for part in others:
            literal += [nodes.raw("", "<wbr>", format="html"), nodes.Text(part)]


def setup(app):
    """Connect the handlers."""
    app.connect("source-read", link_the_default_run)
    app.connect("source-read", list_the_rules)
    app.connect("doctree-resolved", break_lines_of_code)
    app.connect("autodoc-process-docstring", escape_markup, priority=400)  # before napoleon writes markup
    app.connect("autodoc-skip-member", skip_fields)
