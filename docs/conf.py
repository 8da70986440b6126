"""The documentation site: `make docs`. Its source is the repository itself, so that links between documents are the
same here and on the site. What is generated from the program comes from `from_the_code.py`, at build time.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mpibayes import __version__  # noqa: E402

project = "mpibayes"
author = "the mpibayes developers"
copyright = author
release = version = __version__

extensions = ["myst_parser", "from_the_code"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "slurm/README.md",
    "examples/**.md",
    "benchmarks/README.md",
    "benchmarks/measured.md",
    "benchmarks/scaling.md",
    "benchmarks/results/README.md",
    "tests/exact/README.md",
    "tests/exact/numbers.md",
    "tests/faults/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "src", "hpc", "io", "kernels", "build", "dist", "demo", "runs"]

myst_heading_anchors = 4  # links to headings are GitHub's
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"
suppress_warnings = ["myst.header"]  # a page that begins below its first level

smartquotes = False

html_theme = "furo"
html_title = "mpibayes"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_additional_pages = {"index": "front.html"}  # docs/index.html is the first page
templates_path = ["."]
pygments_style = "friendly"
pygments_dark_style = "monokai"
