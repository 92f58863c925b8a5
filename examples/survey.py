"""A survey with missing answers from 1 to 5: DMF-D imputes legal answers.

The answers are generated; some are hidden, and the imputed answers are compared with them.
"""

from deepmf import DMFD, Means, ObservedMatrix, Scale, split_entries
from deepmf.datasets import generate
from deepmf.metrics import level_accuracy_score, mae_error

TOPICS = ("pay", "hours", "team", "manager", "tools", "training")
STATEMENTS = ("is good", "is better than a year ago", "is as promised", "is a reason to stay")
QUESTIONS = [f"{topic} {statement}" for topic in TOPICS for statement in STATEMENTS]
ANSWERS = Scale(levels=[1, 2, 3, 4, 5])  # from "not at all" to "fully"
SETTINGS = {"hidden_sizes": (64,), "latent_size": 16, "dropout": 0.3, "epochs": 120, "decay_every": 30}
BLOCK = {"block_rows": 100, "block_columns": 24}


def generate_answers() -> ObservedMatrix:
    """Return the answers of 400 people to 24 questions, of which a quarter is missing."""
    # Answers are missing at random: `popularity` and `selection` are 0.
    drawn = generate(
        400, len(QUESTIONS), density=0.75, rank=3, noise=0.5, popularity=0, selection=0, named=False, seed=0
    )
    people, questions, values = drawn.matrix.entries()
    names, asked = [f"person {number}" for number in people], [QUESTIONS[number] for number in questions]
    return ObservedMatrix.from_entries(names, asked, values, ANSWERS)


def main() -> None:
    """Compare DMF-D with rounded means on hidden answers, then complete the survey."""
    survey = generate_answers()
    print(survey)
    split = split_entries(survey, train=0.75, validation=0.05, test=0.20, seed=0)
    # With fewer epochs than by default, the quantizer must sharpen faster.
    model = DMFD(**SETTINGS, **BLOCK, sharpness_growth=1.03, seed=0, device="cpu")
    model.fit(split.train, validation=split.validation)
    means = Means().fit(split.train)

    people, questions, given = split.test.entries()
    filled = {name: fitted.predict_levels(people, questions) for name, fitted in (("means", means), ("DMF-D", model))}
    for metric, title in ((level_accuracy_score, "accuracy"), (mae_error, "mean absolute error")):
        shown = ", ".join(f"{name} {metric(levels, given):.3f}" for name, levels in filled.items())
        print(f"{title} on {given.size} hidden answers: {shown}")
    print("boundaries between the answers:", model.boundaries_.round(2).tolist())

    # `extend` adds the hidden answers, without training.
    missing = model.extend(survey).complete_frame()
    print(f"\n{missing.height} answers were missing; the first three, imputed:")
    for person, question, answer in missing.head(3).rows():
        print(f"  {person}: {question}? {answer:.0f}")


if __name__ == "__main__":
    main()
