"""Tools over compiled programs: measure, count, inspect."""
