"""The comparison with other libraries: what a peer is told, how its answers count, what is run,
kept and reported."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranking_exchange
from peer_runners import exchange
from peers import runs, tasks
from peers.__main__ import main
from peers.declared import ENVIRONMENTS, OURS, PEERS, Environment, Peer
from peers.environments import Installed, ensure_installed, reason
from peers.figures import Clock, Line, lines_of, on_first, on_most
from peers.one_hot import AGES, COLUMNS, ROWS, one_hot
from peers.pictures import plot_memory
from peers.problem import Asked, Entries, Problem
from peers.ranking import RankingProblem
from peers.records import Records
from peers.report import tabulate_known, tabulate_sizes, write_report
from peers.runs import Bench, Run, list_wanted, run_all
from peers.scoring import scores
from peers.tasks import TASKS, Task, generated, of_size, published_fold

from deepmf.datasets import find, load, load_split

# Predicts the mean of the training values; what it is told to do otherwise is in its settings.
FAKE = """
import sys, time
sys.path.insert(0, {runners!r})
import exchange, numpy as np

def fit(task, settings):
    if settings.get("fails"):
        raise RuntimeError("no luck")
    time.sleep(settings.get("sleeps", 0))
    return float(task.known.values.mean())

def reply(model, task, question):
    return exchange.Answer(np.full(question.rows.size, model))

exchange.main(fit, reply, packages=["numpy"])
"""


def small() -> Problem:
    """Two rows and three columns of stars; the second row comes later."""
    train = Entries(np.array([0, 0]), np.array([0, 1]), np.array([4.0, 2.0]))
    told = Entries(np.array([1]), np.array([0]), np.array([5.0]))
    test = Entries(np.array([0, 1]), np.array([2, 2]), np.array([3.0, 5.0]))
    asked = [Asked("areas", told, test, np.array(["I", "II"]))]
    return Problem((2, 3), np.array([1.0, 2, 3, 4, 5]), train, Entries.none(), asked)


def fake(**settings: object) -> Peer:
    return Peer(
        "fake", "Fake", "fakes", OURS, "fake_runner", settings, ("new",), "here", seconds=600
    )


TASK = Task("small", "a small task", ("new",), (0, 1), lambda seed: small())


def test_a_peer_is_told_everything_but_the_values_to_predict(tmp_path: Path) -> None:
    problem = replace(
        small(), row_features=one_hot({"sex": np.array(["F", "M"])}, {"sex": ROWS["sex"]})
    )
    problem.write(tmp_path / "task.npz")
    task = exchange.read_task(tmp_path / "task.npz")
    assert task.shape == (2, 3)
    assert task.known.values.tolist() == [4.0, 2.0]
    (question,) = task.questions
    assert question.extension.values.tolist() == [5.0]
    assert list(zip(question.rows.tolist(), question.columns.tolist(), strict=True)) == [
        (0, 2),
        (1, 2),
    ]
    assert not hasattr(question, "values")
    assert task.row_features is not None
    assert task.row_features.toarray().tolist() == [[1, 0], [0, 1]]
    with np.load(tmp_path / "task.npz") as file:
        assert not any(
            3.0 in file[name]
            for name in file.files
            if file[name].dtype.kind == "f" and name != "levels"
        )


def test_a_runner_answers_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small()
    problem = replace(problem, asked=[*problem.asked, problem.asked[0]._replace(name="both")])
    problem.write(tmp_path / "task.npz")
    monkeypatch.setattr(
        sys, "argv", ["runner", str(tmp_path / "task.npz"), str(tmp_path / "out"), '{"value": 4}']
    )

    def reply(model: float, task: exchange.Task, question: exchange.Question) -> exchange.Answer:
        if question.name == "both":
            raise exchange.Cannot("not both")
        return exchange.Answer(np.full(question.rows.size, model))

    exchange.main(lambda task, settings: settings["value"], reply, packages=["numpy"])
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["refused"] == {"both": "not both"}
    assert report["versions"]["numpy"] == np.__version__
    with np.load(tmp_path / "out.npz") as answers:
        assert scores(problem, dict(answers))["II"]["rmse"] == 1.0


def test_answers_are_clipped_rounded_and_scored_by_group() -> None:
    found = scores(small(), {"values0": np.array([3.4, 7.0])})
    assert found["I"] == {
        "n_entries": 1,
        "rmse": 0.4,
        "mae": 0.4,
        "level_rmse": 0.0,
        "level_mae": 0.0,
    }
    assert found["II"]["rmse"] == 0.0


def test_distributions_give_medians_and_their_log_loss() -> None:
    chances = np.array([[0, 0, 1, 0, 0], [0, 0, 0.25, 0.25, 0.5]], dtype=np.float32)
    found = scores(small(), {"values0": chances @ np.arange(1.0, 6.0), "distribution0": chances})
    assert found["II"]["median_mae"] == 1.0
    assert found["II"]["log_loss"] == pytest.approx(np.log(2), abs=1e-5)


def test_a_group_without_answers_has_no_score_and_single_gaps_get_the_mean() -> None:
    assert list(scores(small(), {"values0": np.array([3.0, np.nan])})) == ["I"]
    test = Entries(np.zeros(20, int), np.arange(20) % 3, np.full(20, 4.0))
    problem = replace(small(), asked=[Asked("I", Entries.none(), test, np.full(20, "I"))])
    values = np.full(20, 4.0)
    values[7] = np.nan
    found = scores(problem, {"values0": values})["I"]
    assert found["filled"] == 1
    # the mean of the training values is 3
    assert found["rmse"] == pytest.approx(1 / np.sqrt(20), abs=1e-5)


def test_cells_of_a_table_count_in_the_units_of_their_column() -> None:
    problem = replace(small(), levels=np.empty(0), units=np.array([1.0, 1.0, 4.0]))
    assert scores(problem, {"values0": np.array([7.0, 5.0])})["I"]["rmse"] == 1.0


def test_new_rows_and_columns_are_described_by_at_most_so_many_entries() -> None:
    problem = generated(0)
    known_rows, known_columns = np.unique(problem.train.rows), np.unique(problem.train.columns)
    asked = {each.name: each for each in problem.asked}
    for count in (0, 1, 5):
        rows, columns = (
            asked[f"new rows, {count}"].extension,
            asked[f"new columns, {count}"].extension,
        )
        assert not np.isin(rows.rows, known_rows).any()
        assert not np.isin(columns.columns, known_columns).any()
        assert max(np.bincount(rows.rows), default=0) <= count
        assert max(np.bincount(columns.columns), default=0) <= count
        assert asked[f"both, {count}"].extension.rows.size == rows.rows.size + columns.rows.size
    assert max(np.bincount(asked["new columns, 5"].extension.columns)) == 5
    areas = asked["areas"]
    assert set(areas.groups.tolist()) == {"I", "II", "III", "IV"}
    np.testing.assert_array_equal(
        asked["new columns, 0"].test.rows, areas.test.rows[areas.groups == "III"]
    )


def test_a_task_of_a_size_has_so_many_known_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.SHAPES, 400, (40, 30))
    monkeypatch.setattr(tasks, "ASKED", 50)
    problem = of_size(400, 0)
    (asked,) = problem.asked
    parts = problem.train, problem.validation, asked.test
    assert [part.values.size for part in parts] == [392, 8, 50]
    cells = np.concatenate([part.rows * 30 + part.columns for part in parts])
    assert np.unique(cells).size == 450
    assert set(problem.train.values.tolist()) == {1.0, 2.0, 3.0, 4.0, 5.0}


def sized(title: str, memory: int) -> Line:
    run = {
        "seed": 0,
        "peak_memory_mb": memory,
        "processor_seconds": 0.5,
        "scores": {"I": {"rmse": 0.75}},
    }
    return Line(title, title, title, (run,))


def test_memory_is_told_by_size_with_the_least_at_the_largest_first() -> None:
    found = {
        100: [sized("small", 90), sized("wide", 70)],
        1000: [sized("small", 110), sized("wide", 900)],
    }
    head, _, *rows = tabulate_sizes(found, Clock.PROCESSOR).splitlines()
    assert head.startswith("| method | 100 entries: MiB | 1,000 entries: MiB | 100: seconds |")
    assert rows[0].startswith("| small | 90 | **110** | 0.5 |")
    assert rows[1].startswith("| wide | **70** | 900 |")
    assert tabulate_sizes({100: [], 1000: []}, Clock.PROCESSOR) == ""
    plot = plot_memory(found)
    assert plot is not None
    points = [drawn[0].get_xydata().tolist() for drawn in plot[0].containers]
    assert points == [[[100, 90], [1000, 110]], [[100, 70], [1000, 900]]]
    assert plot_memory({100: []}) is None


def test_seconds_are_those_of_a_clock() -> None:
    costs = {"seconds": 3.0, "processor_seconds": 5.0, "peak_memory_mb": 90}
    line = Line("a", "A", "A", ({"seed": 0, "scores": {"I": {"rmse": 0.9}}} | costs,))
    assert tabulate_known([line], Clock.WALL).splitlines()[0] == "| method | RMSE | seconds | MiB |"
    assert tabulate_known([line], Clock.WALL).splitlines()[-1] == "| A | **.9000** | 3.0 | 90 |"
    assert "| processor seconds |" in tabulate_known(
        [line], Clock.PROCESSOR
    ) and "| 5.0 |" in tabulate_known([line], Clock.PROCESSOR)


def test_some_questions_can_be_asked_alone() -> None:
    problem = generated(0)
    assert problem.keep_questions(None) is problem
    assert [asked.name for asked in problem.keep_questions(["both, 5", "areas"]).asked] == [
        "areas",
        "both, 5",
    ]


def test_features_become_groups_of_ones() -> None:
    users = {
        "sex": np.array(["M", "F"]),
        "age": np.array([25, 56]),
        "occupation": np.array(["a", "a"]),
    }
    users["post_code"] = np.array(["90210", "T8H1N"])
    found = one_hot(users, ROWS)
    assert found.groups == (2, 2, 1, 2)
    assert found.lines.tolist() == [0, 1] * 4
    assert found.features.tolist() == [1, 0, 2, 3, 4, 4, 5, 6]
    films = one_hot(
        {"genres": np.array(["War|Drama", ""]), "year": np.array([np.nan, 1999.0])}, COLUMNS
    )
    assert list(zip(films.lines.tolist(), films.features.tolist(), strict=True)) == [
        (0, 1),
        (0, 0),
        (1, 2),
    ]
    assert len(AGES) == 6


@pytest.mark.skipif(find("ml-100k") is None, reason="MovieLens-100K is not in DEEPMF_DATA")
def test_the_first_fold_is_the_published_one() -> None:
    problem, matrix = published_fold(0), load("ml-100k")
    published = Entries.of(load_split("ml-100k").test, matrix.rows, matrix.columns)
    (asked,) = problem.asked
    for part, own in zip(published, asked.test, strict=True):
        np.testing.assert_array_equal(part, own)


def test_peers_and_environments_are_declared_once_and_have_a_runner() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    homes = {environment.name for environment in ENVIRONMENTS} | {OURS}
    kinds = {kind for task in TASKS.values() for kind in task.kinds}
    for peer in PEERS:
        assert peer.environment in homes
        assert (runs.RUNNERS / f"{peer.runner}.py").is_file()
        assert set(peer.tasks) <= kinds


def test_cells_that_a_table_lacks_are_neither_known_nor_asked_for() -> None:
    cells = np.arange(60.0).reshape(12, 5)
    cells[2, 1] = np.nan
    problem = tasks.of_table(cells, seed=0)
    places = Entries.join(problem.train, problem.asked[0].test)
    assert places.rows.size == 59
    assert not ((places.rows == 2) & (places.columns == 1)).any()
    assert problem.asked[0].test.rows.size > 0


def test_only_tasks_of_a_peers_kind_are_wanted() -> None:
    other = replace(TASK, name="other", kinds=("table",))
    assert [(run.task.name, run.seed) for run in list_wanted([fake()], [other, TASK], None)] == [
        ("small", 0),
        ("small", 1),
    ]
    assert [run.seed for run in list_wanted([fake()], [TASK], [1, 7])] == [1]


def test_what_cannot_be_installed_is_recorded_with_the_reason(tmp_path: Path) -> None:
    environment = Environment("nowhere", ("nothing==1",))
    home = tmp_path / "build" / "nowhere"
    home.mkdir(parents=True)
    (home / "ready.json").write_text(
        json.dumps({"requirements": ["nothing==1"], "failure": "no such thing"})
    )
    bench = Bench(tmp_path / "build", Records(tmp_path), threads=1, environments=[environment])
    said: list[str] = []
    run_all([Run(replace(fake(), environment="nowhere"), TASK, 0)], bench, said.append)
    (record,) = bench.records.all()
    assert record["failure"] == "not installed: no such thing"
    assert said[-1].endswith("not installed: no such thing")


def test_an_environment_is_not_made_twice(tmp_path: Path) -> None:
    made: list[str] = []

    def install(environment: Environment, home: Path) -> str:
        made.append(environment.name)
        return ""

    for requirements in (("a==1",), ("a==1",), ("a==2",)):
        found = ensure_installed(Environment("a", requirements), tmp_path, install)
        assert found == Installed(tmp_path / "a" / "bin" / "python", "")
    assert made == ["a", "a"]


def test_the_telling_line_of_pip_is_the_reason() -> None:
    said = "WARNING: slow\n  error: command 'gcc' failed\n\nnote: This error originates elsewhere\nhint: See above"
    assert reason(said) == "error: command 'gcc' failed"
    assert reason("") == "pip said nothing"


def test_an_unknown_name_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--only", "nobody"]) == 2
    assert "there is no 'nobody'; tasks: generated" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_are_recorded_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_runner.py").write_text(FAKE.format(runners=str(runs.RUNNERS)))
    monkeypatch.setitem(TASKS, "small", TASK)
    bench = Bench(tmp_path / "build", Records(tmp_path), threads=1, runners=tmp_path)
    said: list[str] = []
    all_runs = list(list_wanted([fake()], [TASK], None))
    run_all(all_runs, bench, said.append)
    assert said[0] == "0 of 2 runs are recorded; 2 to make"
    (line,) = lines_of(bench.records.all(), "small")
    assert line.seeds == [0, 1]
    assert line.mean("II", "rmse") == 2.0
    assert line.spread("II", "rmse") == 0.0
    assert line.runs[0]["versions"]["numpy"] == np.__version__
    run_all(all_runs, bench, said.append)
    assert said[-1] == "2 of 2 runs are recorded; 0 to make"
    run_all([Run(fake(fails=True), TASK, 0)], bench, said.append)  # other settings: run again
    assert said[-1].endswith("status 1: RuntimeError: no luck")
    slow = replace(bench, most_seconds=2)
    run_all([Run(fake(sleeps=60), TASK, 0)], slow, said.append)
    assert "ended after 2 s, at a load of" in said[-1]
    run_all(all_runs, bench, said.append)
    assert [line.seeds for line in on_first([line])] == [[0]]
    assert on_most([line]) == []
    assert [each.seeds for each in on_most([line, replace(line, peer="other")])] == [[0, 1], [0, 1]]
    run_all([Run(fake(sleeps=60), TASK, 1)], slow, said.append)
    written = {path.name: path for path in write_report(bench.records, tmp_path)}
    assert "| Fake | **.0000** | **2.0000** |" in written["small.md"].read_text()
    assert (
        "- Fake, a small task: ended after 2 s, at a load of" in written["not-run.md"].read_text()
    )


def ranking_problem() -> RankingProblem:
    """Two rows to rank: of the first columns 2 and 3 are liked, of the second column 0."""
    train = Entries(np.array([0, 1, 2]), np.array([0, 1, 0]), np.array([4.0, 4.0, 5.0]))
    test = Entries(np.array([0, 0, 1, 2]), np.array([2, 3, 0, 3]), np.array([5.0, 4.0, 4.0, 1.0]))
    return RankingProblem((3, 30), train, Entries.none(), Entries.none(), Entries.none(), test)


def test_a_peer_that_ranks_is_told_nothing_of_the_test(tmp_path: Path) -> None:
    problem = tasks.TASKS["generated-ranking"].problem(0)
    assert isinstance(problem, RankingProblem)
    problem.write(tmp_path / "task.npz")
    task = ranking_exchange.read_ranking_task(tmp_path / "task.npz")
    known = Entries.join(problem.train, problem.validation_given, problem.validation, problem.given)
    given = np.concatenate(
        [task.known.rows * 80 + task.known.columns, task.given.rows * 80 + task.given.columns]
    )
    assert sorted(given.tolist()) == sorted((known.rows * 80 + known.columns).tolist())
    assert not np.isin(problem.test.rows * 80 + problem.test.columns, given).any()
    # rows were held out whole, in both splits
    assert not np.isin(task.given.rows, task.known.rows).any()
    assert not np.isin(task.validation.rows, task.train.rows).any()
    assert set(task.rows.tolist()) <= set(task.given.rows.tolist())


def test_lists_are_scored_by_liked_test_entries() -> None:
    lists = np.full((2, 20), -1)
    lists[0, :3], lists[1, :2] = [2, 7, 3], [9, 0]
    found = ranking_problem().score({"lists": lists})["ranking"]
    ideal = 1 + 1 / np.log2(3)
    assert found["ndcg"] == pytest.approx(np.mean([(1 + 1 / 2) / ideal, 1 / np.log2(3)]), abs=1e-5)
    assert (found["n_rows"], found["recall"], found["mrr"], found["n_distinct"]) == (
        2,
        1.0,
        0.75,
        5,
    )
    lists[1, 0] = 1
    with pytest.raises(ValueError, match="entry"):
        ranking_problem().score({"lists": lists})


def test_settings_are_chosen_on_validation_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = tasks.TASKS["generated-ranking"].problem(0)
    problem.write(tmp_path / "task.npz")
    trials = [{"on": "all", "sign": -1}, {"on": "all", "sign": 1}, {"on": "liked", "sign": -1}]
    arguments = [
        "runner",
        str(tmp_path / "task.npz"),
        str(tmp_path / "out"),
        json.dumps({"trials": trials}),
    ]
    monkeypatch.setattr(sys, "argv", arguments)

    def score(counts: Any, rows: Any, histories: Any) -> Any:
        return np.repeat(counts, histories.shape[0], axis=0)

    ranking_exchange.main(
        lambda positions, own: own["sign"] * np.asarray(positions.sum(axis=0)),
        score,
        packages=["numpy"],
    )
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["noted"]["chosen"]["sign"] == 1  # popular columns first
    with np.load(tmp_path / "out.npz") as answers:
        assert problem.score(dict(answers))["ranking"]["ndcg"] > 0.1
