"""GPUs of any vendor, and lavapipe, through Vulkan (SPIR-V)."""
