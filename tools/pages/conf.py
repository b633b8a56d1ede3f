"""Settings of Sphinx, which reads this file by its name.

The reference of the Python client imports the client from this repository. Frameworks that its
adapters need, and that are not in Sphinx's environment, are replaced by mocks.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

from sphinx.util import inspect
from sphinx.util.nodes import make_refnode

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients/python/src"
sys.path.insert(0, str(CLIENT))
MOCKED = "(*args: Any, **kwargs: Any)"


def missing_packages() -> Iterator[str]:
    """Yield packages that the client's adapters import and this environment lacks."""
    for path in (CLIENT / "tuskpoint/frameworks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                packages = accumulate(name.split("."), "{}.{}".format)
                lacking = next((package for package in packages if find_spec(package) is None), "")
                if lacking:
                    yield lacking


project = "TuskPoint"
html_title = "TuskPoint"
html_theme = "furo"
html_logo = html_favicon = str(ROOT / "console/src/icon.svg")
html_copy_source = False
html_show_copyright = False
# The accent of the console, in console/src/style/base.css.
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": dict.fromkeys(
        ("color-brand-primary", "color-brand-content", "color-brand-visited"), "#0a7268"
    ),
    "dark_css_variables": dict.fromkeys(
        ("color-brand-primary", "color-brand-content", "color-brand-visited"), "#56d0c1"
    ),
}
html_static_path = ["static"]
html_css_files = ["site.css"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# A copied session leaves out prompts and output.
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 6
highlight_language = "text"
# An incomplete example is not valid in its language; a page may skip a level of headings.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

# A name in backticks is a link if the client has the name, and otherwise code.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_mock_imports = sorted(set(missing_packages()))
napoleon_use_ivar = True
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True


def resolve(app: Any, environment: Any, node: Any, content: Any) -> Any:
    """Link a name's own module to the name that `tuskpoint` exports, and a message to the contract.

    Other names of Python are shown without a link.
    """
    if node.get("refdomain") != "py":
        return None
    target = str(node.get("reftarget", ""))
    name = target.rpartition(".")[2]
    documented = environment.domains.python_domain.objects.get(f"tuskpoint.{name}")
    document, anchor = "", ""
    if target.startswith("tuskpoint.v1."):
        labels = environment.domains.standard_domain.labels
        document, anchor, _ = labels.get(f"contract-{name.lower()}", ("", "", ""))
    elif target.startswith("tuskpoint.") and documented is not None:
        document, anchor = documented.docname, documented.node_id
    if not document:
        return content
    return make_refnode(app.builder, node["refdoc"], document, anchor, content)


def separate_endings(
    app: Any, kind: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Allow a letter after backticks, as in `ID`s, which reStructuredText would escape."""
    lines[:] = [re.sub(r"(?<!`)(`[^`]+`)(?=\w)", r"\1\\ ", line) for line in lines]


def own_signature(
    app: Any, kind: str, name: str, thing: Any, options: Any, signature: str | None, returned: Any
) -> tuple[str, Any] | None:
    """Show the arguments of a class with a mock as base, whose `__new__` hides them."""
    if kind != "class" or signature != MOCKED or "__init__" not in vars(thing):
        return None
    own = inspect.signature(thing.__init__, bound_method=True)
    return inspect.stringify_signature(own, show_return_annotation=False), returned


def setup(app: Any) -> None:
    """Connect the functions of this module to Sphinx."""
    app.connect("autodoc-process-docstring", separate_endings)
    app.connect("autodoc-process-signature", own_signature)
    app.connect("missing-reference", resolve)
