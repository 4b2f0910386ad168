"""The compiler's own passes: what any version of IREE and any device would need."""
