"""Products on the processor's matrix registers (Intel AMX), if it has them and the system permits their use."""
