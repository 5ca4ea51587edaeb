"""Collects these tests only where the device of `tests/accelerator/device.py` is registered (see there)."""

import torch

collect_ignore_glob = [] if torch._C._get_privateuse1_backend_name() == "accel" else ["*.py"]
