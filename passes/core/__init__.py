"""The compiler's own passes, which any version of IREE and any device would need."""
