"""Steps of state-space layers on the rows of a call: a short convolution and a selective scan, with their states."""
