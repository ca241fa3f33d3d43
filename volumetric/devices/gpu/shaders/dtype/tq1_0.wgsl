// TQ1_0: its digits in base 3 are two bits each here, as in TQ2_0.
