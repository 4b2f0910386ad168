"""One tile of a matrix product: what an instruction multiplies, and where each lane keeps each element."""
