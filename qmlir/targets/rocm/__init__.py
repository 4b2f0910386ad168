"""AMD GPUs through HIP (HSACO)."""
