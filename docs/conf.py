"""How the pages are built: `make docs` writes them to build/docs."""

import inspect
import re
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

from deepmf import __version__
from deepmf.models.base import Model
from deepmf.training.settings import Settings, list_settings

ROOT = Path(__file__).parents[1]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "urls"
]
FILE_TREE, REFERENCE, NOTEBOOK = (
    runpy.run_path(str(ROOT / "tools" / name))
    for name in ("file_tree.py", "api_page.py", "notebook.py")
)

# Files beside docs/, and the pages that include them.
INCLUDED = {
    "../results/README.md": "results.md",
    "../../results/README.md": "../results.md",
    "../results/log.md": "log.md",
    "../CHANGELOG.md": "changelog.md",
}

project = "deepmf"
author = "The deepmf developers"
copyright = author  # noqa: A001 (Sphinx's name)
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
napoleon_google_docstring = False
html_theme = "furo"
html_title = f"deepmf {__version__}"
html_logo = html_favicon = "pictures/logo.svg"
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_theme_options = {
    "source_repository": URLS["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
    "light_css_variables": {
        "color-brand-primary": "#0868a8",
        "color-brand-content": "#0868a8",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5ab3ee",
        "color-brand-content": "#5ab3ee",
    },
}
html_show_sphinx = False
smartquotes = False  # docstrings quote strings of code
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"  # every browser draws it, without a script from elsewhere

suppress_warnings = [
    "ref.python"
]  # types in docstrings such as `values` name several attributes
default_role = "code"  # what a `name` in single backticks is
# Methods of scikit-learn's metadata routing have docstrings with references to its own pages.
autodoc_default_options = {
    "exclude-members": "settings_class, from_stored, set_fit_request, set_transform_request"
}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    "npt.ArrayLike": "ArrayLike",
    **dict.fromkeys(
        ("FloatArray", "IndexArray", "IndexArray", "ValueArray"), "ndarray"
    ),
}
python_display_short_literal_types = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

# Arguments, and what they mean; the line after them is empty or another argument.
_EXPLAINED = re.compile(
    r"^([\w.]+(?:, [\w.]+)*) ?: (.+(?:\n {4}.+)*)(?=\n\s*\n|\s*\Z|\n[\w.]+(?:, [\w.]+)* ?: )",
    re.MULTILINE,
)
_ARGUMENT = re.compile(r"^([*\w.]+(?:, [*\w.]+)*)(?: : (.+))?$")
_FIELDS = {"Parameters": "param", "Returns": "returns", "Raises": "raises"}
_DRAWN = ("├", "└", "│")  # a line of a drawn tree


def explained_settings(settings: type[Settings]) -> Iterator[str]:
    """Yield lines of reStructuredText: each setting of a class, its default, the values it may have, its meaning."""
    yield from ("", "Settings and their defaults:", "")
    for setting in list_settings(settings):
        yield f"- ``{setting.name}={setting.default!r}`` ({setting.values}): {setting.description}"
    yield ""


def complete_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """List settings below what their class says of itself; list arguments; keep drawn trees and absolute values."""
    if any(line.startswith(_DRAWN) for line in lines):
        lines[1:] = ["", "::", "", *(f"    {line}" for line in lines[1:])]
        return
    if _is_subclass(obj, Settings):
        first = lines.index("Parameters")
        lines[first:] = explained_settings(obj)
    elif callable(obj):
        lines[:] = _EXPLAINED.sub(
            _as_item, "\n".join(describe_arguments(lines))
        ).splitlines()
    lines[:] = [
        line if line.startswith(">>>") else line.replace("|", r"\|") for line in lines
    ]


def describe_arguments(lines: list[str]) -> Iterator[str]:
    """Yield a docstring whose numpy sections have descriptions where napoleon expects types, as fields and examples."""
    section = ""
    for at, line in enumerate(lines):
        if lines[at + 1 : at + 2] and lines[at + 1] and set(lines[at + 1]) == {"-"}:
            section = line
            yield from ([] if section in _FIELDS else [line])
        elif line.startswith(">>>") and section in _FIELDS:
            section = ""
            yield from (".. rubric:: Example", "", line)
        elif section in _FIELDS and line and set(line) == {"-"}:
            yield ""
        elif (
            section in _FIELDS
            and (found := _ARGUMENT.match(line))
            and section != "Returns"
        ):
            names = found[1].replace(", ", ",").replace("_", r"\_").replace("*", r"\*")
            yield f":{_FIELDS[section]} {names}: {found[2] or ''}".rstrip()
        elif (
            section == "Returns"
            and line
            and not line.startswith(" ")
            and not lines[at - 1].strip("-")
        ):
            yield f":returns: {line}"
        elif section == "Returns" and line and not line.startswith(" "):
            yield f"    {line}"
        else:
            yield line


def plain_signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Shorten what says little: settings are listed elsewhere, some classes are not called, and arrays are arrays."""
    if _is_subclass(obj, Model) or _is_subclass(obj, Settings):
        return "(**settings)", returns
    if signature and signature.startswith("(*_"):
        return "", returns
    return signature and _plain_types(signature), returns and _plain_types(returns)


def plain_attributes(app: Sphinx, doctree: nodes.document) -> None:
    """Shorten the types of attributes too, which autodoc lets nobody process."""
    for shown in doctree.findall(addnodes.desc_annotation):
        plain = _plain_types(shown.astext())
        if plain != shown.astext():
            shown[:] = [nodes.Text(plain)]


def write_reference(app: Sphinx) -> None:
    """Write the pages of the Python reference."""
    REFERENCE["write_pages"]()


def link_included(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to files outside docs/ lead to the pages that include them; on hosting sites they lead to the files."""
    for file, page in INCLUDED.items():
        source[0] = source[0].replace(f"]({file}", f"]({page}")


def add_lists(app: Sphinx, docname: str, source: list[str]) -> None:
    """List every source file and every public name on its page; show the pictures of notebooks in the gallery."""
    if docname == "files":
        source[0] += "".join(FILE_TREE["list_files"]())
    elif docname == "api":
        source[0] = REFERENCE["add_names"](source[0])
    elif docname.startswith("gallery/"):
        notebook = NOTEBOOK["notebook_of"](Path(docname))
        app.env.note_dependency(str(notebook))
        source[0] = NOTEBOOK["draw_pictures"](
            source[0], notebook.read_text(encoding="utf-8")
        )


def inline_math(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line as MathML."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def displayed_math(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own as MathML."""
    translator.body.append(
        f'<div style="margin: 1em 0; overflow-x: auto">{tex2mathml(node.astext(), as_block=True)}</div>'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Let Sphinx call the functions above."""
    app.add_html_math_renderer("mathml", (inline_math, None), (displayed_math, None))
    app.connect(
        "autodoc-process-docstring", complete_docstring, priority=400
    )  # before napoleon
    app.connect("autodoc-process-signature", plain_signature)
    app.connect("doctree-read", plain_attributes)
    app.connect("builder-inited", write_reference)
    app.connect("source-read", add_lists)
    app.connect("source-read", link_included)
    app.connect("env-get-outdated", lambda *_: ["api", "files"])


def _as_item(found: re.Match[str]) -> str:
    names = ", ".join(f"``{name}``" for name in found[1].split(", "))
    return f"- {names}: {' '.join(found[2].split())}"


def _plain_types(shown: str) -> str:
    shown = re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", shown)
    return re.sub(r"npt\.NDArray\[[^\]]*\]", "ndarray", shown).replace("npt.", "")


def _is_subclass(found: Any, of: type) -> bool:
    return inspect.isclass(found) and issubclass(found, of) and found is not of
