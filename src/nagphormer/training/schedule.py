"""The learning rate of every update: a line up, a line down, then level."""

from nagphormer.settings import TrainConfig


def learning_rate(config: TrainConfig, update: int) -> float:
    """Rate of update 1, 2, …: linear warm-up to `lr`, linear decay to `final_lr` at `decay_updates`, constant after.

    >>> config = TrainConfig(lr=0.01, final_lr=0.001, warmup_updates=10, decay_updates=20)
    >>> [round(learning_rate(config, update), 5) for update in (1, 5, 10, 15, 20, 1000)]
    [0.001, 0.005, 0.01, 0.0055, 0.001, 0.001]
    """
    if update <= config.warmup_updates:
        return config.lr * update / config.warmup_updates
    final = min(config.final_lr, config.lr)
    if update >= config.decay_updates:
        return final
    left = (config.decay_updates - update) / (config.decay_updates - config.warmup_updates)
    return final + (config.lr - final) * left
