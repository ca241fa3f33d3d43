"""XLM-RoBERTa (Conneau et al. 2019, arXiv 1911.02116): RoBERTa over a SentencePiece vocabulary of 100 languages."""

from __future__ import annotations

from volumetric.loaders.archs.roberta import build

__all__ = ["build"]
