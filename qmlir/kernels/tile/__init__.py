"""One tile of a matrix product: the operands of a matrix instruction, and the lane and register of each element."""
