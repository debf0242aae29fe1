"""Configure the documentation site: `make docs` builds it. The site loads nothing from elsewhere."""

from importlib.metadata import version as version_of

project = "GPU Shopper"
author = "The GPU Shopper authors"
release = version_of("gpu-shopper")

extensions = ["myst_parser"]
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
exclude_patterns = ["deploy/uv.txt"]

html_theme = "furo"
html_title = "GPU Shopper"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
