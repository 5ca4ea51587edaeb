"""`countlens ship`"""

from collections.abc import Sequence
from pathlib import Path

from app.escape import say
from training.paper.score_table import SCORES
from training.paper.ship import CARD, MB, plan_shipment, ship


def run_ship(manifest: Path, out: Path, max_mb: float, scores_only: Sequence[str]) -> None:
    """Ships the best seeds of a sweep, and prints which runs were left out and what was written."""
    shipment = plan_shipment(manifest, out, scores_only)
    for name, why in shipment.left_out.items():
        say(f"left out: {name}: {why}")
    ship(shipment, max_mb)
    left_out = f" ({len(shipment.left_out)} left out)" * bool(shipment.left_out)
    print(f"shipped {len(shipment.best)} counters, the best of {len(shipment.rows)} finished runs{left_out}, to {out}")
    print(f"  scores  {out / SCORES}")
    print(f"  card    {out / CARD}")
    print(f"  size    {shipment.size / MB:.1f} MB")
