"""GPU kernels as data: pure functions from shapes and device capabilities to `Dispatch` values; no GPU library."""
