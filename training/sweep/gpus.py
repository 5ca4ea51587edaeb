"""The time of a run on a named GPU: a computed estimate, good to a factor of about two. Nothing here is measured.

The model: a step takes the longer of two times. Arithmetic: its FLOPs at UTILISATION of the GPU's peak, which is that
of the tensor cores with --precision bf16 or fp16 and that of plain fp32 otherwise (the loop does not use TF32).
Launches: the host starts a kernel every LAUNCH_SECONDS, however small its work is. Counters of the preset `small` are
bound by launches on every GPU: a faster one does not help them. It assumes one run at a time, although several side by
side would cost less, and no --compile, which would save many launches.
"""

from dataclasses import dataclass

from training.config import RunConfig
from training.evaluate import FINAL_ROWS, ROWS_AT_ONCE
from training.presets import model_config, task_of
from training.sweep.flops import evaluation_flops, evaluations, row_length, step_flops

UTILISATION = 0.3  # of the peak, in products of a few hundred rows and columns
LAUNCH_SECONDS = 1e-5  # per kernel in eager PyTorch; a slow core with nothing to compute takes 11 to 20 us


@dataclass(frozen=True)
class Gpu:
    """Peak numbers from the maker's data sheet (dense, no sparsity), and what renting one typically costs."""

    memory_gb: int
    fp32_tflops: float  # outside the tensor cores
    bf16_tflops: float | None  # in the tensor cores; None if they have no bf16
    usd_per_hour: float  # typical list price on demand, machine included; providers differ by a factor of three
    fp16_tflops: float | None = None  # in the tensor cores, if it differs from bf16

    def tflops(self, precision: str) -> float:
        """The peak in a precision of DeviceOptions; that of fp32 if the GPU has no tensor cores for the precision."""
        halves = {"bf16": self.bf16_tflops, "fp16": self.fp16_tflops or self.bf16_tflops}
        return halves.get(precision) or self.fp32_tflops

    def seconds(self, flops: float, launches: int, precision: str = "fp32") -> float:
        """The seconds that so much work takes, by the model above."""
        peak = self.tflops(precision)
        return max(flops / (UTILISATION * peak * 1e12), launches * LAUNCH_SECONDS)


GPUS: dict[str, Gpu] = {
    "t4": Gpu(16, 8.1, None, 0.53, fp16_tflops=65.0),
    "v100": Gpu(16, 15.7, None, 3.06, fp16_tflops=125.0),
    "rtx3090": Gpu(24, 35.6, 71.0, 0.30),
    "rtx4090": Gpu(24, 82.6, 165.0, 0.50),
    "a6000": Gpu(48, 38.7, 155.0, 0.80),
    "a10g": Gpu(24, 35.0, 70.0, 1.01),
    "l4": Gpu(24, 30.3, 121.0, 0.80),
    "l40s": Gpu(48, 91.6, 362.0, 1.90),
    "a100": Gpu(80, 19.5, 312.0, 2.00),
    "h100": Gpu(80, 67.0, 989.0, 3.50),
}


def gpu_seconds(gpu: Gpu, config: RunConfig) -> float:
    """Seconds of a whole run: its steps, its evaluations and the final scores."""
    step = gpu.seconds(step_flops(config), step_launches(config), config.hardware.autocast)
    evaluation, final = (
        gpu.seconds(evaluation_flops(config, rows), evaluation_launches(config, rows))
        for rows in (config.record.eval_rows, FINAL_ROWS)
    )
    return config.optimiser.steps * step + evaluations(config) * evaluation + final


def bound_by_launches(gpu: Gpu, config: RunConfig) -> bool:
    """Whether a step is limited by launches and not by arithmetic, so that a faster GPU would not help."""
    flops, launches = step_flops(config), step_launches(config)
    return gpu.seconds(0.0, launches) >= gpu.seconds(flops, 0, config.hardware.autocast)


OTHER_LAUNCHES = 70  # in a step, outside the layers: batch, embedding, head, loss, clipping, AdamW


def step_launches(config: RunConfig) -> int:
    """About how many kernels a training step starts."""
    return _launches(config, config.optimiser.batch_size, row_length(config, "train"))


def evaluation_launches(config: RunConfig, rows: int) -> int:
    """About how many kernels are started to score `rows` rows of each split.

    A forward pass is a third of a training step, and each position takes a few more kernels to score.
    """
    lengths = [row_length(config, split) for split in task_of(config).splits]
    passes = -(-rows // ROWS_AT_ONCE)
    return sum(passes * _launches(config, min(rows, ROWS_AT_ONCE), n_pos) // 3 + 5 * n_pos for n_pos in lengths)


def _launches(config: RunConfig, rows: int, n_pos: int) -> int:
    cfg = model_config(config)
    return OTHER_LAUNCHES + cfg.n_layers * cfg.layer_launches(rows, n_pos)
