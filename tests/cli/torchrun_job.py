"""`deepmf`, of which the second process is killed in the middle of training, where it was not started again already."""

import os
import signal

from deepmf.cli.app import main
from deepmf.training.loop import Epoch
from deepmf.training.trainer import Trainer

KILLED_IN_EPOCH = 27  # behind the checkpoint of epoch 25

run_epoch = Trainer.run_epoch


def run_or_die(trainer: Trainer, epoch: int) -> Epoch:
    """Run an epoch, or die in it."""
    if epoch == KILLED_IN_EPOCH and os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return run_epoch(trainer, epoch)


if __name__ == "__main__":
    Trainer.run_epoch = run_or_die  # type: ignore[method-assign]
    main()
