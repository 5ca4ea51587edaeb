"""How much faster two workers of a local sweep are than one, in one run, by alternating them.

    python benchmarks/sweep_throughput.py [--rounds 3] [--steps 1500]

Each round trains the same runs (four seeds of a mod-10 ape counter) twice from scratch, with one worker and with two.
Worker processes take seconds to import torch, which counts: it is part of what a user waits for.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from training.config import EngineOptions
from training.sweep.engine import sweep
from training.sweep.grid import expand
from training.sweep.manifest import Manifest


def seconds_for(workers: int, steps: int) -> float:
    """Seconds from start to end of the sweep."""
    with tempfile.TemporaryDirectory() as folder:
        runs = expand([{"task": "mod10", "architecture": "ape", "steps": steps, "seeds": 4}])
        manifest = Manifest(Path(folder) / "sweep.jsonl", tuple(runs))
        started = time.perf_counter()
        for _ in sweep(manifest, options=EngineOptions(workers=workers)):
            pass
        assert not manifest.unfinished()
        return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1500)
    arguments = parser.parse_args()
    ratios = []
    for index in range(arguments.rounds):
        one, two = (seconds_for(workers, arguments.steps) for workers in (1, 2))
        ratios.append(one / two)
        print(f"round {index + 1}: one worker {one:.1f} s, two workers {two:.1f} s, {one / two:.2f}x", flush=True)
    print(f"two workers have {statistics.median(ratios):.2f}x the throughput of one (median)")


if __name__ == "__main__":
    main()
