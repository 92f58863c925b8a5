"""`python -m peers` (`make peers`): install the peers, run all that is missing, write tables and
pictures."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from peers.declared import PEERS
from peers.figures import Clock
from peers.records import Records
from peers.report import write_report
from peers.runs import Bench, list_wanted, run_all
from peers.tasks import TASKS

ROOT = Path(__file__).parents[2]
QUICK = ("generated", "generated-ranking", "table-iris")


def main(given: list[str] | None = None) -> int:
    """Read the command line, run, and report."""
    options = _parser().parse_args(given)
    names = options.tasks or (
        QUICK if options.quick else [name for name in TASKS if not name.startswith("generated")]
    )
    unknown = [*set(names) - set(TASKS), *set(options.only or ()) - {peer.name for peer in PEERS}]
    if unknown:
        known = f"tasks: {', '.join(TASKS)}; peers: {', '.join(peer.name for peer in PEERS)}"
        print(f"there is no {unknown[0]!r}; {known}", file=sys.stderr)
        return 2
    peers = [peer for peer in PEERS if not options.only or peer.name in options.only]
    clock = Clock.WALL if options.wall else Clock.PROCESSOR
    kept = ROOT / "results" / "peers"
    out = options.out or (
        options.build / "quick" if options.quick else kept / "wall" if options.wall else kept
    )
    bench = Bench(
        options.build, Records(out), options.threads, options.most_seconds, options.questions
    )
    # so that the run that it ends does not go on alone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not options.report_only:
        runs = list(list_wanted(peers, [TASKS[name] for name in names], options.seeds))
        run_all(runs, bench, lambda line: print(line, flush=True), again=options.again)
    for path in write_report(bench.records, out, clock):
        print(path)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m peers", description="deepmf side by side with other libraries"
    )
    parser.add_argument("--only", nargs="+", metavar="PEER", help="these peers alone")
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="these tasks alone")
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="SEED", help="these seeds of each task alone"
    )
    parser.add_argument(
        "--questions", nargs="+", metavar="NAME", help="ask these alone, such as 'new rows, 5'"
    )
    parser.add_argument(
        "--quick", action="store_true", help="two small tasks that need no download; kept in build/"
    )
    parser.add_argument(
        "--wall",
        action="store_true",
        help="report wall-clock seconds, for a machine that does nothing else; kept in results/peers/wall",
    )
    parser.add_argument("--again", action="store_true", help="run again what is recorded")
    parser.add_argument(
        "--report-only", action="store_true", help="run nothing; write tables and pictures"
    )
    parser.add_argument(
        "--most-seconds",
        type=int,
        metavar="S",
        help="how long a run may take; each peer's own by default",
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="of each run; all cores by default"
    )
    parser.add_argument("--out", type=Path, help="where records are kept; results/peers by default")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build" / "peers", help="where environments are made"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
