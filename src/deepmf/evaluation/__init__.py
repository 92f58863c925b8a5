"""Evaluation of models: errors by area, ranking metrics, calibration, and comparisons of several
models."""

from typing import TYPE_CHECKING

from deepmf.lazy import export_names

if TYPE_CHECKING:
    from deepmf.evaluation.areas import (
        AreaErrors as AreaErrors,
        ColdStart as ColdStart,
        ColumnErrors as ColumnErrors,
        confusion_matrix as confusion_matrix,
        count_seen as count_seen,
        evaluate as evaluate,
        evaluate_cold_start as evaluate_cold_start,
        evaluate_columns as evaluate_columns,
    )
    from deepmf.evaluation.calibration import (
        Calibration as Calibration,
        IntervalCoverage as IntervalCoverage,
        ReliabilityBin as ReliabilityBin,
        evaluate_calibration as evaluate_calibration,
        evaluate_intervals as evaluate_intervals,
    )
    from deepmf.evaluation.comparison import (
        ComparedModel as ComparedModel,
        Comparison as Comparison,
        Difference as Difference,
        SplitErrors as SplitErrors,
        compare as compare,
    )
    from deepmf.evaluation.list_change import (
        ListChange as ListChange,
        compare_lists as compare_lists,
    )
    from deepmf.evaluation.ranking import (
        AreaRanking as AreaRanking,
        RankingEvaluation as RankingEvaluation,
        RankingScores as RankingScores,
        evaluate_ranking as evaluate_ranking,
    )

__getattr__, __dir__, __all__ = export_names(__name__, __file__)
