"""Reports as HTML and as plots."""
