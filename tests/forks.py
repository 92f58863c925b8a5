"""Processes that are forks of one that has imported everything: they start in no time."""

import multiprocessing

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["deepmf.cli.app", "deepmf.models.loading", "deepmf.serve.server", "deepmf.tuning"])
