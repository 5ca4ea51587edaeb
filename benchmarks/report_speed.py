"""How long a full report of one shipped counter takes, and the time of each probe in it.

    python benchmarks/report_speed.py [mod10/ape-2L/...]

The whole command is timed from the shell's side, imports and page included; probes are timed in this process.
"""

import subprocess
import sys
import tempfile
import time

import torch

from models.find import SHIPPED, named_counters
from probes.registry import PROBES, load_subject
from probes.result import NotApplicable


def default_counter() -> str:
    """The shipped mod-10 ape counter, which has snapshots."""
    return next(name for name, _ in named_counters((SHIPPED,)) if name.startswith("mod10/ape-2L"))


def main() -> None:
    torch.set_num_threads(1)
    checkpoint = sys.argv[1] if len(sys.argv) > 1 else default_counter()
    subject = load_subject(checkpoint)
    for name, probe in PROBES.items():
        started = time.perf_counter()
        try:
            probe.run(subject, 0)
        except NotApplicable as reason:
            print(f"{name:12} skipped: {reason}")
            continue
        print(f"{name:12} {time.perf_counter() - started:6.2f} s", flush=True)
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        command = [sys.executable, "-c", "from app.cli import main; main()"]
        arguments = ["report", checkpoint, "--out", out, "--quiet"]
        subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL)
        print(f"whole report {time.perf_counter() - started:6.2f} s")


if __name__ == "__main__":
    main()
