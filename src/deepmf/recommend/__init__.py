"""Which columns, in which order: requests, presence models, relevance, rankings."""

from deepmf.recommend.request import Order, Request

__all__ = ["Order", "Request"]
