"""Passes around faults and limits of what compiles and runs our programs, a package for each version of IREE."""
