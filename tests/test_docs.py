"""Every page is true: its Python runs, its commands exist, and what it shows as output is what
comes out.

The blocks of a page run from top to bottom in one namespace and one empty folder:

python    is run; where it holds `>>>`, the answers are compared
console   lines after `$` that begin with deepmf are run; what follows is their output
output    what the block above it printed; text must be equal, decimal numbers may differ by 5 %
between machines sh        is not run, but its commands, options, make targets and files must exist
"""

import doctest
import io
import posixpath
import re
import shlex
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from tools import concept_pictures, proofs, result_tables

import deepmf
import deepmf.sklearn
from deepmf import errors, metrics
from deepmf.cli.app import app, main
from deepmf.datasets import generate
from deepmf.models.ordinal.settings import Facts, choose_settings
from deepmf.models.registry import MODELS, model_class

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "api"]  # not built
PAGES = [ROOT / "README.md", ROOT / "results" / "README.md", *WRITTEN]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"(-?\d+\.\d+)")


class Block(NamedTuple):
    """A block of code in a page, and the line it begins on."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
    ]


def pages_with(*languages: str) -> list[Any]:
    found = [page for page in PAGES if any(block.language in languages for block in blocks(page))]
    return [pytest.param(page, id=page.name) for page in found]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a page runs in: empty but for the files that commands are explained by."""
    matrix = generate(40, 30, density=0.4, seed=0).matrix
    people, films, stars = (part.tolist() for part in matrix.entries())
    known = {
        matrix.row_labels[0]: "ann",
        matrix.row_labels[1]: "bob",
        matrix.row_labels[2]: "carol",
    }
    titles = {matrix.column_labels[0]: "Alien", matrix.column_labels[1]: "Big"}
    lines = [
        f"{known.get(p, p)},{titles.get(f, f)},{s:g}"
        for p, f, s in zip(people, films, stars, strict=True)
    ]
    carols = [line for line in lines if line.startswith("carol")]
    others = [line for line in lines if line not in carols]
    parts = {
        "ratings": others,
        "new_people": carols,
        "new_users": carols,
        "test": others[::9],
        "pairs": others[::7],
    }
    for name, some in parts.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,item,rating", *some]) + "\n")
    (tmp_path / "me.csv").write_text("item,rating\nAlien,5\nBig,2\n")
    monkeypatch.chdir(tmp_path)
    # Where a page leaves the epochs to a network's default, which is for a million ratings, a few
    # will do.
    for name in MODELS:
        defaults: dict[str, Any] = vars(model_class(name).settings_class)["__init__"].__kwdefaults__
        if defaults.get("epochs", 0) > 100:
            monkeypatch.setitem(defaults, "epochs", 2)
    return tmp_path


@pytest.mark.parametrize("page", pages_with("python", "console"))
@pytest.mark.usefixtures("folder")
@pytest.mark.slow
def test_blocks_run_and_show_what_comes_out(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.language == "python" and ">>> " in block.text:
            check_doctest(block, namespace, where)
        elif block.language == "python":
            printed = run_python(block, namespace, page)
        elif block.language == "console":
            run_console(block, where)
        elif block.language == "output":
            assert alike(block.text, printed), (
                f"{where} shows\n{block.text}\nbut what comes out is\n{printed}"
            )


def run_python(block: Block, namespace: dict[str, Any], page: Path) -> str:
    # tracebacks name the page's own lines
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def check_doctest(block: Block, namespace: dict[str, Any], where: str) -> None:
    examples = doctest.DocTestParser().get_doctest(block.text, namespace, where, None, 0)
    said = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(examples, out=said.write, clear_globs=False)
    assert runner.failures == 0, f"{where}:\n{said.getvalue()}"
    namespace.update(examples.globs)


def run_console(block: Block, where: str) -> None:
    """Run the lines after `$`, and compare what stands below each with what it prints."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        words = shlex.split(command, comments=True)
        assert words[0] == "deepmf", (
            f"{where}: only deepmf is run in a console; {words[0]} belongs into sh"
        )
        with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ending:
            main(words[1:])
        assert not ending.value.code, f"{where}: {command} ended with {ending.value.code}"
        if shown.strip():
            assert alike(shown, printed.getvalue()), (
                f"{where}: {command} prints\n{printed.getvalue()}"
            )


def alike(shown: str, printed: str) -> bool:
    """Say whether the texts are equal but for space, and their decimal numbers but for 5 %."""
    ours, theirs = (NUMBER.split(" ".join(text.split())) for text in (shown, printed))
    if ours[::2] != theirs[::2]:
        return False
    pairs = zip(map(float, ours[1::2]), map(float, theirs[1::2]), strict=True)
    return all(abs(a - b) <= 0.05 * max(abs(a), abs(b)) + 0.011 for a, b in pairs)


def test_alike() -> None:
    assert alike("RMSE 0.86\n", "RMSE  0.88")
    assert not alike("RMSE 0.86", "RMSE 0.96")
    assert not alike("RMSE 0.86", "MAE 0.86")
    assert not alike("20 entries", "21 entries")


def commands() -> Iterator[Any]:
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("sh", "console"):
                continue
            for line in block.text.replace("\\\n", " ").splitlines():
                command = line.removeprefix("$ ")
                if command.startswith(("deepmf", "make", "python", "pip")):
                    yield pytest.param(command, id=f"{page.name}: {command[:60]}")


@pytest.mark.parametrize("command", list(commands()))
def test_commands_exist(command: str) -> None:
    words = shlex.split(command, comments=True)
    words = words[
        : next((place for place, word in enumerate(words) if word in ("|", ">", "&", "&&")), None)
    ]
    match words:
        case ["deepmf", *rest]:
            check_command(rest)
        case ["make", *targets]:
            known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {target for target in targets if "=" not in target} <= set(known)
        case ["python", "-m", module, *_]:
            assert module.startswith("deepmf.experiments") and find_spec(module)
        case ["python", path, *_]:
            assert (ROOT / path).is_file()
        case ["pip", "install", *what]:
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
                "optional-dependencies"
            ]
            assert (
                set(re.findall(r"\w+", "".join(re.findall(r"\[.*?\]", "".join(what)))))
                <= extras.keys()
            )
        case _:
            pytest.fail(f"what is {command}?")


# Words that stood for something the field, and the code, has another name for.
FORMER = re.compile(
    r"foret[eo]l|newcomers|\bhiding\b|\blets? (new \w+ and \w+ )?in\b|at (its|their) word|\bso many (?!of)"
    r"|\byardstick|as (it|they) meets? (it|them)|\bthe (face|walk) of|\banswer(s|ed)? (with|by|in)\b",
    re.IGNORECASE,
)
SOURCES = [path for path in sorted((ROOT / "src").rglob("*")) if path.suffix in (".py", ".html")]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_pages_speak_as_the_code_does(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [found[0] for found in FORMER.finditer(text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_fits_the_page(page: Path) -> None:
    lines = [line for block in blocks(page) for line in block.text.splitlines()]
    assert [line for line in lines if len(line) > 88] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_line_begins_with_a_figure(page: Path) -> None:
    """A comment at the start of a line would end the paragraph."""
    assert re.findall(r"^ *<!-- value .*", page.read_text(encoding="utf-8"), re.MULTILINE) == []


@pytest.mark.slow
def test_sources_use_the_words_of_the_field() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): FORMER.search(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    assert {path: former[0] for path, former in found.items() if former} == {}


def test_architecture_names_files_that_exist() -> None:
    """Every path such as `models/base.py` or `storage/` is there."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w./-]+(?:\.(?:py|md|toml|csv)|/))`", text)) - {"ratings.csv"}
    assert len(names) > 40
    homes = (ROOT / "src" / "deepmf", ROOT / "src", ROOT)
    assert sorted(name for name in names if not any((home / name).exists() for home in homes)) == []


GROUP: Any = typer.main.get_command(app)


def test_help_speaks_as_the_code_does() -> None:
    for name, command in GROUP.commands.items():
        said = [
            command.help or "",
            *(getattr(option, "help", "") or "" for option in command.params),
        ]
        assert [found[0] for found in FORMER.finditer("\n".join(said))] == [], name


def check_command(words: list[str]) -> None:
    """Parse a command line as deepmf does, without running it."""
    with GROUP.make_context("deepmf", list(words), resilient_parsing=not words) as context:
        if words and not words[0].startswith("-"):
            name, command, rest = GROUP.resolve_command(context, words)
            if "--help" not in rest:
                command.make_context(name, list(rest), parent=context).close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages."""
    from sphinx.cmd.build import main as build  # slow to import

    target = tmp_path_factory.mktemp("site")
    # In this process, which has imported the package. What other packages warn of is no mistake of
    # a page.
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()) as said:
        warnings.simplefilter("ignore")
        status = build(["-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(target)])
    assert status == 0, said.getvalue()
    return target


@pytest.mark.slow
def test_reference_has_every_public_name(site: Path) -> None:
    page = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    names = [
        f"{module.__name__}.{name}"
        for module in (deepmf, deepmf.sklearn, metrics)
        for name in module.__all__
    ]
    tree = [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and found.__module__ == errors.__name__
    ]
    names += [f"deepmf.errors.{error.__name__}" for error in tree]
    assert [name for name in names if f'id="{name}"' not in page] == []


@pytest.mark.slow
def test_links_lead_somewhere(site: Path) -> None:
    pages = {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in site.rglob("*.html")
    }
    lost = []
    for name, page in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', page):
            if re.match(r"\w+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), path.partition("?")[0]))
                if path
                else name
            )
            inside = pages.get(target)
            if not (site / target).exists() or (
                inside and anchor and f'id="{anchor}"' not in inside
            ):
                lost.append(f"{name}: {link}")
    assert lost == []


LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def name_anchors(text: str) -> set[str]:
    """Return the anchors of a file's headings, as hosting sites name them."""
    headings = HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in words}


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "results/log.md"))],
    ids=lambda page: page.name,
)
def test_links_lead_to_files_with_such_a_heading(page: Path) -> None:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    lost = []
    for link in LINK.findall(text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if re.match(r"\w+:", link):
            continue
        content = target.read_text() if target.suffix == ".md" and target.exists() else ""
        is_there = target.exists() and "{include}" not in content  # hosting sites include nothing
        if not is_there or (anchor and anchor not in name_anchors(content)):
            lost.append(link)
    assert lost == []


def test_figures_carry_their_proof() -> None:
    """Each section with figures that are not drawn from the results names what measured them."""
    sections = set(proofs.list_sections())
    assert sections == {(proof["page"], proof["heading"]) for proof in proofs.read_proofs()}
    for proof in proofs.read_proofs():
        assert "source" in proof or proof.keys() >= {"command", "commit", "hardware", "date"}
        for command in filter(None, [proof.get("command")]):
            test_commands_exist(command)


def test_figures_outside_the_results_are_found() -> None:
    page = "# a\n<!-- value x -->.812<!-- end -->, `0.75`\n## b\nan error of .812\n## c\nPython 3.11, in 10 s"
    assert proofs.find_figures(page) == {"b": [".812"], "c": ["10 s"]}


def test_table_of_proofs_is_that_of_the_tool() -> None:
    page = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    assert proofs.draw_table(page) == page


@pytest.mark.slow
def test_pictures_are_those_of_the_tool() -> None:
    for path, drawn in concept_pictures.pictures().items():
        assert path.read_text(encoding="utf-8") == drawn, (
            f"{path.name} is not up to date; make format draws it"
        )
    assert (
        result_tables.FEATURE_PICTURE.read_text(encoding="utf-8") == result_tables.feature_picture()
    )


def test_settings_are_chosen_as_the_page_says() -> None:
    text = (DOCS / "concepts.md").read_text(encoding="utf-8").replace("a million", "1,000,000")
    rows = re.findall(
        r"^\| ([\d,]+) x ([\d,]+), ([\d,]+) entries \| (.*) \| (.*) \|$", text, re.MULTILINE
    )
    assert len(rows) == 3
    for *shape, on_cpu, on_gpu in rows:
        counts = [int(number.replace(",", "")) for number in shape]
        for shown, gpu in ((on_cpu, False), (on_gpu, True)):
            chosen = choose_settings(Facts(*counts, on_gpu=gpu), "normal")
            networks = {1: "one network", 4: "four networks"}[chosen["networks"]]
            dropout = f"{chosen['dropout']:.2f}".removeprefix("0")
            assert shown == (
                f"{networks}, {chosen['hidden_sizes'][0]} wide, dropout {dropout}, {chosen['epochs']} epochs"
            )


# Of each line of the table of speed and memory: what its figures are, in their order.
MEASURED = {
    "one new row: extend and rank": [
        "latency dmf extend_rank_median_ms",
        "latency dmf extend_rank_95_ms",
    ],
    "the same with OrdinalDMF": [
        "latency dmf-o, processor time extend_rank_median_ms",
        "latency dmf-o, processor time extend_rank_95_ms",
    ],
    "there: fold-in and the ten best": [
        "latency dmf-o, processor time fold_in_rank_median_ms",
        "latency dmf-o, processor time extend_median_ms",
    ],
    "there: explaining a prediction": ["latency dmf-o, processor time explain_100_ms"],
    "there: explaining one of a row of 3,700": ["latency dmf-o, processor time explain_3700_ms"],
    "extending by one row of 20 entries": [
        "extension extend_ms 400000 rows",
        "extension extend_ms 10000 rows",
    ],
    "forgetting a trained row": [
        "extension forget_trained_ms 400000 rows",
        "extension forget_trained_ms 10000 rows",
    ],
    "predicting a million pairs": [
        "latency dmf million_pairs_seconds",
        "latency dmf-o million_pairs_seconds",
    ],
    "ALS, 15 sweeps": [
        "als seconds deepmf",
        "als seconds cmfrec, default",
        "als seconds cmfrec, Cholesky",
    ],
    "reading 20 million lines": ["reading ints deepmf_seconds", "reading ints polars_seconds"],
    "the same, ids that are text": ["reading text deepmf_seconds", "reading text polars_seconds"],
}


def test_speed_was_measured() -> None:
    """Each figure of speed and memory is that which was measured, rounded to as many digits as the
    page shows."""
    measured = result_tables.measurements()
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    text = text[text.index("### Speed and memory") : text.index("## Size")]
    lines = [line for line in text.splitlines() if line[:2] == "| "]
    told = {line[2:]: re.findall(r"\b(\d+(?:\.\d+)?) (?:s|ms|MB)\b", line) for line in lines}
    told = {line: figures for line, figures in told.items() if figures}
    assert len(told) == len(MEASURED)
    for start, names in MEASURED.items():
        (figures,) = (figures for line, figures in told.items() if line.startswith(start))
        assert len(figures) == len(names), start
        for shown, name in zip(figures, names, strict=True):
            room = 0.501 * 10.0 ** -len(shown.partition(".")[2])
            assert abs(measured[name] - float(shown)) <= room, (
                f"the page says {shown}; {name} is {measured[name]}"
            )
