"""Fabrics: recurrent cells on a graph that exchange messages along its edges."""
