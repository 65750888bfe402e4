"""The documentation as a site: `make docs`. The pages are those of the repository, where they lie."""

from pygments.lexers.special import TextLexer

from toposcale import __version__

project = "toposcale"
release = version = __version__
copyright = author = "the toposcale authors"

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "studies/*/*/results.md",
    "config/README.md",
    "examples/README.md",
    "results/README.md",
]
exclude_patterns = [".*", "build"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "amsmath"]
nitpicky = True  # a link that leads nowhere is an error

html_theme = "furo"
html_title = "toposcale"
html_show_copyright = False


def setup(app):
    """GitHub draws Mermaid; here it stays text, since drawing it would need a script from the network."""
    app.add_lexer("mermaid", TextLexer)
