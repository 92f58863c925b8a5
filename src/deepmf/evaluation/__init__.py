"""Evaluation of models: errors by area, ranking metrics, calibration, and comparisons of several models."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.evaluation.areas import (
        AreaErrors,
        ColdStart,
        ColdStartPoint,
        ColumnErrors,
        confusion_matrix,
        count_seen,
        evaluate,
        evaluate_cold_start,
        evaluate_columns,
        evaluate_new_rows,
    )
    from deepmf.evaluation.calibration import (
        Calibration,
        IntervalCoverage,
        ReliabilityBin,
        evaluate_calibration,
        evaluate_intervals,
    )
    from deepmf.evaluation.comparison import ComparedModel, Comparison, SplitErrors, compare
    from deepmf.evaluation.ranking import AreaRanking, RankingEvaluation, RankingScores, evaluate_ranking

__all__ = [
    "AreaErrors",
    "AreaRanking",
    "Calibration",
    "ColdStart",
    "ColdStartPoint",
    "ColumnErrors",
    "ComparedModel",
    "Comparison",
    "IntervalCoverage",
    "RankingEvaluation",
    "RankingScores",
    "ReliabilityBin",
    "SplitErrors",
    "compare",
    "confusion_matrix",
    "count_seen",
    "evaluate",
    "evaluate_calibration",
    "evaluate_cold_start",
    "evaluate_columns",
    "evaluate_intervals",
    "evaluate_new_rows",
    "evaluate_ranking",
]

__getattr__, __dir__ = export_names(
    __name__,
    {
        "deepmf.evaluation.areas": [
            "AreaErrors",
            "ColdStart",
            "ColdStartPoint",
            "ColumnErrors",
            "confusion_matrix",
            "count_seen",
            "evaluate",
            "evaluate_cold_start",
            "evaluate_columns",
            "evaluate_new_rows",
        ],
        "deepmf.evaluation.calibration": [
            "Calibration",
            "IntervalCoverage",
            "ReliabilityBin",
            "evaluate_calibration",
            "evaluate_intervals",
        ],
        "deepmf.evaluation.comparison": ["ComparedModel", "Comparison", "SplitErrors", "compare"],
        "deepmf.evaluation.ranking": ["AreaRanking", "RankingEvaluation", "RankingScores", "evaluate_ranking"],
    },
)
