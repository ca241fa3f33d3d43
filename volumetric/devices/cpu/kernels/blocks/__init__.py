"""Panels of integer codes: unpacking in registers, writing from stored tensors, and reading back row by row."""
