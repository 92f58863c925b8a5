"""The report: one page that shows what a model learned and how well it predicts, or how several compare."""

from deepmf.report.compared_models import ComparedModel, evaluated_models
from deepmf.report.comparison import comparison_page, write_comparison
from deepmf.report.page import write_report

__all__ = ["ComparedModel", "comparison_page", "evaluated_models", "write_comparison", "write_report"]
