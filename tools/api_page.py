"""The Python reference: docs/api.md introduces each topic, and docs/api/ documents every public name
by its docstring.

docs/conf.py calls this when the pages are built; docs/api/ is not kept in the repository.
"""

import inspect
from importlib import import_module
from pathlib import Path

from deepmf.models.base import Model
from deepmf.models.estimator import Estimator
from deepmf.training.settings import Settings

DOCS = Path(__file__).parents[1] / "docs"

# The modules of each topic, in the order of the sections of docs/api.md.
TOPICS = {
    "data": ["deepmf.matrix", "deepmf.data", "deepmf.datasets"],
    "models": ["deepmf.models", "deepmf.recommend"],
    "settings": ["deepmf.training"],
    "evaluation": ["deepmf.evaluation", "deepmf.metrics", "deepmf.plots", "deepmf.report"],
    "sklearn": ["deepmf.sklearn"],
    "service": ["deepmf.serve", "deepmf.client"],
    "errors": ["deepmf.errors"],
}
# The topic of a name of `deepmf` itself, by the package that defines it; models and settings have
# their own.
TOPIC_OF = {
    "matrix": "data",
    "data": "data",
    "datasets": "data",
    "models": "models",
    "evaluation": "evaluation",
}


def is_settings(found: object) -> bool:
    """Whether a public object is the settings of a model."""
    return inspect.isclass(found) and issubclass(found, Settings)


def list_names(module: str) -> list[str]:
    """List the public names of a module: those of `__all__`, otherwise what it defines."""
    found = import_module(module)
    defined = [
        name for name, value in vars(found).items() if getattr(value, "__module__", None) == module
    ]
    return list(getattr(found, "__all__", [name for name in defined if not name.startswith("_")]))


def list_own_names(topic: str) -> list[str]:
    """List the names of `deepmf` itself that belong to a topic, models last."""
    deepmf = import_module("deepmf")
    own = {name: getattr(deepmf, name) for name in deepmf.__all__}
    names = [name for name, found in own.items() if _find_topic(found) == topic]
    return sorted(
        names, key=lambda name: inspect.isclass(own[name]) and issubclass(own[name], Model)
    )


def list_sections(topic: str) -> dict[str, list[str]]:
    """Return the names of each module that a topic documents; a name of `deepmf` itself stands
    there alone."""
    own = set(import_module("deepmf").__all__)
    sections = {"deepmf": list_own_names(topic)}
    for module in TOPICS[topic]:
        sections[module] = [name for name in list_names(module) if name not in own]
    return {module: names for module, names in sections.items() if names}


def directive(module: str, name: str) -> str:
    """Return the directive that documents a public name."""
    found = getattr(import_module(module), name)
    if inspect.isclass(found):
        listed = "" if is_settings(found) and found is not Settings else "   :members:\n"
        # no entry of its own
        if any(base is Estimator or base.__name__.startswith("_") for base in found.__bases__):
            listed += "   :inherited-members:\n"
        return f".. autoclass:: {name}\n{listed}"
    return f".. auto{'function' if callable(found) else 'data'}:: {name}\n"


def read_sections() -> list[str]:
    """Return the sections of docs/api.md, from their headings on."""
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    return page.split("\n## ")[1:]


def topic_page(topic: str) -> str:
    """Return the page of a topic."""
    section = dict(zip(TOPICS, read_sections(), strict=True))[topic]
    parts = [f"# {section.replace('](', '](../')}"]
    for module, names in list_sections(topic).items():
        shown = "\n".join(directive(module, name) for name in names)
        parts.append(
            f"\n## {module}\n\n```{{eval-rst}}\n.. currentmodule:: {module}\n\n{shown}```\n"
        )
    return "".join(parts)


def add_names(page: str) -> str:
    """Return docs/api.md with a table of all names in each section."""
    introduction, *sections = page.split("\n## ")
    parts = [introduction]
    for topic, section in zip(TOPICS, sections, strict=True):
        parts.append(f"\n## {section}\n[Signatures and docstrings](api/{topic}.md):\n\n")
        parts += ["| module | names |\n", "| --- | --- |\n"]
        for module, names in list_sections(topic).items():
            shown = ", ".join(f"{{py:obj}}`~{module}.{name}`" for name in names)
            parts.append(f"| `{module}` | {shown} |\n")
    pages = "".join(f"api/{topic}\n" for topic in TOPICS)
    return "".join([*parts, f"\n```{{toctree}}\n:hidden:\n\n{pages}```\n"])


def write_pages() -> None:
    """Write the pages of all topics, where they are not there yet or differ."""
    (DOCS / "api").mkdir(exist_ok=True)
    for topic in TOPICS:
        path, text = DOCS / "api" / f"{topic}.md", topic_page(topic)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _find_topic(found: object) -> str:
    if is_settings(found):
        return "settings"
    package = getattr(found, "__module__", "").split(".")[1]
    assert package in TOPIC_OF, f"which topic of the reference has {found}?"
    return TOPIC_OF[package]


if __name__ == "__main__":
    write_pages()
