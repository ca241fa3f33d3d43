"""Neuroevolution: the rules of NEAT, and that runs can be repeated and resumed."""
