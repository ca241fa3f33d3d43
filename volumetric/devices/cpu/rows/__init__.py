"""Operations on the rows of a call, as steps for the CPU."""
