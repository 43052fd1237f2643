"""The simulator: many clients on this machine, as compiled JAX programs on all cores."""
