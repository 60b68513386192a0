"""What each member of a run scored, weighs and costs."""

from typing import Any

from nagphormer.training.ensemble import Trained
from nagphormer.training.run import Run


def leaderboard(run: Trained) -> list[dict[str, Any]]:
    """Facts of each member, the heaviest first, then by log loss; a run of one model has one."""
    if not isinstance(run, Run):
        parts = sorted(run.parts, key=lambda part: (-part.weight, part.loss))
        return [part.facts() for part in parts]
    member = run.best
    outcome, plan = member.outcome, member.plan
    return [
        {
            "name": plan.model.network,
            "weight": 1.0,
            "score": outcome.get("best_metric"),
            "loss": outcome.get("best_loss"),
            "train_seconds": round(sum(record["seconds"] for record in member.history), 2),
            "predict_seconds": None,
        }
    ]
