"""MLflow: log a model and serve it as a `pyfunc`, without pickling (`pip install mlflow-skinny pandas`).

MLflow runs this file to make the `pyfunc` ("models from code"), and gives it the model file as an
artifact. Usage: python mlflow_model.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import mlflow.pyfunc

from deepmf import ALS, load
from deepmf.datasets import generate
from deepmf.models import Model


class PairPredictor(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Predicts the pairs of a frame with the columns `row` and `column`."""

    def load_context(self, context: Any) -> None:
        """Load the model file."""
        self.model = load(context.artifacts["model"])

    def predict(self, context, model_input, params=None):  # MLflow reads type hints as a schema
        """Return a prediction for each line; those of unknown labels are means."""
        rows, columns = model_input["row"].tolist(), model_input["column"].tolist()
        return self.model.predict(rows, columns, unknown="fallback")


def log_model(model: Model, name: str = "model") -> Any:
    """Log a fitted model in the active run."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.safetensors")
        model.save(file)
        return mlflow.pyfunc.log_model(
            name=name,
            python_model=__file__,
            artifacts={"model": str(file)},
            pip_requirements=["deepmf"],
        )


def main() -> None:
    """Log a model, and predict with what MLflow loads."""
    import pandas as pd

    ratings = generate(200, 80, density=0.2, seed=0).matrix
    model = ALS(seed=0).fit(ratings)
    with mlflow.start_run():
        logged = log_model(model)
    rows, columns, _ = ratings.entries()
    pairs = pd.DataFrame({"row": rows[:5], "column": columns[:5]})
    print(mlflow.pyfunc.load_model(logged.model_uri).predict(pairs))
    print(model.predict(rows[:5], columns[:5]))


if __name__ == "__main__":
    main()
else:  # MLflow runs the file
    mlflow.models.set_model(PairPredictor())
