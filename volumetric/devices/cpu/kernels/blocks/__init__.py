"""Panels of integer codes: taken apart in registers, written from stored tensors, and read back row by row."""
