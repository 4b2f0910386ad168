"""NVIDIA GPUs through CUDA (PTX)."""
