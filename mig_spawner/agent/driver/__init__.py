"""The port to a GPU's driver (`base`) and its adapters: `nvml` for real GPUs, `fake` for simulated ones."""
