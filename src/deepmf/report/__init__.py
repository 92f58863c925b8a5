"""The report: one page that shows what a model learned and how well it predicts."""

from deepmf.report.page import write_report

__all__ = ["write_report"]
