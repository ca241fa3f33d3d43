"""Products by the processor's matrix registers (Intel AMX), where it has them and the system lets them be used."""
