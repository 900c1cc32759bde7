"""Sphinx settings: MyST pages, NumPy docstrings, one page of options made from the schema."""

import os
from pathlib import Path

import yaml
from docutils import nodes

import distarray

HERE = Path(__file__).parent

project = "distarray"
author = "the distarray developers"
copyright = f"2026, {author}"
version = release = distarray.__version__

extensions = ["myst_nb", "numpydoc", "sphinx.ext.autodoc", "sphinx_design"]
exclude_patterns = ["_build", "jupyter_execute", "examples/data"]
html_theme = "pydata_sphinx_theme"
html_title = "distarray"

suppress_warnings = ["toc.empty_glob"]  # a section may have no pages beside its index

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the examples on the pages are doctests; CI runs them. Pages of the gallery say "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])  # for the kernels
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # whatever the caller draws with
numpydoc_show_class_members = False
autodoc_typehints = "none"  # signatures say it, and the pages stay readable
autodoc_member_order = "bysource"


def write_options(app: object) -> None:
    """Make ``reference/generated/options.md`` from the schema and the defaults."""
    package = Path(distarray.__file__).parent
    defaults = yaml.safe_load((package / "distarray.yaml").read_text())["distarray"]
    schema = yaml.safe_load((package / "distarray-schema.yaml").read_text())["properties"]["distarray"]["properties"]
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for name, default in defaults.items():
        shown = {None: "null", True: "true", False: "false"}.get(default, default)
        rows.append(f"| `{name}` | {shown} | {' '.join(schema[name]['description'].split())} |")
    target = HERE / "reference" / "generated" / "options.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(rows) + "\n")


def is_numpys(app: object, what: str, name: str, obj: object, skip: bool, options: object) -> bool | None:
    """Leave out what numpy's documentation describes: dtypes, constants and functions that are numpy's own."""
    module = getattr(obj, "__module__", None) or type(obj).__module__
    return True if module.partition(".")[0] == "numpy" else None


def show_pictures(app: object, doctree: nodes.document, docname: str) -> None:
    """Give each card of the gallery the last picture of the program that it leads to."""
    if docname != "gallery/index":
        return
    for card in list(doctree.findall(lambda node: "sd-card" in getattr(node, "get", {}.get)("classes", ()))):
        (link,) = card.findall(nodes.reference)
        program = Path(link["refuri"]).stem
        *_, picture = app.env.get_doctree(f"gallery/{program}").findall(nodes.image)  # type: ignore[attr-defined]
        card.insert(0, nodes.image(uri=picture["uri"], candidates=picture["candidates"], classes=["sd-card-img-top"]))


def setup(app: object) -> None:
    app.connect("builder-inited", write_options)  # type: ignore[attr-defined]  # Sphinx's application
    app.connect("autodoc-skip-member", is_numpys)  # type: ignore[attr-defined]
    app.connect("doctree-resolved", show_pictures)  # type: ignore[attr-defined]
